//! Calls of a partner's API within its quota: each waits for a permit, and when the partner says "wait", all processes do.
//!
//! ```sh
//! cargo run -p redisson-rate-limiter-tower --example outgoing_calls
//! REDIS_URL=redis://127.0.0.1:6379 cargo run -p redisson-rate-limiter-tower --example outgoing_calls
//! ```

use std::env;
use std::error::Error;
use std::time::{Duration, SystemTime};

use futures_util::{Stream, StreamExt, pin_mut, stream};
use redisson_rate_limiter::{Rate, RateLimiter, RedissonClient, Result, TimeToLive};
use redisson_rate_limiter_tower::fields;
use reqwest::{Client, Response};
use tokio::time::sleep;

/// A server may name any time; nobody waits longer than this for one answer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The limiter that holds back calls while it lives.
const HOLD: &str = "partner-api:hold";

/// A partner's API.
struct Partner {
    client: RedissonClient,
    quota: RateLimiter,
    http: Client,
    url: String,
}

impl Partner {
    /// 5 calls a second, which all processes share, in whatever language.
    fn new(client: RedissonClient, url: String) -> Result<Self> {
        let quota = client.rate_limiter("partner-api");
        Ok(Self {
            quota: quota.with_rate(Rate::overall(5, Duration::from_secs(1)))?,
            client,
            http: Client::new(),
            url,
        })
    }

    /// The answer of the partner, which is asked again when it says that it was asked too often.
    async fn get(&self, path: &str) -> std::result::Result<Response, Box<dyn Error>> {
        loop {
            self.permit().await?;
            let response = self.http.get(format!("{}{path}", self.url)).send().await?;
            let wait = fields::wait(response.headers(), SystemTime::now());
            if let Some(wait) = wait.filter(|it| !it.is_zero()) {
                self.hold(wait.min(LONGEST_WAIT)).await?;
            }
            if response.status() != 429 {
                return Ok(response);
            }
        }
    }

    /// Waits for a permit that may be used at once.
    async fn permit(&self) -> Result<()> {
        loop {
            let grant = self.quota.acquire_grant(1).await?;
            // Only now: many may have waited in the queue when the partner said "wait".
            let Some(left) = self.held_for().await? else {
                return Ok(());
            };
            self.quota.refund(grant).await?;
            sleep(left).await;
        }
    }

    /// Holds back the calls of all processes for so long, or until another hold ends, if that is later. No call shortens a hold:
    /// the first one begins it, and the others make it longer, each in one step. So the longest counts, however they cross.
    async fn hold(&self, time: Duration) -> Result<()> {
        // A time until a date has a part of a millisecond.
        let time = Duration::from_millis(time.as_micros().div_ceil(1_000) as u64);
        let hold = self.client.rate_limiter(HOLD);
        let lives = Rate::overall(1, time).keep_alive(time);
        while !hold.try_set_rate(lives).await? && !hold.expire_if_greater(time).await? {
            // It may have ended in between.
            if self.held_for().await?.is_some_and(|left| left >= time) {
                break;
            }
        }
        Ok(())
    }

    async fn held_for(&self) -> Result<Option<Duration>> {
        let hold = self.client.rate_limiter(HOLD);
        Ok(match hold.remain_time_to_live().await? {
            TimeToLive::Remaining(left) if !left.is_zero() => Some(left),
            _ => None,
        })
    }
}

/// The items of a stream, each after it has waited for a permit.
fn rate_limited<T>(
    items: impl Stream<Item = T>,
    limiter: &RateLimiter,
) -> impl Stream<Item = Result<T>> {
    items.then(async |item| {
        limiter.acquire(1).await?;
        Ok(item)
    })
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn Error>> {
    let client = match env::var("REDIS_URL") {
        Ok(url) => RedissonClient::connect(&url).await?,
        Err(_) => RedissonClient::in_memory(),
    };
    let url = a_partner::start().await?;
    let partner = Partner::new(client.clone(), url)?;
    for _ in 0..3 {
        println!("{}", partner.get("/orders").await?.status());
    }

    let jobs = client
        .rate_limiter("jobs")
        .with_rate(Rate::overall(2, Duration::from_secs(1)))?;
    let numbers = rate_limited(stream::iter(1..=4), &jobs);
    pin_mut!(numbers);
    while let Some(number) = numbers.next().await {
        println!("job {}", number?);
    }
    Ok(())
}

/// A partner that takes one call, and then wants a second of silence.
mod a_partner {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::Router;
    use axum::response::IntoResponse;
    use axum::routing::get;

    pub async fn start() -> io::Result<String> {
        let calls = Arc::new(AtomicU32::new(0));
        let orders = move || async move {
            match calls.fetch_add(1, Ordering::Relaxed) {
                1 => (http::StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response(),
                _ => http::StatusCode::OK.into_response(),
            }
        };
        let router = Router::new().route("/orders", get(orders));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use redisson_rate_limiter::{Faults, MemoryStore};
    use tokio::task::{JoinSet, yield_now};
    use tokio::time::{Instant, advance};

    use super::*;

    #[tokio::test]
    async fn a_call_that_came_too_often_is_made_again_after_the_time_to_retry() {
        let start = Instant::now();
        let partner = Partner::new(
            RedissonClient::in_memory(),
            a_partner::start().await.unwrap(),
        )
        .unwrap();
        for _ in 0..2 {
            assert_eq!(partner.get("/orders").await.unwrap().status(), 200);
        }
        assert!(start.elapsed() >= Duration::from_secs(1));
    }

    /// Two processes, whose calls to the store may cross.
    fn partners() -> [Partner; 2] {
        let store = MemoryStore::new();
        [0, 1].map(|_| {
            let builder = RedissonClient::builder();
            let client = builder.in_memory_with_faults(&store, &Faults::new());
            Partner::new(client, String::new()).unwrap()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_holds_back_every_process_and_who_waits_already() {
        let [here, there] = partners();
        let start = Instant::now();
        for _ in 0..5 {
            there.permit().await.unwrap();
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        let there = Arc::new(there);
        let mut waiting = JoinSet::new();
        for _ in 0..10 {
            let there = Arc::clone(&there);
            waiting.spawn(async move {
                there.permit().await.unwrap();
                start.elapsed().as_secs()
            });
        }
        yield_now().await;
        here.hold(Duration::from_secs(7)).await.unwrap();
        let mut times = waiting.join_all().await;
        times.sort_unstable();
        assert_eq!(times, [7, 7, 7, 7, 7, 8, 8, 8, 8, 8]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longer_of_two_holds_counts() {
        for order in [[2, 60], [60, 2]] {
            let [here, there] = partners();
            let start = Instant::now();
            for seconds in order {
                here.hold(Duration::from_secs(seconds)).await.unwrap();
            }
            there.permit().await.unwrap();
            assert_eq!(start.elapsed(), Duration::from_secs(60));
        }
    }

    /// Has two processes hold back calls while an earlier hold ends. The bits of `schedule` say whose call is next, and it ends
    /// before this one. Returns for how long calls are held back then.
    async fn crossing(times: [Duration; 2], schedule: u32, ends_before: u32) -> Option<Duration> {
        let [here, there] = partners();
        here.hold(MS).await.unwrap();
        let mut holding = [
            Some(Box::pin(here.hold(times[0]))),
            Some(Box::pin(there.hold(times[1]))),
        ];
        let mut context = Context::from_waker(Waker::noop());
        for place in 0..CALLS {
            if place == ends_before {
                advance(2 * MS).await;
            }
            let next = &mut holding[(schedule >> place & 1) as usize];
            next.take_if(|it| it.as_mut().poll(&mut context).is_ready());
        }
        for rest in holding.into_iter().flatten() {
            rest.await.unwrap();
        }
        there.held_for().await.unwrap()
    }

    const MS: Duration = Duration::from_millis(1);
    /// Both have made theirs by then, if they take turns.
    const CALLS: u32 = 9;

    #[tokio::test(start_paused = true)]
    async fn of_two_holds_that_cross_the_longer_counts() {
        let minute = Duration::from_secs(60);
        for times in [[minute, 2 * minute], [2 * minute, minute]] {
            for schedule in 0..1 << CALLS {
                for ends_before in 0..=CALLS {
                    let held_for = crossing(times, schedule, ends_before).await;
                    let left = held_for.unwrap();
                    assert!(
                        left >= 2 * minute - 2 * MS,
                        "{schedule:b}, {ends_before}: {left:?}"
                    );
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_flows_at_the_rate() {
        let start = Instant::now();
        let limiter = RedissonClient::in_memory().rate_limiter("jobs");
        let limiter = limiter
            .with_rate(Rate::overall(2, Duration::from_secs(1)))
            .unwrap();
        let times = rate_limited(stream::iter(0..5), &limiter).map(|it| {
            it.unwrap();
            start.elapsed().as_secs()
        });
        assert_eq!(times.collect::<Vec<_>>().await, [0, 0, 1, 1, 2]);
    }
}
