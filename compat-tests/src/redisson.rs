//! The real Redisson in a JVM, its RRateLimiter call for call.
//!
//! Arguments are what Java's are: `i64`, so that tests can say what Redisson does with zero and negative numbers.
//! All times are milliseconds.

use std::{
    array,
    collections::HashMap,
    fmt,
    str::FromStr,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::jvm::Jvm;

/// The versions of Redisson that the tests run, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// The first whose state today's Redisson can read; 8 random bytes a member.
    V3_17_0,
    /// 16 random bytes a member.
    V3_21_3,
    /// When what comes back exceeds the rate, counts what is out by permits, no longer by members.
    V3_36_0,
    /// The first with `release`; keepAlive.
    V3_52_0,
    /// `updateRate` and `setRate(RateLimiterArgs)`.
    V4_7_0,
}

impl Version {
    pub const ALL: [Self; 5] = [
        Self::V3_17_0,
        Self::V3_21_3,
        Self::V3_36_0,
        Self::V3_52_0,
        Self::V4_7_0,
    ];

    /// The random bytes of a member of the permits zset.
    pub fn random_len(self) -> usize {
        if self < Self::V3_21_3 { 8 } else { 16 }
    }

    /// `trySetRate` and `setRate` with a keepAlive, and the field `keepAliveTime`.
    pub fn has_keep_alive(self) -> bool {
        self >= Self::V3_52_0
    }

    pub fn has_release(self) -> bool {
        self >= Self::V3_52_0
    }

    /// `updateRate` and `setRate(RateLimiterArgs)`.
    pub fn has_update_rate(self) -> bool {
        self >= Self::V4_7_0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V3_17_0 => "3.17.0",
            Self::V3_21_3 => "3.21.3",
            Self::V3_36_0 => "3.36.0",
            Self::V3_52_0 => "3.52.0",
            Self::V4_7_0 => "4.7.0",
        })
    }
}

/// An exception of Redisson; or `Unsupported`, where the version lacks the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JavaError {
    /// The exception's simple class name.
    pub class: String,
    pub message: String,
}

impl JavaError {
    pub fn is_unsupported(&self) -> bool {
        self.class == "Unsupported"
    }
}

impl fmt::Display for JavaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl std::error::Error for JavaError {}

pub type Result<T> = std::result::Result<T, JavaError>;

/// `N` Redisson clients on one server, all in the JVM that the tests of this process share.
pub async fn clients<const N: usize>(version: Version, url: &str) -> [Client; N] {
    let redisson = Redisson::shared(version);
    let mut clients = Vec::new();
    for _ in 0..N {
        let client = redisson.open(Servers::Single(url), &[]).await;
        clients.push(client.unwrap_or_else(|e| panic!("Redisson {version} on {url}: {e}")));
    }
    let mut clients = clients.into_iter();
    array::from_fn(|_| clients.next().expect("as many as were opened"))
}

/// A JVM with one version of Redisson. It ends when the last handle, client and limiter of it is dropped.
#[derive(Clone)]
pub struct Redisson {
    jvm: Arc<Jvm>,
    next_handle: Arc<AtomicU64>,
}

impl Redisson {
    /// Starts a JVM, after building the Java side where that has not been done. Blocks for the build only.
    ///
    /// # Panics
    ///
    /// Without a JDK, Maven or `flock`.
    pub fn start(version: Version) -> Self {
        Self {
            jvm: Arc::new(Jvm::start(version)),
            next_handle: Arc::default(),
        }
    }

    /// The JVM that all tests of this process share; it runs until the process ends.
    pub fn shared(version: Version) -> Self {
        static SHARED: LazyLock<Mutex<HashMap<Version, Redisson>>> = LazyLock::new(Mutex::default);
        let mut shared = SHARED
            .lock()
            .expect("starting a JVM panicked in another test");
        shared
            .entry(version)
            .or_insert_with(|| Self::start(version))
            .clone()
    }

    /// Opens a Redisson client.
    pub async fn open(&self, servers: Servers<'_>, options: &[ClientOption]) -> Result<Client> {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed).to_string();
        let (kind, urls) = match servers {
            Servers::Single(url) => ("single", url.to_owned()),
            Servers::Cluster(urls) => ("cluster", urls.join(",")),
        };
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let mut args = vec![handle.as_str(), kind, &urls];
        args.extend(options.iter().map(String::as_str));
        self.jvm.request("open", &args).await?;
        let id = one(self.jvm.request("id", &[&handle]).await?);
        let open = Arc::new(OpenClient {
            jvm: Arc::clone(&self.jvm),
            handle,
        });
        Ok(Client { id, open })
    }
}

/// Where a client connects to, by `redis://host:port`.
pub enum Servers<'a> {
    Single(&'a str),
    Cluster(&'a [&'a str]),
}

/// What a test changes of a client's configuration.
pub enum ClientOption {
    /// How long to wait for a response, in ms.
    Timeout(u32),
    /// How often to send a command again that got no response.
    RetryAttempts(u32),
    /// How long to wait before that, in ms.
    RetryInterval(u32),
}

impl fmt::Display for ClientOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(ms) => write!(f, "timeout={ms}"),
            Self::RetryAttempts(count) => write!(f, "retryAttempts={count}"),
            Self::RetryInterval(ms) => write!(f, "retryInterval={ms}"),
        }
    }
}

/// A Redisson client, closed when it and its limiters are dropped.
#[derive(Clone)]
pub struct Client {
    /// The UUID that ends the names of the client's own keys.
    pub id: String,
    open: Arc<OpenClient>,
}

struct OpenClient {
    jvm: Arc<Jvm>,
    handle: String,
}

impl Drop for OpenClient {
    fn drop(&mut self) {
        // Nobody need wait for it.
        self.jvm.send("close", &[&self.handle]);
    }
}

impl Client {
    pub fn limiter(&self, name: &str) -> Limiter {
        Limiter {
            client: Arc::clone(&self.open),
            name: name.into(),
        }
    }
}

/// Whose permits a limiter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateType {
    Overall,
    PerClient,
}

/// The arguments of `trySetRate`, `setRate` and `updateRate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub rate_type: RateType,
    pub rate: i64,
    pub interval: i64,
    /// Without one, the overload that has none is called.
    pub keep_alive: Option<i64>,
}

impl Rate {
    pub fn overall(rate: i64, interval: i64) -> Self {
        Self {
            rate_type: RateType::Overall,
            rate,
            interval,
            keep_alive: None,
        }
    }

    pub fn per_client(rate: i64, interval: i64) -> Self {
        Self {
            rate_type: RateType::PerClient,
            ..Self::overall(rate, interval)
        }
    }

    pub fn keep_alive(self, keep_alive: i64) -> Self {
        Self {
            keep_alive: Some(keep_alive),
            ..self
        }
    }

    /// The arguments that say in Java what `rate` says here. Without a keep alive it is the overload that has none.
    pub fn of(rate: &redisson_rate_limiter::Rate) -> Self {
        let millis = |time: Duration| time.as_millis().try_into().expect("a time of this era");
        Self {
            rate_type: match rate.rate_type() {
                redisson_rate_limiter::RateType::Overall => RateType::Overall,
                redisson_rate_limiter::RateType::PerClient => RateType::PerClient,
            },
            rate: rate.permits().try_into().expect("a Java long"),
            interval: millis(rate.interval()),
            keep_alive: rate.keep_alive_time().map(millis),
        }
    }

    fn args(self) -> Vec<String> {
        let rate_type = match self.rate_type {
            RateType::Overall => "OVERALL",
            RateType::PerClient => "PER_CLIENT",
        };
        vec![
            rate_type.into(),
            self.rate.to_string(),
            self.interval.to_string(),
        ]
    }

    fn overload(self) -> Vec<String> {
        let mut args = self.args();
        args.extend(self.keep_alive.map(|ms| ms.to_string()));
        args
    }

    fn rate_limiter_args(self, keep_state: Option<bool>) -> Vec<String> {
        let mut args = self.args();
        args.push(self.keep_alive.map_or("-".into(), |ms| ms.to_string()));
        args.push(keep_state.map_or("-".into(), |keep| keep.to_string()));
        args
    }
}

/// What `getConfig` returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub rate_type: RateType,
    pub rate: i64,
    pub interval: i64,
}

/// What a load of many threads came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub grants: u64,
    pub calls: u64,
}

/// An RRateLimiter.
#[derive(Clone)]
pub struct Limiter {
    client: Arc<OpenClient>,
    name: String,
}

impl Limiter {
    pub async fn try_set_rate(&self, rate: Rate) -> Result<bool> {
        self.get("trySetRate", rate.overload()).await
    }

    pub async fn set_rate(&self, rate: Rate) -> Result<()> {
        self.run("setRate", rate.overload()).await
    }

    /// `setRate(RateLimiterArgs)`.
    pub async fn set_rate_args(&self, rate: Rate, keep_state: Option<bool>) -> Result<()> {
        self.run("setRateArgs", rate.rate_limiter_args(keep_state))
            .await
    }

    pub async fn update_rate(&self, rate: Rate, keep_state: Option<bool>) -> Result<bool> {
        self.get("updateRate", rate.rate_limiter_args(keep_state))
            .await
    }

    /// `tryAcquire()`, without an argument.
    pub async fn try_acquire_one(&self) -> Result<bool> {
        self.get("tryAcquire", []).await
    }

    pub async fn try_acquire(&self, permits: i64) -> Result<bool> {
        self.get("tryAcquire", [permits.to_string()]).await
    }

    pub async fn try_acquire_timeout(&self, permits: i64, timeout: i64) -> Result<bool> {
        self.get(
            "tryAcquireTimeout",
            [permits.to_string(), timeout.to_string()],
        )
        .await
    }

    /// `acquire()`, without an argument.
    pub async fn acquire_one(&self) -> Result<()> {
        self.run("acquire", []).await
    }

    pub async fn acquire(&self, permits: i64) -> Result<()> {
        self.run("acquire", [permits.to_string()]).await
    }

    pub async fn release(&self, permits: i64) -> Result<()> {
        self.run("release", [permits.to_string()]).await
    }

    pub async fn available_permits(&self) -> Result<i64> {
        self.get("availablePermits", []).await
    }

    pub async fn config(&self) -> Result<Config> {
        let answer = self.request("getConfig", []).await?;
        let [rate_type, rate, interval] = answer.try_into().expect("three values");
        let rate_type = match rate_type.as_str() {
            "OVERALL" => RateType::Overall,
            "PER_CLIENT" => RateType::PerClient,
            other => panic!("not a RateType: {other}"),
        };
        Ok(Config {
            rate_type,
            rate: parse(&rate),
            interval: parse(&interval),
        })
    }

    pub async fn is_exists(&self) -> Result<bool> {
        self.get("isExists", []).await
    }

    pub async fn delete(&self) -> Result<bool> {
        self.get("delete", []).await
    }

    pub async fn expire(&self, time_to_live: i64) -> Result<bool> {
        self.get("expire", [time_to_live.to_string()]).await
    }

    /// `expire(Instant)`, in ms since the epoch.
    pub async fn expire_at(&self, epoch: i64) -> Result<bool> {
        self.get("expireAt", [epoch.to_string()]).await
    }

    pub async fn expire_if_set(&self, time_to_live: i64) -> Result<bool> {
        self.get("expireIfSet", [time_to_live.to_string()]).await
    }

    pub async fn expire_if_not_set(&self, time_to_live: i64) -> Result<bool> {
        self.get("expireIfNotSet", [time_to_live.to_string()]).await
    }

    pub async fn expire_if_greater(&self, time_to_live: i64) -> Result<bool> {
        self.get("expireIfGreater", [time_to_live.to_string()])
            .await
    }

    pub async fn expire_if_less(&self, time_to_live: i64) -> Result<bool> {
        self.get("expireIfLess", [time_to_live.to_string()]).await
    }

    pub async fn clear_expire(&self) -> Result<bool> {
        self.get("clearExpire", []).await
    }

    pub async fn remain_time_to_live(&self) -> Result<i64> {
        self.get("remainTimeToLive", []).await
    }

    /// Has that many threads call `tryAcquire(permits)` for so long.
    pub async fn load_trying(&self, threads: u32, permits: i64, duration: i64) -> Result<Load> {
        self.load(threads, permits, duration, "try").await
    }

    /// Has that many threads call `tryAcquire(permits, the time left)` for so long.
    pub async fn load_waiting(&self, threads: u32, permits: i64, duration: i64) -> Result<Load> {
        self.load(threads, permits, duration, "wait").await
    }

    /// Has that many threads acquire `permits` again and again for so long. How many permits they were granted in each
    /// second of it.
    pub async fn backlog(
        &self,
        threads: u32,
        permits: u32,
        duration: Duration,
    ) -> Result<Vec<u64>> {
        let args = [
            threads.to_string(),
            permits.to_string(),
            duration.as_millis().to_string(),
        ];
        let per_second = self.request("backlog", args).await?;
        Ok(per_second.iter().map(|permits| parse(permits)).collect())
    }

    async fn load(&self, threads: u32, permits: i64, duration: i64, mode: &str) -> Result<Load> {
        let args = [
            threads.to_string(),
            permits.to_string(),
            duration.to_string(),
            mode.into(),
        ];
        let [grants, calls] = self
            .request("load", args)
            .await?
            .try_into()
            .expect("two values");
        Ok(Load {
            grants: parse(&grants),
            calls: parse(&calls),
        })
    }

    async fn run(&self, command: &str, args: impl IntoIterator<Item = String>) -> Result<()> {
        self.request(command, args).await.map(drop)
    }

    async fn get<T: FromStr>(
        &self,
        command: &str,
        args: impl IntoIterator<Item = String>,
    ) -> Result<T> {
        Ok(parse(&one(self.request(command, args).await?)))
    }

    async fn request(
        &self,
        command: &str,
        args: impl IntoIterator<Item = String>,
    ) -> Result<Vec<String>> {
        let args: Vec<String> = args.into_iter().collect();
        let mut words = vec![self.client.handle.as_str(), &self.name];
        words.extend(args.iter().map(String::as_str));
        self.client.jvm.request(command, &words).await
    }
}

fn one(answer: Vec<String>) -> String {
    let [value] = answer.try_into().expect("one value");
    value
}

fn parse<T: FromStr>(value: &str) -> T {
    value
        .parse()
        .unwrap_or_else(|_| panic!("Redisson's answer is of another type: {value}"))
}
