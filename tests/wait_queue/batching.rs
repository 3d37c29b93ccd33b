//! Requests that share a call get the answers that they would get one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use redisson_rate_limiter::{
    Clock, Decision, Denied, Error, Granted, MemoryStore, Rate, RateLimiter, RedissonClient, Result,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::by_hand::poll_once;
use crate::in_memory::{limiter, ms};
use crate::stopped_time::StoppedTime;
use crate::support::Server;

/// The requests of one moment, and how long after the moment before they come.
#[derive(Debug, Clone)]
struct Round {
    pass: i64,
    permits: Vec<u32>,
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let round = (0..700_i64, prop::collection::vec(1..14_u32, 1..12))
        .prop_map(|(pass, permits)| Round { pass, permits });
    prop::collection::vec(round, 1..10)
}

const RATE: i64 = 12;
const INTERVAL: i64 = 1_000;

/// The sequential model: grants that are out, with their times.
#[derive(Clone, Default)]
struct Model(Vec<(i64, i64)>);

#[derive(Debug, PartialEq)]
enum Outcome {
    Granted {
        permits: u32,
        remaining: i64,
        reset: i64,
    },
    Denied {
        retry_after: i64,
        remaining: i64,
        reset: i64,
    },
    TooMany,
}

impl Model {
    fn ask(&mut self, now: i64, permits: u32) -> Outcome {
        let asked = i64::from(permits);
        if asked > RATE {
            return Outcome::TooMany;
        }
        self.0.retain(|(at, _)| at + INTERVAL > now);
        let left = RATE - self.0.iter().map(|(_, permits)| permits).sum::<i64>();
        if asked <= left {
            self.0.push((now, asked));
            let remaining = left - asked;
            return Outcome::Granted {
                permits,
                remaining,
                reset: INTERVAL,
            };
        }
        // The oldest come back first, until what it lacks is there.
        let mut back = left;
        let last = self.0.iter().position(|(_, permits)| {
            back += permits;
            back >= asked
        });
        let [last, newest] = [last.expect("at most the rate"), self.0.len() - 1]
            .map(|place| self.0[place].0 + INTERVAL - now);
        Outcome::Denied {
            retry_after: last.max(1),
            remaining: left,
            reset: newest,
        }
    }

    fn ask_all(&mut self, now: i64, permits: &[u32]) -> Vec<Outcome> {
        let asked = permits.iter().map(|&permits| self.ask(now, permits));
        asked.collect()
    }
}

fn outcome(result: Result<Decision>) -> Outcome {
    match result {
        Ok(Decision::Granted(Granted {
            grant,
            remaining,
            reset,
            ..
        })) => Outcome::Granted {
            permits: grant.permits(),
            remaining: remaining as i64,
            reset: reset.as_millis() as i64,
        },
        Ok(Decision::Denied(Denied {
            retry_after,
            remaining,
            reset,
            ..
        })) => Outcome::Denied {
            retry_after: retry_after.as_millis() as i64,
            remaining: remaining as i64,
            reset: reset.as_millis() as i64,
        },
        Err(Error::ExceedsLimit { .. }) => Outcome::TooMany,
        Err(error) => panic!("{error:?}"),
    }
}

/// Asks for all of a round at once, and returns the answers in order.
async fn ask_together(limiter: &RateLimiter, permits: &[u32]) -> Vec<Outcome> {
    let mut requests: Vec<_> = permits
        .iter()
        .map(|&permits| Box::pin(limiter.check(permits)))
        .collect();
    let mut answers: Vec<_> = requests.iter_mut().map(poll_once).collect();
    for (answer, request) in answers.iter_mut().zip(requests) {
        if answer.is_none() {
            *answer = Some(request.await);
        }
    }
    let answers = answers.into_iter().flatten();
    answers.map(outcome).collect()
}

/// A server that stalls may receive the first request, which has a call of its own, after its
/// deadline. Then that one is made again, and decided last.
async fn compare(limiter: &RateLimiter, now: &AtomicI64, rounds: Vec<Round>, may_stall: bool) {
    let mut model = Model::default();
    for Round { pass, permits } in rounds {
        let at = now.fetch_add(pass, Ordering::SeqCst) + pass;
        let answers = ask_together(limiter, &permits).await;
        let mut first_is_last = model.clone();
        let mut expected = model.ask_all(at, &permits);
        if may_stall && answers != expected {
            let (first, others) = permits.split_first().expect("a request");
            let others = first_is_last.ask_all(at, others);
            expected = vec![first_is_last.ask(at, *first)];
            expected.extend(others);
            model = first_is_last;
        }
        assert_eq!(answers, expected);
    }
}

/// When each of a list of waits is over, counted from the start.
async fn wait_together(limiter: &RateLimiter, permits: &[u32]) -> Vec<Duration> {
    let start = Instant::now();
    let tasks = permits.iter().map(|&permits| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            limiter.acquire(permits).await.unwrap();
            start.elapsed()
        })
    });
    let mut times = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        times.push(task.await.unwrap());
    }
    times
}

/// As [`wait_together`], but each wait begins only when the one before it is over.
async fn wait_one_by_one(limiter: &RateLimiter, permits: &[u32]) -> Vec<Duration> {
    let start = Instant::now();
    let mut times = Vec::new();
    for &permits in permits {
        limiter.acquire(permits).await.unwrap();
        times.push(start.elapsed());
    }
    times
}

fn passed_clock() -> (Arc<AtomicI64>, Clock) {
    let now = Arc::new(AtomicI64::new(1_000));
    let shown = Arc::clone(&now);
    (now, Clock::from_fn(move || shown.load(Ordering::SeqCst)))
}

fn runtime(paused: bool) -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .start_paused(paused)
        .build()
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn batched_requests_in_memory_are_decided_as_if_each_came_alone(rounds in rounds()) {
        runtime(true).block_on(async {
            let (now, clock) = passed_clock();
            let client = RedissonClient::builder().clock(clock).in_memory(&MemoryStore::new());
            let limiter = client.rate_limiter("limiter");
            limiter.set_rate(Rate::overall(RATE as u64, ms(INTERVAL as u64))).await.unwrap();
            compare(&limiter, &now, rounds, false).await;
        });
    }

    #[test]
    fn batched_waiters_in_memory_are_served_as_if_each_came_alone(permits in prop::collection::vec(1..=RATE as u32, 1..40), interval in 1..2_500_u64) {
        runtime(true).block_on(async {
            let together = limiter(RATE as u64, ms(interval)).await;
            let together = wait_together(&together, &permits).await;
            let one_by_one = limiter(RATE as u64, ms(interval)).await;
            let one_by_one = wait_one_by_one(&one_by_one, &permits).await;
            assert_eq!(together, one_by_one);
        });
    }
}

#[test]
fn batched_requests_on_a_server_are_decided_as_if_each_came_alone() {
    let server = Server::start();
    let runtime = runtime(true);
    let _time = runtime.block_on(async { StoppedTime::begin() });
    let (now, clock) = passed_clock();
    let builder = RedissonClient::builder().clock(clock);
    let limiter = runtime.block_on(async {
        let client = builder.connect(&server.url()).await.unwrap();
        let limiter = client.rate_limiter("limiter");
        limiter.set_rate(Rate::overall(1, ms(1))).await.unwrap();
        // The first call of a client takes more than one command, so that others may overtake it.
        assert!(limiter.try_acquire(1).await.unwrap());
        limiter
    });
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(64)
    };
    proptest!(config, |(rounds in rounds())| {
        runtime.block_on(async {
            limiter.set_rate(Rate::overall(RATE as u64, ms(INTERVAL as u64))).await.unwrap();
            compare(&limiter, &now, rounds, true).await;
        });
    });
}
