//! The limiters, each behind one method.

use std::sync::Arc;
use std::time::Duration;

use limitador::AsyncRateLimiter;
use limitador::limit::{Context, Limit, Namespace};
use limitador::storage::redis::{AsyncRedisStorage, CachedRedisStorageBuilder};
use redis::aio::{ConnectionLike, ConnectionManager};
use redisson_rate_limiter::{
    FixedWindow, KeyedRateLimiter, Lease, PolicyLimiter, Rate, RateLimiter, RedissonClient,
    TokenBucket,
};
use trypema::hybrid::HybridRateLimiterProvider;
use trypema::redis::{RedisKey, RedisRateLimiterProvider};
use trypema::{RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contender {
    Bare,
    FixedWindow,
    TokenBucket,
    RateLimiter,
    KeyedRateLimiter,
    Leased,
    Limitador,
    LimitadorCached,
    Trypema,
    TrypemaHybrid,
}

/// Of the contender `Leased`; a twentieth of a window of a second.
const LEASE: Duration = Duration::from_millis(50);

impl Contender {
    pub const ALL: [Self; 10] = [
        Self::Bare,
        Self::FixedWindow,
        Self::TokenBucket,
        Self::RateLimiter,
        Self::KeyedRateLimiter,
        Self::Leased,
        Self::Limitador,
        Self::LimitadorCached,
        Self::Trypema,
        Self::TrypemaHybrid,
    ];
    /// Those that have a client for a cluster.
    pub const ON_A_CLUSTER: [Self; 6] = [
        Self::Bare,
        Self::FixedWindow,
        Self::TokenBucket,
        Self::RateLimiter,
        Self::KeyedRateLimiter,
        Self::Leased,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "a script with INCRBY and PEXPIRE",
            Self::FixedWindow => "**this crate, FixedWindow**",
            Self::TokenBucket => "**this crate, TokenBucket**",
            Self::RateLimiter => "**this crate, RateLimiter**",
            Self::KeyedRateLimiter => "**this crate, KeyedRateLimiter**",
            Self::Leased => "**this crate, RateLimiter, leases of 50 ms**",
            Self::Limitador => "limitador 0.14",
            Self::LimitadorCached => "limitador 0.14, cached",
            Self::Trypema => "trypema 2.2, Redis",
            Self::TrypemaHybrid => "trypema 2.2, hybrid",
        }
    }

    /// The name as an argument of a process.
    pub fn word(self) -> String {
        format!("{self:?}")
    }

    pub fn of_word(word: &str) -> Self {
        let found = Self::ALL.into_iter().find(|it| it.word() == word);
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
    Fixed(PolicyLimiter<FixedWindow>),
    Bucket(PolicyLimiter<TokenBucket>),
    Rates(Arc<Vec<RateLimiter>>),
    Keyed(KeyedRateLimiter),
    Limitador(Arc<AsyncRateLimiter>, Arc<Namespace>),
    Trypema(Arc<RedisRateLimiterProvider>, RateLimit),
    Hybrid(Arc<HybridRateLimiterProvider>, RateLimit),
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
            Contender::FixedWindow => {
                let policy = FixedWindow::new(limit, window);
                Self::Fixed(ours().await?.policy_limiter(policy)?.with_prefix("f:"))
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
