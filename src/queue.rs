//! The requests of this process on one limiter: plain requests share calls, waiters are served in
//! order.
//!
//! **Plain requests** (`try_acquire`, `check`) are decided at once. They share calls through
//! [`crate::batch`], and may overtake waiters.
//!
//! **Waiters** (`acquire`, `try_acquire_timeout`) form one FIFO queue per limiter and process. A
//! waiter that finds the queue empty first makes a call of its own, beside those of plain requests;
//! if that is denied, it joins the queue. One call at a time asks on behalf of the queue. In this
//! call the first denial denies all requests behind it, so that small requests do not starve a
//! large one. The [`State`](state::State) decides when the next call is due. Three rules keep a
//! waiter from waiting longer than it must:
//! 1. The time of the next call belongs to the head of the queue. When the head leaves or changes,
//!    it is computed anew.
//! 2. Permits that may have come free while a call was in flight lead to another call.
//! 3. No waiter depends on another waiter's runtime. Each runtime with waiters has a driver, a task
//!    that makes the calls. The call in flight is part of the state: if its driver makes no
//!    progress, the driver of another runtime sends the same call again, and it is granted once.
//!
//! The store may tell that other clients have freed permits
//! ([`LimiterStore::watch`](crate::store::LimiterStore::watch)): then the next call is made sooner.
//!
//! **Outages.** Waiters keep their places, and the driver's first call after an outage asks for the
//! head: see [`outage`].
//!
//! **Cancellation.** Dropping a future keeps no permit: see [`leaving`].
//!
//! ```layers
//! waiting
//! first_try
//! bounds remembered
//! requests
//! driver plain waiter
//! calls leaving outage
//! shared
//! state
//! sharing substitute
//! ```

mod bounds;
mod calls;
mod driver;
mod first_try;
#[cfg(test)]
mod interleaving_tests;
mod leaving;
#[cfg(test)]
mod ledger_in_tests;
mod outage;
mod plain;
mod remembered;
mod requests;
mod shared;
mod sharing;
#[cfg(test)]
mod slow_store_tests;
mod state;
mod substitute;
mod waiter;
mod waiting;

pub(crate) use plain::Checked;
pub(crate) use requests::WaitQueue;
pub(crate) use shared::{CallsAside, HeldAside, OnGranted, Queue, TakenAside};
pub(crate) use state::ReadSetUp;
pub(crate) use substitute::{Substitute, Substituted, WhileAway};
