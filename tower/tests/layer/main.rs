//! The layer, in memory with paused time and on a Redis server.

#[path = "../../../tests/support/mod.rs"]
mod support;

#[path = "../../../tests/support/events.rs"]
mod events;

#[path = "../../../tests/support/seeded.rs"]
mod seeded;

mod any_limiter;
mod drops;
mod fixture;
mod histories;
mod keys;
mod nested;
mod outcomes;
mod places;
mod redis;
mod rejections;
mod servers;
mod service;
mod settling;
mod waiting;
