//! Who waits on the limiter, and what each was granted.

use std::{path::Path, time::Duration};

use redisson_rate_limiter::{Rate, RedissonClient};
use tokio::{task::JoinSet, time::sleep};

use super::{
    NAME, REDISSON,
    process::{Process, Tasks},
    script_calls,
};
use crate::{
    Server,
    redisson::{self, Client, Redisson, Servers},
};

const SECOND: Duration = Duration::from_secs(1);

/// A process with a backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Tasks of this crate.
    Rust { tasks: Tasks, idle: Idle },
    /// Threads of Redisson.
    Java { threads: u32 },
}

/// For which part of the time a side asks for nothing, from the start on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    Never,
    FirstHalf,
}

const TASKS: Tasks = Tasks {
    count: 50,
    permits: 1,
    pause: Duration::ZERO,
    lease: Duration::ZERO,
};
const LEASE: Duration = Duration::from_millis(50);

const RUST: Side = of(TASKS);
const LATER: Side = Side::Rust {
    tasks: TASKS,
    idle: Idle::FirstHalf,
};
const THREES: Side = of(Tasks {
    permits: 3,
    ..TASKS
});
const LEASED: Side = of(Tasks {
    lease: LEASE,
    ..TASKS
});
/// It wants 400 permits a second. Where there are more, it has a lease nearly always.
const STEADY: Side = of(Tasks {
    pause: Duration::from_millis(125),
    lease: LEASE,
    ..TASKS
});
const JAVA: Side = Side::Java { threads: 20 };

const fn of(tasks: Tasks) -> Side {
    Side::Rust {
        tasks,
        idle: Idle::Never,
    }
}

impl Side {
    fn permits(self) -> u32 {
        match self {
            Self::Rust { tasks, .. } => tasks.permits,
            Self::Java { .. } => 1,
        }
    }

    /// Such as `50 tasks`.
    pub fn label(self) -> String {
        let mut label = match self {
            Self::Rust { tasks, .. } => format!("{} tasks", tasks.count),
            Self::Java { threads } => format!("{threads} Java threads"),
        };
        if self.permits() > 1 {
            label += &format!(" of {} permits", self.permits());
        }
        if let Self::Rust { tasks, idle } = self {
            if tasks.pause > Duration::ZERO {
                label += &format!(", each {:?}", tasks.pause);
            }
            if tasks.lease > Duration::ZERO {
                label += ", leased";
            }
            if idle == Idle::FirstHalf {
                label += ", idle at first";
            }
        }
        label
    }
}

/// Sides that wait on one limiter.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub permits: u64,
    pub interval: Duration,
    /// How long they wait.
    pub duration: Duration,
    /// How many permits are enough for a side: it is told what it was granted by then, and goes on
    /// until each has enough.
    pub enough: Option<u64>,
    pub sides: &'static [Side],
}

impl Scenario {
    const fn of(name: &'static str, sides: &'static [Side]) -> Self {
        Self {
            name,
            permits: 10,
            interval: SECOND,
            duration: Duration::from_secs(20),
            enough: None,
            sides,
        }
    }

    const fn at(self, permits: u64, interval: Duration) -> Self {
        Self {
            permits,
            interval,
            ..self
        }
    }

    const fn lasting(self, seconds: u64) -> Self {
        Self {
            duration: Duration::from_secs(seconds),
            ..self
        }
    }
}

/// All scenarios. Those without a rate in their name have 10 permits a second.
pub const SCENARIOS: &[Scenario] = &[
    Scenario::of("java", &[RUST, JAVA]),
    Scenario::of("two", &[RUST, RUST]),
    Scenario::of("three", &[RUST, RUST, RUST]),
    Scenario::of("alone", &[RUST]),
    Scenario::of("java-alone", &[JAVA]),
    Scenario::of("two-and-java", &[RUST, RUST, JAVA]),
    Scenario::of("later", &[RUST, LATER]),
    Scenario::of("later-java", &[LATER, JAVA]),
    Scenario::of("sizes", &[RUST, THREES]),
    Scenario::of("java-sizes", &[THREES, JAVA]),
    Scenario::of("two-100-per-1s", &[RUST, RUST]).at(100, SECOND),
    Scenario::of("java-100-per-1s", &[RUST, JAVA]).at(100, SECOND),
    Scenario::of("two-3-per-1s", &[RUST, RUST]).at(3, SECOND),
    Scenario::of("java-3-per-1s", &[RUST, JAVA]).at(3, SECOND),
    Scenario::of("two-10-per-100ms", &[RUST, RUST]).at(10, Duration::from_millis(100)),
    Scenario::of("java-10-per-100ms", &[RUST, JAVA]).at(10, Duration::from_millis(100)),
    Scenario::of("alone-10-per-100ms", &[RUST]).at(10, Duration::from_millis(100)),
    Scenario::of("leased-100-per-1s", &[LEASED, RUST]).at(100, SECOND),
    Scenario::of("java-leased-100-per-1s", &[LEASED, JAVA]).at(100, SECOND),
    Scenario::of("two-leased-and-java-100-per-1s", &[LEASED, LEASED, JAVA]).at(100, SECOND),
    Scenario::of("two-1000-per-1s", &[RUST, RUST]).at(1_000, SECOND),
    Scenario::of("java-1000-per-1s", &[RUST, JAVA]).at(1_000, SECOND),
    Scenario::of("leased-1000-per-1s", &[LEASED, RUST]).at(1_000, SECOND),
    Scenario::of("java-leased-1000-per-1s", &[LEASED, JAVA]).at(1_000, SECOND),
    Scenario::of("steady-leased-1000-per-1s", &[STEADY, LATER]).at(1_000, SECOND),
    Scenario::of("two-20-per-10s", &[RUST, RUST])
        .at(20, Duration::from_secs(10))
        .lasting(60),
    Scenario::of("java-20-per-10s", &[RUST, JAVA])
        .at(20, Duration::from_secs(10))
        .lasting(60),
];

/// What the sides were granted.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The permits of each side in each second.
    pub per_second: Vec<Vec<u64>>,
    /// The permits that the limiter has in the whole time.
    pub most: u64,
    /// How often the server ran a script.
    pub script_calls: u64,
}

impl Outcome {
    /// The permits of a side.
    pub fn of(&self, side: usize) -> u64 {
        self.per_second[side].iter().sum()
    }

    /// The permits of all sides.
    pub fn together(&self) -> u64 {
        self.per_second.iter().flatten().sum()
    }
}

impl Scenario {
    /// Starts a server and the sides, lets them wait, and ends them. `program` is one that does as
    /// [`process`](super::process) says.
    pub async fn run(&self, program: &Path) -> Outcome {
        let server = Server::start();
        let url = server.url();
        let client = RedissonClient::connect(&url).await.expect("the server");
        let limiter = client.rate_limiter(NAME);
        let rate = Rate::overall(self.permits, self.interval);
        limiter.set_rate(rate).await.expect("the server");

        let mut starting = JoinSet::new();
        for (place, &side) in self.sides.iter().enumerate() {
            let (program, url) = (program.to_owned(), url.clone());
            starting.spawn(async move { (place, Started::start(side, &program, &url).await) });
        }
        let mut started = starting.join_all().await;
        started.sort_by_key(|(place, _)| *place);

        let mut redis = server.connection().await;
        let calls_before = script_calls(&mut redis).await;
        let (duration, enough) = (self.duration, self.enough);
        let mut waiting = JoinSet::new();
        for (place, mut side) in started {
            waiting.spawn(async move { (place, side.wait(duration, enough).await, side) });
        }
        let mut all = waiting.join_all().await;
        let calls = script_calls(&mut redis).await - calls_before;
        all.sort_by_key(|(place, ..)| *place);
        let intervals = duration.as_millis().div_ceil(self.interval.as_millis());
        Outcome {
            per_second: all.into_iter().map(|(_, permits, _)| permits).collect(),
            most: self.permits * intervals as u64,
            script_calls: calls,
        }
    }
}

/// A side that is connected.
struct Started {
    side: Side,
    running: Running,
}

enum Running {
    Rust(Box<Process>),
    /// In a JVM of its own.
    Java(Client),
}

impl Started {
    async fn start(side: Side, program: &Path, url: &str) -> Self {
        let running = match side {
            Side::Rust { tasks, .. } => {
                let process = Process::start(program, url, NAME, tasks).await;
                Running::Rust(Box::new(process))
            }
            Side::Java { threads } => Running::Java(start_java(url, threads).await),
        };
        Self { side, running }
    }

    async fn wait(&mut self, duration: Duration, enough: Option<u64>) -> Vec<u64> {
        let permits = self.side.permits();
        match (&mut self.running, self.side) {
            (
                Running::Rust(process),
                Side::Rust {
                    idle: Idle::FirstHalf,
                    ..
                },
            ) => {
                let idle = Duration::from_secs(duration.as_secs() / 2);
                sleep(idle).await;
                let mut per_second = vec![0; idle.as_secs() as usize];
                per_second.extend(process.backlog(duration - idle, enough).await);
                per_second
            }
            (Running::Rust(process), _) => process.backlog(duration, enough).await,
            (Running::Java(client), Side::Java { threads }) => {
                let limiter = client.limiter(NAME);
                let granted = limiter.backlog(threads, permits, duration, enough).await;
                granted.expect("a backlog of Redisson's")
            }
            (Running::Java(_), Side::Rust { .. }) => unreachable!("started as its side says"),
        }
    }
}

/// Opens a client of Redisson, and lets it make some calls: the first ones of a JVM take long.
async fn start_java(url: &str, threads: u32) -> Client {
    let redisson = tokio::task::spawn_blocking(|| Redisson::start(REDISSON));
    let redisson = redisson.await.expect("a JVM");
    let client = redisson.open(Servers::Single(url), &[]).await;
    let client = client.unwrap_or_else(|e| panic!("Redisson on {url}: {e}"));
    let limiter = client.limiter("warm-up");
    let rate = redisson::Rate::overall(10, 50);
    limiter.set_rate(rate).await.expect("a rate");
    let load = limiter.load_waiting(threads, 1, 500).await;
    load.expect("a load of Redisson's");
    client
}
