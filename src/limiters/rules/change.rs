//! What a replacement of rules has changed.

use std::collections::HashMap;
use std::fmt;

use super::Rule;
use super::in_force::InForce;

/// What a replacement of rules has changed, by the names of the rules: from
/// [`Rules::replace`](super::Rules::replace) and `Rules::replace_from`. Its text is a line for a
/// log.
///
/// ```
/// use redisson_rate_limiter::{FixedWindow, RedissonClient, Rule, RulesChange};
/// use std::time::Duration;
///
/// # fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let rule = |name: &str, prefix, limit| {
///     let limiter = client.policy_limiter(FixedWindow::new(limit, Duration::from_secs(60)))?;
///     let limiter = limiter.with_name(name).with_prefix(prefix);
///     redisson_rate_limiter::Result::Ok(Rule::new(limiter).by(["user"]))
/// };
/// let before = [rule("logins", "logins:", 5)?, rule("orders", "orders:", 9)?, rule("mails", "mails:", 2)?];
/// let rules = client.rules(before)?;
/// let change = rules.replace([rule("logins", "logins:", 7)?, rule("orders", "v2:", 9)?, rule("searches", "s:", 3)?])?;
/// assert_eq!(change.added, ["searches"]);
/// assert_eq!(change.removed, ["mails"]);
/// assert_eq!(change.changed, ["logins", "orders"]);
/// assert_eq!(change.started_anew, ["orders"]); // its targets have other names
/// assert_eq!(
///     change.to_string(),
///     "added: `searches`; removed: `mails`; changed: `logins`, `orders`; started anew: `orders`"
/// );
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RulesChange {
    /// The rules that did not exist before.
    pub added: Vec<String>,
    /// The rules that do not exist any more.
    pub removed: Vec<String>,
    /// The rules that differ from before, such as in a limit, plan, condition or mode.
    pub changed: Vec<String>,
    /// The changed rules whose targets, or those of one of their plans, have other names or another
    /// algorithm than before: what was used before does not count there.
    pub started_anew: Vec<String>,
}

impl RulesChange {
    pub(super) fn between(all_before: &InForce, now: &InForce) -> Self {
        let name = |rule: &Rule| rule.name.to_string();
        let earlier = all_before.rules.iter();
        let mut earlier: HashMap<_, _> = earlier.map(|it| (name(it), it)).collect();
        let mut change = Self::default();
        for rule in now.rules.iter() {
            let name = name(rule);
            let Some(before) = earlier.remove(&name) else {
                change.added.push(name);
                continue;
            };
            if rule.starts_anew_after(before) {
                change.started_anew.push(name.clone());
                change.changed.push(name);
            } else if rule.differs_from(before) || now.mode_of(rule) != all_before.mode_of(before) {
                change.changed.push(name);
            }
        }
        let removed = all_before.rules.iter().map(name);
        change.removed = removed.filter(|it| earlier.contains_key(it)).collect();
        change
    }

    /// Whether the rules are those before.
    ///
    /// ```
    /// # use redisson_rate_limiter::RulesChange;
    /// assert!(RulesChange::default().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for RulesChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing changed");
        }
        let mut separator = "";
        for (what, names) in [
            ("added", &self.added),
            ("removed", &self.removed),
            ("changed", &self.changed),
            ("started anew", &self.started_anew),
        ] {
            if !names.is_empty() {
                let names: Vec<_> = names
                    .iter()
                    .map(|it| format!("`{}`", crate::escaped::Escaped(it)))
                    .collect();
                write!(f, "{separator}{what}: {}", names.join(", "))?;
                separator = "; ";
            }
        }
        Ok(())
    }
}
