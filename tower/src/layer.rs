//! The layer, and its settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::response;
use redisson_rate_limiter::{BoxFuture, Limiter, Rules};
use tower_layer::Layer;

use crate::attributes::AttributeSources;
use crate::decide::{ByRules, OneLimiter};
use crate::fields::{Fields, Limit};
use crate::key::{ClientAddress, Key};
use crate::reject::ProblemJson;
use crate::service::RateLimit;
use crate::settings::{Options, Settings};

/// Limits the requests of a service.
///
/// Its type can be named: `RateLimitLayer` has one limiter and rejects with [`ProblemJson`],
/// `RateLimitLayer<ByRules>` has rules, and `RateLimitLayer<OneLimiter, Grpc>` rejects with
/// [`Grpc`](crate::reject::Grpc).
///
/// ```
/// use http::{Request, Response};
/// use redisson_rate_limiter::{FixedWindow, RedissonClient, Result};
/// use redisson_rate_limiter_tower::RateLimitLayer;
/// use redisson_rate_limiter_tower::key::ClientAddress;
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// fn layer(client: &RedissonClient) -> Result<RateLimitLayer> {
///     let limiter = client.policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?.with_prefix("api:");
///     Ok(RateLimitLayer::new(limiter.with_name("address"), ClientAddress::behind_proxies(1)))
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<()> {
/// let handler = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
/// let service = layer(&RedissonClient::in_memory())?.layer(handler);
/// let response = service.oneshot(Request::new(())).await.expect("infallible");
/// assert_eq!(response.headers()["ratelimit"], r#""address";r=99;t=0"#);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RateLimitLayer<D = OneLimiter, R = ProblemJson> {
    settings: Settings<D, R>,
}

impl RateLimitLayer<OneLimiter> {
    /// Limits requests by one limiter, in which each request counts for its key. The limiter is a
    /// [`KeyedRateLimiter`](redisson_rate_limiter::KeyedRateLimiter), a
    /// [`PolicyLimiter`](redisson_rate_limiter::PolicyLimiter), also with a policy that is chosen
    /// at run time, a [`RateLimiter`](redisson_rate_limiter::RateLimiter) with the key
    /// [`Everyone`](crate::key::Everyone), or your own.
    ///
    /// ```
    /// use redisson_rate_limiter::{AnyPolicy, Rate, RedissonClient, Result, TokenBucket};
    /// use redisson_rate_limiter_tower::RateLimitLayer;
    /// use redisson_rate_limiter_tower::key::{Everyone, Header, Key};
    /// use std::time::Duration;
    ///
    /// fn layers(client: &RedissonClient, chosen: AnyPolicy) -> Result<[RateLimitLayer; 3]> {
    ///     let minute = Duration::from_secs(60);
    ///     let api_key = || Header::new("x-api-key").hashed("secret of this service");
    ///     Ok([
    ///         RateLimitLayer::new(client.rate_limiter("api").with_rate(Rate::overall(1_000, minute))?, Everyone),
    ///         RateLimitLayer::new(client.keyed_rate_limiter("api:", Rate::overall(100, minute))?, api_key()),
    ///         RateLimitLayer::new(client.policy_limiter(chosen)?.with_prefix("burst:"), api_key()),
    ///     ])
    /// }
    ///
    /// layers(&RedissonClient::in_memory(), TokenBucket::per_second(10).into())?;
    /// # Ok::<(), redisson_rate_limiter::Error>(())
    /// ```
    pub fn new(limiter: impl Limiter + 'static, key: impl Key) -> Self {
        Self::deciding(OneLimiter::new(limiter, key))
    }

    /// Limits requests by one limiter and a key that is found asynchronously, such as the user of a
    /// session in a database. Otherwise it is the same as [`new`](Self::new).
    ///
    /// ```
    /// use http::request::Parts;
    /// use redisson_rate_limiter::{FixedWindow, RedissonClient};
    /// use redisson_rate_limiter_tower::RateLimitLayer;
    /// use std::time::Duration;
    ///
    /// async fn user_of_session(request: &Parts) -> Option<String> {
    ///     # tokio::task::yield_now().await;
    ///     // ask the database
    ///     Some("alice".to_owned())
    /// }
    ///
    /// # fn main() -> redisson_rate_limiter::Result<()> {
    /// let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?;
    /// let layer = RateLimitLayer::with_async_key(limiter, |request| Box::pin(user_of_session(request)));
    /// # Ok(()) }
    /// ```
    pub fn with_async_key<F>(limiter: impl Limiter + 'static, key: F) -> Self
    where
        F: Fn(&Parts) -> BoxFuture<'_, Option<String>> + Send + Sync + 'static,
    {
        Self::deciding(OneLimiter::with_async_key(limiter, key))
    }
}

impl RateLimitLayer<ByRules> {
    /// Limits requests by rules. All rules that apply to a request decide in one round trip. The
    /// rules can be [replaced](Rules::replace) while requests come in.
    ///
    /// A request has the attributes `method`, `host` (without port), `path` (without query),
    /// `address` (of the [client](Self::address)) and, with the feature `axum`, `route` (the
    /// matched route). An application can [add its own](Self::attribute).
    ///
    /// ```
    /// use http::{Request, Response};
    /// use redisson_rate_limiter::{FixedWindow, RedissonClient, Rule};
    /// use redisson_rate_limiter_tower::RateLimitLayer;
    /// use redisson_rate_limiter_tower::key::Header;
    /// use std::convert::Infallible;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let minute = Duration::from_secs(60);
    /// let per_user = client.policy_limiter(FixedWindow::new(10, minute))?.with_prefix("user:").with_name("user");
    /// let all = client.policy_limiter(FixedWindow::new(900, minute))?.with_prefix("all:").with_name("all");
    /// let rules = client.rules([Rule::new(per_user).by(["user"]), Rule::new(all).when("method", ["GET"])])?;
    /// let handler = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// let layer = RateLimitLayer::by_rules(Arc::new(rules)).attribute("user", Header::new("x-user"));
    /// let request = Request::get("/").header("x-user", "alice").body(()).expect("a request");
    /// let response = layer.layer(handler).oneshot(request).await.expect("infallible");
    /// assert_eq!(response.headers()["ratelimit"], r#""user";r=9;t=0, "all";r=899;t=0"#);
    /// # Ok(()) }
    /// ```
    pub fn by_rules(rules: Arc<Rules>) -> Self {
        Self::deciding(ByRules::new(rules))
    }
}

impl<D> RateLimitLayer<D> {
    fn deciding(decide: D) -> Self {
        let settings = Settings {
            decide,
            reject: ProblemJson,
            options: Options::default(),
        };
        Self { settings }
    }
}

impl<R> RateLimitLayer<OneLimiter, R> {
    /// Sets what a request costs. The default is 1. A request that costs 0 is not limited.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::{RateLimitLayer, key::Everyone};
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?;
    /// let layer = RateLimitLayer::new(limiter, Everyone)
    ///     .cost(|request| if request.method == http::Method::POST { 5 } else { 1 });
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cost(mut self, cost: impl Fn(&Parts) -> u32 + Send + Sync + 'static) -> Self {
        self.settings.decide.cost = Some(Arc::new(cost));
        self
    }

    /// Corrects the charge when the response is known: the [cost](Self::cost) is then an estimate,
    /// and the difference to what `cost` returns is given back or charged before the response goes
    /// out, as by [`Charged::settle`](crate::Charged::settle). `None` leaves the charge as it is.
    /// If the cost is known only after the response's body was sent, let the handler settle it.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::{RateLimitLayer, key::Everyone};
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().keyed_rate_limiter("tokens:", Rate::overall(100_000, Duration::from_secs(60)))?;
    /// let layer = RateLimitLayer::new(limiter, Everyone)
    ///     .cost(|_| 1_000)
    ///     .settle(|response| response.headers.get("x-tokens")?.to_str().ok()?.parse().ok());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn settle(
        mut self,
        cost: impl Fn(&response::Parts) -> Option<u32> + Send + Sync + 'static,
    ) -> Self {
        self.settings.options.settle = Some(Arc::new(move |response, _| cost(response)));
        self
    }
}

impl<R> RateLimitLayer<ByRules, R> {
    /// Adds an attribute of requests, such as the user that an earlier layer has authenticated, or
    /// replaces the attribute of this name. A request without the key lacks the attribute.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::{RateLimitLayer, key::{Header, Key}};
    /// # use std::sync::Arc;
    /// #[derive(Clone)]
    /// struct User { plan: String }
    ///
    /// # fn main() -> Result<()> {
    /// # let rules = RedissonClient::in_memory().rules([])?;
    /// let plan = |request: &http::request::Parts| Some(request.extensions.get::<User>()?.plan.clone());
    /// let layer = RateLimitLayer::by_rules(Arc::new(rules))
    ///     .attribute("key", Header::new("x-api-key").hashed("secret of this service"))
    ///     .attribute("plan", plan);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn attribute(mut self, name: &str, key: impl Key) -> Self {
        let sources = self.sources_without(name);
        sources.keys.push((name.into(), Arc::new(key)));
        self
    }

    /// Adds an attribute that is found asynchronously, such as the user of a session in a database,
    /// or replaces the attribute of this name. It is found once for each request, before the rules
    /// decide.
    ///
    /// ```
    /// use http::request::Parts;
    /// use http::{Request, Response};
    /// use redisson_rate_limiter::{FixedWindow, RedissonClient, Rule};
    /// use redisson_rate_limiter_tower::RateLimitLayer;
    /// use std::convert::Infallible;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tower::{Layer, ServiceExt, service_fn};
    ///
    /// async fn user_of_session(request: &Parts) -> Option<String> {
    ///     # tokio::task::yield_now().await;
    ///     // ask the database
    ///     Some("alice".to_owned())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> redisson_rate_limiter::Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let per_user = client.policy_limiter(FixedWindow::new(10, Duration::from_secs(60)))?;
    /// let rules = client.rules([Rule::new(per_user.clone()).by(["user"])])?;
    /// let layer = RateLimitLayer::by_rules(Arc::new(rules))
    ///     .async_attribute("user", |request| Box::pin(user_of_session(request)));
    /// let handler = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// layer.layer(handler).oneshot(Request::new(())).await.expect("infallible");
    /// assert_eq!(per_user.peek("alice", 1).await?.remaining(), 8); // the request, and the peek
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn async_attribute<F>(mut self, name: &str, find: F) -> Self
    where
        F: Fn(&Parts) -> BoxFuture<'_, Option<String>> + Send + Sync + 'static,
    {
        let sources = self.sources_without(name);
        sources.async_keys.push((name.into(), Arc::new(find)));
        self
    }

    /// The sources of attributes, without the one that the application has added by this name.
    fn sources_without(&mut self, name: &str) -> &mut AttributeSources {
        let sources = Arc::make_mut(&mut self.settings.decide.sources);
        sources.keys.retain(|(it, _)| **it != *name);
        sources.async_keys.retain(|(it, _)| **it != *name);
        sources
    }

    /// Sets how the attribute `address` is found, for a service behind proxies. The default is
    /// [`ClientAddress::peer`]. The attribute is the whole address: the rules state how many bits
    /// of an IPv6 address count.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::{RateLimitLayer, key::ClientAddress};
    /// # use std::sync::Arc;
    /// # fn main() -> Result<()> {
    /// # let rules = RedissonClient::in_memory().rules([])?;
    /// let layer = RateLimitLayer::by_rules(Arc::new(rules)).address(ClientAddress::behind_proxies(1));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn address(mut self, address: ClientAddress) -> Self {
        Arc::make_mut(&mut self.settings.decide.sources).address = address;
        self
    }

    /// Corrects the charge of each rule when the response is known: the rule's cost is then an
    /// estimate, and the difference to what `cost` returns for the response and the rule's name is
    /// given back or charged before the response goes out. `None` leaves the charge as it is.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::RateLimitLayer;
    /// # use std::{sync::Arc, time::Duration};
    /// # fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let tokens = client.keyed_rate_limiter("tokens:", Rate::overall(100_000, Duration::from_secs(60)))?.with_name("tokens");
    /// let rules = client.rules([Rule::new(tokens).cost(1_000)])?;
    /// let layer = RateLimitLayer::by_rules(Arc::new(rules)).settle(|response, rule| match rule {
    ///     "tokens" => response.headers.get("x-tokens")?.to_str().ok()?.parse().ok(),
    ///     _ => None,
    /// });
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn settle(
        mut self,
        cost: impl Fn(&response::Parts, &str) -> Option<u32> + Send + Sync + 'static,
    ) -> Self {
        self.settings.options.settle = Some(Arc::new(cost));
        self
    }

    /// Sets which responses are failures, for rules that
    /// [count only](redisson_rate_limiter::Rule::count_only) failures or successes: what these
    /// rules have charged for other requests is given back before the response goes out, as by
    /// [`Rules::end`](redisson_rate_limiter::Rules::end). By default, a response is a failure if
    /// its status is 400 or more, or its field `grpc-status` is not `0`. An error of the service is
    /// always a failure. A request that is dropped before its response stays charged.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::{RateLimitLayer, key::Header};
    /// # use std::{sync::Arc, time::Duration};
    /// # fn main() -> Result<()> {
    /// let client = RedissonClient::in_memory();
    /// let logins = client.policy_limiter(FixedWindow::new(5, Duration::from_secs(600)))?.with_name("logins");
    /// let rules = client.rules([Rule::new(logins).by(["address"]).count_only(Ending::Failure)])?;
    /// // This form answers 200 to a wrong password, and 303 to the right one.
    /// let layer = RateLimitLayer::by_rules(Arc::new(rules))
    ///     .failure_when(|response| !response.status.is_redirection());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn failure_when(
        mut self,
        is_failure: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.settings.options.is_failure = Arc::new(is_failure);
        self
    }
}

impl<D, R> RateLimitLayer<D, R> {
    /// Sets which requests are not limited, such as those of health checks.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::{RateLimitLayer, key::Everyone};
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?;
    /// let layer = RateLimitLayer::new(limiter, Everyone).skip(|request| request.uri.path() == "/healthz");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn skip(mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.settings.options.skip = Some(Arc::new(skip));
        self
    }

    /// Lets a denied request wait for a grant for up to `time`. A request that would have to wait
    /// longer is rejected at once.
    ///
    /// A waiting request asks again after the time that its denial states, in no order with other
    /// requests; to wait in the order of arrival, call
    /// [`acquire`](redisson_rate_limiter::RateLimiter::acquire) in the handler. While it waits, it
    /// is charged nothing, and it reserves nothing in the inner service, such as one of a limited
    /// number of places. The inner service is polled for readiness after the grant; if it fails
    /// then, or the request is dropped before it is ready, the charge is given back.
    ///
    /// A [`LeakyBucket`](redisson_rate_limiter::LeakyBucket) grants at once, and then the request
    /// waits for its turn, for longer than `time` too. A request that is dropped in that wait stays
    /// charged.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::{RateLimitLayer, key::Everyone};
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?;
    /// let layer = RateLimitLayer::new(limiter, Everyone).wait_up_to(Duration::from_secs(2));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn wait_up_to(mut self, time: Duration) -> Self {
        self.settings.options.wait = time;
        self
    }

    /// Sets the form of the header fields that state the limits, on every response. The default is
    /// [`Fields::Ietf`].
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::{RateLimitLayer, fields::Fields, key::Everyone};
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?;
    /// let layer = RateLimitLayer::new(limiter, Everyone).fields(Fields::XRateLimit);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fields(mut self, fields: Fields) -> Self {
        self.settings.options.fields = fields;
        self
    }

    /// Adds to each limit, before the header fields state it, what the limiter does not know:
    /// what is [counted](Limit::with_unit), and [whose](Limit::with_partition_key) limit it is.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::{RateLimitLayer, key::Everyone};
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(1_000_000, Duration::from_secs(60)))?;
    /// let layer = RateLimitLayer::new(limiter, Everyone).describe(|limit| limit.with_unit("content-bytes"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn describe(
        mut self,
        describe: impl for<'a> Fn(Limit<'a>) -> Limit<'a> + Send + Sync + 'static,
    ) -> Self {
        self.settings.options.describe = Some(Arc::new(describe));
        self
    }

    /// Sets the least `Retry-After` of requests that are rejected because Redis is unavailable. The
    /// default is one second. The limiter's [`FailurePolicy`](redisson_rate_limiter::FailurePolicy)
    /// decides whether they are rejected.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::{RateLimitLayer, key::Everyone};
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?;
    /// let layer = RateLimitLayer::new(limiter, Everyone).retry_after_outage(Duration::from_secs(10));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn retry_after_outage(mut self, time: Duration) -> Self {
        self.settings.options.outage = time;
        self
    }

    /// Adds a random time of up to `most` to each `Retry-After`, so that clients that are rejected
    /// together do not come back together. The default is zero.
    ///
    /// ```
    /// # use redisson_rate_limiter::*;
    /// # use redisson_rate_limiter_tower::{RateLimitLayer, key::Everyone};
    /// # use std::time::Duration;
    /// # fn main() -> Result<()> {
    /// # let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?;
    /// let layer = RateLimitLayer::new(limiter, Everyone).retry_after_jitter(Duration::from_secs(5));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn retry_after_jitter(mut self, most: Duration) -> Self {
        self.settings.options.jitter = most;
        self
    }

    /// Sets how rejections are answered: see [`Reject`](crate::Reject). The default is
    /// [`ProblemJson`].
    ///
    /// ```
    /// use http::{Request, Response};
    /// use redisson_rate_limiter::{FixedWindow, RedissonClient};
    /// use redisson_rate_limiter_tower::key::Everyone;
    /// use redisson_rate_limiter_tower::{OneLimiter, RateLimitLayer, Rejection};
    /// use std::time::Duration;
    ///
    /// type Answer = fn(&Rejection<'_>) -> Response<String>;
    ///
    /// fn slow_down(rejection: &Rejection<'_>) -> Response<String> {
    ///     let mut response = Response::new("Slow down.".to_owned());
    ///     *response.status_mut() = rejection.status();
    ///     response
    /// }
    ///
    /// # fn main() -> redisson_rate_limiter::Result<()> {
    /// # let limiter = RedissonClient::in_memory().policy_limiter(FixedWindow::new(100, Duration::from_secs(60)))?;
    /// let layer: RateLimitLayer<OneLimiter, Answer> = RateLimitLayer::new(limiter, Everyone).reject_with(slow_down);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reject_with<T>(self, reject: T) -> RateLimitLayer<D, T> {
        let Settings {
            decide, options, ..
        } = self.settings;
        RateLimitLayer {
            settings: Settings {
                decide,
                reject,
                options,
            },
        }
    }
}

impl<S, D: Clone, R: Clone> Layer<S> for RateLimitLayer<D, R> {
    type Service = RateLimit<S, D, R>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::new(self.settings.clone()))
    }
}

impl<D: fmt::Debug, R> fmt::Debug for RateLimitLayer<D, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}
