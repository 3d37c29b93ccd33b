//! The layer, in memory with paused time and on a Redis server.

#[path = "../../../tests/support/mod.rs"]
mod support;

#[path = "../../../tests/support/events.rs"]
mod events;

mod any_limiter;
mod fixture;
mod keys;
mod nested;
mod outcomes;
mod redis;
mod rejections;
mod servers;
mod service;
mod settling;
mod waiting;
