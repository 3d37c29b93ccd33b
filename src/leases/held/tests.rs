//! Leases that the tests grant, at times that they set.

mod histories;
mod next_lease;

use super::*;
use crate::permit::new_call_id;
use crate::window::Settings;

const LASTS: i64 = 100;
const INTERVAL: i64 = 1_000;
const NEVER: Option<Duration> = None;

/// A process: its clock and its leases.
struct Process {
    start: Instant,
    leases: Leases,
    millis: i64,
}

fn ms(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap())
}

fn hold(millis: i64) -> Hold {
    Hold {
        up_to: ms(millis),
        fewest_uses: 2,
    }
}

impl Process {
    fn new() -> Self {
        let start = Instant::now();
        let leases = Leases::new(start);
        leases.hold(hold(LASTS));
        Self {
            start,
            leases,
            millis: 0,
        }
    }

    fn now(&self) -> Moment {
        Moment {
            at: self.start + ms(self.millis),
            wall: self.millis,
        }
    }

    fn take(&self, permits: u32) -> Option<bool> {
        self.leases.take(permits, None, || self.now())
    }

    fn takes(&self, times: usize) -> usize {
        (0..times).filter(|_| self.take(1).is_some()).count()
    }

    /// Notes that the store has granted a request.
    fn note(&self, permits: i64) -> Todo {
        let settings = (ms(INTERVAL), None);
        self.leases.note(settings, permits, NEVER, self.now())
    }

    fn denied(&self) -> Todo {
        let settings = (ms(INTERVAL), None);
        self.leases.note(settings, 0, Some(ms(30)), self.now())
    }

    /// Grants a lease, by a call that was sent `took` ms ago.
    fn granted(&self, plan: &LeasePlan, permits: u32, took: i64) -> Todo {
        self.answered(plan, permits, took, LASTS)
    }

    fn answered(&self, plan: &LeasePlan, permits: u32, took: i64, lasts: i64) -> Todo {
        let interval = INTERVAL.max(2 * lasts);
        let answer = Acquired::new(self.millis + lasts, 1_000, 500, interval, interval);
        self.heard(plan, permits, took, (answer, lasts))
    }

    /// Takes in the answer to a call for a lease that lasts for `lasts` ms, sent `took` ms ago.
    fn heard(
        &self,
        plan: &LeasePlan,
        permits: u32,
        took: i64,
        (mut answer, lasts): (Acquired, i64),
    ) -> Todo {
        let sent = Moment {
            at: self.start + ms(self.millis - took),
            wall: self.millis - took,
        };
        answer.until_score = lasts;
        let (todo, _) =
            self.leases
                .granted(plan, (new_call_id(), sent), (&answer, permits), self.now());
        todo
    }

    /// A process with a lease of this many permits, granted at once.
    fn with_lease(permits: u32) -> Self {
        let process = Self::new();
        process.note(1);
        let mut plan = process.note(i64::from(permits)).ask.unwrap();
        plan.permits = permits; // the lease has all that was asked for
        assert!(process.granted(&plan, permits, 0).settle.is_empty());
        process
    }
}

fn settlements(todo: &Todo) -> Vec<(u32, i64)> {
    let each = todo.settle.iter().map(|it| it.settlement);
    each.map(|it| (it.used, it.early)).collect()
}

#[test]
fn the_second_request_asks_for_one_lease() {
    let process = Process::new();
    assert!(process.note(1).ask.is_none());
    let plan = process.note(1).ask.unwrap();
    assert_eq!((plan.permits, plan.lasts), (10, LASTS));
    assert!(process.note(1).ask.is_none());
    process.leases.failed(process.now().at);
    assert!(process.note(1).ask.is_none(), "one asked already");
}

#[test]
fn a_lease_is_at_most_half_of_the_interval() {
    let process = Process::new();
    process.leases.hold(hold(700));
    process.leases.release(hold(LASTS));
    process.note(1);
    assert_eq!(process.note(1).ask.unwrap().lasts, 500);
}

#[test]
fn permits_of_a_lease_are_granted_until_it_is_used_up() {
    let process = Process::with_lease(10);
    assert_eq!(process.takes(20), 10);
    let todo = process.leases.attend(process.now());
    assert_eq!(settlements(&todo), [(10, LASTS)]);
    assert!(todo.ask.is_some(), "the next one is due");
}

#[test]
fn once_the_limiter_has_changed_nothing_is_leased_before_the_next_request() {
    let mut process = Process::with_lease(10);
    process.leases.end();
    process.millis = LASTS;
    assert!(process.leases.attend(process.now()).ask.is_none());
    assert!(process.note(1).ask.is_some());
}

#[test]
fn a_request_takes_from_all_stripes_and_not_more_than_there_is() {
    let process = Process::with_lease(10);
    assert_eq!(process.take(11), None);
    assert!(process.take(9).is_some());
    assert_eq!(process.take(2), None);
    assert!(process.take(1).is_some());
}

#[test]
fn a_use_of_several_stripes_is_settled_at_the_time_of_the_use() {
    let mut process = Process::with_lease(10);
    process.millis = 60;
    assert!(process.take(9).is_some());
    process.millis = LASTS;
    let todo = process.leases.attend(process.now());
    assert_eq!(settlements(&todo), [(9, 39)]);
}

#[test]
fn the_last_use_of_a_stripe_is_the_one_that_counts() {
    let mut process = Process::with_lease(10);
    for millis in [10, 60] {
        process.millis = millis;
        assert!(process.take(1).is_some());
    }
    process.millis = LASTS;
    let todo = process.leases.attend(process.now());
    assert_eq!(settlements(&todo), [(2, 39)]);
}

#[test]
fn nothing_is_taken_of_several_stripes_of_a_lease_that_is_over() {
    let mut process = Process::with_lease(10);
    process.millis = LASTS;
    assert_eq!(process.take(9), None);
    assert!(process.leases.peek(9, None, process.now()).is_none());
    let todo = process.leases.attend(process.now());
    assert_eq!(settlements(&todo), [(0, LASTS)]);
    // It counts for an interval after its end.
    let back_at = process.start + ms(LASTS + INTERVAL);
    assert_eq!(todo.settle[0].back_at, back_at);
}

#[test]
fn of_two_requests_at_once_that_do_not_both_fit_one_is_granted() {
    for _ in 0..1_000 {
        let process = Process::with_lease(4);
        let both = std::sync::Barrier::new(2);
        let take = || {
            both.wait();
            process.take(3).is_some()
        };
        let granted = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(take));
            threads.map(|it| it.join().unwrap())
        });
        assert_eq!(granted.iter().filter(|it| **it).count(), 1);
        assert_eq!(process.leases.left(process.now()), 1);
    }
}

#[test]
fn the_time_of_a_lease_counts_from_when_its_call_was_sent() {
    let mut process = Process::new();
    process.note(1);
    let plan = process.note(1).ask.unwrap();
    process.millis = 40;
    process.granted(&plan, 10, 40);
    process.millis = LASTS - 2;
    assert!(process.take(1).is_some());
    process.millis = LASTS;
    assert_eq!(process.take(1), None);
    let todo = process.leases.attend(process.now());
    // By the wall clock a part of a millisecond may be missing at each end.
    assert_eq!(settlements(&todo), [(1, 1)]);
}

#[test]
fn a_lease_ends_while_the_machine_is_suspended() {
    let process = Process::with_lease(10);
    let after = |passed| Moment {
        at: process.start + ms(1),
        wall: passed,
    };
    let take = |passed| process.leases.take(1, None, || after(passed));
    assert!(take(LASTS - 2).is_some());
    assert_eq!(take(LASTS), None);
    assert_eq!(take(-1), None, "a clock that was set back shows no time");
    let todo = process.leases.attend(after(LASTS));
    assert_eq!(settlements(&todo), [(1, 1)]);
}

#[test]
fn a_lease_ends_though_the_wall_clock_is_set_back() {
    let process = Process::with_lease(10);
    let after = |passed| Moment {
        at: process.start + ms(passed),
        wall: 1,
    };
    let take = |passed| process.leases.take(1, None, || after(passed));
    assert!(take(LASTS - 1).is_some());
    assert_eq!(take(LASTS), None);
    let todo = process.leases.attend(after(LASTS));
    assert_eq!(settlements(&todo), [(1, 1)]);
}

#[test]
fn a_refund_that_comes_while_its_lease_is_closed_does_not_go_into_it() {
    let process = Process::with_lease(10);
    let held = process.leases.held.load_full();
    process.leases.end();
    assert!(!held[0].put_back(1));
    assert_eq!(held[0].left(), 0);
    assert_eq!(held[0].close(), None, "it is settled once");
}

#[test]
fn a_lease_that_comes_too_late_is_given_back_and_none_follows_soon() {
    let mut process = Process::new();
    process.note(1);
    let plan = process.note(1).ask.unwrap();
    process.millis = LASTS;
    assert_eq!(
        settlements(&process.granted(&plan, 10, LASTS)),
        [(0, LASTS)]
    );
    assert_eq!(process.take(1), None);
    assert!(process.note(5).ask.is_none());
    assert!(process.note(5).ask.is_none());
}

#[test]
fn after_a_lease_that_came_too_late_leasing_goes_on_soon() {
    let mut process = Process::new();
    let hour = ms(3_600_000);
    let mut note = |at| {
        process.millis = at;
        let leases = &process.leases;
        leases.note((hour, None), 5, NEVER, process.now()).ask
    };
    note(0);
    let plan = note(0).unwrap();
    let mut answer = Acquired::new(LASTS, 1_000, 500, 3_600_000, 3_600_000);
    answer.until_score = LASTS;
    let (sent, now) = (process.now(), LASTS + 1);
    process.millis = now;
    let call = (new_call_id(), sent);
    let (todo, _) = process
        .leases
        .granted(&plan, call, (&answer, 10), process.now());
    assert_eq!(settlements(&todo), [(0, LASTS)]);
    let mut note = |at| {
        process.millis = at;
        let leases = &process.leases;
        leases.note((hour, None), 5, NEVER, process.now()).ask
    };
    let pause = 1_500;
    assert!(note(now + pause - 1).is_none());
    assert!(note(now + pause - 1).is_none());
    assert!(note(now + pause).is_some());
}

#[test]
fn an_ordinary_grant_in_place_of_a_lease_is_given_back() {
    let process = Process::new();
    process.note(1);
    let plan = process.note(1).ask.unwrap();
    assert_eq!(settlements(&process.answered(&plan, 10, 0, 0)), [(0, 0)]);
}

#[test]
fn the_next_lease_is_asked_for_once_when_the_current_one_is_nearly_over() {
    let mut process = Process::with_lease(10);
    process.millis = 50;
    assert_eq!(process.take(1), Some(false));
    process.millis = 90;
    assert_eq!(process.take(1), Some(true));
    assert_eq!(process.take(1), Some(false));
    let plan = process.leases.attend(process.now()).ask.unwrap();
    assert!(process.leases.attend(process.now()).ask.is_none());
    process.granted(&plan, 10, 0);
    assert_eq!(process.leases.left(process.now()), 17);
    assert_eq!(process.takes(7), 7);
    let todo = process.leases.attend(process.now());
    assert_eq!(settlements(&todo).len(), 1, "the older one is used first");
    assert!(todo.ask.is_none());
}

#[test]
fn no_lease_follows_one_that_nobody_uses() {
    let mut process = Process::with_lease(10);
    process.millis = LASTS;
    let todo = process.leases.attend(process.now());
    assert_eq!(settlements(&todo), [(0, LASTS)]);
    assert_eq!(
        todo.ask.map(|plan| plan.permits),
        Some(14),
        "the earlier demand"
    );
    process.leases.failed(process.now().at);
    process.millis = 3 * LASTS;
    assert!(process.note(1).ask.is_none());
}

#[test]
fn a_denial_ends_the_leases_and_none_is_taken_while_permits_are_scarce() {
    let mut process = Process::with_lease(10);
    assert!(process.take(1).is_some());
    assert_eq!(settlements(&process.denied()), [(1, LASTS)]);
    assert_eq!(process.take(1), None);
    assert!(process.note(5).ask.is_none());
    assert!(process.note(5).ask.is_none());
    process.millis = LASTS + 30;
    assert!(process.note(5).ask.is_some());
}

#[test]
fn a_lease_that_arrives_after_the_leases_were_ended_is_given_back() {
    let end_all: [fn(&Process); 2] = [
        |process| drop(process.leases.end()),
        |process| drop(process.leases.release(hold(LASTS))),
    ];
    for end in end_all {
        let process = Process::new();
        process.note(1);
        let plan = process.note(1).ask.unwrap();
        end(&process);
        assert_eq!(settlements(&process.granted(&plan, 10, 0)), [(0, LASTS)]);
        assert_eq!(process.take(1), None);
    }
}

#[test]
fn once_the_leases_are_closed_none_is_taken() {
    let process = Process::with_lease(10);
    assert_eq!(settlements(&process.leases.close()), [(0, LASTS)]);
    // A call that was under way is answered.
    assert!(process.note(5).ask.is_none());
    process.leases.hold(hold(LASTS));
    assert!(process.note(5).ask.is_none());
}

#[test]
fn the_last_handle_ends_the_leases_and_none_is_taken_without_one() {
    let process = Process::with_lease(10);
    process.leases.hold(hold(LASTS));
    assert!(process.leases.release(hold(LASTS)).settle.is_empty());
    let todo = process.leases.release(hold(LASTS));
    assert_eq!(settlements(&todo), [(0, LASTS)]);
    process.note(1);
    assert!(process.note(1).ask.is_none());
}

#[test]
fn a_request_with_other_settings_is_served_by_no_lease() {
    let process = Process::with_lease(10);
    let rate = Settings::of(crate::Rate::overall(5, ms(INTERVAL)));
    let other = Some(SetUp::expiring(rate));
    assert!(process.leases.take(1, other, || process.now()).is_none());
    assert!(process.leases.acquire(1, other, || process.now()).is_none());
    assert!(process.leases.peek(1, other, process.now()).is_none());
}

#[test]
fn a_grant_goes_back_to_its_lease_until_that_ends() {
    let mut process = Process::with_lease(4);
    let taken = process.leases.acquire(3, None, || process.now());
    let taken = taken.unwrap();
    let grant = |permits| taken.answer.grant(taken.id, permits);
    process.millis = 60;
    assert!(process.leases.put_back(&grant(1)));
    assert_eq!(process.takes(9), 2);
    process.millis = LASTS;
    let todo = process.leases.attend(process.now());
    assert_eq!(settlements(&todo), [(4, 39)]);
    assert!(!process.leases.put_back(&grant(1)));
    assert_eq!((grant(1).score, grant(1).span), (LASTS, LASTS));
}

#[test]
fn leases_have_the_shortest_length_that_any_handle_asks_for() {
    let process = Process::new();
    process.leases.hold(hold(30));
    process.leases.hold(hold(70));
    process.note(1);
    assert_eq!(process.note(1).ask.unwrap().lasts, 30);
    process.leases.failed(process.now().at);
    assert!(process.leases.release(hold(30)).settle.is_empty());
    let mut process = process;
    process.millis = 2_000;
    process.note(1);
    assert_eq!(process.note(1).ask.unwrap().lasts, 70);
}

#[test]
fn a_peek_takes_nothing_and_counts_what_lease_and_store_have_left() {
    let mut process = Process::with_lease(10);
    let (_, answer) = process.leases.peek(10, None, process.now()).unwrap();
    assert_eq!(answer.available, 10 + 490);
    assert!(process.leases.peek(11, None, process.now()).is_none());
    assert_eq!(process.takes(10), 10);
    assert!(process.leases.peek(1, None, process.now()).is_none());
    process.millis = LASTS;
    assert_eq!(process.leases.left(process.now()), 0);
}

#[test]
fn with_two_leases_the_store_has_left_what_the_last_lease_left() {
    let mut process = Process::new();
    process.note(1);
    let plan = process.note(40).ask.unwrap();
    // Each lease takes from what the one before has left.
    let answer = |available| {
        (
            Acquired::new(LASTS, 1_000, available, INTERVAL, INTERVAL),
            LASTS,
        )
    };
    process.heard(&plan, 100, 0, answer(900));
    process.takes(95);
    process.millis = 1;
    let plan = process.leases.attend(process.now()).ask.unwrap();
    process.heard(&plan, 200, 0, answer(800));
    let taken = process.leases.acquire(1, None, || process.now());
    assert_eq!(taken.unwrap().answer.available, 5 + 200 + 600);
    let (_, peeked) = process.leases.peek(1, None, process.now()).unwrap();
    assert_eq!(peeked.available, 4 + 200 + 600);
}

#[test]
fn a_lease_reports_no_more_permits_left_than_its_own_lower_rate() {
    let process = Process::new();
    process.note(1);
    let mut plan = process.note(40).ask.unwrap();
    plan.permits = 50; // the lease has all that was asked for
    let answer = |rate| (Acquired::new(LASTS, rate, rate, INTERVAL, INTERVAL), LASTS);
    process.heard(&plan, 50, 0, answer(100));
    process.takes(48);
    let plan = process.leases.attend(process.now()).ask.unwrap();
    process.heard(&plan, 50, 0, answer(1_000));
    let taken = process.leases.acquire(1, None, || process.now());
    let answer = taken.unwrap().answer;
    assert_eq!((answer.rate, answer.available), (100, 100));
}

#[test]
fn after_others_shorten_the_interval_leases_are_at_most_half_of_it() {
    let mut process = Process::with_lease(10);
    process.takes(9);
    let plan = process.leases.attend(process.now()).ask.unwrap();
    assert_eq!(plan.lasts, LASTS);
    let answer = Acquired::new(LASTS, 1_000, 500, LASTS, LASTS);
    let todo = process.heard(&plan, 10, 0, (answer, LASTS));
    assert_eq!(settlements(&todo), [(0, LASTS)]);
    // No request has asked the store meanwhile.
    process.millis = 1_500;
    process.takes(1);
    process.leases.attend(process.now());
    process.leases.attend(process.now());
    assert_eq!(process.leases.book.lock().lasts(), ms(LASTS / 2));
}

#[test]
fn threads_take_each_permit_once_and_none_after_the_lease_is_closed() {
    let process = Process::with_lease(40_000);
    let taken: usize = std::thread::scope(|scope| {
        let take = || (0..10_000).filter(|_| process.take(1).is_some()).count();
        let threads = [(); 3].map(|()| scope.spawn(take));
        let until = 20_000;
        while process.leases.left(process.now()) > until {
            std::thread::yield_now();
        }
        let todo = process.leases.end();
        let taken = threads.map(|it| it.join().unwrap()).iter().sum();
        assert_eq!(settlements(&todo), [(taken as u32, LASTS)]);
        taken
    });
    assert!(taken >= 20_000);
}

#[test]
fn a_lease_of_a_limiter_with_other_settings_is_given_back() {
    let process = Process::new();
    let of_rate = |permits| {
        let rate = crate::Rate::overall(permits, ms(INTERVAL));
        Some(SetUp::expiring(Settings::of(rate)))
    };
    // The limiter has 1,000 permits.
    for (set_up, given_back) in [(of_rate(1_000), vec![]), (of_rate(5), vec![(0, LASTS)])] {
        let plan = LeasePlan {
            permits: 10,
            lasts: LASTS,
            set_up,
            ended: 0,
        };
        let todo = process.granted(&plan, 10, 0);
        assert_eq!(settlements(&todo), given_back);
    }
}

#[test]
fn the_largest_lease_of_years_is_taken() {
    let process = Process::new();
    process.note(1);
    let plan = process.note(1).ask.unwrap();
    let decade = 10 * 365 * 24 * 3_600_000;
    let todo = process.answered(&plan, u32::MAX, 0, decade);
    assert!(todo.settle.is_empty());
    assert_eq!(process.take(u32::MAX), Some(true));
}
