//! The size of the random tests that hold scripts and models together.

/// `MODEL_STEPS`, or as many steps as the tests that everybody runs often can take.
pub(crate) fn model_steps() -> usize {
    std::env::var("MODEL_STEPS").map_or(10_000, |steps| steps.parse().unwrap())
}
