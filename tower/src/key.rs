//! The key that a request counts for.
//!
//! ```
//! use redisson_rate_limiter_tower::key::{ClientAddress, Header, Key};
//!
//! // Each API key has a limit of its own, and so has each address of requests without one.
//! let key = Header::new("x-api-key").hashed("secret of this service").or(ClientAddress::behind_proxies(1));
//!
//! let (request, ()) = http::Request::builder()
//!     .extension(std::net::SocketAddr::from(([10, 0, 0, 7], 4711))) // the proxy's
//!     .header("x-forwarded-for", "203.0.113.9, 192.0.2.1") // the first one is what the client wrote
//!     .body(())?
//!     .into_parts();
//! assert_eq!(key.key(&request).as_deref(), Some("192.0.2.1"));
//! # Ok::<(), http::Error>(())
//! ```

mod address;
mod find;
mod forwarded;
mod hash;
mod kept;
mod of_request;

pub use address::{ClientAddress, InvalidNetwork};
pub use find::{And, Hashed, Key, Or};
pub(crate) use find::{FindKey, non_empty_key};
pub use hash::{bounded, hash};
pub(crate) use kept::KeptKey;
#[cfg(feature = "axum")]
pub use of_request::Route;
pub use of_request::{Everyone, Header, Path};
