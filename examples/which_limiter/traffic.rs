//! The requests: the same for each limiter.

/// Requests that come one after another at the same distance. Times in ms.
pub struct Phase {
    pub name: &'static str,
    first: i64,
    step: i64,
    pub count: usize,
}

/// How long it all takes, in ms.
pub const LENGTH: i64 = 4_000;

const BURST: i64 = 25;
const STEADY: i64 = 100;

/// A window of a second that begins with the first request of one of these is over before the
/// requests go on: at 1.2 s the first, at 3.41 s the third, in the middle of a burst.
pub const PHASES: [Phase; 5] = [
    Phase::new("burst", 200, BURST, 15),
    Phase::new("10 a second", 710, STEADY, 10),
    Phase::new("one", 2_410, STEADY, 1),
    Phase::new("burst", 3_170, BURST, 20),
    Phase::new("10 a second", 3_760, STEADY, 3),
];

impl Phase {
    const fn new(name: &'static str, first: i64, step: i64, count: usize) -> Self {
        Self {
            name,
            first,
            step,
            count,
        }
    }

    fn times(&self) -> impl Iterator<Item = i64> {
        (0..).map(|i| self.first + i * self.step).take(self.count)
    }

    pub fn middle(&self) -> f64 {
        self.first as f64 + (self.count - 1) as f64 * self.step as f64 / 2.0
    }
}

/// What happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A request.
    Ask,
    /// Reads what is left, which charges nothing.
    Sample,
}

/// All steps in order.
pub fn steps() -> Vec<(i64, Step)> {
    const SAMPLE_EVERY: i64 = 10;
    let samples =
        (0..LENGTH / SAMPLE_EVERY).map(|i| (i * SAMPLE_EVERY + SAMPLE_EVERY / 2, Step::Sample));
    let requests = PHASES.iter().flat_map(Phase::times);
    let mut steps: Vec<_> = requests
        .map(|time| (time, Step::Ask))
        .chain(samples)
        .collect();
    steps.sort_unstable();
    steps
}
