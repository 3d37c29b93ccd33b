//! What a limiter grants of a limit of 100 a second to two processes that ask all the time.

use std::time::Duration;

use crate::Plan;
use crate::callers::Task;
use crate::contender::{Contender, Quota};
use crate::processes;
use crate::servers::Servers;

pub const LIMIT: u32 = 100;
pub const PROCESSES: usize = 2;
pub const CALLERS: usize = 8;

pub struct Granted {
    pub contender: Contender,
    pub per_second: f64,
    /// The most in any second, by the clock of the callers.
    pub most: usize,
}

pub fn measure(server: &Servers, plan: Plan) -> Vec<Granted> {
    let granted = Contender::ALL.into_iter().filter_map(|contender| {
        eprintln!("peers: what {} grants", contender.word());
        server.forget_all();
        let task = Task {
            contender,
            urls: server.urls(),
            quota: Quota {
                limit: LIMIT,
                window: Duration::from_secs(1),
            },
            callers: CALLERS,
            keys: 1,
            begins: 0,
            ends: 0,
            tells_times: true,
        };
        let mut grants = processes::run(&task, PROCESSES, plan.asking, server)?.grants;
        grants.sort_unstable();
        Some(Granted {
            contender,
            per_second: grants.len() as f64 / plan.asking.as_secs_f64(),
            most: most_in_a_second(&grants),
        })
    });
    granted.collect()
}

fn most_in_a_second(grants: &[u64]) -> usize {
    let mut first = 0;
    let most = grants.iter().enumerate().map(|(last, time)| {
        while grants[first] + 1_000 <= *time {
            first += 1;
        }
        last + 1 - first
    });
    most.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_what_came_less_than_a_second_apart() {
        assert_eq!(most_in_a_second(&[]), 0);
        assert_eq!(most_in_a_second(&[0, 999, 1_000, 1_998]), 3);
        assert_eq!(most_in_a_second(&[0, 1_000, 2_000]), 1);
    }
}
