//! A thousand callers while a Sentinel's primary is killed and its replica takes over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redisson_rate_limiter::{Error, Rate, RateLimiter, RedissonClient};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::captured_events::Events;
use crate::load::{HOUR, PATIENT, ms, patient_client};
use crate::sentinels::{Sentinel, acknowledged_by_replica, replica_of};
use crate::support::Server;

const CALLERS: usize = 500;

#[derive(Clone, Copy)]
enum Kind {
    /// `try_acquire`
    Plain,
    /// `acquire`
    Waiting,
}

/// Callers of one limiter that call one after another, and their outcomes.
struct Callers {
    tasks: JoinSet<()>,
    outcomes: Arc<Outcomes>,
}

#[derive(Default)]
struct Outcomes {
    granted: AtomicU64,
    unavailable: AtomicU64,
    indeterminate: AtomicU64,
    /// When the calls began and ended whose outcome is unknown.
    indeterminate_times: Mutex<Vec<[Instant; 2]>>,
    shall_end: AtomicBool,
}

impl Outcomes {
    fn count(&self, outcome: Result<bool, Error>, began: Instant) {
        let ended = Instant::now();
        if let Err(Error::Indeterminate { .. }) = outcome {
            let mut times = self.indeterminate_times.lock().unwrap();
            times.push([began, ended]);
        }
        let counter = match outcome {
            Ok(true) => &self.granted,
            Ok(false) => return,
            Err(Error::StoreUnavailable { .. }) => &self.unavailable,
            Err(Error::Indeterminate { .. }) => &self.indeterminate,
            Err(error) => panic!("not an error of an outage: {error:?}"),
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

impl Callers {
    fn of(limiter: &RateLimiter, kind: Kind) -> Self {
        let outcomes = Arc::<Outcomes>::default();
        let mut tasks = JoinSet::new();
        for _ in 0..CALLERS {
            let (limiter, outcomes) = (limiter.clone(), Arc::clone(&outcomes));
            tasks.spawn(async move {
                while !outcomes.shall_end.load(Ordering::SeqCst) {
                    let began = Instant::now();
                    let outcome = match kind {
                        Kind::Plain => limiter.try_acquire(1).await,
                        Kind::Waiting => limiter.acquire(1).await.map(|()| true),
                    };
                    outcomes.count(outcome, began);
                    sleep(ms(20)).await;
                }
            });
        }
        Self { tasks, outcomes }
    }

    fn granted(&self) -> u64 {
        self.outcomes.granted.load(Ordering::SeqCst)
    }

    async fn until_granted(&self, more: u64) {
        let goal = self.granted() + more;
        while self.granted() < goal {
            sleep(ms(1)).await;
        }
    }

    async fn until_unavailable(&self, goal: u64) {
        while self.outcomes.unavailable.load(Ordering::SeqCst) < goal {
            sleep(ms(1)).await;
        }
    }

    /// Waits until every caller has returned.
    async fn end(mut self) -> Arc<Outcomes> {
        self.outcomes.shall_end.store(true, Ordering::SeqCst);
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                ended.unwrap();
            }
        };
        timeout(PATIENT, all).await.expect("no caller hangs");
        self.outcomes
    }
}

/// The outcomes of the callers, and when the connection changed.
struct Failover {
    plain: Arc<Outcomes>,
    waiting: Arc<Outcomes>,
    /// When the client knew that its connection was lost; `None` if nothing waited for that.
    disconnected: Option<Instant>,
    /// A time at which there was no new primary yet.
    promoted: Instant,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_calls_that_outlast_the_failover_end_with_a_grant() {
    let Failover { plain, waiting, .. } = through_a_failover(PATIENT, None).await;
    for outcomes in [plain, waiting] {
        assert_eq!(outcomes.unavailable.load(Ordering::SeqCst), 0);
        assert_eq!(outcomes.indeterminate.load(Ordering::SeqCst), 0);
    }
}

/// Calls that began before the client knew that its connection was lost are not counted: the
/// previous primary may have got them. The events are those of this thread, so the client runs on
/// it.
#[tokio::test]
async fn callers_that_do_not_outlast_the_failover_learn_if_they_may_have_run() {
    let events = Events::start();
    let failover = through_a_failover(ms(200), Some(&events)).await;
    let disconnected = failover.disconnected.unwrap();
    for outcomes in [failover.plain, failover.waiting] {
        let times = outcomes.indeterminate_times.lock().unwrap();
        let unreached = times
            .iter()
            .filter(|[began, ended]| *began > disconnected && *ended < failover.promoted);
        assert_eq!(unreached.count(), 0, "no server was there for them");
    }
}

/// Asserts that no caller hangs, and that no permit is lost but those that the failover loses. With
/// `events` the failover takes longer than the response timeout.
async fn through_a_failover(response_timeout: Duration, events: Option<&Events>) -> Failover {
    let primary = Server::start();
    let replica = replica_of(&primary).await;
    let sentinel = Sentinel::of(&primary).await;
    sentinel.knows_a_replica().await;
    let rate = 1_000_000_000;
    for (name, rate) in [
        ("ample", Rate::overall(rate, HOUR)),
        ("scarce", Rate::overall(100, ms(100))),
    ] {
        let client = patient_client(&sentinel.url()).await;
        client.rate_limiter(name).set_rate(rate).await.unwrap();
    }
    let builder = RedissonClient::builder().response_timeout(response_timeout);
    let builder = builder.wait_for_server(PATIENT);
    let client = builder.connect(&sentinel.url()).await.unwrap();
    let [ample, scarce] = ["ample", "scarce"].map(|name| client.rate_limiter(name));

    let plain = Callers::of(&ample, Kind::Plain);
    let waiting = Callers::of(&scarce, Kind::Waiting);
    plain.until_granted(2_000).await;
    waiting.until_granted(200).await;
    // The failover keeps what the replica has, and may lose what is granted from here on.
    let kept = plain.granted();
    acknowledged_by_replica(&primary).await;
    let down_after = ["SENTINEL", "SET", "orders", "down-after-milliseconds"];
    if events.is_some() {
        // It fails over once enough calls have had no server.
        sentinel
            .ask(&[&down_after[..], &["600000"]].concat())
            .await
            .unwrap();
    }
    if let Some(events) = events {
        events.take(); // a busy machine may have cost a connection before
    }
    primary.signal("KILL");
    let mut disconnected = None;
    if let Some(events) = events {
        let is_lost = |event: &String| {
            event.contains("replacing the connection") || event.contains("cannot connect")
        };
        while !events.take().iter().any(is_lost) {
            sleep(ms(1)).await;
        }
        disconnected = Some(Instant::now());
        for callers in [&plain, &waiting] {
            callers.until_unavailable(3 * CALLERS as u64).await;
        }
        sentinel
            .ask(&[&down_after[..], &["300"]].concat())
            .await
            .unwrap();
    }
    let promoted = last_seen_as_a_replica(&replica).await;
    sentinel.names_another_than(&primary).await;
    let done = Instant::now();
    let until_done = plain.granted();
    plain.until_granted(1).await;
    let plain_again = done.elapsed();
    waiting.until_granted(1).await;
    let waiting_again = done.elapsed();
    plain.until_granted(2_000).await;
    waiting.until_granted(200).await;

    let (plain, waiting) = (plain.end().await, waiting.end().await);
    for (name, outcomes, again) in [
        ("plain", &plain, plain_again),
        ("waiting", &waiting, waiting_again),
    ] {
        let [granted, unavailable, indeterminate] = [
            &outcomes.granted,
            &outcomes.unavailable,
            &outcomes.indeterminate,
        ]
        .map(|counter| counter.load(Ordering::SeqCst));
        println!(
            "{name} callers: granted {granted}, unavailable {unavailable}, indeterminate {indeterminate}, \
             again {again:?} after the failover"
        );
    }
    let granted = plain.granted.load(Ordering::SeqCst);
    let indeterminate = plain.indeterminate.load(Ordering::SeqCst);
    let client = patient_client(&sentinel.url()).await;
    let [ample, scarce] = ["ample", "scarce"].map(|name| client.rate_limiter(name));
    let taken = rate - ample.available_permits().await.unwrap();
    let at_least = kept + (granted - until_done);
    assert!(
        (at_least..=granted + indeterminate).contains(&taken),
        "{at_least} <= {taken} <= {granted} + {indeterminate}"
    );
    // All permits of the scarce limiter are available one interval after its last grant.
    while scarce.available_permits().await.unwrap() < 100 {
        sleep(ms(10)).await;
    }
    Failover {
        plain,
        waiting,
        disconnected,
        promoted,
    }
}

/// Waits until the replica is promoted. Returns a time at which it was not.
async fn last_seen_as_a_replica(replica: &Server) -> Instant {
    let mut raw = replica.connection().await;
    let mut last = Instant::now();
    loop {
        let asked = Instant::now();
        let role: redis::RedisResult<Vec<redis::Value>> =
            redis::cmd("ROLE").query_async(&mut raw).await;
        // A replica answers ROLE with five values. It closes its connections when it becomes a
        // primary.
        if role.map_or(0, |role| role.len()) != 5 {
            return last;
        }
        last = asked;
        sleep(ms(2)).await;
    }
}
