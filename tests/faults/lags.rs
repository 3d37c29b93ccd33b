//! How far a runtime is behind its timers, so that what a busy machine adds to a call is not taken for the call's own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::sleep;

const STEP: Duration = Duration::from_millis(10);

/// How late a timer was at worst, with its time; ended with this.
pub struct Lags {
    late: Arc<Mutex<Vec<(Instant, Duration)>>>,
    watching: JoinHandle<()>,
}

impl Lags {
    pub fn start() -> Self {
        let late = Arc::<Mutex<Vec<_>>>::default();
        let watching = tokio::spawn({
            let late = Arc::clone(&late);
            async move {
                loop {
                    let start = Instant::now();
                    sleep(STEP).await;
                    let lag = start.elapsed().saturating_sub(STEP);
                    if lag > STEP {
                        late.lock().unwrap().push((Instant::now(), lag));
                    }
                }
            }
        });
        Self { late, watching }
    }

    /// How late timers were since `start`, added up.
    pub fn since(&self, start: Instant) -> Duration {
        let late = self.late.lock().unwrap();
        let from = late.partition_point(|(time, _)| *time < start);
        late[from..].iter().map(|(_, lag)| *lag).sum()
    }
}

impl Drop for Lags {
    fn drop(&mut self) {
        self.watching.abort();
    }
}
