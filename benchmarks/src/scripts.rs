//! What scripts have cost a server, by `INFO commandstats`.

use std::ops::AddAssign;

use redis::aio::MultiplexedConnection;

/// The scripts that have run, and the server's time for them.
#[derive(Default, Clone, Copy)]
pub struct ScriptsRun {
    pub calls: u64,
    micros: u64,
}

impl ScriptsRun {
    /// Since the server's start, or since [`reset`].
    pub async fn read(redis: &mut MultiplexedConnection) -> Self {
        let mut command = redis::cmd("INFO");
        let statistics: redis::RedisResult<String> =
            command.arg("commandstats").query_async(redis).await;
        Self::of(&statistics.expect("the server's statistics"))
    }

    /// By EVALSHA and by EVAL.
    fn of(statistics: &str) -> Self {
        let mut all = Self::default();
        for line in statistics.lines() {
            let Some((command, numbers)) = line.split_once(':') else {
                continue;
            };
            if ["cmdstat_eval", "cmdstat_evalsha"].contains(&command) {
                let number = |name: &str| {
                    let mut fields = numbers.split(',').filter_map(|it| it.split_once('='));
                    let (_, number) = fields.find(|(field, _)| *field == name)?;
                    number.parse::<u64>().ok()
                };
                all += Self {
                    calls: number("calls").expect("a number of calls"),
                    micros: number("usec").expect("a time"),
                };
            }
        }
        all
    }

    pub fn micros_a_call(self) -> f64 {
        self.micros as f64 / self.calls as f64
    }
}

/// From now on the server counts anew.
pub async fn reset(redis: &mut MultiplexedConnection) {
    let mut command = redis::cmd("CONFIG");
    let reset: redis::RedisResult<()> = command.arg("RESETSTAT").query_async(redis).await;
    reset.expect("the server's statistics at zero");
}

impl AddAssign for ScriptsRun {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.micros += other.micros;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_by_hash_and_by_source_count_together() {
        let statistics = "# Commandstats\r\n\
            cmdstat_eval:calls=1,usec=90,usec_per_call=90.00,rejected_calls=0\r\n\
            cmdstat_evalsha:calls=3,usec=30,usec_per_call=10.00,rejected_calls=0\r\n\
            cmdstat_evalsha_ro:calls=5,usec=50,usec_per_call=10.00\r\n";
        let scripts = ScriptsRun::of(statistics);
        assert_eq!((scripts.calls, scripts.micros_a_call()), (4, 30.0));
    }
}
