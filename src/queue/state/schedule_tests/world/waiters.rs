//! Waiters: they arrive, try, join, are polled, move to another runtime and leave.

use super::*;

impl World {
    pub(super) fn arrive(&mut self, choice: u16) {
        let sequence = self.state.take_sequence();
        self.waiters.push(SimulatedWaiter {
            sequence,
            permits: 1 + u32::from(choice % 3),
            place: Place::Arrived,
        });
    }

    pub(super) fn enter(&mut self, choice: u16) {
        let is_here = |waiter: &SimulatedWaiter| matches!(waiter.place, Place::Arrived);
        let Some(waiter) = self.choose_waiter(choice, is_here) else {
            return;
        };
        let sequence = self.waiters[waiter].sequence;
        if self.state.start_first_try(sequence, self.now) {
            let permits = self.waiters[waiter].permits;
            self.waiters[waiter].place = Place::FirstTry {
                call: Arc::new(AcquireCall::new(Requests::one(permits))),
                sent_at: self.now,
                answer: None,
            };
        } else {
            self.join(waiter, choice, None);
        }
    }

    pub(super) fn join(&mut self, waiter: usize, choice: u16, denied: Option<Availability>) {
        let runtime = self.choose_runtime(choice);
        let SimulatedWaiter {
            sequence, permits, ..
        } = self.waiters[waiter];
        let (answer, receiver) = oneshot::channel();
        let id = self.runtimes[runtime].runtime.handle().id();
        let fifo = Waiter::new(permits, sequence, answer);
        let new_driver = self.state.join(fifo, id, denied);
        if let Some(notify) = new_driver {
            assert!(self.runtimes[runtime].driver.is_none(), "a second driver");
            let doing = Doing::Ready;
            self.runtimes[runtime].driver = Some(Driver { notify, doing });
        }
        self.waiters[waiter].place = Place::InLine { runtime, receiver };
    }

    pub(super) fn execute_first_try(&mut self, choice: u16) {
        let is_sent =
            |waiter: &SimulatedWaiter| matches!(waiter.place, Place::FirstTry { answer: None, .. });
        if let Some(waiter) = self.choose_waiter(choice, is_sent) {
            let millis = self.millis();
            if let Place::FirstTry { call, answer, .. } = &mut self.waiters[waiter].place {
                *answer = Some(self.store.execute(call, millis));
            }
        }
    }

    pub(super) fn read_first_try(&mut self, choice: u16) {
        let is_answered = |waiter: &SimulatedWaiter| {
            let answered = |answer: &Option<Acquired>| answer.is_some();
            matches!(&waiter.place, Place::FirstTry { answer, .. } if answered(answer))
        };
        let Some(waiter) = self.choose_waiter(choice, is_answered) else {
            return;
        };
        let place = std::mem::replace(&mut self.waiters[waiter].place, Place::Gone);
        let Place::FirstTry {
            call,
            sent_at,
            answer: Some(answer),
        } = place
        else {
            unreachable!("it was chosen so")
        };
        let SimulatedWaiter {
            sequence, permits, ..
        } = self.waiters[waiter];
        if call.requests.taken(&answer) > 0 {
            self.waiters[waiter].place = Place::Holding(Grant::new(answer.score, call.id, permits));
        } else {
            let left = answer.available.unsigned_abs();
            let denied = Availability::new(left, sent_at, answer.wait(), sent_at);
            self.join(waiter, choice, Some(denied));
        }
        self.state.end_first_try(sequence);
    }

    pub(super) fn poll_waiter(&mut self, choice: u16) {
        let is_polled = |runtimes: &[SimulatedRuntime], waiter: &SimulatedWaiter| match waiter.place
        {
            Place::InLine { runtime, .. } => runtimes[runtime].life == Life::Running,
            _ => false,
        };
        let chosen = choose(self.waiters.len(), choice, |i| {
            is_polled(&self.runtimes, &self.waiters[i])
        });
        if let Some(waiter) = chosen {
            self.receive(waiter, choice);
        }
    }

    pub(super) fn receive(&mut self, waiter: usize, choice: u16) {
        self.deliver();
        let Place::InLine { receiver, .. } = &mut self.waiters[waiter].place else {
            return;
        };
        match receiver.try_recv() {
            Ok(Ok(grant)) => self.waiters[waiter].place = Place::Holding(grant),
            Ok(Err(_)) => self.waiters[waiter].place = Place::Gone,
            Err(oneshot::error::TryRecvError::Closed) => self.join(waiter, choice, None),
            Err(oneshot::error::TryRecvError::Empty) => {}
        }
    }

    /// It is polled on another runtime: it gives up its place and takes it again there.
    pub(super) fn move_waiter(&mut self, choice: u16) {
        let Some(waiter) = self.choose_waiter(choice, SimulatedWaiter::is_queued) else {
            return;
        };
        if self.close_waiter(waiter) {
            self.join(waiter, choice / 7, None);
        }
    }

    pub(super) fn close(&mut self, choice: u16) {
        let may_leave = |waiter: &SimulatedWaiter| {
            waiter.is_queued() || matches!(waiter.place, Place::FirstTry { .. })
        };
        let Some(waiter) = self.choose_waiter(choice, may_leave) else {
            return;
        };
        self.close_waiter(waiter);
    }

    /// Drops a waiter's future; returns whether it was in the queue without an answer.
    pub(super) fn close_waiter(&mut self, waiter: usize) -> bool {
        self.deliver();
        let place = std::mem::replace(&mut self.waiters[waiter].place, Place::Gone);
        match place {
            Place::FirstTry { call, answer, .. } => {
                let sequence = self.waiters[waiter].sequence;
                self.state.end_first_try(sequence);
                if let Some(answer) = answer {
                    self.refund_taken(&call, &answer);
                }
            }
            Place::InLine { mut receiver, .. } => {
                receiver.close();
                match receiver.try_recv() {
                    Ok(Ok(grant)) => self.refunds.push(grant),
                    Ok(Err(_)) => {}
                    Err(_) => {
                        let sequence = self.waiters[waiter].sequence;
                        match self.state.leave(sequence) {
                            Left::Nothing | Left::Watched => {}
                            Left::Abandoned(call) => self.reclaims.push(call),
                            Left::Unwatched => self.watch(),
                        }
                        return true;
                    }
                }
            }
            place => self.waiters[waiter].place = place,
        }
        false
    }

    pub(super) fn refund_taken(&mut self, call: &AcquireCall, answer: &Acquired) {
        let permits = call.requests.taken(answer) as u32;
        if permits > 0 {
            self.refunds
                .push(Grant::new(answer.score, call.id, permits));
        }
    }

    /// Delivers the outbox of the last step before anything else happens.
    pub(super) fn deliver(&mut self) {
        let outbox = self.state.take_outbox();
        self.refunds
            .extend(outbox.into_iter().flat_map(Outbox::deliver));
    }

    /// The task that watches the call in flight sleeps for the time that a call takes.
    pub(super) fn watch(&mut self) {
        assert!(self.watched_since.is_none(), "a second task watches");
        self.watched_since = Some(self.now);
    }

    pub(super) fn end_overdue(&mut self) {
        let Some(since) = self.watched_since.take_if(|it| *it + DEADLINE < self.now) else {
            return;
        };
        match self.state.withdraw_overdue(since) {
            Watched::InTime => self.watch(),
            Watched::Ended => {}
            Watched::Withdrawn(call) => self.reclaims.push(call),
        }
    }

    pub(super) fn choose_waiter(
        &self,
        choice: u16,
        is_meant: impl Fn(&SimulatedWaiter) -> bool,
    ) -> Option<usize> {
        choose(self.waiters.len(), choice, |i| is_meant(&self.waiters[i]))
    }
}

impl SimulatedWaiter {
    pub(super) fn is_queued(&self) -> bool {
        matches!(self.place, Place::InLine { .. })
    }
}
