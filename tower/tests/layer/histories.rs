//! Random histories of a layer: its rules are replaced, requests are settled by their responses,
//! fail or are dropped. An oracle keeps what each target should have been charged.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use redisson_rate_limiter::{
    AnyPolicy, Ending, Error, FixedWindow, MemoryStore, Rate, RedissonClient, Rule, Rules,
    SlidingWindowLog,
};
use redisson_rate_limiter_tower::{ByRules, RateLimitLayer};
use tokio::task::yield_now;
use tower::{Layer, ServiceExt, service_fn};

use crate::fixture::{MINUTE, by_rules};
use crate::seeded::Seeded;
use crate::support::Server;

const HISTORIES: u64 = 40;
const USERS: [&str; 2] = ["alice", "bob"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Algorithm {
    Window,
    Log,
    Shared,
}

/// A limiter has the keys of its algorithm and its rule, whatever else changes.
#[derive(Debug, Clone, Copy)]
struct Ruled {
    name: &'static str,
    algorithm: Algorithm,
    permits: u32,
    counts_only: Option<Ending>,
    is_shadow: bool,
}

/// The limiter's prefix and the user, and the algorithm.
type Target = (Algorithm, String);

/// How a service answers a request.
#[derive(Debug, Clone, Copy)]
struct Answer {
    status: u16,
    /// What the request has cost.
    cost: Option<u32>,
}

enum Store {
    Memory(MemoryStore),
    Redis(Server),
}

impl Store {
    async fn client(&self) -> RedissonClient {
        match self {
            Self::Memory(store) => RedissonClient::builder().in_memory(store),
            Self::Redis(server) => {
                // A call that is dropped is looked for until then.
                let builder = RedissonClient::builder().response_timeout(MINUTE / 20);
                builder.connect(&server.url()).await.unwrap()
            }
        }
    }
}

/// The permits of all RRateLimiters: a replacement does not change their rate.
const SHARED: u32 = 9;

struct History<'a> {
    store: &'a Store,
    number: u64,
    random: Seeded,
    client: RedissonClient,
    rules: Arc<Rules>,
    layer: RateLimitLayer<ByRules>,
    ruled: Vec<Ruled>,
    used: BTreeMap<Target, u32>,
}

fn layer_by(rules: &Arc<Rules>) -> RateLimitLayer<ByRules> {
    let cost = |request: &http::request::Parts| {
        let cost = request.headers.get("x-cost")?;
        Some(cost.to_str().ok()?.to_owned())
    };
    by_rules(Arc::clone(rules))
        .attribute("cost", cost)
        .settle(|response, _| response.headers.get("x-cost")?.to_str().ok()?.parse().ok())
}

impl<'a> History<'a> {
    async fn begin(store: &'a Store, number: u64, random: Seeded) -> Self {
        let client = store.client().await;
        let rules = Arc::new(client.rules([]).unwrap());
        Self {
            store,
            number,
            random,
            layer: layer_by(&rules),
            client,
            rules,
            ruled: Vec::new(),
            used: BTreeMap::new(),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn target(&self, ruled: &Ruled, user: &str) -> Target {
        let Ruled {
            name, algorithm, ..
        } = ruled;
        (
            *algorithm,
            format!("{}-{algorithm:?}-{name}:{user}", self.number),
        )
    }

    fn rule(&self, ruled: &Ruled) -> Rule {
        let (permits, hour) = (ruled.permits, 60 * MINUTE);
        let policy: AnyPolicy = match ruled.algorithm {
            Algorithm::Window => FixedWindow::new(permits, hour).into(),
            Algorithm::Log => SlidingWindowLog::new(permits, hour).into(),
            Algorithm::Shared => Rate::overall(u64::from(permits), hour).into(),
        };
        let limiter = self.client.policy_limiter(policy).unwrap();
        let (_, prefix) = self.target(ruled, "");
        let rule = Rule::new(limiter.with_prefix(prefix).with_name(ruled.name)).by(["user"]);
        let rule = match ruled.counts_only {
            Some(ending) => rule.count_only(ending),
            None => rule,
        };
        match ruled.is_shadow {
            true => rule.in_shadow(),
            false => rule,
        }
    }

    fn replace(&mut self) {
        let mut ruled = Vec::new();
        for name in ["a", "b", "c"] {
            if self.chance(4) {
                continue;
            }
            let algorithm = [Algorithm::Window, Algorithm::Log, Algorithm::Shared][self.below(3)];
            ruled.push(Ruled {
                name,
                algorithm,
                permits: match algorithm {
                    Algorithm::Shared => SHARED,
                    _ => 4 + self.below(9) as u32,
                },
                counts_only: [None, None, Some(Ending::Failure), Some(Ending::Success)]
                    [self.below(4)],
                is_shadow: self.chance(3),
            });
        }
        self.ruled = ruled;
        self.apply();
    }

    fn apply(&self) {
        let rules: Vec<_> = self.ruled.iter().map(|it| self.rule(it)).collect();
        self.rules.replace(rules).unwrap();
    }

    fn used(&self, target: &Target) -> u32 {
        self.used.get(target).copied().unwrap_or(0)
    }

    /// The rules of one mode, if all grant a request.
    fn granting(&self, user: &str, cost: u32, in_shadow: bool) -> Option<Vec<Ruled>> {
        let of_mode = self.ruled.iter().filter(|it| it.is_shadow == in_shadow);
        let of_mode: Vec<_> = of_mode.copied().collect();
        let grants = |it: &Ruled| self.used(&self.target(it, user)) + cost <= it.permits;
        of_mode.iter().all(grants).then_some(of_mode)
    }

    /// The rules that charge a request; `None` if it is denied.
    fn charging(&self, user: &str, cost: u32) -> Option<Vec<Ruled>> {
        let mut all = self.granting(user, cost, false)?;
        all.extend(self.granting(user, cost, true).unwrap_or_default());
        Some(all)
    }

    /// What a rule has charged a request in the end.
    fn settled(&self, ruled: &Ruled, user: &str, cost: u32, answer: Answer) -> u32 {
        let ending = match answer.status {
            200 => Ending::Success,
            _ => Ending::Failure,
        };
        if ruled.counts_only.is_some_and(|only| only != ending) {
            return 0;
        }
        let settled = answer.cost.unwrap_or(cost);
        let left = ruled.permits - self.used(&self.target(ruled, user));
        match ruled.algorithm {
            Algorithm::Shared => settled,
            // What is missing is taken as far as it is there.
            _ => settled.min(left),
        }
    }

    fn request(user: &str, cost: u32) -> Request<String> {
        let request = Request::builder().header("x-user", user);
        let request = request.header("x-cost", cost);
        request.body(String::new()).unwrap()
    }

    async fn ask(&mut self) {
        let (user, cost) = (USERS[self.below(2)], 1 + self.below(4) as u32);
        let answer = Answer {
            status: [200, 200, 401][self.below(3)],
            cost: [None, Some(self.below(7) as u32)][self.below(2)],
        };
        let handled = Arc::new(AtomicBool::new(false));
        let service = {
            let handled = Arc::clone(&handled);
            service_fn(move |_: Request<String>| {
                handled.store(true, Ordering::Relaxed);
                async move {
                    yield_now().await;
                    let response = Response::builder().status(answer.status);
                    let response = match answer.cost {
                        Some(cost) => response.header("x-cost", cost),
                        None => response,
                    };
                    Ok::<_, Infallible>(response.body(String::new()).unwrap())
                }
            })
        };
        let charging = self.charging(user, cost);
        let polls = match self.chance(6) {
            true => self.below(9),
            false => usize::MAX,
        };
        let response = {
            let asked = self.layer.layer(service).oneshot(Self::request(user, cost));
            let mut asked = pin!(asked);
            if polls == usize::MAX {
                Some(asked.await.unwrap())
            } else {
                let mut response = None;
                for _ in 0..polls {
                    let polled = asked.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    if let Poll::Ready(done) = polled {
                        response = Some(done.unwrap());
                        break;
                    }
                    yield_now().await;
                }
                response
            }
        };
        let what = format!("{user} {cost} {answer:?} {:?} {:?}", self.ruled, self.used);
        let was_handled = handled.load(Ordering::Relaxed);
        if let Some(response) = &response {
            let status = charging.as_ref().map_or(429, |_| answer.status);
            assert_eq!(response.status(), status, "{what}");
            assert_eq!(was_handled, charging.is_some(), "{what}");
            for ruled in charging.iter().flatten() {
                let charged = self.settled(ruled, user, cost, answer);
                *self.used.entry(self.target(ruled, user)).or_default() += charged;
            }
            return;
        }
        // It was dropped. Another process goes on, once this one has done what is left.
        assert!(self.client.close(MINUTE).await, "{what}");
        self.client = self.store.client().await;
        self.rules = Arc::new(self.client.rules([]).unwrap());
        self.layer = layer_by(&self.rules);
        self.apply();
        for ruled in charging.iter().flatten() {
            let target = self.target(ruled, user);
            let (before, after) = (self.used(&target), self.stored(&target).await);
            let possible = match was_handled {
                true => {
                    let settled = self.settled(ruled, user, cost, answer);
                    [before + cost, before + settled.min(SHARED)]
                }
                // Rules in shadow mode are asked after the others.
                false => [before, before],
            };
            let is_possible = possible.map(|it| self.shown(&target, it)).contains(&after);
            assert!(is_possible, "{was_handled} {target:?} {after}: {what}");
            self.used.insert(target, after);
        }
    }

    /// What the store shows if this much is in use: for an RRateLimiter no more than its rate.
    fn shown(&self, target: &Target, used: u32) -> u32 {
        match target.0 {
            Algorithm::Shared => used.min(SHARED),
            _ => used,
        }
    }

    async fn stored(&self, (algorithm, name): &Target) -> u32 {
        let hour = 60 * MINUTE;
        let policy: AnyPolicy = match algorithm {
            Algorithm::Window => FixedWindow::new(1_000, hour).into(),
            Algorithm::Log => SlidingWindowLog::new(1_000, hour).into(),
            Algorithm::Shared => {
                let left = self.client.rate_limiter(name).available_permits().await;
                return match left {
                    Err(Error::NotInitialized { .. }) => 0,
                    left => SHARED - u32::try_from(left.unwrap()).unwrap(),
                };
            }
        };
        let limiter = self.client.policy_limiter(policy).unwrap();
        let peeked = limiter.peek(name, 1).await.unwrap();
        999 - u32::try_from(peeked.remaining()).unwrap()
    }

    async fn compare(&self) {
        for (target, used) in &self.used {
            let stored = self.stored(target).await;
            assert_eq!(
                stored,
                self.shown(target, *used),
                "{target:?} {:?}",
                self.ruled
            );
        }
    }
}

async fn histories_charge_what_an_oracle_says(store: Store) {
    let seeded = Seeded::new();
    println!("{seeded}");
    for number in 0..HISTORIES {
        let mut history = History::begin(&store, number, seeded.branch(number)).await;
        history.replace();
        for _ in 0..30 {
            match history.below(6) {
                0 => history.replace(),
                _ => history.ask().await,
            }
        }
        history.compare().await;
    }
}

#[tokio::test(start_paused = true)]
async fn random_histories_charge_what_an_oracle_says_in_memory() {
    histories_charge_what_an_oracle_says(Store::Memory(MemoryStore::new())).await;
}

#[tokio::test]
async fn random_histories_charge_what_an_oracle_says_on_a_server() {
    histories_charge_what_an_oracle_says(Store::Redis(Server::start())).await;
}
