//! Random histories through outages, under each failure policy, against an oracle that keeps every
//! grant for ever.
//!
//! Requests are plain, keyed, with a rate of their own, joint, or they wait, time out and leave.
//! Settings change and time passes. The store goes down, falls silent, refuses calls, and comes
//! back. `OUTAGES` sets the number of histories.

mod oracle;

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;
use tokio::task::{AbortHandle, LocalSet, yield_now};

use super::*;
use crate::error::{Refused, Result};
use crate::{KeyedRateLimiter, PermitsInUse};
use oracle::{Oracle, Subject, Terms};

#[derive(Debug, Clone, Copy)]
enum Event {
    /// Asks this often for so many permits.
    Plain(Subject, u32, usize),
    Joint(u32, usize),
    /// Waits, for at most this many ms if that is set.
    Wait(Subject, u32, Option<u64>),
    /// The waiter that started this many waiters ago is dropped.
    Leave(usize),
    SetRate(Subject, Terms),
    Store(Mode),
    Pass(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Up,
    Down,
    /// There is a connection, and no call is executed.
    Stuck,
    /// Calls are executed, and not answered.
    Silent,
    Refusing(Refused),
}

fn terms() -> impl Strategy<Value = Terms> {
    let intervals = prop::sample::select(vec![2_000, 10_000, 60_000]);
    (3..9_u64, intervals).prop_map(|(rate, interval)| Terms { rate, interval })
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let subject = || prop::sample::select(vec![Subject::Set, Subject::Own, Subject::Keyed]);
    let waiting = prop::sample::select(vec![Subject::Set, Subject::Own]);
    let mode = prop::sample::select(vec![
        Mode::Up,
        Mode::Up,
        Mode::Down,
        Mode::Stuck,
        Mode::Silent,
        Mode::Refusing(Refused::AllCalls),
        Mode::Refusing(Refused::Call),
    ]);
    // A waiter with less time would be asked for before a first try that is not answered has held
    // up the queue for long.
    let patience = prop::option::weighted(0.3, 600..20_000_u64);
    let event = prop_oneof![
        3 => (subject(), 1..3_u32, 1..5_usize)
            .prop_map(|(subject, permits, times)| Event::Plain(subject, permits, times)),
        3 => (1..3_u32, 1..5_usize).prop_map(|(permits, times)| Event::Joint(permits, times)),
        4 => (waiting, 1..4_u32, patience)
            .prop_map(|(subject, permits, patience)| Event::Wait(subject, permits, patience)),
        1 => (0..6_usize).prop_map(Event::Leave),
        1 => (subject(), terms()).prop_map(|(subject, terms)| Event::SetRate(subject, terms)),
        4 => mode.prop_map(Event::Store),
        4 => (0..5_u64).prop_map(Event::Pass),
        2 => (0..2_000_u64).prop_map(Event::Pass),
        1 => (0..20_000_u64).prop_map(Event::Pass),
    ];
    prop::collection::vec(event, 1..60)
}

fn policies() -> impl Strategy<Value = FailurePolicy> {
    prop::sample::select(vec![
        FailurePolicy::Error,
        FailurePolicy::Wait,
        FailurePolicy::Deny,
        FailurePolicy::Allow,
        one_of(1),
        one_of(1),
        one_of(2),
    ])
}

struct World {
    remote: Remote,
    client: RedissonClient,
    /// Kept, so that the client knows its rate.
    set: RateLimiter,
    /// A limiter whose rate creates it where it is missing, and changes nothing later.
    own: RateLimiter,
    keyed: KeyedRateLimiter,
    mode: Mode,
    oracle: Rc<RefCell<Oracle>>,
    waiters: Vec<(usize, Subject, AbortHandle)>,
    /// All requests.
    tasks: JoinSet<()>,
}

impl World {
    async fn new(policy: FailurePolicy) -> Self {
        let remote = Remote::new();
        let client = remote.client(policy.clone());
        let terms = Terms {
            rate: 4,
            interval: 10_000,
        };
        let set = client.rate_limiter("set");
        set.set_rate(terms.rate()).await.unwrap();
        let own = client.rate_limiter("own").with_rate(terms.rate()).unwrap();
        let keyed = client.keyed_rate_limiter("keyed:", terms.rate()).unwrap();
        Self {
            remote,
            client,
            set,
            own,
            keyed,
            mode: Mode::Up,
            oracle: Rc::new(RefCell::new(Oracle::new(policy, terms))),
            waiters: Vec::new(),
            tasks: JoinSet::new(),
        }
    }

    fn limiter(&self, subject: Subject) -> RateLimiter {
        match subject {
            Subject::Set => self.set.clone(),
            Subject::Own => self.own.clone(),
            Subject::Keyed => unreachable!("a key is asked for by its keyed limiter"),
        }
    }

    async fn take(&mut self, event: Event) {
        match event {
            Event::Plain(subject, permits, times) => {
                (0..times).for_each(|_| self.ask(subject, permits));
            }
            Event::Joint(permits, times) => (0..times).for_each(|_| self.ask_together(permits)),
            Event::Wait(subject, permits, patience) => self.wait(subject, permits, patience),
            Event::Leave(ago) => {
                if let Some(place) = self.waiters.len().checked_sub(ago + 1) {
                    let (waiter, subject, task) = self.waiters.remove(place);
                    self.oracle.borrow_mut().left(subject, waiter);
                    task.abort();
                }
            }
            Event::SetRate(subject, terms) => self.set_rate(subject, terms).await,
            Event::Store(mode) => self.switch(mode),
            Event::Pass(0) => yield_now().await,
            Event::Pass(millis) => sleep(Duration::from_millis(millis)).await,
        }
    }

    fn ask(&mut self, subject: Subject, permits: u32) {
        let oracle = Rc::clone(&self.oracle);
        let noted = move |decision: Result<Decision>| {
            if let Ok(Decision::Granted(Granted { grant, .. })) = decision {
                oracle.borrow_mut().granted(subject, permits, grant.origin);
            }
        };
        if subject == Subject::Keyed {
            let keyed = self.keyed.clone();
            self.tasks
                .spawn_local(async move { noted(keyed.check("a", permits).await) });
        } else {
            let limiter = self.limiter(subject);
            self.tasks
                .spawn_local(async move { noted(limiter.check(permits).await) });
        }
    }

    fn ask_together(&mut self, permits: u32) {
        let (client, oracle) = (self.client.clone(), Rc::clone(&self.oracle));
        let charges = [
            self.limiter(Subject::Set).charge(permits).unwrap(),
            self.limiter(Subject::Own).charge(permits).unwrap(),
            self.keyed.charge("a", permits).unwrap(),
        ];
        self.tasks.spawn_local(async move {
            let Ok(decision) = client.check_all(charges).await else {
                return;
            };
            if !decision.is_granted() {
                return;
            }
            let subjects = [Subject::Set, Subject::Own, Subject::Keyed];
            for (decision, subject) in decision.into_decisions().into_iter().zip(subjects) {
                let grant = decision.into_grant().unwrap();
                oracle.borrow_mut().granted(subject, permits, grant.origin);
            }
        });
    }

    fn wait(&mut self, subject: Subject, permits: u32, patience: Option<u64>) {
        let until = patience.map(|millis| Instant::now() + Duration::from_millis(millis));
        let waiter = self.oracle.borrow_mut().waits(subject, permits, until);
        let (limiter, oracle) = (self.limiter(subject), Rc::clone(&self.oracle));
        let task = self.tasks.spawn_local(async move {
            let waited = limiter.wait_for_anyone(permits, until).await;
            let mut oracle = oracle.borrow_mut();
            match waited {
                Ok(Some(origin)) => oracle.served(subject, waiter, origin),
                Ok(None) => oracle.timed_out(subject, waiter),
                Err(error) => oracle.failed(subject, waiter, &error),
            }
        });
        self.waiters.push((waiter, subject, task));
    }

    async fn set_rate(&self, subject: Subject, terms: Terms) {
        match subject {
            Subject::Set | Subject::Own => {
                if self.mode != Mode::Up || self.remote.breaker().has_outage() {
                    return;
                }
                let limiter = self.limiter(subject);
                let in_use = PermitsInUse::Keep;
                let updated = limiter.update_rate(terms.rate(), in_use).await;
                if !matches!(updated, Ok(true)) {
                    return;
                }
            }
            Subject::Keyed => self.keyed.set_rate(terms.rate()).unwrap(),
        }
        self.oracle.borrow_mut().set(subject, terms);
    }

    fn switch(&mut self, mode: Mode) {
        self.mode = mode;
        self.remote.set_loss(match mode {
            Mode::Stuck => Loss::OfCalls,
            Mode::Silent => Loss::OfAnswers,
            Mode::Refusing(refused) => Loss::Refused(refused),
            Mode::Up | Mode::Down => Loss::None,
        });
        match mode {
            Mode::Down => self.remote.go_down(),
            _ => self.remote.come_back(),
        }
    }

    /// Panics if a request has found a fault.
    fn check(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            if let Err(error) = ended
                && let Ok(panic) = error.try_into_panic()
            {
                std::panic::resume_unwind(panic);
            }
        }
        self.oracle.borrow().check_order();
    }

    /// Nobody waits for ever once the store is back.
    async fn end(mut self) {
        self.switch(Mode::Up);
        let oracle = Rc::clone(&self.oracle);
        for _ in 0..600 {
            self.check();
            if !oracle.borrow().has_any_waiters() {
                return;
            }
            sleep(SECOND).await;
        }
        panic!("somebody waits for ever");
    }
}

fn histories() -> u32 {
    std::env::var("OUTAGES").map_or(500, |number| number.parse().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn waiters_keep_their_order_and_no_limit_is_exceeded_through_outages(
        policy in policies(),
        events in events(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        LocalSet::new().block_on(&runtime, async {
            let mut world = World::new(policy).await;
            for event in events {
                world.take(event).await;
                world.check();
            }
            world.end().await;
        });
    }
}
