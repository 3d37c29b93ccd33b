//! `rratelimiter serve`, as a process, asked by its clients.

mod clients;
mod grpc;
mod hash_key;
mod histories;
mod hostile;
mod http;
mod import;
mod late_store;
mod life;
mod log;
mod nginx;
mod openapi;
mod page;
#[path = "../../../tests/support/seeded.rs"]
mod seeded;
#[path = "../cli/sentinel.rs"]
mod sentinel;
mod support;
mod tls;
mod trial;
mod unit;
