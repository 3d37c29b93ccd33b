//! Random histories of the server: its rules file is replaced, also by a wrong one, and requests
//! come over HTTP and gRPC. An oracle keeps what each limit should have been charged.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::seeded::Seeded;
use crate::support::messages::{Code, RateLimitRequest};
use crate::support::servers::Server;
use crate::support::{Serve, envoy};

const HISTORIES: u64 = 3;
const STEPS: usize = 200;
const USERS: [&str; 2] = ["alice", "bob"];
const METHODS: [&str; 2] = ["GET", "POST"];

/// The permits of the shared limiter: a file does not change its rate.
const SHARED: u32 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Algorithm {
    Window,
    Log,
    /// One limiter for all users.
    Shared,
}

#[derive(Debug, Clone)]
struct Ruled {
    name: &'static str,
    algorithm: Algorithm,
    permits: u32,
    when: Option<&'static str>,
    instead_of: Option<&'static str>,
    is_shadow: bool,
}

/// The rule's limiter and key that a charge is stored for.
type Target = (Algorithm, &'static str, &'static str);

/// A request over HTTP, or a descriptor.
#[derive(Debug, Clone, Copy)]
struct Part {
    user: Option<&'static str>,
    method: Option<&'static str>,
    cost: u32,
    is_descriptor: bool,
    /// Whether a rule that names no entry is for it.
    is_first: bool,
}

impl Part {
    fn entries(&self) -> Vec<(&'static str, &'static str)> {
        let each = [("user", self.user), ("method", self.method)];
        each.into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }
}

struct History {
    serve: Serve,
    random: Seeded,
    version: u32,
    ruled: Vec<Ruled>,
    used: BTreeMap<Target, u32>,
}

impl Ruled {
    fn target(&self, part: &Part) -> Target {
        match self.algorithm {
            Algorithm::Shared => (self.algorithm, "", ""),
            _ => (self.algorithm, self.name, part.user.unwrap()),
        }
    }

    fn matches(&self, part: &Part) -> bool {
        let is_by_user = self.algorithm != Algorithm::Shared;
        let has_all = (!is_by_user || part.user.is_some())
            && self.when.is_none_or(|it| part.method == Some(it));
        let names = usize::from(is_by_user) + usize::from(self.when.is_some());
        has_all
            && match names {
                0 => part.is_first,
                _ => !part.is_descriptor || names == part.entries().len(),
            }
    }

    fn write(&self, file: &mut String) -> std::fmt::Result {
        let Self { name, permits, .. } = self;
        writeln!(file, "[[rules]]\nname = \"{name}\"")?;
        match self.algorithm {
            Algorithm::Shared => writeln!(file, "limiter = \"api\"")?,
            _ => writeln!(file, "by = [\"user\"]")?,
        }
        let algorithm = match self.algorithm {
            Algorithm::Window => "algorithm = \"fixed_window\", ",
            Algorithm::Log => "algorithm = \"sliding_window_log\", ",
            Algorithm::Shared => "",
        };
        writeln!(file, "limit = {{ {algorithm}rate = \"{permits}/10h\" }}")?;
        if let Some(method) = self.when {
            writeln!(file, "when = {{ method = \"{method}\" }}")?;
        }
        if let Some(other) = self.instead_of {
            writeln!(file, "instead_of = [\"{other}\"]")?;
        }
        writeln!(file, "shadow = {}", self.is_shadow)
    }
}

impl History {
    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn some_rules(&mut self) -> Vec<Ruled> {
        let mut ruled: Vec<Ruled> = Vec::new();
        let mut is_shared = false;
        for name in ["a", "b", "c", "d"] {
            if self.below(4) == 0 {
                continue;
            }
            let mut algorithm =
                [Algorithm::Window, Algorithm::Log, Algorithm::Shared][self.below(3)];
            // Two rules may not have the same limiter.
            if algorithm == Algorithm::Shared && std::mem::replace(&mut is_shared, true) {
                algorithm = Algorithm::Log;
            }
            let place = self.below(12);
            ruled.push(Ruled {
                name,
                algorithm,
                permits: match algorithm {
                    Algorithm::Shared => SHARED,
                    _ => 4 + self.below(30) as u32,
                },
                when: METHODS.get(self.below(6)).copied(),
                instead_of: ruled.get(place).map(|it| it.name),
                is_shadow: self.below(3) == 0,
            });
        }
        ruled
    }

    /// Writes another file, and waits until the server has read it.
    async fn replace(&mut self) {
        let ruled = self.some_rules();
        self.version += 1;
        let (version, is_wrong) = (format!("v{}", self.version), self.below(5) == 0);
        let mut file = String::new();
        for it in &ruled {
            it.write(&mut file).unwrap();
        }
        let field = if is_wrong { &*version } else { "name" };
        // It applies to no request.
        write!(
            file,
            "[[rules]]\n{field} = \"{version}\"\nwhen = {{ none = \"none\" }}\nlimit = \"allow\"\n"
        )
        .unwrap();
        self.serve.write_rules(&file);
        self.serve.signal(Signal::HUP);
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let status = self.serve.status_json().await;
            let told = match is_wrong {
                true => &status["alerts"],
                false => &status["rules"],
            };
            if told.to_string().contains(&version) {
                break;
            }
            assert!(Instant::now() < end, "{version}: {file}\n{status}");
            sleep(Duration::from_millis(20)).await;
        }
        if !is_wrong {
            self.ruled = ruled;
        }
    }

    fn applies(&self, ruled: &Ruled, part: &Part) -> bool {
        let is_instead = |other: &Ruled| {
            other.instead_of == Some(ruled.name)
                && other.matches(part)
                && (!other.is_shadow || ruled.is_shadow)
        };
        ruled.matches(part) && !self.ruled.iter().any(is_instead)
    }

    /// What the rules of one mode charge for a request, if all grant it.
    fn charges(&self, parts: &[Part], in_shadow: bool) -> Option<BTreeMap<Target, u32>> {
        let mut charges = BTreeMap::new();
        let of_mode = || self.ruled.iter().filter(|it| it.is_shadow == in_shadow);
        for part in parts {
            for ruled in of_mode().filter(|it| self.applies(it, part)) {
                *charges.entry(ruled.target(part)).or_default() += part.cost;
            }
        }
        let fits = |ruled: &Ruled| {
            parts
                .iter()
                .filter(|it| self.applies(ruled, it))
                .all(|part| {
                    let target = ruled.target(part);
                    let used = self.used.get(&target).copied().unwrap_or(0);
                    used + charges[&target] <= ruled.permits
                })
        };
        of_mode().all(fits).then_some(charges)
    }

    fn part(&mut self, is_descriptor: bool) -> Part {
        Part {
            user: [Some(USERS[0]), Some(USERS[1]), None][self.below(3)],
            method: [Some(METHODS[0]), Some(METHODS[1]), None][self.below(3)],
            cost: 1 + self.below(3) as u32,
            is_descriptor,
            is_first: !is_descriptor,
        }
    }

    async fn ask(&mut self) {
        let is_http = self.below(2) == 0;
        let number = if is_http { 1 } else { 1 + self.below(3) };
        let parts: Vec<_> = (0..number).map(|_| self.part(!is_http)).collect();
        // Descriptors that are the same are one.
        let mut asked: Vec<Part> = Vec::new();
        for part in &parts {
            match asked.iter_mut().find(|it| it.entries() == part.entries()) {
                Some(known) => known.cost += part.cost,
                None => asked.push(*part),
            }
        }
        asked[0].is_first = true;
        let enforced = self.charges(&asked, false);
        let is_granted = match is_http {
            true => self.ask_by_http(parts[0]).await,
            false => self.ask_by_grpc(&parts).await,
        };
        let what = format!("{parts:?} {:?} {:?}", self.ruled, self.used);
        assert_eq!(is_granted, enforced.is_some(), "{what}");
        let Some(enforced) = enforced else { return };
        let in_shadow = self.charges(&asked, true).unwrap_or_default();
        for (target, cost) in enforced.into_iter().chain(in_shadow) {
            *self.used.entry(target).or_default() += cost;
        }
    }

    fn body(part: &Part) -> Value {
        let entries = part.entries().into_iter();
        let entries = entries.map(|(name, value)| (name.to_owned(), value.into()));
        json!({ "entries": Value::Object(entries.collect()), "cost": part.cost })
    }

    async fn ask_by_http(&self, part: Part) -> bool {
        let answer = self.serve.post("/v1/check", Self::body(&part)).await;
        match answer.status() {
            StatusCode::OK => true,
            StatusCode::TOO_MANY_REQUESTS => false,
            status => panic!("{status}"),
        }
    }

    async fn ask_by_grpc(&self, parts: &[Part]) -> bool {
        let entries: Vec<_> = parts.iter().map(Part::entries).collect();
        let descriptors: Vec<_> = entries.iter().map(|it| &it[..]).collect();
        let mut asked: RateLimitRequest = envoy("", &descriptors);
        for (descriptor, part) in asked.descriptors.iter_mut().zip(parts) {
            descriptor.hits_addend = Some(part.cost.into());
        }
        let answer = self.serve.ask(asked).await.unwrap();
        match answer.overall_code() {
            Code::Ok => true,
            Code::OverLimit => false,
            Code::Unknown => panic!("{answer:?}"),
        }
    }

    /// Compares what is left of each limit with what the oracle says.
    async fn compare(&self) {
        for user in USERS {
            for method in METHODS {
                let part = Part {
                    user: Some(user),
                    method: Some(method),
                    cost: 1,
                    is_descriptor: false,
                    is_first: true,
                };
                let peeked = self.serve.post("/v1/peek", Self::body(&part)).await;
                let peeked: Value = peeked.json().await.unwrap();
                let is_granted = peeked["granted"] == json!(true);
                for limit in peeked["limits"].as_array().unwrap() {
                    let ruled = self.ruled.iter().find(|it| limit["name"] == json!(it.name));
                    let ruled = ruled.unwrap();
                    let used = self.used.get(&ruled.target(&part)).copied().unwrap_or(0);
                    let left = ruled.permits.saturating_sub(used + u32::from(is_granted));
                    assert_eq!(limit["remaining"], json!(left), "{user} {ruled:?} {peeked}");
                }
            }
        }
    }
}

async fn histories_are_as_an_oracle_says(start: impl Fn() -> (Option<Server>, Serve)) {
    let seeded = Seeded::new();
    println!("{seeded}");
    for number in 0..HISTORIES {
        let (_server, serve) = start();
        let mut history = History {
            serve,
            random: seeded.branch(number),
            version: 0,
            ruled: Vec::new(),
            used: BTreeMap::new(),
        };
        history.replace().await;
        for _ in 0..STEPS {
            match history.below(12) {
                0 => {
                    history.compare().await;
                    history.replace().await;
                }
                _ => history.ask().await,
            }
        }
        history.compare().await;
    }
}

const NONE: &str = "rules = []\n";

#[tokio::test]
async fn random_histories_are_as_an_oracle_says_in_memory() {
    histories_are_as_an_oracle_says(|| (None, Serve::start(NONE))).await;
}

#[tokio::test]
async fn random_histories_are_as_an_oracle_says_in_redis() {
    let start = || {
        let server = Server::start();
        let serve = Serve::on(&server, NONE, &[]);
        (Some(server), serve)
    };
    histories_are_as_an_oracle_says(start).await;
}
