//! The handles that a client hands out: each checks its arguments, and passes the request on.
//!
//! ```layers
//! fuzzing
//! rules
//! keyed_rate_limiter
//! policy_limiter
//! joint
//! chargeable registry
//! rate_limiter
//! charge limiter target_name targets turn
//! ```

mod charge;
mod chargeable;
#[cfg(all(fuzzing, feature = "redis"))]
pub(crate) mod fuzzing;
mod joint;
mod keyed_rate_limiter;
mod limiter;
mod policy_limiter;
mod rate_limiter;
mod registry;
mod rules;
mod target_name;
mod targets;
mod turn;

pub use charge::Charge;
pub use chargeable::Chargeable;
pub use joint::JointDecision;
pub(crate) use joint::{Mode, check_all, peek_all, refund_all};
pub use keyed_rate_limiter::KeyedRateLimiter;
pub use limiter::Limiter;
pub use policy_limiter::PolicyLimiter;
pub use rate_limiter::{Job, Lease, RateLimiter, Reservation, Worker};
pub(crate) use registry::{NameMapper, Registry};
pub use rules::{Attributes, Ending, Plan, Rule, Rules, RulesChange, RulesGrant, Verdict};
#[cfg(feature = "serde")]
pub use rules::{RuleConfig, RuleCost, RuleLimit, RulesConfig};
