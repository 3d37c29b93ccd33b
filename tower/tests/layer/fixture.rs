//! Services, requests and what comes back.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Request, Response};
use redisson_rate_limiter::{
    BoxFuture, Decision, FixedWindow, Limiter, PolicyLimiter, RedissonClient, Rules,
};
use redisson_rate_limiter_tower::key::Header;
use redisson_rate_limiter_tower::{ByRules, RateLimitLayer};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};

pub const MINUTE: Duration = Duration::from_secs(60);

/// `limit` requests a minute, by a limiter called `user`.
pub fn per_minute(client: &RedissonClient, limit: u32) -> PolicyLimiter<FixedWindow> {
    let limiter = client
        .policy_limiter(FixedWindow::new(limit, MINUTE))
        .unwrap();
    limiter.with_prefix("user:").with_name("user")
}

/// How much a key has left.
pub async fn left(limiter: &PolicyLimiter<FixedWindow>, key: &str) -> u64 {
    let peeked = limiter.peek(key, 1).await.unwrap();
    peeked.remaining() + u64::from(peeked.is_granted())
}

/// A layer by these rules, which counts the field `x-user` as the attribute `user`.
pub fn by_rules(rules: Arc<Rules>) -> RateLimitLayer<ByRules> {
    RateLimitLayer::by_rules(rules).attribute("user", Header::new("x-user"))
}

pub type Handler = BoxCloneService<Request<String>, Response<String>, Infallible>;

/// A service that answers each request, and counts them.
#[derive(Clone, Default)]
pub struct Handled(Arc<AtomicU32>);

impl Handled {
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn service(&self) -> Handler {
        let count = Arc::clone(&self.0);
        BoxCloneService::new(service_fn(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            async { Ok(Response::new("hello".to_owned())) }
        }))
    }
}

pub fn request() -> Request<String> {
    Request::new(String::new())
}

/// A request of this user.
pub fn of(user: &str) -> Request<String> {
    Request::builder()
        .header("x-user", user)
        .body(String::new())
        .unwrap()
}

/// The response to one request, by a layer before a service that answers each.
pub async fn ask<L>(layer: &L, request: Request<String>) -> Response<String>
where
    L: Layer<Handler>,
    L::Service: Service<Request<String>, Response = Response<String>, Error = Infallible>,
{
    layer
        .layer(Handled::default().service())
        .oneshot(request)
        .await
        .unwrap()
}

pub fn field<'a>(response: &'a Response<String>, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|it| it.to_str().unwrap())
}

/// A limiter that answers the same each time.
#[derive(Debug, Clone)]
pub struct Always(pub redisson_rate_limiter::Result<Decision>);

impl Limiter for Always {
    fn check<'a>(
        &'a self,
        _key: &'a str,
        _cost: u32,
    ) -> BoxFuture<'a, redisson_rate_limiter::Result<Decision>> {
        Box::pin(async move { self.0.clone() })
    }
}
