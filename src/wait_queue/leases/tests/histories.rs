//! Random histories of several processes with leases, on a store that is nothing but the rule: each grant counts until an
//! interval after its score. Whatever is late, lost, suspended or ended, no window of real use holds more than the rate.

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
    /// What is available at this time of the server.
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

/// A process whose clock stands still while it is suspended.
struct Suspendable {
    start: Instant,
    leases: Leases,
    suspended: i64,
    asking: Vec<Asked>,
    settling: Vec<Ended>,
}

/// A call for a lease, which the store may have executed.
struct Asked {
    plan: Plan,
    sent: Moment,
    granted: Option<Member>,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Pass(i64),
    Suspend(usize, i64),
    Request(usize, u32),
    /// The store executes the call for a lease.
    Execute(usize),
    /// Its answer arrives, or is lost.
    Answer(usize, bool),
    Settle(usize, bool),
    End(usize),
    /// Another client takes what is there.
    Other(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let process = 0..3_usize;
    let step = prop_oneof![
        5 => (1..40_i64).prop_map(Step::Pass),
        2 => (process.clone(), 1..100_i64).prop_map(|(i, time)| Step::Suspend(i, time)),
        20 => (process.clone(), 1..3_u32).prop_map(|(i, permits)| Step::Request(i, permits)),
        6 => process.clone().prop_map(Step::Execute),
        6 => (process.clone(), prop::bool::weighted(0.9)).prop_map(|(i, it)| Step::Answer(i, it)),
        6 => (process.clone(), prop::bool::weighted(0.8)).prop_map(|(i, it)| Step::Settle(i, it)),
        1 => process.prop_map(Step::End),
        1 => (1..10_u32).prop_map(Step::Other),
    ];
    prop::collection::vec(step, 1..400)
}

impl Suspendable {
    fn new(start: Instant) -> Self {
        let leases = Leases::new(start);
        leases.hold(ms(LASTS));
        Self {
            start,
            leases,
            suspended: 0,
            asking: Vec::new(),
            settling: Vec::new(),
        }
    }

    fn now(&self, time: i64) -> Moment {
        Moment {
            at: self.start + ms(time - self.suspended),
            wall: time,
        }
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
        let mut answer = Answer::new(member.score, i64::from(RATE), 99, INTERVAL, INTERVAL);
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

/// When permits were used, in order.
fn used(steps: &[Step]) -> Vec<i64> {
    let start = Instant::now();
    let mut store = Store::default();
    let mut processes = [(); 3].map(|()| Suspendable::new(start));
    let (mut time, mut used) = (0, Vec::new());
    for &step in steps {
        let mut permits = 0;
        match step {
            Step::Pass(passed) => time += passed,
            Step::Suspend(i, passed) => {
                time += passed;
                processes[i].suspended += passed;
            }
            Step::Request(i, asked) => {
                if processes[i].request(asked, &mut store, time) {
                    permits = asked;
                }
            }
            Step::Execute(i) => processes[i].execute(&mut store, time),
            Step::Answer(i, arrives) => processes[i].answer(arrives, time),
            Step::Settle(i, arrives) => processes[i].settle(arrives, &mut store),
            Step::End(i) => {
                let todo = processes[i].leases.end();
                processes[i].make(todo, time);
            }
            Step::Other(most) => {
                permits = store.acquire(most, 0, time).map_or(0, |it| it.permits);
            }
        }
        used.extend((0..permits).map(|_| time));
    }
    used
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_window_of_real_use_holds_more_than_the_rate(steps in steps()) {
        let used = used(&steps);
        for (first, last) in used.iter().zip(used.iter().skip(RATE as usize)) {
            prop_assert!(first + INTERVAL <= *last, "{first} {last}");
        }
    }
}
