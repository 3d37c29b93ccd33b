//! Whatever is lost on the way, a granted request takes its permits once, and any other request
//! takes none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisFuture, Value};
use redisson_rate_limiter::{Decision, Error, Grant, Granted, Rate, RateLimiter, RedissonClient};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, HOUR, NAME, PERMITS, SECOND, VALUE, ms};
use crate::keys;
use crate::multi_check::until_known;
use crate::proxy::{Command, Fate, Proxy};
use crate::support::{KEEPS_DATA, Server};

/// A limiter behind a proxy, whose client has made its first calls.
async fn behind(proxy: &Proxy, fixture: &Fixture, rate: u64) -> RateLimiter {
    let builder = fixture.builder().response_timeout(ms(10_000));
    let limiter = builder
        .connect(&proxy.url())
        .await
        .unwrap()
        .rate_limiter(NAME);
    limiter.set_rate(Rate::overall(rate, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    limiter.release(1).await.unwrap();
    proxy.take_seen();
    limiter
}

/// How many script calls were sent, without the commands of a new connection.
fn scripts_run(proxy: &Proxy) -> usize {
    let seen = proxy.take_seen();
    let is_call = |command: &&Command| command.name() == "EVALSHA" || command.has_text();
    seen.iter().filter(is_call).count()
}

#[tokio::test]
async fn an_acquire_whose_answer_was_lost_is_granted_what_it_took_when_resent() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 5).await;
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    // 3 of 5, so that the rest is not enough for another 3.
    let Decision::Granted(Granted {
        grant, remaining, ..
    }) = limiter.check(3).await.unwrap()
    else {
        panic!("it was denied");
    };
    assert_eq!((grant.permits(), remaining), (3, 2));
    assert_eq!(fixture.value().await.as_deref(), Some("2"));
    assert_eq!(fixture.grants().await, [(1_000, 3)]);
    let sent = proxy.take_seen();
    let acquires: Vec<_> = sent.iter().filter(|c| c.name() == "EVALSHA").collect();
    assert_eq!(acquires.len(), 2);
    assert_eq!(
        acquires[0].script_argument(2),
        acquires[1].script_argument(2)
    );
    // The grant is the one that the first attempt took.
    assert_eq!(limiter.refund(grant).await.unwrap(), 3);
    assert_eq!(fixture.value().await.as_deref(), Some("5"));
    assert_eq!(fixture.grants().await, []);
}

#[tokio::test]
async fn an_acquire_resent_while_the_clock_moved_on_keeps_its_first_score() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 5).await;
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    proxy.next("EVALSHA", Fate::Held);
    let (answer, ()) = tokio::join!(limiter.try_acquire(2), async {
        let held = proxy.held().await;
        fixture.at(1_700);
        held.let_through().await;
    });
    assert!(answer.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("3"));
    assert_eq!(fixture.grants().await, [(1_000, 2)]);
}

#[tokio::test]
async fn an_acquire_that_did_not_reach_the_server_is_sent_again() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 5).await;
    for _ in 0..3 {
        proxy.next("EVALSHA", Fate::CutBeforeServer);
    }
    assert!(limiter.try_acquire(3).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("2"));
    assert_eq!(fixture.grants().await, [(1_000, 3)]);
}

#[tokio::test]
async fn a_denial_whose_answer_was_lost_is_a_denial_again() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 5).await;
    assert!(limiter.try_acquire(3).await.unwrap());
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    assert!(!limiter.try_acquire(3).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("2"));
    assert_eq!(fixture.grants().await, [(1_000, 3)]);
}

#[tokio::test]
async fn a_resent_combined_call_gives_each_request_the_answer_it_had() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 20).await;
    proxy.next("EVALSHA", Fate::Held); // the first one's own call: the others come together behind it
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    let asked = [1, 7, 4, 9, 3, 3, 2, 8, 1, 1];
    let tasks = asked.map(|permits| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.try_acquire(permits).await.unwrap() })
    });
    proxy.held().await.let_through().await;
    let mut granted = Vec::new();
    for task in tasks {
        granted.push(task.await.unwrap());
    }
    // Of 20, the requests for 1, 7 and 4 leave 8; 9 does not fit; 3, 3 and 2 fit, and nothing is
    // left.
    let expected = [
        true, true, true, false, true, true, true, false, false, false,
    ];
    assert_eq!(granted, expected);
    assert_eq!(fixture.value().await.as_deref(), Some("0"));
    assert_eq!(
        fixture
            .grants()
            .await
            .iter()
            .map(|(_, permits)| permits)
            .sum::<u32>(),
        20
    );
    assert_eq!(scripts_run(&proxy), 3);
}

#[tokio::test]
async fn a_release_whose_answer_was_lost_is_not_sent_again() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 10).await;
    assert!(limiter.try_acquire(8).await.unwrap());
    proxy.take_seen();
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    let error = limiter.release(2).await;
    assert!(
        matches!(error, Err(Error::Indeterminate { .. })),
        "{error:?}"
    );
    assert_eq!(fixture.value().await.as_deref(), Some("4"));
    assert_eq!(scripts_run(&proxy), 1);
}

#[tokio::test]
async fn a_refund_whose_answer_was_lost_gave_back_once() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 10).await;
    let Decision::Granted(Granted { grant, .. }) = limiter.check(8).await.unwrap() else {
        panic!("it was denied");
    };
    // The server does not have its script yet.
    proxy.next("EVAL", Fate::CutBeforeAnswer);
    let answer = limiter.refund(grant).await;
    assert!(
        matches!(answer, Ok(8) | Err(Error::Indeterminate { .. })),
        "{answer:?}"
    );
    assert_eq!(fixture.value().await.as_deref(), Some("10"));
    assert_eq!(fixture.grants().await, []);
}

#[tokio::test]
async fn a_refund_or_settlement_that_found_no_server_can_be_made_again() {
    let mut server = Server::start_with(&KEEPS_DATA);
    let client = RedissonClient::builder().response_timeout(ms(2_000));
    let client = client.connect(&server.url()).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(20, HOUR)).await.unwrap();
    let mut grants = Vec::new();
    for permits in [3, 5, 7] {
        let decision = limiter.check(permits).await.unwrap();
        grants.push(decision.into_grant().unwrap());
    }
    let [refunded, less, more] = <[Grant; 3]>::try_from(grants).unwrap();
    server.signal("KILL");
    let _lost_with_its_connection = client.ping().await.unwrap_err();
    let refused = |error: Error| {
        assert!(matches!(error, Error::StoreUnavailable { .. }), "{error:?}");
    };
    refused(limiter.refund(refunded.clone()).await.unwrap_err());
    refused(limiter.settle(less.clone(), 1).await.unwrap_err());
    refused(limiter.settle(more.clone(), 9).await.unwrap_err());

    server.start_again();
    while client.ping().await.is_err() {}
    for once in [3, 0] {
        let back = limiter.refund(refunded.clone()).await.unwrap();
        limiter.settle(less.clone(), 1).await.unwrap();
        limiter.settle(more.clone(), 9).await.unwrap();
        assert_eq!(back, once);
        assert_eq!(limiter.available_permits().await.unwrap(), 10); // 1 and 9 are in use
    }
}

#[tokio::test]
async fn a_rate_that_was_set_without_an_answer_is_not_set_twice() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 10).await;
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    let error = limiter.set_rate(Rate::overall(7, SECOND)).await;
    assert!(
        matches!(error, Err(Error::Indeterminate { .. })),
        "{error:?}"
    );
    assert_eq!(scripts_run(&proxy), 1);
    assert_eq!(
        limiter.config().await.unwrap(),
        Some(Rate::overall(7, SECOND))
    );
    assert_eq!(fixture.value().await, None);
}

#[tokio::test]
async fn a_call_that_only_reads_is_sent_until_it_is_answered() {
    let fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 10).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    assert_eq!(limiter.available_permits().await.unwrap(), 10);
    proxy.next("HMGET", Fate::CutBeforeAnswer);
    assert!(limiter.config().await.unwrap().is_some());
    proxy.next("PTTL", Fate::CutBeforeServer);
    assert!(limiter.exists().await.unwrap());
}

#[tokio::test]
async fn a_debt_whose_answer_was_lost_or_that_did_not_arrive_is_taken_once() {
    for fate in [Fate::CutBeforeAnswer, Fate::CutBeforeServer] {
        let mut fixture = Fixture::start().await;
        let proxy = Proxy::to(fixture.server.port()).await;
        let limiter = behind(&proxy, &fixture, 5).await;
        let estimate = limiter.check(3).await.unwrap().into_grant().unwrap();
        proxy.next("EVALSHA", fate);
        limiter.settle(estimate, 9).await.unwrap();
        assert_eq!(fixture.value().await.as_deref(), Some("-4"));
        fixture.at(1_100);
        assert!(!limiter.try_acquire(1).await.unwrap());
        let mut grants = fixture.grants().await;
        grants.sort();
        assert_eq!(grants, [(1_000, 3), (1_000, 6)]);
    }
}

#[tokio::test]
async fn debts_at_the_same_time_are_all_taken() {
    let mut fixture = Fixture::start().await;
    let proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 20).await;
    let mut estimates = Vec::new();
    for _ in 0..5 {
        estimates.push(limiter.check(1).await.unwrap().into_grant().unwrap());
    }
    let settling = estimates.into_iter().zip(2..).map(|(estimate, used)| {
        let limiter = limiter.clone();
        async move { limiter.settle(estimate, used).await.unwrap() }
    });
    let settling: JoinSet<_> = settling.collect();
    settling.join_all().await;
    // Of 20, five were taken before, and then 1, 2, 3, 4 and 5.
    assert_eq!(fixture.value().await.as_deref(), Some("0"));
}

#[tokio::test]
async fn a_debt_whose_caller_is_gone_stays_taken() {
    let mut fixture = Fixture::start().await;
    let mut proxy = Proxy::to(fixture.server.port()).await;
    let limiter = behind(&proxy, &fixture, 5).await;
    let estimate = limiter.check(3).await.unwrap().into_grant().unwrap();
    proxy.next("EVALSHA", Fate::Held);
    let settling = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.settle(estimate, 9).await }
    });
    let held = proxy.held().await;
    settling.abort();
    assert!(settling.await.unwrap_err().is_cancelled());
    held.let_through().await;
    assert!(!limiter.try_acquire(1).await.unwrap());
    assert_eq!(fixture.value().await.as_deref(), Some("-4"));
}

/// A connection that sends each command twice and returns the second answer, like a connection that
/// repeats commands by itself.
#[derive(Clone)]
struct Twice {
    connection: MultiplexedConnection,
    /// The number of words of the largest command.
    words: Arc<AtomicUsize>,
}

impl ConnectionLike for Twice {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        let words = command.args_iter().count();
        self.words.fetch_max(words, Ordering::Relaxed);
        Box::pin(async move {
            self.connection.req_packed_command(command).await?;
            self.connection.req_packed_command(command).await
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

impl Twice {
    async fn to(fixture: &Fixture) -> Self {
        Self {
            connection: fixture.server.connection().await,
            words: Arc::default(),
        }
    }

    fn client(&self) -> RedissonClient {
        let builder = RedissonClient::builder();
        builder.connection(self.clone()).unwrap()
    }
}

/// Asks each for 2 permits, all at the same time.
async fn at_once(limiters: impl Iterator<Item = &RateLimiter>) -> Vec<bool> {
    let asked = limiters.cloned();
    let asked = asked.map(|limiter| async move { limiter.try_acquire(2).await.unwrap() });
    asked.collect::<JoinSet<_>>().join_all().await
}

#[tokio::test]
async fn an_acquire_that_the_connection_itself_sends_twice_takes_once() {
    let mut fixture = Fixture::start().await;
    let limiter = Twice::to(&fixture).await.client().rate_limiter(NAME);
    limiter.set_rate(Rate::overall(10, HOUR)).await.unwrap();
    let mut taken = 0;
    for permits in [1, 2, 1, 6] {
        assert!(limiter.try_acquire(permits).await.unwrap(), "{permits}");
        taken += i64::from(permits);
        let left_and_used = keys::left_and_used(&mut fixture.raw, VALUE, PERMITS).await;
        assert_eq!(left_and_used, (Some(10 - taken), taken));
    }
    assert!(!limiter.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn a_list_that_the_connection_itself_sends_twice_takes_once() {
    for (rate, granted) in [(20, 8), (18, 8), (17, 7)] {
        let mut fixture = Fixture::start().await;
        let limiter = Twice::to(&fixture).await.client().rate_limiter(NAME);
        limiter.set_rate(Rate::overall(rate, HOUR)).await.unwrap();
        assert!(limiter.try_acquire(2).await.unwrap());
        // The first one goes alone, the others together.
        let answers = at_once(std::iter::repeat_n(&limiter, 8)).await;
        assert_eq!(
            answers.into_iter().filter(|granted| *granted).count(),
            granted
        );
        let taken = 2 + 2 * granted as i64;
        let left_and_used = keys::left_and_used(&mut fixture.raw, VALUE, PERMITS).await;
        assert_eq!(left_and_used, (Some(rate as i64 - taken), taken), "{rate}");
    }
}

#[tokio::test]
async fn a_shared_call_that_the_connection_repeats_takes_once_for_each_limiter() {
    let mut fixture = Fixture::start().await;
    let connection = Twice::to(&fixture).await;
    let client = connection.client();
    let limiters: Vec<RateLimiter> = (0..60)
        .map(|i| client.rate_limiter(&format!("l:{i}")))
        .collect();
    for limiter in &limiters {
        limiter.set_rate(Rate::overall(3, HOUR)).await.unwrap();
        assert!(limiter.try_acquire(1).await.unwrap());
    }
    // The largest of the calls that are sent alone has fewer words.
    until_known(&client, || connection.words.load(Ordering::Relaxed) > 30).await;
    connection.words.store(0, Ordering::Relaxed);
    let answers = at_once(limiters.iter()).await;
    assert_eq!(answers, [true; 60], "the last two of each");
    assert!(
        connection.words.load(Ordering::Relaxed) > 60,
        "some shared a call"
    );
    for i in 0..limiters.len() {
        let [value, permits] = ["value", "permits"].map(|key| format!("{{l:{i}}}:{key}"));
        let left_and_used = keys::left_and_used(&mut fixture.raw, &value, &permits).await;
        assert_eq!(left_and_used, (Some(0), 3), "{i}");
    }
}
