//! What a turn came to, and the median of several.

use std::time::Duration;

use benchmarks::{median, spread};

use crate::{contender::Contender, workload::Workload};

/// One turn of one contender.
pub struct Sample {
    pub decisions: u64,
    pub granted: u64,
    pub elapsed: Duration,
    pub p50: Duration,
    pub p99: Duration,
    /// The CPU time that the client's process used.
    pub cpu: Duration,
    /// The same of the server's.
    pub server_cpu: Duration,
}

/// The medians of a contender's turns.
pub struct Summary {
    pub contender: Contender,
    /// Decisions a second.
    pub throughput: f64,
    /// The part of the requests that was granted.
    pub granted: f64,
    /// In seconds.
    pub p50: f64,
    pub p99: f64,
    /// Half of the range of the turns, as a part of the throughput.
    pub spread: f64,
    /// The client's CPU time for one decision, in seconds.
    pub cpu: f64,
    pub server_cpu: f64,
}

/// A workload and how each contender fared.
pub struct Sampled {
    pub workload: Workload,
    pub summaries: Vec<Summary>,
}

impl Summary {
    pub fn of(contender: Contender, turns: &[Sample]) -> Self {
        let of_turns = |value: fn(&Sample) -> f64| median(turns.iter().map(value).collect());
        let throughputs = turns
            .iter()
            .map(|turn| turn.decisions as f64 / turn.elapsed.as_secs_f64());
        let throughputs: Vec<f64> = throughputs.collect();
        Self {
            contender,
            spread: spread(&throughputs),
            throughput: median(throughputs),
            server_cpu: of_turns(|turn| turn.server_cpu.as_secs_f64() / turn.decisions as f64),
            granted: of_turns(|turn| turn.granted as f64 / turn.decisions as f64),
            p50: of_turns(|turn| turn.p50.as_secs_f64()),
            p99: of_turns(|turn| turn.p99.as_secs_f64()),
            cpu: of_turns(|turn| turn.cpu.as_secs_f64() / turn.decisions as f64),
        }
    }
}

impl Sampled {
    pub fn of(&self, contender: Contender) -> &Summary {
        let mut summaries = self.summaries.iter();
        summaries
            .find(|summary| summary.contender == contender)
            .expect("a contender of the workload")
    }

    /// The API of Redisson that makes more decisions a second.
    pub fn faster_redisson(&self) -> Contender {
        let ratio = self.ratio_of_throughput(Contender::RedissonAsync, Contender::Redisson);
        if ratio > 1.0 {
            Contender::RedissonAsync
        } else {
            Contender::Redisson
        }
    }

    /// How many times the decisions a second of `other` `one` makes.
    pub fn ratio_of_throughput(&self, one: Contender, other: Contender) -> f64 {
        self.of(one).throughput / self.of(other).throughput
    }
}
