//! The limiters, each behind one method.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use limitador::AsyncRateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::redis::{AsyncRedisStorage, CachedRedisStorageBuilder};
use redis::aio::{ConnectionLike, ConnectionManager};
use redisson_rate_limiter::{
    FixedWindow, Gcra, KeyedRateLimiter, Lease, PolicyLimiter, Rate, RateLimiter, RedissonClient,
    TokenBucket,
};
use redisson_rate_limiter_tower::RateLimitLayer;
use redisson_rate_limiter_tower::key::Header;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_rate_limiter as tower_peer;
use tower_rate_limiter::RateLimitPolicy as _;
use trypema::hybrid::HybridRateLimiterProvider;
use trypema::redis::{RedisKey, RedisRateLimiterProvider};
use trypema::{RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

use benchmarks::bars::Kind;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contender {
    Bare,
    Gcra,
    FixedWindow,
    TokenBucket,
    RateLimiter,
    KeyedRateLimiter,
    Leased,
    TowerGcra,
    TowerFixedWindow,
    Limitador,
    LimitadorCached,
    Trypema,
    TrypemaHybrid,
    LayerGcra,
    LayerFixedWindow,
    LayerTowerGcra,
    LayerTowerFixedWindow,
}

/// Of the contender `Leased`; a twentieth of a window of a second.
const LEASE: Duration = Duration::from_millis(50);

/// The requests that a bucket gets back in a minute: so few that its key does not expire between
/// two requests, as the key of a window does not.
const GCRA_A_MINUTE: u32 = 1_000;

impl Contender {
    pub const ALL: [Self; 13] = [
        Self::Bare,
        Self::Gcra,
        Self::FixedWindow,
        Self::TokenBucket,
        Self::RateLimiter,
        Self::KeyedRateLimiter,
        Self::Leased,
        Self::TowerGcra,
        Self::TowerFixedWindow,
        Self::Limitador,
        Self::LimitadorCached,
        Self::Trypema,
        Self::TrypemaHybrid,
    ];
    /// Those that have a client for a cluster.
    pub const ON_A_CLUSTER: [Self; 6] = [
        Self::Bare,
        Self::Gcra,
        Self::FixedWindow,
        Self::TokenBucket,
        Self::RateLimiter,
        Self::KeyedRateLimiter,
    ];
    /// Layers of HTTP services.
    pub const LAYERS: [Self; 4] = [
        Self::LayerGcra,
        Self::LayerFixedWindow,
        Self::LayerTowerGcra,
        Self::LayerTowerFixedWindow,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "a script with INCRBY and PEXPIRE",
            Self::Gcra => "this crate, Gcra",
            Self::FixedWindow => "this crate, FixedWindow",
            Self::TokenBucket => "this crate, TokenBucket",
            Self::RateLimiter => "this crate, RateLimiter",
            Self::KeyedRateLimiter => "this crate, KeyedRateLimiter",
            Self::Leased => "this crate, RateLimiter, leases of 50 ms",
            Self::TowerGcra => "tower-rate-limiter 0.2, GCRA",
            Self::TowerFixedWindow => "tower-rate-limiter 0.2, fixed window",
            Self::Limitador => "limitador 0.14",
            Self::LimitadorCached => "limitador 0.14, cached",
            Self::Trypema => "trypema 2.2, Redis",
            Self::TrypemaHybrid => "trypema 2.2, hybrid",
            Self::LayerGcra => "this crate's layer, Gcra",
            Self::LayerFixedWindow => "this crate's layer, FixedWindow",
            Self::LayerTowerGcra => "tower-rate-limiter 0.2, GCRA",
            Self::LayerTowerFixedWindow => "tower-rate-limiter 0.2, fixed window",
        }
    }

    pub fn kind(self) -> Kind {
        match self {
            Self::Bare => Kind::Bare,
            Self::LimitadorCached | Self::TrypemaHybrid => Kind::Approximate,
            Self::TowerGcra
            | Self::TowerFixedWindow
            | Self::Limitador
            | Self::Trypema
            | Self::LayerTowerGcra
            | Self::LayerTowerFixedWindow => Kind::Peer,
            _ => Kind::Ours,
        }
    }

    /// Whether it answers without asking the server, within what it has taken before.
    pub fn answers_itself(self) -> bool {
        self == Self::Leased || self.kind() == Kind::Approximate
    }

    /// The name as an argument of a process.
    pub fn word(self) -> String {
        format!("{self:?}")
    }

    pub fn of_word(word: &str) -> Self {
        let mut all = Self::ALL.into_iter().chain(Self::LAYERS);
        let found = all.find(|it| it.word() == word);
        found.expect("the name of a contender")
    }
}

/// A limit for each key.
#[derive(Clone, Copy)]
pub struct Quota {
    pub limit: u32,
    pub window: Duration,
}

const BARE: &str = "
local count = redis.call('incrby', KEYS[1], 1)
if count == 1 then
  redis.call('pexpire', KEYS[1], ARGV[2])
end
return count <= tonumber(ARGV[1]) and 1 or 0";

/// A contender that is connected.
#[derive(Clone)]
pub enum Limiter {
    Bare(ConnectionManager, Arc<redis::Script>, Quota),
    BareOnCluster(
        redis::cluster_async::ClusterConnection,
        Arc<redis::Script>,
        Quota,
    ),
    Gcra(PolicyLimiter<Gcra>),
    Fixed(PolicyLimiter<FixedWindow>),
    Bucket(PolicyLimiter<TokenBucket>),
    Rates(Arc<Vec<RateLimiter>>),
    Keyed(KeyedRateLimiter),
    Limitador(Arc<AsyncRateLimiter>, Arc<Namespace>),
    Trypema(Arc<RedisRateLimiterProvider>, RateLimit),
    Hybrid(Arc<HybridRateLimiterProvider>, RateLimit),
    TowerGcra(tower_peer::RedisGcra),
    TowerFixed(tower_peer::FixedWindow<tower_peer::RedisStore>),
    Layer(BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>),
}

impl Limiter {
    pub async fn connect(
        contender: Contender,
        urls: &str,
        quota: Quota,
        keys: usize,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let Quota { limit, window } = quota;
        let first = urls.split(',').next().unwrap_or_default();
        let is_cluster = first != urls;
        let manager = async || redis::Client::open(first)?.get_connection_manager().await;
        let multiplexed = async || {
            redis::Client::open(first)?
                .get_multiplexed_async_connection()
                .await
        };
        let ours = async || RedissonClient::connect(urls).await;
        let rate = Rate::overall(limit.into(), window);
        let per_second = f64::from(limit) / window.as_secs_f64();
        let trypemas = RateLimit::per_second(per_second);
        let trypemas_window = WindowSize::seconds(window.as_secs());
        Ok(match contender {
            Contender::Bare if is_cluster => {
                let client = redis::cluster::ClusterClient::new(urls.split(','))?;
                let connection = client.get_async_connection().await?;
                Self::BareOnCluster(connection, Arc::new(redis::Script::new(BARE)), quota)
            }
            Contender::Bare => {
                Self::Bare(manager().await?, Arc::new(redis::Script::new(BARE)), quota)
            }
            Contender::Gcra => {
                Self::Gcra(ours().await?.policy_limiter(gcra(quota))?.with_prefix("g:"))
            }
            Contender::FixedWindow => {
                let policy = FixedWindow::new(limit, window);
                Self::Fixed(ours().await?.policy_limiter(policy)?.with_prefix("f:"))
            }
            Contender::LayerGcra => {
                let limiter = ours().await?.policy_limiter(gcra(quota))?.with_prefix("g:");
                let layer = RateLimitLayer::new(limiter.with_name("user"), Header::new("x-user"));
                Self::behind(layer.layer(handler()))
            }
            Contender::LayerFixedWindow => {
                let limiter = ours()
                    .await?
                    .policy_limiter(FixedWindow::new(limit, window))?;
                let limiter = limiter.with_prefix("f:").with_name("user");
                let layer = RateLimitLayer::new(limiter, Header::new("x-user"));
                Self::behind(layer.layer(handler()))
            }
            Contender::TowerGcra => Self::TowerGcra(tower_gcra(multiplexed().await?, quota)?),
            Contender::TowerFixedWindow => {
                Self::TowerFixed(tower_fixed(multiplexed().await?, quota)?)
            }
            Contender::LayerTowerGcra => {
                let layer = tower_peer::RateLimitLayer::builder(User).policy_name("user");
                let policy = tower_gcra(multiplexed().await?, quota)?;
                Self::behind(layer.with_policy(policy).build()?.layer(handler()))
            }
            Contender::LayerTowerFixedWindow => {
                let layer = tower_peer::RateLimitLayer::builder(User).policy_name("user");
                let policy = tower_fixed(multiplexed().await?, quota)?;
                Self::behind(layer.with_policy(policy).build()?.layer(handler()))
            }
            Contender::TokenBucket => {
                let policy = TokenBucket::per_second(per_second.ceil() as u32).with_capacity(limit);
                Self::Bucket(ours().await?.policy_limiter(policy)?.with_prefix("b:"))
            }
            Contender::RateLimiter | Contender::Leased => {
                let client = ours().await?;
                let limiter = |key| {
                    let limiter = client.rate_limiter(&format!("r:{key}")).with_rate(rate)?;
                    Ok(match contender {
                        Contender::Leased => limiter.leased(Lease::up_to(LEASE)),
                        _ => limiter,
                    })
                };
                let limiters = (0..keys).map(limiter);
                Self::Rates(Arc::new(
                    limiters.collect::<redisson_rate_limiter::Result<_>>()?,
                ))
            }
            Contender::KeyedRateLimiter => {
                Self::Keyed(ours().await?.keyed_rate_limiter("k:", rate)?)
            }
            Contender::Limitador => {
                let storage = AsyncRedisStorage::new(first).await?;
                Self::limitador(AsyncRateLimiter::new_with_storage(Box::new(storage)), quota)
            }
            Contender::LimitadorCached => {
                let storage = CachedRedisStorageBuilder::new(first).build().await?;
                Self::limitador(AsyncRateLimiter::new_with_storage(Box::new(storage)), quota)
            }
            Contender::Trypema => {
                let builder = RedisRateLimiterProvider::builder(manager().await?);
                Self::Trypema(builder.window_size(trypemas_window?).build()?, trypemas?)
            }
            Contender::TrypemaHybrid => {
                let builder = HybridRateLimiterProvider::builder(manager().await?);
                Self::Hybrid(builder.window_size(trypemas_window?).build()?, trypemas?)
            }
        })
    }

    fn limitador(limiter: AsyncRateLimiter, quota: Quota) -> Self {
        let user = "user".try_into().expect("an expression");
        let seconds = quota.window.as_secs();
        limiter.add_limit(Limit::new("n", quota.limit.into(), seconds, [], [user]));
        Self::Limitador(Arc::new(limiter), Arc::new("n".into()))
    }

    fn behind<S>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send + 'static,
    {
        Self::Layer(BoxCloneSyncService::new(service.map_err(Into::into)))
    }

    /// Whether one request on a key is granted.
    pub async fn ask(&mut self, key: usize) -> Result<bool, Box<dyn std::error::Error>> {
        let name = key.to_string();
        Ok(match self {
            Self::Bare(connection, script, quota) => {
                bare(connection, script, &name, *quota).await?
            }
            Self::BareOnCluster(connection, script, quota) => {
                bare(connection, script, &name, *quota).await?
            }
            Self::Gcra(limiter) => limiter.check(&name, 1).await?.is_granted(),
            Self::TowerGcra(policy) => !policy.check(name).await?.is_rate_limited(),
            Self::TowerFixed(policy) => !policy.check(name).await?.is_rate_limited(),
            Self::Layer(service) => {
                let request = Request::builder().header("x-user", name);
                let response = async {
                    let ready = service.ready().await?;
                    ready.call(request.body(Body::empty())?).await
                };
                response
                    .await
                    .map_err(|error: BoxError| error.to_string())?
                    .status()
                    == 200
            }
            Self::Fixed(limiter) => limiter.check(&name, 1).await?.is_granted(),
            Self::Bucket(limiter) => limiter.check(&name, 1).await?.is_granted(),
            Self::Rates(limiters) => limiters[key].try_acquire(1).await?,
            Self::Keyed(limiter) => limiter.check(&name, 1).await?.is_granted(),
            Self::Limitador(limiter, namespace) => {
                let user = std::collections::HashMap::from([("user".to_owned(), name)]);
                let context = Context::from(user);
                let result = limiter
                    .check_rate_limited_and_update(namespace, &context, 1)
                    .await;
                !result.map_err(|error| format!("{error:?}"))?.limited
            }
            Self::Trypema(limiter, rate) => {
                let key = RedisKey::try_from(name.as_str())?;
                matches!(
                    limiter.absolute().inc(&key, rate, 1).await?,
                    RateLimitDecision::Allowed
                )
            }
            Self::Hybrid(limiter, rate) => {
                let key = RedisKey::try_from(name.as_str())?;
                matches!(
                    limiter.absolute().inc(&key, rate, 1).await?,
                    RateLimitDecision::Allowed
                )
            }
        })
    }
}

async fn bare(
    connection: &mut (impl ConnectionLike + Clone),
    script: &redis::Script,
    name: &str,
    quota: Quota,
) -> redis::RedisResult<bool> {
    let mut call = script.key(name);
    call.arg(quota.limit).arg(quota.window.as_millis() as u64);
    let granted: u8 = call.invoke_async(connection).await?;
    Ok(granted == 1)
}

fn gcra(Quota { limit, window }: Quota) -> Gcra {
    match limit <= GCRA_A_MINUTE {
        true => Gcra::new(limit, window),
        false => Gcra::per_minute(GCRA_A_MINUTE).with_burst(limit),
    }
}

/// The same quota.
fn tower_gcra(
    connection: redis::aio::MultiplexedConnection,
    quota: Quota,
) -> Result<tower_peer::RedisGcra, Box<dyn std::error::Error>> {
    let gcra = gcra(quota);
    let quota = tower_peer::GcraQuota::new(gcra.quantity(), gcra.period(), gcra.burst())?;
    Ok(tower_peer::RedisGcra::new(connection, quota))
}

fn tower_fixed(
    connection: redis::aio::MultiplexedConnection,
    Quota { limit, window }: Quota,
) -> Result<tower_peer::FixedWindow<tower_peer::RedisStore>, Box<dyn std::error::Error>> {
    let store = tower_peer::RedisStore::new(connection);
    Ok(tower_peer::FixedWindow::new(store, limit.into(), window)?)
}

/// What the layers are in front of.
fn handler()
-> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone
{
    service_fn(async |_| Ok(Response::new(Body::empty())))
}

/// The same key as [`Header`] finds.
#[derive(Clone)]
struct User;

impl tower_peer::KeyExtractor for User {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<String, tower_peer::RateLimitError> {
        let user = request.headers().get("x-user");
        let user = user.and_then(|it| it.to_str().ok());
        let missing =
            || tower_peer::RateLimitError::Key("x-user".to_owned(), "is missing".to_owned());
        user.map(str::to_owned).ok_or_else(missing)
    }
}
