//! The queue of one limiter: who waits, what is in flight, and when to ask next. Pure state: each
//! method is one step under the lock, and the drivers do what it returns. The [`Outbox`] holds
//! answers and notifications, which are delivered after the step.
//!
//! ```layers
//! answers bounds drivers joining leaving
//! first_try outage
//! contents
//! freed_elsewhere in_flight outbox
//! availability waiter
//! ```

mod answers;
mod availability;
mod bounds;
mod contents;
mod drivers;
mod first_try;
mod freed_elsewhere;
mod in_flight;
mod joining;
mod leaving;
mod outage;
mod outbox;
#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod step_tests;
mod waiter;

pub(super) use answers::{Answered, Rest};
pub(super) use availability::Availability;
#[cfg(test)]
pub(super) use availability::LONGEST_SLEEP;
pub(super) use bounds::{Arrived, Waits};
pub(super) use contents::{Next, State};
pub(super) use first_try::time_to_join;
pub(super) use leaving::{Left, Watched};
pub(super) use outbox::Outbox;
pub(crate) use waiter::ReadSetUp;
pub(super) use waiter::Waiter;
