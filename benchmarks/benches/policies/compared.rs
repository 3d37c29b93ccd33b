//! Two sides that take turns. Another process on the machine slows both, so each round gives a
//! ratio of its own.

use benchmarks::median;

/// The median of each side, and of the rounds' ratios.
pub struct Compared {
    pub ours: f64,
    pub other: f64,
    pub times: f64,
}

impl Compared {
    /// Of rounds of ours and of the other.
    pub fn of(rounds: &[[f64; 2]]) -> Self {
        let median_of = |number: fn(&[f64; 2]) -> f64| median(rounds.iter().map(number).collect());
        Self {
            ours: median_of(|[ours, _]| *ours),
            other: median_of(|[_, other]| *other),
            times: median_of(|[ours, other]| ours / other),
        }
    }
}
