//! What holds after each step.

use super::*;

impl World {
    /// The waiter that is served next.
    pub(super) fn head(&self) -> Option<&Waiter> {
        self.state.waiters.iter().find(|waiter| !waiter.is_gone())
    }

    pub(super) fn note_fit(&mut self) {
        if self.is_held_up() {
            self.fits_since = None;
            return;
        }
        let free = self.store.free(self.millis());
        let head = self.head().map(|head| (head.sequence, head.permits));
        self.fits_since = match (head, self.fits_since) {
            (Some((sequence, permits)), since) if i64::from(permits) <= free => match since {
                Some((of, since)) if of == sequence => Some((sequence, since)),
                _ => Some((sequence, self.now)),
            },
            _ => None,
        };
    }

    /// Whether the queue may not make a call, or does not know what came back.
    pub(super) fn is_held_up(&self) -> bool {
        let first_try = self.state.first_try.as_ref();
        self.state.in_flight.is_some()
            || first_try.is_some_and(|it| self.now < it.until)
            || self.unheard > 0
            || self.now < self.unknown_until
    }

    pub(in super::super) fn check(&mut self) {
        self.deliver();
        let now = self.now;
        assert!(
            self.state.waiters.iter().is_sorted_by_key(|it| it.sequence),
            "the queue is out of order"
        );
        self.check_runtimes();
        self.check_owners();
        let Some((sequence, since)) = self.fits_since else {
            return;
        };
        let sharing = if self.has_peers {
            SHARING
        } else {
            Duration::ZERO
        };
        if now <= since + SLACK + sharing {
            return;
        }
        let mut running = self
            .runtimes
            .iter_mut()
            .filter(|it| it.life == Life::Running)
            .filter_map(|it| it.driver.as_mut())
            .peekable();
        let nobody_is_left = running.peek().is_none();
        assert!(
            nobody_is_left || running.any(|driver| driver.wakes(now) || driver.is_calling()),
            "waiter {sequence} fits, and everybody sleeps"
        );
    }

    /// A waiter on a runtime that runs has a driver there, which does not sleep for long.
    pub(super) fn check_runtimes(&self) {
        for waiter in &self.waiters {
            let Place::InLine { runtime, receiver } = &waiter.place else {
                continue;
            };
            let runtime = &self.runtimes[*runtime];
            if runtime.life != Life::Running || !receiver.is_empty() || receiver.is_terminated() {
                continue;
            }
            let driver = runtime.driver.as_ref().expect("a waiter without a driver");
            if let Doing::Sleeping(until) = driver.doing {
                assert!(until <= self.now + LONGEST_SLEEP.max(LONGEST_HOLD_UP));
            }
        }
    }

    /// No permits are held that were not granted.
    pub(super) fn check_owners(&self) {
        for (id, score, granted) in self.store.granted() {
            let held = self.held(id, score);
            assert!(held <= granted, "{held} of {granted} are held");
        }
    }

    pub(super) fn held(&self, id: [u8; 16], score: i64) -> u32 {
        let held = self.waiters.iter().filter_map(|it| match &it.place {
            Place::Holding(grant) if grant.call_id == id && grant.score == score => {
                Some(grant.permits)
            }
            _ => None,
        });
        held.sum()
    }
}
