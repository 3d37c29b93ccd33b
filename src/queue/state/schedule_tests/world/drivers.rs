//! What drivers do, and what the store does with their calls.

use super::*;

impl World {
    pub(super) fn run_driver(&mut self, choice: u16) {
        let chosen = choose(self.runtimes.len(), choice, |i| {
            let runtime = &self.runtimes[i];
            runtime.life == Life::Running && runtime.driver.is_some()
        });
        if let Some(runtime) = chosen {
            self.drive(runtime);
        }
    }

    /// What the task of a runtime does once it is polled.
    pub(super) fn drive(&mut self, runtime: usize) {
        self.deliver();
        let now = self.now;
        let SimulatedRuntime {
            runtime: lent,
            life: Life::Running,
            driver: Some(driver),
        } = &mut self.runtimes[runtime]
        else {
            return;
        };
        if driver.is_awake(now) {
            let next = self
                .state
                .next(lent.handle().id(), now, self.has_peers, false);
            driver.doing = match next {
                Next::Sleep(until) => Doing::Sleeping(until),
                Next::Pause(_) => panic!("the breaker refuses nothing"),
                Next::Call(call, _) => {
                    let millis = (now - self.start).as_millis() as i64;
                    Doing::Calling(Box::new(Attempt::new(call, now, millis)))
                }
                Next::Stop => {
                    self.runtimes[runtime].driver = None;
                    return;
                }
            };
            return;
        }
        let is_answered = |attempt: &mut Attempt| attempt.result.take();
        let Doing::Calling(attempt) = &mut driver.doing else {
            return;
        };
        if let Some(result) = is_answered(attempt) {
            let (call, sent_at) = (Arc::clone(&attempt.call), attempt.sent_at);
            driver.doing = Doing::Ready;
            self.read_answer(&call, sent_at, result);
            self.drive(runtime); // in the same poll
        }
    }

    pub(super) fn read_answer(
        &mut self,
        call: &Arc<AcquireCall>,
        sent_at: Instant,
        result: Result<Acquired>,
    ) {
        match result {
            Ok(answer) => {
                self.note_read(&answer);
                self.own += call.requests.taken(&answer).unsigned_abs();
                let Rest {
                    permits,
                    is_reclaimed,
                } = self.state.answered(&Answered {
                    call,
                    answer: &answer,
                    sent_at,
                    now: self.now,
                    own: self.own,
                    name: "limiter",
                });
                if permits > 0 {
                    self.refunds
                        .push(Grant::new(answer.score, call.id, permits));
                }
                if is_reclaimed {
                    self.reclaims.push(Arc::clone(call));
                }
            }
            Err(error) => {
                let in_flight = self.state.in_flight.as_ref();
                let is_in_flight = in_flight.is_some_and(|it| Arc::ptr_eq(&it.call, call));
                if self.state.failed(call, &error, self.now) {
                    self.reclaims.push(Arc::clone(call));
                } else if is_in_flight {
                    self.failed.push(call.id);
                }
            }
        }
    }

    pub(super) fn execute_attempt(&mut self, choice: u16) {
        let (now, millis) = (self.now, self.millis());
        let Some(chosen) = self.choose_attempt(choice) else {
            return;
        };
        let is_running = self.runtimes[chosen].life == Life::Running;
        let driver = self.runtimes[chosen].driver.as_mut();
        let Some(Doing::Calling(attempt)) = driver.map(|it| &mut it.doing) else {
            return;
        };
        if attempt.may_decide(&self.store, millis) {
            attempt.result = Some(Ok(self.store.execute(&attempt.call, millis)));
        } else if millis > attempt.deadline && is_running {
            attempt.repeat(now, millis);
        }
    }

    /// The runtime of an attempt that is on its way.
    pub(super) fn choose_attempt(&self, choice: u16) -> Option<usize> {
        let is_sent = |runtime: &SimulatedRuntime| match &runtime.driver {
            Some(driver) => matches!(&driver.doing, Doing::Calling(it) if it.result.is_none()),
            None => false,
        };
        choose(self.runtimes.len(), choice, |i| is_sent(&self.runtimes[i]))
    }

    /// Loses the connection: before the store got the call, or after.
    pub(super) fn lose_answer(&mut self, choice: u16) {
        if choice.is_multiple_of(2) {
            self.execute_attempt(choice);
        }
        let chosen = choose(self.runtimes.len(), choice, |i| {
            let driver = self.runtimes[i].driver.as_ref();
            driver.is_some_and(|it| matches!(it.doing, Doing::Calling(_)))
        });
        let driver = chosen.and_then(|i| self.runtimes[i].driver.as_mut());
        if let Some(Driver {
            doing: Doing::Calling(attempt),
            ..
        }) = driver
        {
            attempt.result = Some(Err(Error::Indeterminate { source: None }));
        }
    }

    pub(super) fn execute_stray(&mut self, choice: u16) {
        if self.stray.is_empty() {
            return;
        }
        let stray = self.stray.remove(usize::from(choice) % self.stray.len());
        if stray.may_decide(&self.store, self.millis()) {
            self.store.execute(&stray.call, self.millis());
        }
    }
}

impl Driver {
    pub(super) fn is_calling(&self) -> bool {
        matches!(self.doing, Doing::Calling(_))
    }

    /// Whether it goes on when it is polled; a notification is used up.
    pub(super) fn is_awake(&mut self, now: Instant) -> bool {
        if self.wakes(now) {
            self.doing = Doing::Ready;
            return true;
        }
        false
    }

    pub(super) fn wakes(&mut self, now: Instant) -> bool {
        match self.doing {
            Doing::Ready => true,
            Doing::Calling(_) => false,
            Doing::Sleeping(until) => {
                let mut notified = pin!(self.notify.notified());
                let polled = notified
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                let is_awake = until <= now || polled == Poll::Ready(());
                if is_awake {
                    self.doing = Doing::Ready;
                }
                is_awake
            }
        }
    }
}
