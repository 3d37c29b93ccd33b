//! The end of a schedule.

use super::*;

impl World {
    /// Ends everything that is under way: waiters on runtimes that run are served; then the
    /// remaining ones leave, and what is in use is what callers hold.
    pub(in super::super) fn finish(&mut self) {
        // Waiters that never read their grants keep them from others.
        for waiter in 0..self.waiters.len() {
            if let Place::InLine { runtime, .. } = self.waiters[waiter].place
                && self.runtimes[runtime].life != Life::Running
            {
                self.close_waiter(waiter);
            }
        }
        for turn in 0..500_u16 {
            if !self.is_anybody_waiting() {
                break;
            }
            self.run_pending(turn);
            // Callers use their permits, and others end.
            self.give_back_held(turn);
            assert!(turn < 499, "somebody waits for ever");
        }
        for waiter in 0..self.waiters.len() {
            self.close_waiter(waiter);
        }
        for runtime in &mut self.runtimes {
            if runtime.life == Life::Stalled {
                runtime.life = Life::Running;
            }
        }
        self.stray.clear();
        for turn in 0..200 {
            let is_busy = self.runtimes.iter().any(|it| it.driver.is_some());
            if !is_busy && self.refunds.is_empty() && self.reclaims.is_empty() {
                break;
            }
            self.run_pending(turn);
        }
        let has_driver = |runtime: &SimulatedRuntime| runtime.driver.is_some();
        assert!(!self.runtimes.iter().any(has_driver), "a driver is left");
        assert!(self.refunds.is_empty() && self.reclaims.is_empty());
        for (id, score, used) in self.store.in_use() {
            if !self.failed.contains(&id) {
                assert_eq!(used, self.held(id, score), "permits that nobody holds");
            }
        }
    }

    pub(super) fn is_anybody_waiting(&self) -> bool {
        self.waiters.iter().any(|waiter| match waiter.place {
            Place::InLine { runtime, .. } => self.runtimes[runtime].life == Life::Running,
            Place::FirstTry { .. } | Place::Arrived => true,
            _ => false,
        })
    }

    /// Runs everything that can happen by itself.
    pub(super) fn run_pending(&mut self, choice: u16) {
        for waiter in 0..self.waiters.len() {
            self.enter(waiter as u16);
            self.execute_first_try(waiter as u16);
            self.read_first_try(waiter as u16);
        }
        for i in 0..self.runtimes.len() {
            self.execute_attempt(i as u16);
            self.drive(i);
            self.execute_stray(choice);
        }
        for _ in 0..self.refunds.len() + 1 {
            self.execute_refund(choice);
            self.hear_of_refund();
        }
        self.reclaim();
        self.hear_of_refund();
        for waiter in 0..self.waiters.len() {
            let is_polled = match self.waiters[waiter].place {
                Place::InLine { runtime, .. } => self.runtimes[runtime].life == Life::Running,
                _ => false,
            };
            if is_polled {
                self.receive(waiter, choice);
            }
        }
        self.store.take_back_all_of_others();
        // What was taken without an answer comes back with its window.
        for &id in &self.failed {
            self.store.reclaim(id, None);
        }
        self.freed_elsewhere();
        self.pass(Duration::from_millis(101));
    }
}
