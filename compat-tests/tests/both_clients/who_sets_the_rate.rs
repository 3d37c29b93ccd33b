//! A rate that Java has set is Java's: requests here that name a rate create a limiter that is
//! missing, as `trySetRate` does, and leave one that exists as it is.

use std::time::Duration;

use compat_tests::{Both, Pair, Peer, redisson::Version};
use redisson_rate_limiter::{AnyPolicy, Error, Rate, Result, TimeToLive};

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
const NAME: &str = "orders:api";

/// The forms of requests that name a rate.
const FORMS: [Form; 4] = [
    Form::WithRate,
    Form::Joint,
    Form::SharedRate,
    Form::JointSharedRate,
];

#[derive(Debug, Clone, Copy)]
enum Form {
    WithRate,
    Joint,
    SharedRate,
    JointSharedRate,
}

/// Asks for a permit of the limiter, which gets this rate if it is missing.
async fn ask(both: &Both, form: Form, rate: Rate) -> Result<bool> {
    let limiter = both.rust.rate_limiter(NAME).with_rate(rate)?;
    let (prefix, key) = NAME.split_at(7);
    let shared = both.rust.policy_limiter(AnyPolicy::from(rate))?;
    let shared = shared.with_prefix(prefix);
    let charge = match form {
        Form::WithRate => return limiter.try_acquire(1).await,
        Form::SharedRate => return Ok(shared.check(key, 1).await?.is_granted()),
        Form::Joint => limiter.charge(1)?,
        Form::JointSharedRate => shared.charge(key, 1)?,
    };
    Ok(both.rust.check_all([charge]).await?.is_granted())
}

/// The settings, as Redis has them.
async fn settings(both: &mut Both) -> Vec<(String, String)> {
    let mut command = redis::cmd("HGETALL");
    let mut fields: Vec<(String, String)> = command
        .arg(NAME)
        .query_async(&mut both.redis)
        .await
        .unwrap();
    fields.sort();
    fields
}

async fn does_not_expire(limiter: &Pair) {
    let left = limiter.rust.remain_time_to_live().await.unwrap();
    assert_eq!(left, TimeToLive::Unlimited);
    assert_eq!(limiter.java.remain_time_to_live().await.unwrap(), -1);
}

#[tokio::test]
async fn where_java_comes_first_its_rate_stays() {
    Both::each(Version::ALL, async |mut both| {
        let limiter = both.limiter(NAME);
        for java in [Rate::overall(3, HOUR), Rate::per_client(3, HOUR)] {
            for form in FORMS {
                limiter.rust.delete().await.unwrap();
                assert!(limiter.try_set_rate(Peer::Java, java).await);
                let before = settings(&mut both).await;
                for _ in 0..3 {
                    let granted = ask(&both, form, Rate::overall(50, SECOND)).await;
                    assert!(granted.unwrap(), "{java}, {form:?}");
                }
                let granted = ask(&both, form, Rate::overall(50, SECOND)).await;
                assert!(!granted.unwrap(), "{java}, {form:?}");
                assert_eq!(settings(&mut both).await, before, "{java}, {form:?}");
                does_not_expire(&limiter).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn where_this_crate_comes_first_java_finds_a_limiter_that_lasts() {
    Both::each(Version::ALL, async |mut both| {
        let (limiter, rate) = (both.limiter(NAME), Rate::overall(3, SECOND));
        for form in FORMS {
            limiter.rust.delete().await.unwrap();
            assert!(ask(&both, form, rate).await.unwrap(), "{form:?}");
            let other = Rate::overall(9, HOUR);
            assert!(!limiter.try_set_rate(Peer::Java, other).await, "{form:?}");
            // However long nobody asks, it is there.
            does_not_expire(&limiter).await;
            both.age(NAME, 60_000).await;
            assert!(limiter.try_acquire(Peer::Java, 3).await, "{form:?}");
            does_not_expire(&limiter).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_rate_that_java_changes_holds_at_once_and_a_rate_of_0_stops_all() {
    Both::each(Version::ALL, async |mut both| {
        let (limiter, rate) = (both.limiter(NAME), Rate::overall(50, HOUR));
        for form in FORMS {
            limiter.rust.delete().await.unwrap();
            assert!(ask(&both, form, rate).await.unwrap(), "{form:?}");
            limiter.set_rate(Peer::Java, Rate::overall(0, HOUR)).await;
            let before = settings(&mut both).await;
            for stopped in FORMS {
                let refused = ask(&both, stopped, rate).await;
                assert!(
                    matches!(refused, Err(Error::ExceedsLimit { limit: 0, .. })),
                    "{stopped:?}: {refused:?}"
                );
            }
            assert_eq!(settings(&mut both).await, before, "{form:?}");
            limiter.set_rate(Peer::Java, Rate::overall(2, HOUR)).await;
            for expected in [true, true, false] {
                assert_eq!(ask(&both, form, rate).await.unwrap(), expected, "{form:?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn of_an_emptied_server_the_next_request_makes_a_limiter_for_java_too() {
    Both::each(Version::ALL, async |mut both| {
        let (limiter, rate) = (both.limiter(NAME), Rate::overall(3, HOUR));
        for form in FORMS {
            limiter.rust.delete().await.unwrap();
            assert!(limiter.try_set_rate(Peer::Java, rate).await);
            assert!(limiter.try_acquire(Peer::Java, 3).await);
            // As after a restart without its data.
            for words in [&["FLUSHALL"][..], &["SCRIPT", "FLUSH"]] {
                let mut command = redis::Cmd::new();
                command.arg(words);
                command.exec_async(&mut both.redis).await.unwrap();
            }
            assert!(ask(&both, form, rate).await.unwrap(), "{form:?}");
            assert!(limiter.try_acquire(Peer::Java, 2).await, "{form:?}");
            assert!(!limiter.try_acquire(Peer::Java, 1).await, "{form:?}");
            does_not_expire(&limiter).await;
        }
    })
    .await;
}
