//! The real Redisson in a JVM, its RRateLimiter call for call.
//!
//! Arguments are what Java's are: `i64`, so that tests can say what Redisson does with zero and
//! negative numbers. All times are milliseconds.

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

mod rate;

use crate::jvm::Jvm;

pub use self::rate::{Config, Rate, RateType};
pub use crate::jvm::{JavaError, Result};
pub use crate::version::Version;

/// `N` Redisson clients on one server, all in the JVM that the tests of this process share.
pub async fn clients<const N: usize>(version: Version, url: &str) -> [Client; N] {
    let redisson = Redisson::shared(version);
    let mut clients = Vec::new();
    for _ in 0..N {
        let client = redisson.open(Servers::Single(url), &PATIENT).await;
        clients.push(client.unwrap_or_else(|e| panic!("Redisson {version} on {url}: {e}")));
    }
    let mut clients = clients.into_iter();
    array::from_fn(|_| clients.next().expect("as many as were opened"))
}

/// A JVM with one version of Redisson. It ends when the last handle, client and limiter of it is
/// dropped.
#[derive(Clone)]
pub struct Redisson {
    jvm: Arc<Jvm>,
    next_handle: Arc<AtomicU64>,
}

impl Redisson {
    /// Starts a JVM, after building the Java side where that has not been done. Blocks for the
    /// build only.
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
            Servers::SingleByDefault(url) => ("default", url.to_owned()),
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
    /// With Redisson's default settings, for measurements.
    SingleByDefault(&'a str),
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

/// On a busy machine a response may be late, and after 3 s Redisson sends the command again, which
/// takes the permits twice.
pub const PATIENT: [ClientOption; 1] = [ClientOption::Timeout(60_000)];

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

    pub async fn rename(&self, name: &str) -> Result<()> {
        self.run("rename", [name.into()]).await
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

    /// Has that many threads acquire `permits` again and again for so long. How many permits they
    /// were granted in each second of it, as soon as it is over or they were granted `enough`.
    pub async fn backlog(
        &self,
        threads: u32,
        permits: u32,
        duration: Duration,
        enough: Option<u64>,
    ) -> Result<Vec<u64>> {
        let args = [
            threads.to_string(),
            permits.to_string(),
            duration.as_millis().to_string(),
            enough.map_or(i64::MAX.to_string(), |it| it.to_string()),
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
