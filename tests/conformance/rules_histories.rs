//! Random histories of rules: they are replaced, put in shadow mode and asked, and what they charge
//! is settled, given back or dropped. An oracle keeps every grant for ever. Time passes so that
//! either nothing or everything expires.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use redisson_rate_limiter::{
    AnyPolicy, Attributes, Error, FixedWindow, Plan, Rate, RedissonClient, Rule, Rules, RulesGrant,
    SlidingWindowLog, Verdict,
};

use crate::fixture::{Fixture, HOUR, SECOND};
use crate::seeded::Seeded;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Algorithm {
    Window,
    Log,
    Shared,
}

/// Where what is used is stored: the prefix of a limiter and the user, and the algorithm.
type Target = (Algorithm, String);

/// A limiter of a rule.
#[derive(Debug, Clone)]
struct Limit {
    algorithm: Algorithm,
    prefix: String,
    permits: u32,
}

#[derive(Debug, Clone)]
enum Planned {
    To(Limit),
    Allow,
    Block,
}

#[derive(Debug, Clone)]
struct Ruled {
    name: &'static str,
    limit: Limit,
    /// The plan of the second user.
    plan: Option<Planned>,
    /// The method of the requests that it applies to; `None` for all.
    when: Option<&'static str>,
    /// The rule that does not apply where this one does.
    instead_of: Option<&'static str>,
    is_shadow: bool,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    user: &'static str,
    method: &'static str,
    cost: u32,
}

impl Attributes for Request {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        match name {
            "user" => Some(self.user.into()),
            "method" => Some(self.method.into()),
            "cost" => Some(self.cost.to_string().into()),
            _ => None,
        }
    }
}

/// What a rule has charged, and what it charged for.
#[derive(Debug, Clone)]
struct Charge {
    rule: &'static str,
    target: Target,
    cost: u32,
    permits: u32,
}

struct History<'a> {
    fixture: &'a Fixture,
    random: Seeded,
    client: RedissonClient,
    rules: Arc<Rules>,
    /// The beginning of the names of all targets.
    start: &'a str,
    ruled: Vec<Ruled>,
    all_in_shadow: bool,
    used: BTreeMap<Target, i64>,
    /// The algorithms that prefixes have had.
    algorithms: BTreeMap<String, Algorithm>,
    kept: Vec<(RulesGrant, Vec<Charge>)>,
    /// Whether time passes. A fixed window ends by the server's clock, which the tests do not move.
    has_time: bool,
    /// How many minutes have passed since all that was in use had expired, less than an hour.
    minutes: u32,
}

/// The permits of all RRateLimiters: a replacement does not change their rate.
const SHARED: u32 = 6;

const USERS: [&str; 2] = ["alice", "bob"];

const METHODS: [&str; 2] = ["GET", "POST"];

impl Algorithm {
    fn policy(self, permits: u32) -> AnyPolicy {
        match self {
            Self::Window => FixedWindow::new(permits, HOUR).into(),
            Self::Log => SlidingWindowLog::new(permits, HOUR).into(),
            Self::Shared => Rate::overall(u64::from(permits), HOUR).into(),
        }
    }
}

impl Limit {
    fn target(&self, user: &str) -> Target {
        (self.algorithm, format!("{}{user}", self.prefix))
    }
}

impl History<'_> {
    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn limit(&mut self, name: &str) -> Limit {
        let algorithms: &[_] = match self.has_time {
            true => &[Algorithm::Log, Algorithm::Shared],
            false => &[Algorithm::Window, Algorithm::Log, Algorithm::Shared],
        };
        let algorithm = algorithms[self.below(algorithms.len())];
        // Some of these prefixes may get another algorithm later.
        let prefix = match self.below(5) {
            0 => format!("{}{name}:", self.start),
            1 => format!("{}{algorithm:?}:other:{name}:", self.start),
            _ => format!("{}{algorithm:?}:{name}:", self.start),
        };
        let permits = match algorithm {
            Algorithm::Shared => SHARED,
            _ => 3 + self.below(5) as u32,
        };
        Limit {
            algorithm,
            prefix,
            permits,
        }
    }

    fn some_rules(&mut self) -> Vec<Ruled> {
        let names = ["a", "b", "c", "d"];
        let mut ruled = Vec::new();
        for name in names {
            if self.chance(3) {
                continue;
            }
            let plan = match self.below(8) {
                0 => Some(Planned::Allow),
                1 => Some(Planned::Block),
                2 | 3 => Some(Planned::To(self.limit(&format!("{name}-paid")))),
                _ => None,
            };
            let when = METHODS.get(self.below(6)).copied();
            let place = self.below(3 * names.len());
            let earlier = ruled.get(place).map(|it: &Ruled| it.name);
            ruled.push(Ruled {
                name,
                limit: self.limit(name),
                plan,
                when,
                instead_of: earlier,
                is_shadow: self.chance(3),
            });
        }
        ruled
    }

    fn limiter(&self, limit: &Limit) -> redisson_rate_limiter::PolicyLimiter<AnyPolicy> {
        let policy = limit.algorithm.policy(limit.permits);
        let limiter = self.client.policy_limiter(policy).unwrap();
        limiter.with_prefix(&*limit.prefix)
    }

    fn rule(&self, ruled: &Ruled) -> Rule {
        let limiter = self.limiter(&ruled.limit).with_name(ruled.name);
        let mut rule = Rule::new(limiter).by(["user"]);
        if let Some(planned) = &ruled.plan {
            let plan = match planned {
                Planned::To(limit) => {
                    let limiter = self.limiter(limit).with_name(ruled.name);
                    Plan::Limit(Arc::new(limiter))
                }
                Planned::Allow => Plan::Allow,
                Planned::Block => Plan::Block,
            };
            rule = rule.with_plan("plan", plan).key(USERS[1], "plan");
        }
        if let Some(method) = ruled.when {
            rule = rule.when("method", [method]);
        }
        rule = rule.instead_of(ruled.instead_of);
        if ruled.is_shadow {
            rule.in_shadow()
        } else {
            rule
        }
    }

    /// Replaces the rules, which is refused if a prefix has had another algorithm.
    fn replace(&mut self) {
        let ruled = self.some_rules();
        let made: Vec<_> = ruled.iter().map(|it| self.rule(it)).collect();
        let mut algorithms = self.algorithms.clone();
        let fits = ruled.iter().all(|ruled| {
            let plan = match &ruled.plan {
                Some(Planned::To(limit)) => Some(limit),
                _ => None,
            };
            std::iter::once(&ruled.limit).chain(plan).all(|limit| {
                let known = algorithms.entry(limit.prefix.clone());
                *known.or_insert(limit.algorithm) == limit.algorithm
            })
        });
        let changed = self.rules.replace(made);
        if !fits {
            let refused = changed.unwrap_err();
            assert!(matches!(refused, Error::InvalidRule { .. }), "{refused}");
            return;
        }
        let change = changed.unwrap();
        let names = |rules: &[Ruled]| rules.iter().map(|it| it.name).collect::<Vec<_>>();
        let (before, now) = (names(&self.ruled), names(&ruled));
        let only = |these: &[&'static str], others: &[&'static str]| -> Vec<_> {
            let only = these.iter().filter(|it| !others.contains(it));
            only.copied().collect()
        };
        assert_eq!(change.added, only(&now, &before));
        assert_eq!(change.removed, only(&before, &now));
        for it in &ruled {
            let Some(earlier) = self.ruled.iter().find(|earlier| earlier.name == it.name) else {
                continue;
            };
            let is_told = change.started_anew.iter().any(|name| name == it.name);
            let is_same = |one: &Limit, other: &Limit| {
                (one.algorithm, &one.prefix) == (other.algorithm, &other.prefix)
            };
            let mut starts_anew = !is_same(&it.limit, &earlier.limit);
            if let (Some(one), Some(other)) = (of_plan(it), of_plan(earlier)) {
                starts_anew |= !is_same(one, other);
            }
            assert_eq!(is_told, starts_anew, "{earlier:?} {it:?}");
        }
        (self.ruled, self.algorithms) = (ruled, algorithms);
    }

    /// Whether a rule decides on requests of this method, or one that is in shadow mode would.
    fn applies(&self, ruled: &Ruled, method: &str) -> bool {
        let is_in_shadow = |it: &Ruled| it.is_shadow || self.all_in_shadow;
        let matches = |it: &Ruled| it.when.is_none_or(|when| when == method);
        let is_instead = |other: &Ruled| {
            other.instead_of == Some(ruled.name)
                && matches(other)
                && (!is_in_shadow(other) || is_in_shadow(ruled))
        };
        matches(ruled) && !self.ruled.iter().any(is_instead)
    }

    /// The limits of rules of one mode for a request; `None` if one blocks it.
    fn limits(&self, request: Request, in_shadow: bool) -> Option<Vec<(&'static str, Limit)>> {
        let mut limits = Vec::new();
        for ruled in &self.ruled {
            let is_in_shadow = ruled.is_shadow || self.all_in_shadow;
            if is_in_shadow != in_shadow || !self.applies(ruled, request.method) {
                continue;
            }
            match &ruled.plan {
                Some(plan) if request.user == USERS[1] => match plan {
                    Planned::To(limit) => limits.push((ruled.name, limit.clone())),
                    Planned::Allow => {}
                    Planned::Block => return None,
                },
                _ => limits.push((ruled.name, ruled.limit.clone())),
            }
        }
        Some(limits)
    }

    fn used(&self, target: &Target) -> i64 {
        self.used.get(target).copied().unwrap_or(0)
    }

    /// What limits would charge for a request together, if all grant it.
    fn charges(&self, request: Request, limits: &[(&'static str, Limit)]) -> Option<Vec<Charge>> {
        let each = limits.iter().map(|(rule, limit)| {
            let target = limit.target(request.user);
            let fits = self.used(&target) + i64::from(request.cost) <= i64::from(limit.permits);
            fits.then_some(Charge {
                rule,
                target,
                cost: request.cost,
                permits: limit.permits,
            })
        });
        each.collect()
    }

    /// What the oracle says about a request: what is charged to rules of both modes, if they grant
    /// it.
    fn expected(&self, request: Request) -> Option<Vec<Charge>> {
        let enforced = self.limits(request, false)?;
        let mut charges = self.charges(request, &enforced)?;
        let in_shadow = self.limits(request, true);
        charges.extend(
            in_shadow
                .and_then(|it| self.charges(request, &it))
                .unwrap_or_default(),
        );
        Some(charges)
    }

    fn take(&mut self, charges: &[Charge]) {
        for charge in charges {
            *self.used.entry(charge.target.clone()).or_default() += i64::from(charge.cost);
        }
    }

    fn request(&mut self) -> Request {
        Request {
            user: USERS[self.below(2)],
            method: METHODS[self.below(2)],
            cost: 1 + self.below(4) as u32,
        }
    }

    async fn check(&mut self) {
        let request = self.request();
        let verdict = self.rules.check(&request).await;
        let enforced = self.limits(request, false);
        let is_too_much = |limits: Vec<(&str, Limit)>| {
            limits.iter().any(|(_, limit)| request.cost > limit.permits)
        };
        if enforced.is_some_and(is_too_much) {
            assert!(matches!(verdict, Err(Error::ExceedsLimit { .. })));
            return;
        }
        match (verdict.unwrap(), self.expected(request)) {
            (Verdict::Granted(granted), Some(charges)) => {
                let names: Vec<_> = charges.iter().map(|it| it.rule).collect();
                assert_eq!(granted.rules().collect::<Vec<_>>(), names);
                self.take(&charges);
                self.kept.push((granted, charges));
            }
            (Verdict::Denied(..), None) => {}
            (verdict, expected) => panic!("{request:?}: {verdict:?}, and not {expected:?}"),
        }
    }

    /// Makes a check and drops it, before or while the rules are asked: each mode's rules are
    /// charged together or not at all.
    async fn drop_a_check(&mut self) {
        let request = self.request();
        let polls = self.below(4);
        {
            let rules = Arc::clone(&self.rules);
            let mut check = pin!(rules.check(&request));
            for _ in 0..polls {
                let polled = check.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(Ok(Verdict::Granted(granted))) = polled {
                    let charges = self.expected(request).unwrap();
                    self.take(&charges);
                    self.kept.push((granted, charges));
                    return;
                }
                if polled.is_ready() {
                    return;
                }
                tokio::task::yield_now().await;
            }
        }
        self.restart().await;
        let Some(charges) = self.expected(request) else {
            return;
        };
        for charge in charges {
            let before = self.used(&charge.target);
            let after = self.stored(&charge.target).await;
            let most = before + i64::from(charge.cost);
            assert!(
                after == before || after == most,
                "{before} {after} {charge:?}"
            );
            self.used.insert(charge.target, after);
        }
    }

    /// Another process goes on, once this one has given back what dropped requests have left.
    async fn restart(&mut self) {
        assert!(self.client.close(60 * SECOND).await);
        self.kept.clear();
        self.client = self.fixture.client("next").await;
        let known: Vec<_> = self
            .algorithms
            .iter()
            .map(|(prefix, algorithm)| {
                let limiter = self.limiter(&Limit {
                    algorithm: *algorithm,
                    prefix: prefix.clone(),
                    permits: SHARED,
                });
                Rule::new(limiter.with_name(&**prefix)).by(["nothing"])
            })
            .collect();
        self.rules = Arc::new(self.client.rules(known).unwrap());
        let rules: Vec<_> = self.ruled.iter().map(|it| self.rule(it)).collect();
        self.rules.replace(rules).unwrap();
        self.rules.set_shadow(self.all_in_shadow);
    }

    async fn settle(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let place = self.below(self.kept.len());
        let (granted, mut charges) = self.kept.swap_remove(place);
        if self.chance(3) {
            let given_back = self.rules.refund(granted.clone()).await.unwrap();
            let mut expected = 0;
            for charge in &charges {
                expected += u64::from(charge.cost);
                *self.used.get_mut(&charge.target).unwrap() -= i64::from(charge.cost);
            }
            assert_eq!(given_back, expected, "{charges:?}");
        } else {
            let costs: BTreeMap<_, _> = charges
                .iter_mut()
                .map(|it| (it.rule, 1 + self.random.below(6) as u32))
                .collect();
            let settled = self
                .rules
                .settle(granted.clone(), |rule, _| costs.get(rule).copied());
            settled.await.unwrap();
            for charge in charges {
                let cost = i64::from(costs[charge.rule]) - i64::from(charge.cost);
                let used = self.used.entry(charge.target.clone()).or_default();
                // What is missing is taken: of an RRateLimiter in any case, of others as far as
                // they have it.
                *used += match charge.target.0 {
                    Algorithm::Shared => cost,
                    _ => cost.min((i64::from(charge.permits) - *used).max(0)),
                };
            }
        }
        // Another settlement of the same grant has no effect.
        if self.chance(2) {
            assert_eq!(self.rules.refund(granted).await.unwrap(), 0);
        }
    }

    /// Lets some minutes pass, in which nothing expires, or two hours, in which all does.
    async fn pass(&mut self) {
        let minutes = 1 + self.random.below(9) as u32;
        if self.minutes + minutes < 60 {
            self.minutes += minutes;
            self.fixture.pass(60 * SECOND * minutes);
            return;
        }
        self.compare().await;
        self.minutes = 0;
        self.fixture.pass(2 * HOUR);
        self.used.values_mut().for_each(|used| *used = 0);
        // What was charged came back by itself.
        for (granted, _) in std::mem::take(&mut self.kept) {
            assert_eq!(self.rules.refund(granted).await.unwrap(), 0);
        }
    }

    /// What is used of a target in the store, as far as that is known: of an RRateLimiter no more
    /// than its rate.
    async fn stored(&self, target: &Target) -> i64 {
        let (algorithm, name) = target;
        if *algorithm == Algorithm::Shared {
            let limiter = self.client.rate_limiter(name);
            let left = match limiter.available_permits().await {
                Err(Error::NotInitialized { .. }) => return 0,
                left => left.unwrap(),
            };
            return i64::from(SHARED) - i64::try_from(left).unwrap();
        }
        let limiter = self.client.policy_limiter(algorithm.policy(1_000)).unwrap();
        let peeked = limiter.peek(name, 1).await.unwrap();
        999 - i64::try_from(peeked.remaining()).unwrap()
    }

    async fn compare(&self) {
        for (target, used) in &self.used {
            let most = match target.0 {
                Algorithm::Shared => i64::from(SHARED),
                _ => i64::MAX,
            };
            assert_eq!(self.stored(target).await, (*used).min(most), "{target:?}");
        }
    }
}

fn of_plan(ruled: &Ruled) -> Option<&Limit> {
    match &ruled.plan {
        None => Some(&ruled.limit),
        Some(Planned::To(limit)) => Some(limit),
        Some(Planned::Allow | Planned::Block) => None,
    }
}

/// On a cluster the targets of every other history are in one slot.
pub async fn random_histories_of_rules_charge_what_an_oracle_says(fixture: Fixture) {
    let histories = if fixture.is_in_memory() { 300 } else { 20 };
    let seeded = Seeded::new();
    println!("{seeded}");
    for number in 0..histories {
        let client = fixture.client(&format!("client {number}")).await;
        let start = match number % 2 {
            0 => format!("{{{}-{number}}}", fixture.name()),
            _ => format!("{}-{number}-", fixture.name()),
        };
        let mut history = History {
            fixture: &fixture,
            random: seeded.branch(number),
            rules: Arc::new(client.rules([]).unwrap()),
            client,
            start: &start,
            ruled: Vec::new(),
            all_in_shadow: false,
            used: BTreeMap::new(),
            algorithms: BTreeMap::new(),
            kept: Vec::new(),
            has_time: number / 2 % 2 == 1,
            minutes: 0,
        };
        history.replace();
        for _ in 0..40 {
            match history.below(14) {
                0 | 1 => history.replace(),
                2 => {
                    history.all_in_shadow = history.chance(2);
                    history.rules.set_shadow(history.all_in_shadow);
                }
                3 | 4 => history.settle().await,
                5 => history.drop_a_check().await,
                6 if history.has_time => history.pass().await,
                _ => history.check().await,
            }
        }
        history.compare().await;
    }
}
