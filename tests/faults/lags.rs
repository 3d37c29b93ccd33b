//! How far a runtime is behind its timers, so that a busy machine's delay is not attributed to a
//! call.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::sleep;

const STEP: Duration = Duration::from_millis(10);

/// Measures until it is dropped.
pub struct Lags {
    late: Arc<Mutex<Late>>,
    watching: JoinHandle<()>,
}

struct Late {
    /// How late a timer was, and when.
    timers: Vec<(Instant, Duration)>,
    /// When the timer that runs now was set.
    set: Instant,
}

impl Lags {
    pub fn start() -> Self {
        let late = Arc::new(Mutex::new(Late {
            timers: Vec::new(),
            set: Instant::now(),
        }));
        let watching = tokio::spawn({
            let late = Arc::clone(&late);
            async move {
                loop {
                    sleep(STEP).await;
                    let now = Instant::now();
                    let mut late = late.lock().unwrap();
                    let lag = (now - late.set).saturating_sub(STEP);
                    late.set = now;
                    if lag > STEP {
                        late.timers.push((now, lag));
                    }
                }
            }
        });
        Self { late, watching }
    }

    /// How late timers were since `start`, added up.
    pub fn since(&self, start: Instant) -> Duration {
        let late = self.late.lock().unwrap();
        let from = late.timers.partition_point(|(time, _)| *time < start);
        let fired: Duration = late.timers[from..].iter().map(|(_, lag)| *lag).sum();
        fired + late.set.elapsed()
    }
}

impl Drop for Lags {
    fn drop(&mut self) {
        self.watching.abort();
    }
}
