//! What the callers do.

use std::fmt;

use benchmarks::thousands;

use crate::{contender::Contender, plan::Plan};

/// Callers that each ask for one permit, again as soon as they have their answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    pub callers: usize,
    pub limiters: usize,
    pub traffic: Traffic,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    Granted,
    /// All but 100 requests a window are denied.
    Denied,
}

pub const SINGLE: usize = 1;
pub const MANY: usize = 256;
pub const MANY_LIMITERS: usize = 10_000;

const CALLERS: [usize; 4] = [SINGLE, 16, MANY, 2048];

pub fn all() -> Vec<Workload> {
    let mut workloads = Vec::new();
    for traffic in [Traffic::Granted, Traffic::Denied] {
        workloads.extend(CALLERS.map(|callers| Workload::on_one_limiter(callers, traffic)));
    }
    workloads.push(Workload::on_many_limiters());
    workloads
}

impl Workload {
    pub fn on_one_limiter(callers: usize, traffic: Traffic) -> Self {
        Self {
            callers,
            limiters: 1,
            traffic,
        }
    }

    pub fn on_many_limiters() -> Self {
        Self {
            callers: MANY,
            limiters: MANY_LIMITERS,
            traffic: Traffic::Granted,
        }
    }

    pub fn contenders(&self) -> Vec<Contender> {
        let mut contenders = vec![
            Contender::ThisCrate,
            Contender::OurScript,
            Contender::RedissonScript,
            Contender::Redisson,
            Contender::RedissonAsync,
        ];
        if self.limiters > 1 {
            contenders.insert(1, Contender::ThisCrateByName);
        }
        contenders
    }

    /// The names of the limiters, as Java's side makes them too.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        match self.limiters {
            1 => vec![prefix.to_owned()],
            limiters => (0..limiters).map(|i| format!("{prefix}:{i}")).collect(),
        }
    }

    /// How often each contender has its turn.
    pub fn rounds(&self, plan: &Plan) -> usize {
        if self.callers == SINGLE || self.limiters > 1 {
            plan.close_rounds
        } else {
            plan.rounds
        }
    }

    /// Permits a window.
    pub fn rate(&self) -> u64 {
        match self.traffic {
            Traffic::Granted => 100_000_000,
            Traffic::Denied => 100,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.callers {
            1 => write!(f, "1 caller")?,
            callers => write!(f, "{} callers", thousands(callers as u64))?,
        }
        if self.limiters > 1 {
            let limiters = thousands(self.limiters as u64);
            write!(f, ", {limiters} limiters")?;
        }
        write!(f, ", {}", self.traffic)
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Granted => "granted",
            Self::Denied => "mostly denied",
        })
    }
}
