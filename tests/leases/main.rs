//! Leases in Redis: what a handle with leases grants, gives back and keeps to, alone and beside
//! other processes.

#[path = "../support/clients.rs"]
mod clients;
#[path = "../support/eras.rs"]
mod eras;
mod fixture;
#[path = "../support/keys.rs"]
mod keys;
#[path = "../support/late_settles.rs"]
mod late_settles;
#[path = "../support/load.rs"]
mod load;
#[path = "../support/parties.rs"]
mod parties;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/seeded.rs"]
mod seeded;
#[path = "../support/state.rs"]
mod state;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/told.rs"]
mod told;
#[path = "../support/uses.rs"]
mod uses;

mod changes;
mod keyed;
mod outage;
mod permits;
mod process;
mod reservations;
mod settings;
mod settled;
mod windows;
