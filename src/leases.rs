//! Permits that are taken ahead: leases, which this process uses for requests that come, and
//! reservations, which can be used later. What is not used of them goes back.
//!
//! They stand on the queue, which knows them only as permits that are
//! [held aside](crate::queue::HeldAside).
//!
//! ```layers
//! reserving
//! leased_queue
//! leasing reserved
//! settling
//! held
//! demand lease
//! ```

mod demand;
mod held;
mod lease;
mod leased_queue;
mod leasing;
mod reserved;
mod reserving;
mod settling;

#[cfg(test)]
pub(crate) use held::Ended;
pub(crate) use leased_queue::{LeaseHold, LeasedQueue};
pub(crate) use reserved::Reserved;
#[cfg(test)]
pub(crate) use settling::settle;
