//! What rules see of a request.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The attributes of a request, names with values, by which [`Rules`](crate::Rules) decide it.
///
/// Maps, and lists of names with values, implement it. Implement it for a type of your own if a map
/// for each request would cost too much. An empty value counts as missing.
///
/// Four names have a meaning: rules compare and count a `path` without its query, and an `address`
/// in one form, however it is written; a request costs what its attribute `cost` says, unless a
/// rule [says otherwise](crate::Rule::cost); and `plan` names a rule's
/// [plan](crate::Rule::with_plan) for the request.
///
/// ```
/// use redisson_rate_limiter::{Attributes, FixedWindow, RedissonClient, Rule, Verdict};
/// use std::borrow::Cow;
/// use std::time::Duration;
///
/// struct Request { user: String, bytes: u32 }
///
/// impl Attributes for Request {
///     fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
///         match name {
///             "user" => Some(Cow::Borrowed(&self.user)),
///             "bytes" => Some(self.bytes.to_string().into()),
///             _ => None,
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> redisson_rate_limiter::Result<()> {
/// let client = RedissonClient::in_memory();
/// let uploads = client.policy_limiter(FixedWindow::new(1_000, Duration::from_secs(60)))?;
/// let rules = client.rules([Rule::new(uploads).by(["user"]).cost_from("bytes")])?;
/// let request = Request { user: "alice".to_owned(), bytes: 700 };
/// assert!(matches!(rules.check(&request).await?, Verdict::Granted(_)));
/// assert!(matches!(rules.check(&request).await?, Verdict::Denied(_)));
/// assert!(matches!(rules.check(&[("user", "bob")]).await?, Verdict::Granted(_)));
/// # Ok(()) }
/// ```
pub trait Attributes: Sync {
    /// The value of the attribute of this name.
    ///
    /// ```
    /// # use redisson_rate_limiter::Attributes;
    /// let request = [("user", "alice"), ("path", "/orders?page=2")];
    /// assert_eq!(request.attribute("user").as_deref(), Some("alice"));
    /// assert_eq!(request.attribute("address"), None);
    /// ```
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>>;

    /// How long the request may wait for the turn that a leaky bucket gives it. If its turn would
    /// be later, it is denied, and nothing is charged, so a caller that has a deadline never waits
    /// in vain. The capacity of the bucket is then at most what flows out in the whole periods of
    /// that time, and the decision states this capacity as its limit. With the default, `None`,
    /// only the bucket's own capacity bounds the wait.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use std::{borrow::Cow, time::Duration};
    /// struct WithDeadline(Duration);
    ///
    /// impl Attributes for WithDeadline {
    ///     fn attribute(&self, _: &str) -> Option<Cow<'_, str>> {
    ///         None
    ///     }
    ///
    ///     fn longest_turn(&self) -> Option<Duration> {
    ///         Some(self.0)
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let paced = client.policy_limiter(LeakyBucket::new(1, Duration::from_secs(1)).with_capacity(100))?;
    /// let rules = client.rules([Rule::new(paced)])?;
    /// let request = WithDeadline(Duration::from_millis(1_500));
    /// let (one, two, three) = tokio::join!(
    ///     rules.check(&request),
    ///     rules.check(&request), // its turn is in a second
    ///     rules.check(&request), // its turn would be in two
    /// );
    /// assert!(matches!((one?, two?), (Verdict::Granted(_), Verdict::Granted(_))));
    /// assert!(matches!(three?, Verdict::Denied(_)));
    /// # Ok(()) }
    /// ```
    fn longest_turn(&self) -> Option<Duration> {
        None
    }

    /// Whether a rule may apply that names this many attributes, `domain` not counted, in its
    /// [`when`](crate::Rule::when) and [`by`](crate::Rule::by). By default any number may. A
    /// descriptor of Envoy's protocol needs a rule that names all of its entries.
    ///
    /// ```
    /// # use redisson_rate_limiter::Attributes;
    /// assert!([("user", "alice")].may_be_named_by(0));
    /// ```
    fn may_be_named_by(&self, names: usize) -> bool {
        let _ = names;
        true
    }

    /// The form of a value that requests are counted by. The default is the value itself. If
    /// clients choose the values, return a hash of a value that is too long for a key of Redis.
    ///
    /// ```
    /// # use redisson_rate_limiter::Attributes;
    /// assert_eq!([("user", "alice")].counted("alice".into()), "alice");
    /// ```
    fn counted<'a>(&self, value: Cow<'a, str>) -> Cow<'a, str> {
        value
    }
}

/// A request without attributes.
impl Attributes for () {
    fn attribute(&self, _: &str) -> Option<Cow<'_, str>> {
        None
    }
}

impl<A: Attributes + ?Sized> Attributes for &A {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        A::attribute(self, name)
    }

    fn longest_turn(&self) -> Option<Duration> {
        A::longest_turn(self)
    }

    fn may_be_named_by(&self, names: usize) -> bool {
        A::may_be_named_by(self, names)
    }

    fn counted<'a>(&self, value: Cow<'a, str>) -> Cow<'a, str> {
        A::counted(self, value)
    }
}

impl<N: AsRef<str> + Sync, V: AsRef<str> + Sync> Attributes for [(N, V)] {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let found = self.iter().find(|(it, _)| it.as_ref() == name);
        found.map(|(_, value)| Cow::Borrowed(value.as_ref()))
    }
}

impl<N: AsRef<str> + Sync, V: AsRef<str> + Sync, const COUNT: usize> Attributes
    for [(N, V); COUNT]
{
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self[..].attribute(name)
    }
}

impl<V: AsRef<str> + Sync> Attributes for BTreeMap<String, V> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name).map(|value| Cow::Borrowed(value.as_ref()))
    }
}

impl<V: AsRef<str> + Sync> Attributes for HashMap<String, V> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name).map(|value| Cow::Borrowed(value.as_ref()))
    }
}
