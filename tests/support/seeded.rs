//! Random numbers from a seed that a failing test prints. `SEED` repeats one.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

/// SplitMix64.
#[derive(Clone)]
pub struct Seeded {
    seed: u64,
    state: u64,
}

impl Seeded {
    pub fn new() -> Self {
        let seed = match std::env::var("SEED") {
            Ok(seed) => seed.parse().expect("SEED is a number"),
            Err(_) => RandomState::new().build_hasher().finish(),
        };
        Self { seed, state: seed }
    }

    /// Another sequence of the same seed.
    pub fn branch(&self, number: u64) -> Self {
        Self {
            seed: self.seed,
            state: self.seed ^ number.wrapping_mul(0xD1B5_4A32_D192_ED03),
        }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

impl fmt::Display for Seeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SEED={}", self.seed)
    }
}
