//! Java's real Redisson and this crate on one Redis server.
//!
//! [`Server`] is a Redis of the test's own, [`redisson`] drives one of several versions of the real
//! Redisson, [`Both`] puts a client of each kind on one server, [`dump`] shows what a rate
//! limiter's keys hold, [`age`] lets its grants grow old, [`differential`] has both take random
//! steps, [`python`] is the client in
//! `lua/python/client.py`, [`record`] tells what the server granted, [`repeated`] has Redisson send
//! a call twice, and [`fairness`] measures how several processes share one limiter.
//!
//! ```no_run
//! # #[tokio::main] async fn main() -> Result<(), compat_tests::redisson::JavaError> {
//! use compat_tests::{Server, dump, redisson::{self, Rate, Version}};
//!
//! let server = Server::start();
//! let [java] = redisson::clients(Version::V4_7_0, &server.url()).await;
//! let limiter = java.limiter("orders");
//! limiter.try_set_rate(Rate::overall(5, 1000)).await?;
//! assert!(limiter.try_acquire(2).await?);
//! println!("{:#?}", dump::read(&mut server.connection().await, "orders", &[&java.id]).await.normal());
//! # Ok(()) }
//! ```
//!
//! It needs `redis-server`, a JDK of at least 17, Maven, Python 3, and `flock` and `setpriv` of
//! util-linux, and panics where one is missing.

pub mod age;
mod both;
mod build;
pub mod differential;
pub mod dump;
pub mod fairness;
mod jvm;
#[path = "../../tests/support/monitor_line.rs"]
mod monitor_line;
pub mod python;
pub mod random;
pub mod record;
pub mod redisson;
pub mod repeated;
#[path = "../../tests/support/mod.rs"]
mod server;
mod version;

pub use both::{Both, Pair, Peer};
pub use build::class_path;
pub use server::{Server, cluster::Cluster, without_timeouts};
