//! Keys with contents that no limiter wrote are an error, and nothing is written.

use std::fmt::Debug;

use redisson_rate_limiter::{Error, FixedWindow, Rate, RateLimiter, Result, TokenBucket};

use crate::bad_state::assert_all_that_count_are_refused;
use crate::fixture::{Fixture, HOUR, SECOND};
use crate::key_types::kinds;
use crate::peer::Peer;

/// What Lua reads as the number 6 and Redis's own commands do not.
const ODD_SIXES: [&str; 8] = ["6.0", " 6", "6 ", "0x6", "6e0", "+6", "06", "-0"];

/// A limiter in good order, of which 4 of 10 are in use, and a peer on its keys.
struct InUse {
    limiter: RateLimiter,
    peer: Peer,
    name: String,
    value: String,
    permits: String,
}

impl InUse {
    async fn on(fixture: &Fixture) -> Self {
        let limiter = fixture.limiter().await;
        limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
        assert!(limiter.try_acquire(4).await.unwrap());
        let name = fixture.name().to_owned();
        Self {
            limiter,
            peer: fixture.peer().await,
            value: format!("{{{name}}}:value"),
            permits: format!("{{{name}}}:permits"),
            name,
        }
    }

    async fn everything(&mut self) -> Vec<(Option<Vec<u8>>, bool)> {
        let keys = [&*self.name, &*self.value, &*self.permits];
        self.peer.everything(&keys).await
    }
}

fn assert_bad_state<T: Debug>(method: &str, result: Result<T>) {
    assert!(
        matches!(&result, Err(Error::BadState { .. })),
        "{method}: {result:?}"
    );
}

pub async fn a_number_that_only_lua_reads_is_refused(fixture: Fixture) {
    for odd in ODD_SIXES {
        for field in ["", "rate", "interval", "keepAliveTime"] {
            let mut in_use = InUse::on(&fixture).await;
            match field {
                "" => in_use.peer.tell(&["SET", &in_use.value, odd]).await,
                field => {
                    let command = ["HSET", &in_use.name, field, odd];
                    in_use.peer.tell(&command).await;
                }
            }
            let before = in_use.everything().await;
            assert_all_that_count_are_refused(&in_use.limiter).await;
            // Also for a client that has not audited the limiter.
            assert_all_that_count_are_refused(&fixture.limiter().await).await;
            assert_eq!(in_use.everything().await, before, "{field} {odd:?}");
        }
    }
}

pub async fn a_live_grant_whose_score_is_no_time_is_refused(fixture: Fixture) {
    for score in ["inf", "1e300", "9007199254740992"] {
        let mut in_use = InUse::on(&fixture).await;
        let mut member = vec![16];
        member.extend([7; 16]);
        member.extend(6_u32.to_le_bytes());
        let mut command = redis::cmd("ZADD");
        command.arg(&in_use.permits).arg(score).arg(member);
        assert_eq!(in_use.peer.run::<u32>(&command).await, 1);
        // Without the well-formed member, the other one is the oldest.
        let oldest = ["ZREMRANGEBYRANK", &in_use.permits, "0", "0"];
        in_use.peer.tell(&oldest).await;
        in_use.peer.tell(&["SET", &in_use.value, "0"]).await;
        let before = in_use.everything().await;
        assert_all_that_count_are_refused(&in_use.limiter).await;
        assert_all_that_count_are_refused(&fixture.limiter().await).await;
        assert_eq!(in_use.everything().await, before, "{score}");
    }
}

pub async fn in_a_joint_decision_a_number_that_only_lua_reads_charges_no_limiter(fixture: Fixture) {
    let client = fixture.client("client").await;
    let window = client.policy_limiter(FixedWindow::new(5, SECOND)).unwrap();
    let limiter = client.rate_limiter(fixture.name());
    let other_key = format!("{{{}}}:other", fixture.name());
    for odd in ODD_SIXES {
        let mut in_use = InUse::on(&fixture).await;
        in_use.peer.tell(&["SET", &in_use.value, odd]).await;
        let before = in_use.everything().await;
        let charges = [window.charge(&other_key, 1), limiter.charge(1)];
        let both = client.check_all(charges.map(Result::unwrap)).await;
        assert_bad_state("check_all", both);
        assert_eq!(in_use.everything().await, before, "{odd:?}");
        assert_eq!(in_use.peer.ask::<u32>(&["EXISTS", &other_key]).await, 0);
    }
}

pub async fn a_counter_that_only_lua_reads_is_refused_and_nobody_is_charged(fixture: Fixture) {
    let client = fixture.client("client").await;
    let mut peer = fixture.peer().await;
    let other = client
        .policy_limiter(TokenBucket::per_second(1).with_capacity(9))
        .unwrap();
    let key = format!("{{{}}}:key", fixture.name());
    let (start, other_key) = (format!("{key}-st"), format!("{key}:other"));
    let kinds = kinds(&client).into_iter();
    for limiter in kinds.filter(|kind| kind.own.is_a_string()) {
        for odd in ODD_SIXES {
            peer.tell(&["DEL", &key, &start, &other_key]).await;
            // The sibling key with the start, if the kind has one.
            peer.tell(&["SET", &start, "1000"]).await;
            peer.tell(&["SET", &key, odd]).await;
            let keys = [&*key, &*start, &*other_key];
            let before = peer.everything(&keys).await;
            assert_bad_state("check", limiter.check(&key, 1).await);
            let charges = [other.charge(&other_key, 1), limiter.charge(&key, 1)];
            let joint = client.check_all(charges.map(Result::unwrap)).await;
            assert_bad_state("check_all", joint);
            assert_eq!(peer.everything(&keys).await, before, "{odd:?}");
        }
    }
}
