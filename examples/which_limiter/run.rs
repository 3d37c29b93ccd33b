//! The run: each limiter gets each request at its time, and its state is read in between.

use std::sync::Arc;
use std::time::Duration;

use redisson_rate_limiter::{
    Chargeable, Clock, Decision, Denied, FixedWindow, Granted, PolicyLimiter, RedissonClient,
    RedissonClientBuilder, Result,
};
use tokio::time::{Instant, sleep_until};

use crate::limiters::{self, Edges, Shown};
use crate::traffic::{self, LENGTH, Step};

/// The limiters' time at the start: a whole second, in ms.
const EPOCH: i64 = 1_700_000_000_000;
/// A sample that comes later than this, in ms, is left out.
const LATE: i64 = 10;

/// What became of the requests at one limiter. Times in ms since the start.
pub struct Run {
    pub shown: Shown,
    pub requests: Vec<Request>,
    /// What was left from a time on, in order.
    pub left: Vec<(i64, u64)>,
    pub edges: Vec<i64>,
    /// From when until when the target was locked out.
    pub locked: Vec<(i64, i64)>,
}

pub struct Request {
    pub time: i64,
    pub is_granted: bool,
    /// When a granted one goes on.
    pub goes_on: i64,
}

/// When the run started.
#[derive(Clone, Copy)]
pub struct Start(Instant);

impl Start {
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// A client whose clock starts with the run.
    pub fn client(self) -> RedissonClientBuilder {
        RedissonClient::builder().clock(Clock::from_fn(move || EPOCH + self.elapsed()))
    }

    /// Runs all limiters side by side.
    pub async fn run(self, client: RedissonClient) -> Result<Vec<Run>> {
        let target = format!("which-limiter:{}:", client.id()); // new in each run, as the id is
        let closed = Closed::new(&client, &target).await?;
        let mut running = Vec::new();
        for shown in limiters::all(&client)? {
            let run = Run::new(shown).run(self, target.clone(), closed.clone());
            running.push(tokio::spawn(run));
        }
        let mut runs = Vec::new();
        for run in running {
            runs.push(run.await.expect("no run panics")?);
        }
        Ok(runs)
    }

    fn elapsed(self) -> i64 {
        as_millis(self.0.elapsed())
    }

    async fn wait_until(self, time: i64) {
        sleep_until(self.0 + Duration::from_millis(time.unsigned_abs())).await;
    }
}

impl Run {
    fn new(shown: Shown) -> Self {
        Self {
            shown,
            requests: Vec::new(),
            left: Vec::new(),
            edges: Vec::new(),
            locked: Vec::new(),
        }
    }

    async fn run(mut self, start: Start, target: String, closed: Closed) -> Result<Self> {
        let key = target + self.shown.file;
        for (planned, step) in traffic::steps() {
            start.wait_until(planned).await;
            let time = start.elapsed();
            match step {
                Step::Ask => {
                    let limiter = &self.shown.limiter;
                    let decision = limiter.check_without_waiting(&key, 1).await?;
                    self.note(time, &decision);
                }
                Step::Sample if time > planned + LATE => {}
                Step::Sample => {
                    let left = closed.sample(&*self.shown.sampler, &key).await?;
                    self.note_left(time, left);
                }
            }
        }
        let first_request = self.requests.first().map_or(0, |request| request.time);
        match self.shown.edges {
            Edges::Nowhere | Edges::Reset => {}
            Edges::Every(distance) => self.edges = every(distance, first_request),
            Edges::OnTheClock(distance) => self.edges = every(distance, distance),
        }
        Ok(self)
    }

    fn note(&mut self, time: i64, decision: &Decision) {
        let after = |duration: &Duration| time + as_millis(*duration);
        let (is_granted, goes_on, remaining, reset) = match decision {
            Decision::Granted(Granted {
                delay,
                remaining,
                reset,
                ..
            }) => (true, after(delay), *remaining, after(reset)),
            Decision::Denied(Denied {
                retry_after,
                remaining,
                reset,
                ..
            }) => {
                let is_new = self.locked.last().is_none_or(|&(_, until)| until <= time);
                if self.shown.locks_out && is_new {
                    self.locked.push((time, after(retry_after)));
                }
                (false, time, *remaining, after(reset))
            }
        };
        self.requests.push(Request {
            time,
            is_granted,
            goes_on,
        });
        self.note_left(time, remaining);
        let is_new = self.edges.last().is_none_or(|&edge| edge <= time);
        if matches!(self.shown.edges, Edges::Reset) && is_new {
            self.edges.push(reset);
        }
    }

    fn note_left(&mut self, time: i64, left: u64) {
        if self.left.last().is_none_or(|&(_, last)| last != left) {
            self.left.push((time, left));
        }
    }
}

/// A limiter that has nothing left. In a joint decision with it, another limiter returns what it
/// has left, and is not charged.
#[derive(Clone)]
struct Closed {
    client: RedissonClient,
    limiter: PolicyLimiter<FixedWindow>,
    key: Arc<str>,
}

impl Closed {
    async fn new(client: &RedissonClient, target: &str) -> Result<Self> {
        let closed = Self {
            client: client.clone(),
            limiter: client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?,
            key: format!("{target}closed").into(),
        };
        assert!(closed.limiter.check(&closed.key, 1).await?.is_granted());
        Ok(closed)
    }

    async fn sample(&self, limiter: &dyn Chargeable, key: &str) -> Result<u64> {
        let charges = [limiter.charge(key, 1)?, self.limiter.charge(&self.key, 1)?];
        let joint = self.client.check_all(charges).await?;
        Ok(joint.decisions()[0].remaining())
    }
}

fn every(distance: i64, first: i64) -> Vec<i64> {
    let edges = (0..).map(|i| first + i * distance);
    edges.take_while(|&edge| edge < LENGTH).collect()
}

fn as_millis(duration: Duration) -> i64 {
    duration.as_millis() as i64
}
