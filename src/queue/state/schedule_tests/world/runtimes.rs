//! Runtimes start, stall, go on and shut down.

use super::*;

impl World {
    pub(super) fn start_runtime(&mut self) {
        self.runtimes.push(SimulatedRuntime {
            runtime: Builder::new_current_thread().build().unwrap(),
            life: Life::Running,
            driver: None,
        });
    }

    pub(super) fn set_life(&mut self, choice: u16, from: Life, to: Life) {
        let chosen = choose(self.runtimes.len(), choice, |i| {
            self.runtimes[i].life == from
        });
        if let Some(runtime) = chosen {
            self.runtimes[runtime].life = to;
        }
    }

    pub(super) fn shut_down(&mut self, choice: u16) {
        let chosen = choose(self.runtimes.len(), choice, |i| {
            self.runtimes[i].life != Life::ShutDown
        });
        let Some(runtime) = chosen else {
            return;
        };
        self.runtimes[runtime].life = Life::ShutDown;
        if let Some(driver) = self.runtimes[runtime].driver.take() {
            let id = self.runtimes[runtime].runtime.handle().id();
            let attempt = match driver.doing {
                Doing::Calling(attempt) => Some(*attempt),
                _ => None,
            };
            let call = attempt.as_ref().map(|attempt| &attempt.call);
            if let Some(call) = self.state.driver_lost(id, call, self.now) {
                self.reclaims.push(call);
            }
            self.stray
                .extend(attempt.filter(|attempt| attempt.result.is_none()));
        }
    }

    /// A runtime that runs; a new one if none does.
    pub(super) fn choose_runtime(&mut self, choice: u16) -> usize {
        let is_running = |runtime: &SimulatedRuntime| runtime.life == Life::Running;
        let count = self.runtimes.len();
        choose(count, choice, |i| is_running(&self.runtimes[i])).unwrap_or_else(|| {
            self.start_runtime();
            self.runtimes.len() - 1
        })
    }
}
