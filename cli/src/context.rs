//! The state that all commands on a store share, and their questions about the key of a limiter.

use redisson_rate_limiter::{RateLimiter, RedissonClient};

use crate::failure::Failure;
use crate::inspect::reply;
use crate::inspect::settings::{FIELDS, Settings};
use crate::signals::or_signal;
use crate::store::StoreArguments;

/// The state that all commands on a store share.
pub(crate) struct Context {
    pub(crate) client: RedissonClient,
    pub(crate) store: StoreArguments,
    pub(crate) is_json: bool,
}

impl Context {
    pub(crate) fn rate_limiter(&self, name: &str) -> RateLimiter {
        self.client.rate_limiter(&self.store.full_name(name))
    }

    /// Returns the output of `wait`, unless a signal comes first: then `wait` is dropped, and the
    /// permits that it took are given back.
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

    /// The settings in the hash of this name. All are empty if there is no hash.
    pub(crate) async fn settings(&self, name: &str) -> Result<Settings, Failure> {
        let fields = ["HMGET", name].into_iter().chain(FIELDS);
        let fields = reply::list(self.client.command(fields).await?);
        Ok(Settings::read(&reply::exactly(fields)?))
    }

    /// Whether the hash of this name is a limiter's.
    pub(crate) async fn is_limiter(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.settings(name).await?.are_a_limiters())
    }

    /// The type of the key of this name, such as `string`; `None` if there is no key.
    pub(crate) async fn kind_of(&self, name: &str) -> Result<Option<String>, Failure> {
        let kind = self.client.command(["TYPE", name]).await?;
        Ok(Some(reply::text(&kind)).filter(|it| it != "none"))
    }

    /// Fails if the key of this name belongs to another program.
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
