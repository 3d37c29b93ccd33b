//! The scripts as a specification: `lua/sha1.txt` names what is sent, and `lua/vectors/` what each
//! script does.

#[macro_use]
#[path = "../../src/policies/registry.rs"]
mod registry;

#[path = "../support/by_hand.rs"]
mod by_hand;
#[path = "../support/clients.rs"]
mod clients;
#[path = "../support/every_policy.rs"]
mod every_policy;
#[path = "../../src/store/redis/script/include.rs"]
mod include;
#[path = "../support/monitor.rs"]
mod monitor;
#[path = "../support/pretty_json.rs"]
mod pretty_json;
#[path = "../support/mod.rs"]
mod support;

mod documentation;
mod hashes;
mod shared_names;
mod vectors;
