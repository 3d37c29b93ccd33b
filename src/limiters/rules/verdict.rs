//! What rules decide about a request, and what they charge for it.

use std::collections::HashMap;
use std::sync::Arc;

use super::Ending;
use crate::decision::Decision;
use crate::limiters::joint::JointDecision;

/// What the rules decide about a request.
///
/// Like [`Decision`], it is not `#[non_exhaustive]`: granted and denied are all there is.
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, RedissonClient, Rule, Verdict};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let per_user = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
/// let rules = client.rules([Rule::new(per_user).by(["user"])])?;
/// let status = |verdict| match verdict {
///     Verdict::Granted(_) => 200,
///     Verdict::Denied(_) => 429,
/// };
/// let alice = [("user", "alice")];
/// assert_eq!(status(rules.check(&alice).await?), 200);
/// assert_eq!(status(rules.check(&alice).await?), 429);
/// # Ok(()) }
/// ```
#[must_use = "a request that was denied must not go on"]
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All rules that apply and are enforced granted it.
    Granted(RulesGrant),
    /// A rule denied it, and no rule charged it: the decision of each, and which one
    /// [decides](JointDecision::deciding).
    Denied(JointDecision),
}

/// What rules have charged for a request that they granted: for
/// [`Rules::settle`](super::Rules::settle) and [`Rules::refund`](super::Rules::refund). From a
/// [`Verdict`].
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, RedissonClient, Rule, Verdict};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let limiter = |name: &str| {
///     let limiter = client.policy_limiter(FixedWindow::new(9, Duration::from_secs(60)))?;
///     redisson_rate_limiter::Result::Ok(limiter.with_name(name).with_prefix(name))
/// };
/// let rules = client.rules([
///     Rule::new(limiter("enforced")?).by(["user"]),
///     Rule::new(limiter("tried out")?).by(["user"]).in_shadow(),
/// ])?;
/// let Verdict::Granted(granted) = rules.check(&[("user", "alice")]).await? else { panic!() };
/// assert_eq!(granted.rules().collect::<Vec<_>>(), ["enforced", "tried out"]);
/// let decision = granted.decision().expect("a rule is enforced");
/// assert_eq!(decision.deciding().1.remaining(), 8);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulesGrant {
    pub(super) enforced: Option<JointDecision>,
    /// The decision of the rules in shadow mode, which may be a denial. Boxed, because few requests
    /// have one.
    pub(super) in_shadow: Option<Box<JointDecision>>,
    /// The rules that counted only some requests when these were charged.
    pub(super) counts_only: Option<Arc<CountsOnly>>,
}

/// The ending of the requests that stay charged, by the names of the limiters.
pub(super) type CountsOnly = HashMap<Arc<str>, Ending>;

impl Verdict {
    /// The decision of the rules that apply and are enforced; `None` if there are none.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let one = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(one).by(["user"])])?;
    /// assert_eq!(rules.check(&[("address", "::1")]).await?.decision(), None);
    /// for is_granted in [true, false] {
    ///     let verdict = rules.check(&[("user", "alice")]).await?;
    ///     assert_eq!(verdict.decision().map(JointDecision::is_granted), Some(is_granted));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn decision(&self) -> Option<&JointDecision> {
        match self {
            Self::Granted(granted) => granted.decision(),
            Self::Denied(joint) => Some(joint),
        }
    }
}

impl RulesGrant {
    /// The decision of the rules that are enforced; `None` if none of them applies.
    pub fn decision(&self) -> Option<&JointDecision> {
        self.enforced.as_ref()
    }

    /// What the rules in [shadow mode](super::Rule::in_shadow) decided, which would have denied the
    /// request where it is denied; `None` if none of them applies, or they could not be asked.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let strict = client.policy_limiter(FixedWindow::new(1, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(strict).by(["user"]).in_shadow()])?;
    /// let alice = [("user", "alice")];
    /// for would_be_granted in [true, false] {
    ///     let Verdict::Granted(granted) = rules.check(&alice).await? else { panic!() };
    ///     let tried = granted.decision_in_shadow().map(JointDecision::is_granted);
    ///     assert_eq!(tried, Some(would_be_granted));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn decision_in_shadow(&self) -> Option<&JointDecision> {
        self.in_shadow.as_deref()
    }

    /// The [decision](Self::decision), by value. What rules in [shadow
    /// mode](super::Rule::in_shadow) have charged stays charged.
    #[must_use]
    pub fn into_decision(self) -> Option<JointDecision> {
        self.enforced
    }

    /// The names of the rules that have charged the request, those in [shadow
    /// mode](super::Rule::in_shadow) last.
    pub fn rules(&self) -> impl Iterator<Item = &str> {
        let joint = self.enforced.iter().chain(self.in_shadow.as_deref());
        let all = joint.flat_map(JointDecision::by_limiter);
        all.filter(|(_, it)| Decision::is_granted(it))
            .map(|(name, _)| name)
    }

    /// Whether no rule has charged the request.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// assert!(RulesGrant::default().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules().next().is_none()
    }

    /// Whether [`Rules::end`](super::Rules::end) may give something back: whether a rule [counts
    /// only](super::Rule::count_only) some requests.
    #[must_use]
    pub fn depends_on_ending(&self) -> bool {
        self.counts_only.is_some()
    }

    /// Whether the charge of the limiter of this name stays for a request that ends so: `false` of
    /// a rule that [counts only](super::Rule::count_only) others.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(5, Duration::from_secs(600)))?.with_name("logins");
    /// let rules = client.rules([Rule::new(logins).by(["user"]).count_only(Ending::Failure)])?;
    /// let Verdict::Granted(granted) = rules.check(&[("user", "alice")]).await? else { panic!() };
    /// assert!(granted.counts("logins", Ending::Failure));
    /// assert!(!granted.counts("logins", Ending::Success));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn counts(&self, limiter: &str, ending: Ending) -> bool {
        let only = self.counts_only.as_ref().and_then(|it| it.get(limiter));
        only.is_none_or(|only| *only == ending)
    }

    /// What was charged, of rules of both modes.
    pub(super) fn into_decisions(self) -> impl Iterator<Item = JointDecision> {
        let in_shadow = self.in_shadow.map(|it| *it);
        self.enforced.into_iter().chain(in_shadow)
    }
}

/// What the limiters of a decision have charged: nothing if it is denied.
impl From<JointDecision> for RulesGrant {
    fn from(decision: JointDecision) -> Self {
        Self {
            enforced: Some(decision),
            in_shadow: None,
            counts_only: None,
        }
    }
}
