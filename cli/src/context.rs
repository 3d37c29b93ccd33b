//! What every command has at hand, and what it asks first about the key that it is to touch.

use redisson_rate_limiter::{RateLimiter, RedissonClient};

use crate::failure::Failure;
use crate::inspect::reply;
use crate::inspect::settings::{FIELDS, Settings};
use crate::signals::or_signal;
use crate::store::StoreArguments;

/// What every command has at hand.
pub(crate) struct Context {
    pub(crate) client: RedissonClient,
    pub(crate) store: StoreArguments,
    pub(crate) is_json: bool,
}

impl Context {
    pub(crate) fn rate_limiter(&self, name: &str) -> RateLimiter {
        self.client.rate_limiter(&self.store.full_name(name))
    }

    /// What `wait` returns, unless a signal comes first: then `wait` is dropped, and what it took
    /// is given back.
    pub(crate) async fn unless_interrupted<T>(
        &self,
        wait: impl Future<Output = redisson_rate_limiter::Result<T>>,
    ) -> Result<T, Failure> {
        let ended = or_signal(wait).await;
        match ended.map_err(|error| Failure::usage(format!("signals: {error}")))? {
            Ok(output) => Ok(output?),
            Err(exit_code) => Err(Failure::interrupted(exit_code)),
        }
    }

    /// The settings in the hash of this name; all are empty if there is none.
    pub(crate) async fn settings(&self, name: &str) -> Result<Settings, Failure> {
        let fields = ["HMGET", name].into_iter().chain(FIELDS);
        let fields = reply::list(self.client.command(fields).await?);
        Ok(Settings::read(&reply::exactly(fields)?))
    }

    /// Whether the hash of this name is a limiter's.
    pub(crate) async fn is_limiter(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.settings(name).await?.are_a_limiters())
    }

    /// What the key of this name is, such as a string; `None` if there is none.
    pub(crate) async fn kind_of(&self, name: &str) -> Result<Option<String>, Failure> {
        let kind = self.client.command(["TYPE", name]).await?;
        Ok(Some(reply::text(&kind)).filter(|it| it != "none"))
    }

    /// Fails if the key of this name is another program's.
    pub(crate) async fn refuse_other(&self, name: &str) -> Result<(), Failure> {
        if let Some(kind) = self.kind_of(name).await?
            && !(kind == "hash" && self.is_limiter(name).await?)
        {
            let message = format!("{} is a {kind}, and no rate limiter", name.escape_debug());
            return Err(Failure::store(message));
        }
        Ok(())
    }
}
