//! Leases in Redis: what a handle with leases grants, gives back and keeps to, alone and beside other processes.

#[path = "../support/clients.rs"]
mod clients;
mod fixed_window;
mod fixture;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/seeded.rs"]
mod seeded;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/told.rs"]
mod told;

mod keyed;
mod outage;
mod permits;
mod process;
mod settings;
mod windows;
