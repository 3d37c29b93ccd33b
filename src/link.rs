//! The way to Redis: sends a command or the call of a script, and returns its answer, or why there
//! is none.
//!
//! A [`Connection`] goes to one server, to a cluster, or over a connection of the application's
//! own. It belongs to one runtime ([`per_runtime`]) and leads to the server that a [`resolver`]
//! finds. It is replaced in the background as soon as it is unusable ([`server_link`]). [`retry`]
//! decides what is sent again. Each module imports only from the lines below its own:
//!
//! ```layers
//! fuzzing
//! retry subscriber
//! connection
//! cluster
//! server_link
//! resolver
//! sentinel
//! setup
//! open
//! transport wait
//! settings
//! slots tls
//! address known_scripts one_server per_runtime
//! request
//! credentials failure limits round_trip server_time stream supplied traffic unanswered
//! ```

mod address;
mod cluster;
mod connection;
mod credentials;
pub(crate) mod failure;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod known_scripts;
pub(crate) mod limits;
mod one_server;
mod open;
mod per_runtime;
mod request;
mod resolver;
pub(crate) mod retry;
mod round_trip;
mod sentinel;
mod server_link;
pub(crate) mod server_time;
mod settings;
mod setup;
mod slots;
mod stream;
mod subscriber;
mod supplied;
mod tls;
mod traffic;
mod transport;
mod unanswered;
mod wait;

pub(crate) use connection::{Connection, Reached};
pub use credentials::Credentials;
pub(crate) use credentials::Provider;
pub(crate) use known_scripts::MOST_SCRIPTS;
pub(crate) use per_runtime::PerRuntime;
pub(crate) use request::{Message, ScriptCall};
pub(crate) use round_trip::Pace;
pub(crate) use settings::Connecting;
pub(crate) use subscriber::Subscriber;
pub(crate) use supplied::SendsCommands;
#[cfg(test)]
pub(crate) use supplied::Silent;
#[cfg(feature = "tls")]
pub use tls::TlsConfig;
