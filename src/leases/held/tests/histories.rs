//! Random histories of several processes with leases, on a store that implements only one rule:
//! each grant counts until an interval after its score. Whatever is late, lost, suspended, ended or
//! set to another time, no window of actual uses holds more than the rate. If the memory of a
//! process is cloned, and both copies go on, its leases may be used twice until their end, and no
//! longer.

use proptest::prelude::*;

use super::*;

const RATE: u32 = 20;

#[derive(Default)]
struct Store {
    members: Vec<Member>,
}

#[derive(Clone, Copy)]
struct Member {
    id: CallId,
    score: i64,
    permits: u32,
}

impl Store {
    /// The permits available at this time of the server.
    fn available(&mut self, now: i64) -> u32 {
        self.members.retain(|it| it.score + INTERVAL > now);
        RATE - self.members.iter().map(|it| it.permits).sum::<u32>()
    }

    fn acquire(&mut self, most: u32, ahead: i64, now: i64) -> Option<Member> {
        let granted = Member {
            id: new_call_id(),
            score: now + ahead,
            permits: self.available(now).min(most),
        };
        self.members.push(granted);
        (granted.permits > 0).then_some(granted)
    }

    fn settle(&mut self, lease: &Grant, settlement: Settlement) {
        let is_of = |it: &&mut Member| it.id == lease.call_id && it.score == lease.score;
        if let Some(member) = self.members.iter_mut().find(is_of) {
            member.permits = member.permits.min(settlement.used);
            member.score -= settlement.early;
        }
    }
}

/// A process on a machine that is suspended, while its monotonic clock stands still; or whose wall
/// clock is set.
struct Machine {
    start: Instant,
    leases: Leases,
    suspended: i64,
    /// By how much its wall clock is ahead.
    ahead: i64,
    /// When it last took permits of a lease.
    last_use: Option<Moment>,
    asking: Vec<Asked>,
    settling: Vec<Ended>,
}

/// A call for a lease, which the store may have executed.
struct Asked {
    plan: LeasePlan,
    sent: Moment,
    granted: Option<Member>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Pass(i64),
    Suspend(usize, i64),
    /// Moves the wall clock of the last machine by this. A machine that is also suspended keeps its
    /// clock: if a clock is set back by less than the time of a suspension, nothing shows it.
    SetClock(i64),
    /// Copies the memory of a process, which goes on as another process too.
    Clone(usize),
    Request(usize, u32),
    /// The store executes the call for a lease.
    Execute(usize),
    /// The answer to the call arrives, or is lost.
    Acquired(usize, bool),
    Settle(usize, bool),
    End(usize),
    /// Another client takes the permits that are left.
    Other(u32),
}

fn steps(clones: bool) -> impl Strategy<Value = Vec<Step>> {
    let process = 0..4_usize;
    let step = prop_oneof![
        5 => (1..40_i64).prop_map(Step::Pass),
        2 => (0..2_usize, 1..100_i64).prop_map(|(i, time)| Step::Suspend(i, time)),
        1 => (-150..150_i64).prop_map(Step::SetClock),
        u32::from(clones) => process.clone().prop_map(Step::Clone),
        20 => (process.clone(), 1..3_u32).prop_map(|(i, permits)| Step::Request(i, permits)),
        6 => process.clone().prop_map(Step::Execute),
        6 => (process.clone(), prop::bool::weighted(0.9)).prop_map(|(i, it)| Step::Acquired(i, it)),
        6 => (process.clone(), prop::bool::weighted(0.8)).prop_map(|(i, it)| Step::Settle(i, it)),
        1 => process.prop_map(Step::End),
        1 => (1..10_u32).prop_map(Step::Other),
    ];
    prop::collection::vec(step, 1..400)
}

impl Machine {
    fn new(start: Instant) -> Self {
        let leases = Leases::new(start);
        leases.hold(hold(LASTS));
        Self {
            start,
            leases,
            suspended: 0,
            ahead: 0,
            last_use: None,
            asking: Vec::new(),
            settling: Vec::new(),
        }
    }

    fn now(&self, time: i64) -> Moment {
        Moment {
            at: self.start + ms(time - self.suspended),
            wall: time + self.ahead,
        }
    }

    /// A copy of its memory, without the calls under way; and how many permits both have left in
    /// leases.
    fn cloned(&self) -> (Self, u32) {
        let copy = Self {
            suspended: self.suspended,
            ahead: self.ahead,
            last_use: self.last_use,
            ..Self::new(self.start)
        };
        let held = self.leases.held.load_full();
        let copies = held.iter().map(|lease| {
            let copied = Lease::new(lease.terms.clone());
            let at_its_end = Moment {
                at: lease.terms.ends() - ms(1),
                wall: lease.terms.sent.wall,
            };
            for last_use in self.last_use.into_iter().chain([at_its_end]) {
                if copied.left() > lease.left() {
                    copied.take(lease.used(), || last_use);
                }
            }
            assert_eq!(copied.left(), lease.left());
            Arc::new(copied)
        });
        copy.leases.held.store(Arc::new(copies.collect()));
        (copy, held.iter().map(|lease| lease.left()).sum())
    }

    fn make(&mut self, todo: Todo, time: i64) {
        let sent = self.now(time);
        self.settling.extend(todo.settle);
        self.asking.extend(todo.ask.map(|plan| Asked {
            plan,
            sent,
            granted: None,
        }));
    }

    /// Whether the permits are used now.
    fn request(&mut self, permits: u32, store: &mut Store, time: i64) -> bool {
        let now = self.now(time);
        if let Some(is_attention_due) = self.leases.take(permits, None, || now) {
            self.last_use = Some(now);
            if is_attention_due {
                let todo = self.leases.attend(now);
                self.make(todo, time);
            }
            return true;
        }
        let is_granted = store.available(time) >= permits;
        if is_granted {
            store.acquire(permits, 0, time);
        }
        let (taken, denied) = match is_granted {
            true => (i64::from(permits), None),
            false => (0, Some(ms(1))),
        };
        let settings = (ms(INTERVAL), None);
        let todo = self.leases.note(settings, taken, denied, now);
        self.make(todo, time);
        is_granted
    }

    fn execute(&mut self, store: &mut Store, time: i64) {
        if let Some(asked) = self.asking.iter_mut().find(|it| it.granted.is_none()) {
            asked.granted = store.acquire(asked.plan.permits, asked.plan.lasts, time);
        }
    }

    fn answer(&mut self, arrives: bool, time: i64) {
        let Some(place) = self.asking.iter().position(|it| it.granted.is_some()) else {
            return;
        };
        let asked = self.asking.remove(place);
        let Some(member) = asked.granted.filter(|_| arrives) else {
            return self.leases.failed(self.now(time).at);
        };
        let mut answer = Acquired::new(member.score, i64::from(RATE), 99, INTERVAL, INTERVAL);
        answer.until_score = asked.plan.lasts;
        let granted = (&answer, member.permits);
        let (call, now) = ((member.id, asked.sent), self.now(time));
        let (todo, _) = self.leases.granted(&asked.plan, call, granted, now);
        self.make(todo, time);
    }

    fn settle(&mut self, arrives: bool, store: &mut Store) {
        if !self.settling.is_empty() {
            let ended = self.settling.remove(0);
            if arrives {
                store.settle(&ended.lease, ended.settlement);
            }
        }
    }
}

#[derive(Default)]
struct History {
    /// When permits were used, in order.
    used: Vec<i64>,
    /// When memory was cloned, and how many permits the leases in it had left.
    clones: Vec<(i64, u32)>,
}

impl History {
    fn of(steps: &[Step]) -> Self {
        let start = Instant::now();
        let mut store = Store::default();
        let mut machines = Vec::from([(); 3].map(|()| Machine::new(start)));
        let (mut time, mut history) = (0, Self::default());
        for &step in steps {
            let (count, mut permits) = (machines.len(), 0);
            match step {
                Step::Pass(passed) => time += passed,
                Step::Suspend(i, passed) => {
                    time += passed;
                    machines[i].suspended += passed;
                }
                Step::SetClock(by) => machines[2].ahead += by,
                Step::Clone(i) => {
                    let (copy, left) = machines[i % count].cloned();
                    machines.push(copy);
                    history.clones.push((time, left));
                }
                Step::Request(i, asked) => {
                    if machines[i % count].request(asked, &mut store, time) {
                        permits = asked;
                    }
                }
                Step::Execute(i) => machines[i % count].execute(&mut store, time),
                Step::Acquired(i, arrives) => machines[i % count].answer(arrives, time),
                Step::Settle(i, arrives) => machines[i % count].settle(arrives, &mut store),
                Step::End(i) => {
                    let machine = &mut machines[i % count];
                    let todo = machine.leases.end();
                    machine.make(todo, time);
                }
                Step::Other(most) => {
                    permits = store.acquire(most, 0, time).map_or(0, |it| it.permits);
                }
            }
            history.used.extend((0..permits).map(|_| time));
        }
        history
    }

    /// Asserts that no window holds more uses than the rate and the permits left in cloned leases
    /// that may not have ended.
    fn check(&self) {
        for (place, &first) in self.used.iter().enumerate() {
            let end = first + INTERVAL;
            let used = self.used[place..].iter().take_while(|at| **at < end);
            let in_reach = |&&(at, _): &&(i64, u32)| at < end && first < at + LASTS;
            let twice = self.clones.iter().filter(in_reach);
            let twice: u32 = twice.map(|(_, left)| left).sum();
            let most = (RATE + twice) as usize;
            assert!(used.count() <= most, "more than {most} from {first} on");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_window_of_real_use_holds_more_than_the_rate(steps in steps(false)) {
        History::of(&steps).check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cloned_memory_uses_its_leases_twice_until_they_end_and_no_longer(steps in steps(true)) {
        History::of(&steps).check();
    }
}
