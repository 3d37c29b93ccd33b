//! Guides: what the crate does, and how it behaves, a page for each subject.
//!
//! In the repository they are the files of `docs/`.

// In `links.txt` and `pictures.txt`, which `tests/documentation.rs` writes, the links of the pages
// lead to modules, and their pictures to data. Of several definitions of a link, the first one
// counts. The examples of a page are tested with the feature that they need.
macro_rules! pages {
    ($($page:ident: $file:literal $(with $feature:tt)?,)*) => {$(
        #[cfg_attr(not(doctest), doc = include_str!("guide/links.txt"))]
        #[cfg_attr(not(doctest), doc = include_str!("guide/pictures.txt"))]
        #[cfg_attr(
            all($(any(feature = $feature, not(doctest)))?),
            doc = include_str!(concat!("../docs/", $file))
        )]
        pub mod $page {}
    )*};
}
pages! {
    benchmarks: "benchmarks.md",
    connections: "connections.md",
    failure_policy: "failure-policy.md",
    faults: "faults.md",
    growth: "growth.md",
    guarantees: "guarantees.md",
    leases: "leases.md",
    memory: "memory.md",
    operation: "operation.md",
    recipes: "recipes.md",
    redisson: "redisson.md",
    sharing: "sharing.md",
    testing: "testing.md" with "test-util",
    which_limiter: "which-limiter.md",
}
