//! While many requests are in flight, further ones on other targets share a call, and each gets its
//! own answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redisson_rate_limiter::{
    AnyPolicy, Decision, DecisionSource, Error, FailurePolicy, FixedWindow, Limiter,
    LimiterOptions, PolicyLimiter, RedissonClient, RedissonClientBuilder, Result,
};

use crate::by_hand::{Pending, poll_once};
use crate::every_policy::{every_policy, goes_alone};
use crate::fixture::{Fixture, HOUR, ms};
use crate::keys;
use crate::proxy::{Command, Fate, Proxy};
use crate::stopped_time::{StoppedTime, until};

/// While no more requests than this are in flight, each has a call of its own.
pub const FEW: usize = 16;
/// The most targets of one call.
const LARGEST: usize = 32;

/// A request on each of this many targets, all at the same time.
pub async fn on_each(
    limiter: &Arc<dyn Limiter>,
    targets: usize,
    cost: u32,
) -> Vec<Result<Decision>> {
    let asking: Vec<_> = (0..targets)
        .map(|target| {
            let limiter = Arc::clone(limiter);
            tokio::spawn(async move {
                limiter
                    .check_without_waiting(&format!("t{target}"), cost)
                    .await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for asking in asking {
        answers.push(asking.await.unwrap());
    }
    answers
}

pub fn script_calls(seen: &[Command]) -> usize {
    let is_script = |command: &&Command| ["EVALSHA", "EVAL"].contains(&command.name().as_str());
    seen.iter().filter(is_script).count()
}

/// Returns once the client knows that one server has all keys.
pub async fn until_shared(client: &RedissonClient, proxy: &Proxy) {
    let is_shared = |call: &Command| call.name().starts_with("EVAL") && call.0[2] != b"1";
    until_known(client, || proxy.take_seen().iter().any(is_shared)).await;
}

/// Returns once the client knows that one server has all keys, which `is_shared` shows.
pub async fn until_known(client: &RedissonClient, is_shared: impl Fn() -> bool) {
    let policy = FixedWindow::new(1_000_000, HOUR);
    let limiter = client.policy_limiter(policy).unwrap();
    let limiter: Arc<dyn Limiter> = Arc::new(limiter.with_prefix("before:"));
    for _ in 0..1_000 {
        on_each(&limiter, 4 * FEW, 1).await; // whatever their results
        if is_shared() {
            return;
        }
    }
    panic!("no call is shared");
}

fn by(client: &RedissonClient, policy: AnyPolicy) -> Arc<dyn Limiter> {
    Arc::new(client.policy_limiter(policy).unwrap())
}

#[tokio::test]
async fn each_target_of_a_shared_call_has_its_own_answer() {
    for (policy, unit) in every_policy(3) {
        let fixture = Fixture::start().await;
        let proxy = Proxy::to(fixture.server.port()).await;
        let client = fixture.builder().connect(&proxy.url()).await.unwrap();
        until_shared(&client, &proxy).await;
        let limiter = by(&client, policy.clone());
        // Both scripts are known to the server from here on.
        for granted in on_each(&limiter, FEW + 2, unit).await {
            assert!(granted.unwrap().is_granted(), "{policy}");
        }
        proxy.take_seen();

        // At most one of three is in use on each target, so two fit on all.
        let targets = FEW + LARGEST + 1;
        for granted in on_each(&limiter, targets, 2 * unit).await {
            assert!(granted.unwrap().is_granted(), "{policy}");
        }
        let calls = script_calls(&proxy.take_seen());
        let expected = if goes_alone(&policy) {
            targets
        } else {
            FEW + 2
        };
        assert_eq!(calls, expected, "{policy}");

        for (target, answer) in on_each(&limiter, targets, unit)
            .await
            .into_iter()
            .enumerate()
        {
            let is_granted = answer.unwrap().is_granted();
            assert_eq!(is_granted, target >= FEW + 2, "{policy}, target {target}");
        }
        for denied in on_each(&limiter, targets, unit).await {
            assert!(!denied.unwrap().is_granted(), "{policy}");
        }
        for above in on_each(&limiter, targets, 4 * unit).await {
            assert!(matches!(above, Err(Error::ExceedsLimit { .. })), "{policy}");
        }
    }
}

#[tokio::test]
async fn limiters_of_several_policies_share_a_call() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = fixture.builder().connect(&proxy.url()).await.unwrap();
    until_shared(&client, &proxy).await;
    let (mut limiters, mut units) = (Vec::<Arc<dyn Limiter>>::new(), Vec::new());
    for (number, (policy, unit)) in every_policy(2).enumerate() {
        units.push(unit);
        let limiter = client.policy_limiter(policy).unwrap();
        let limiter = limiter.with_prefix(format!("{number}:"));
        limiters.push(Arc::new(limiter.with_penalty(HOUR).unwrap()));
    }
    let targets = 2 * FEW;
    for is_granted in [true, false] {
        let asking: Vec<_> = (0..targets)
            .map(|target| {
                let limiter = Arc::clone(&limiters[target % limiters.len()]);
                let unit = units[target % units.len()];
                tokio::spawn(async move {
                    limiter
                        .check_without_waiting(&format!("t{target}"), 2 * unit)
                        .await
                })
            })
            .collect();
        for (target, asking) in asking.into_iter().enumerate() {
            let decision = asking.await.unwrap().unwrap();
            assert_eq!(decision.is_granted(), is_granted, "{target}");
        }
    }
    let calls = proxy.take_seen();
    let largest = calls.iter().filter(|call| call.name() == "EVALSHA");
    let largest = largest.map(|call| {
        call.0
            .iter()
            .filter(|word| word.ends_with(b"_bucket"))
            .count()
    });
    assert!(largest.max() > Some(1), "one call has several policies");
}

#[tokio::test]
async fn requests_on_a_target_are_decided_in_order_whatever_calls_carry_them() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = prepared(fixture.builder(), &fixture, &proxy).await;
    let limiter = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let mut asking = Vec::new();
    for request in 0..10 {
        for target in 0..2 * FEW {
            let limiter = limiter.clone();
            let asked = async move { limiter.check(&format!("t{target}"), 1).await };
            asking.push((request, tokio::spawn(asked)));
        }
    }
    for (request, asked) in asking {
        let decision = asked.await.unwrap().unwrap();
        assert_eq!(decision.is_granted(), request < 5);
    }
}

#[tokio::test]
async fn an_error_of_one_target_does_not_affect_the_others_of_its_call() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = prepared(fixture.builder(), &fixture, &proxy).await;
    let limiter = by(&client, FixedWindow::new(5, HOUR).into());
    let (bad, wrong) = (FEW + 3, FEW + 5);
    fixture.run(&["SET", &format!("t{bad}"), "many"]).await;
    fixture.run(&["SADD", &format!("t{wrong}"), "member"]).await;
    for _ in 0..2 {
        let answers = on_each(&limiter, FEW + 8, 1).await;
        for (target, answer) in answers.into_iter().enumerate() {
            if target == bad || target == wrong {
                let name = format!("t{target}");
                assert!(matches!(answer, Err(Error::BadState { name: of, .. }) if of == name));
            } else {
                assert!(answer.unwrap().is_granted());
            }
        }
    }
    assert_eq!(fixture.text(&format!("t{bad}")).await.unwrap(), "many");
}

#[tokio::test]
async fn a_call_that_is_refused_for_one_target_is_made_for_each_alone() {
    let mut fixture = Fixture::start().await;
    let denied = FEW + 3;
    let mut command = ["ACL", "SETUSER", "worker", "on", ">password", "+@all"]
        .map(String::from)
        .to_vec();
    let allowed = (0..FEW + 8).filter(|&target| target != denied);
    command.extend(allowed.map(|target| format!("~t{target}")));
    command.push("~before:*".to_owned());
    fixture
        .run(&command.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let url = format!("redis://worker:password@127.0.0.1:{}", proxy.port());
    let client = fixture.builder().connect(&url).await.unwrap();
    until_shared(&client, &proxy).await;
    let limiter = by(&client, FixedWindow::new(1, HOUR).into());
    for is_granted in [true, false] {
        let answers = on_each(&limiter, FEW + 8, 1).await;
        for (target, answer) in answers.into_iter().enumerate() {
            if target == denied {
                assert!(matches!(answer, Err(Error::PermissionDenied { .. })));
            } else {
                assert_eq!(answer.unwrap().is_granted(), is_granted, "{target}");
            }
        }
    }
}

/// This many requests, each polled once and left alone: those that follow share calls.
async fn left_alone<'a>(
    limiter: &'a PolicyLimiter<FixedWindow>,
    proxy: &Proxy,
) -> Vec<Pending<'a, Result<Decision>>> {
    proxy.take_seen();
    let mut asking = Vec::new();
    for target in [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p",
    ] {
        let mut asked = Box::pin(limiter.check(target, 1));
        assert!(poll_once(&mut asked).is_none());
        asking.push(asked as Pending<'_, _>);
    }
    assert_eq!(asking.len(), FEW);
    let sent = AtomicUsize::new(0);
    let are_sent = async || {
        let now = script_calls(&proxy.take_seen());
        sent.fetch_add(now, Ordering::Relaxed) + now >= FEW
    };
    until("each is sent alone", are_sent).await;
    asking
}

/// A client whose server has the scripts, and which knows the server's time and that it has all
/// keys.
async fn prepared(
    builder: RedissonClientBuilder,
    fixture: &Fixture,
    proxy: &Proxy,
) -> RedissonClient {
    let patient = fixture.builder().connect(&proxy.url()).await.unwrap();
    until_shared(&patient, proxy).await;
    let client = builder.connect(&proxy.url()).await.unwrap();
    until_shared(&client, proxy).await;
    client
}

#[tokio::test]
async fn a_shared_call_whose_answer_is_lost_charges_once_at_most() {
    for (fate, charged) in [(Fate::CutBeforeAnswer, 1), (Fate::CutBeforeServer, 0)] {
        let fixture = Fixture::start().await;
        let proxy = Proxy::to(fixture.server.port()).await;
        let builder = fixture.builder().response_timeout(ms(10_000));
        let client = prepared(builder, &fixture, &proxy).await;
        let limiter = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
        let all: Arc<dyn Limiter> = Arc::new(limiter.clone());
        let _left_alone = left_alone(&limiter, &proxy).await;
        proxy.next("EVALSHA", fate);
        for answer in on_each(&all, 8, 1).await {
            let is_lost = matches!(answer, Err(Error::Indeterminate { .. }));
            assert!(is_lost, "{fate:?}: {answer:?}");
        }
        for answer in on_each(&all, 8, 1).await {
            assert_eq!(answer.unwrap().remaining(), 5 - charged - 1, "{fate:?}");
        }
    }
}

#[tokio::test]
async fn each_caller_of_a_lost_call_gets_what_its_failure_policy_says() {
    for (policy, is_granted) in [(FailurePolicy::Allow, true), (FailurePolicy::Deny, false)] {
        let mut fixture = Fixture::start().await;
        let proxy = Proxy::to(fixture.server.port()).await;
        let options = LimiterOptions::new().failure_policy(policy);
        let builder = fixture.builder().default_options(options);
        let client = prepared(builder, &fixture, &proxy).await;
        let limiter = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
        let all: Arc<dyn Limiter> = Arc::new(limiter.clone());
        let _left_alone = left_alone(&limiter, &proxy).await;
        proxy.next("EVALSHA", Fate::CutBeforeAnswer);
        for answer in on_each(&all, 8, 1).await {
            let decision = answer.unwrap();
            assert_eq!(decision.is_granted(), is_granted);
            assert_eq!(decision.source(), DecisionSource::FailurePolicy);
        }
        for target in 0..8 {
            let charged = fixture.text(&format!("t{target}")).await;
            assert_eq!(charged.as_deref(), Some("1"));
        }
    }
}

#[tokio::test]
async fn a_shared_call_that_comes_late_charges_nothing() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let builder = RedissonClient::builder().response_timeout(ms(150));
    let client = prepared(builder, &fixture, &proxy).await;
    let limiter = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let all: Arc<dyn Limiter> = Arc::new(limiter.clone());
    // The time of the calls passes once they are sent, however long the machine takes to do so.
    let time = StoppedTime::stop();
    let _left_alone = left_alone(&limiter, &proxy).await;
    proxy.next("EVALSHA", Fate::Held);
    let (answers, held) = tokio::join!(on_each(&all, 4, 1), async {
        let held = proxy.held().await;
        time.resume();
        held
    });
    for answer in answers {
        assert!(matches!(answer, Err(Error::Indeterminate { .. })));
    }
    assert_eq!(held.command.0[2], b"4");
    keys::deadline_passed(&mut fixture.raw).await;
    held.let_through().await;
    for target in 0..4 {
        assert_eq!(fixture.text(&format!("t{target}")).await, None);
    }
}

#[tokio::test]
async fn one_target_that_several_limiters_share_is_charged_for_each_request() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = prepared(fixture.builder(), &fixture, &proxy).await;
    let limiter = client.policy_limiter(FixedWindow::new(3, HOUR)).unwrap();
    let _left_alone = left_alone(&limiter, &proxy).await;
    let asking: Vec<_> = (0..5)
        .map(|_| {
            let other = client.policy_limiter(FixedWindow::new(3, HOUR)).unwrap();
            tokio::spawn(async move { other.check("target", 1).await })
        })
        .collect();
    let mut granted = Vec::new();
    for asked in asking {
        granted.push(asked.await.unwrap().unwrap().is_granted());
    }
    assert_eq!(granted, [true, true, true, false, false]);
    assert_eq!(fixture.text("target").await.unwrap(), "3");
    let seen = proxy.take_seen();
    let keys: Vec<_> = seen.iter().map(|call| &call.0[2][..]).collect();
    assert_eq!(keys, [b"5"]);
}

#[tokio::test]
async fn callers_that_leave_before_a_call_is_sent_take_nothing_from_the_others() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = prepared(fixture.builder(), &fixture, &proxy).await;
    let limiter = client.policy_limiter(FixedWindow::new(3, HOUR)).unwrap();
    let left_alone = left_alone(&limiter, &proxy).await;
    let mut leaves = Box::pin(limiter.check("leaves", 1));
    assert!(poll_once(&mut leaves).is_none());
    let mut stays = Box::pin(limiter.check("stays", 1));
    assert!(poll_once(&mut stays).is_none());
    drop(leaves);
    assert_eq!(stays.await.unwrap().remaining(), 2);
    for asked in left_alone {
        assert!(asked.await.unwrap().is_granted());
    }
    let charged = fixture.text("leaves").await;
    assert!(
        matches!(charged.as_deref(), None | Some("1")),
        "{charged:?}"
    );
    assert_eq!(fixture.text("stays").await.unwrap(), "1");
}

#[tokio::test]
async fn a_server_that_has_lost_its_scripts_gets_them_again() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = prepared(fixture.builder(), &fixture, &proxy).await;
    let limiter = by(&client, FixedWindow::new(2, HOUR).into());
    for is_granted in [true, true, false] {
        fixture.run(&["SCRIPT", "FLUSH"]).await;
        for answer in on_each(&limiter, 4 * FEW, 1).await {
            assert_eq!(answer.unwrap().is_granted(), is_granted);
        }
    }
    for target in 0..4 * FEW {
        assert_eq!(fixture.text(&format!("t{target}")).await.unwrap(), "2");
    }
}

#[tokio::test]
async fn a_call_that_is_not_shared_does_not_overtake_one_that_is() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = prepared(fixture.builder(), &fixture, &proxy).await;
    let limiter = client.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
    let _left_alone = left_alone(&limiter, &proxy).await;
    // The first shares a call. The others follow in one of their own, because they differ in cost.
    let asking = [1, 2, 1].map(|cost| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check("target", cost).await })
    });
    let mut granted = Vec::new();
    for asked in asking {
        granted.push(asked.await.unwrap().unwrap().is_granted());
    }
    assert_eq!(granted, [true, false, true]);
}

#[tokio::test]
async fn a_shared_call_that_a_replica_refuses_is_made_again_for_each_target() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = prepared(fixture.builder(), &fixture, &proxy).await;
    let limiter = client.policy_limiter(FixedWindow::new(5, HOUR)).unwrap();
    let all: Arc<dyn Limiter> = Arc::new(limiter.clone());
    let _left_alone = left_alone(&limiter, &proxy).await;
    fixture.run(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let asking = tokio::spawn(async move { on_each(&all, 8, 1).await });
    // A target that is asked for alone again is refused, and another connection asks the server for
    // its role.
    let is_refused = async || {
        let has_asked = proxy.take_names().iter().any(|name| name == "ROLE");
        has_asked || asking.is_finished()
    };
    until("the shared call is refused", is_refused).await;
    fixture.run(&["REPLICAOF", "NO", "ONE"]).await;
    for answer in asking.await.unwrap() {
        assert_eq!(answer.unwrap().remaining(), 4);
    }
}

#[tokio::test]
async fn a_peek_or_a_reset_among_many_requests_charges_nothing() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let client = prepared(fixture.builder(), &fixture, &proxy).await;
    let limiter = client.policy_limiter(FixedWindow::new(3, HOUR)).unwrap();
    assert_eq!(limiter.check("used", 1).await.unwrap().remaining(), 2);
    let _left_alone = left_alone(&limiter, &proxy).await;
    assert_eq!(limiter.peek("peeked", 1).await.unwrap().remaining(), 2);
    assert!(limiter.reset("used").await.unwrap());
    assert_eq!(fixture.text("peeked").await, None);
    assert_eq!(fixture.text("used").await, None);
}
