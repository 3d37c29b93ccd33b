//! Rates as Java has them.

use std::time::Duration;

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

    /// The arguments that say in Java what `rate` says here. Without a keep alive it is the
    /// overload that has none.
    pub fn of(rate: &redisson_rate_limiter::Rate) -> Self {
        let millis = |time: Duration| time.as_millis().try_into().expect("a time of this era");
        Self {
            rate_type: match rate.rate_type() {
                redisson_rate_limiter::RateType::Overall => RateType::Overall,
                redisson_rate_limiter::RateType::PerClient => RateType::PerClient,
                other => panic!("Redisson has no type for {other:?}"),
            },
            rate: rate.permits().try_into().expect("a Java long"),
            interval: millis(rate.interval()),
            keep_alive: rate.keep_alive_time().map(millis),
        }
    }

    pub(super) fn args(self) -> Vec<String> {
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

    pub(super) fn overload(self) -> Vec<String> {
        let mut args = self.args();
        args.extend(self.keep_alive.map(|ms| ms.to_string()));
        args
    }

    pub(super) fn rate_limiter_args(self, keep_state: Option<bool>) -> Vec<String> {
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
