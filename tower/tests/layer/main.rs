//! The layer, in memory with paused time and on a Redis server.

#[path = "../../../tests/support/mod.rs"]
mod support;

mod any_limiter;
mod fixture;
mod keys;
mod outcomes;
mod redis;
mod rejections;
mod servers;
mod service;
mod settling;
mod waiting;
