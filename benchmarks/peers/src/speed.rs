//! Decisions per second: workloads by contenders, in rounds in which the contenders take turns.

use std::time::Duration;

use crate::Plan;
use crate::callers::Task;
use crate::contender::{Contender, Quota};
use crate::processes;
use crate::servers::Servers;

/// More than anybody asks for.
const PLENTY: Quota = Quota {
    limit: 100_000_000,
    window: Duration::from_secs(60),
};

pub struct Workload {
    pub name: &'static str,
    processes: usize,
    /// In each process.
    callers: usize,
    keys: usize,
    is_on_cluster: bool,
}

const fn workload(
    name: &'static str,
    processes: usize,
    callers: usize,
    keys: usize,
    is_on_cluster: bool,
) -> Workload {
    Workload {
        name,
        processes,
        callers,
        keys,
        is_on_cluster,
    }
}

pub const WORKLOADS: [Workload; 8] = [
    workload("1 caller", 1, 1, 1, false),
    workload("16 callers, 1 key", 1, 16, 1, false),
    workload("256 callers, 1 key", 1, 256, 1, false),
    workload("256 callers, 10,000 keys", 1, 256, 10_000, false),
    workload("4 processes of 64 callers, 1 key", 4, 64, 1, false),
    workload(
        "4 processes of 64 callers, 10,000 keys",
        4,
        64,
        10_000,
        false,
    ),
    workload("cluster of 3, 256 callers, 1 key", 1, 256, 1, true),
    workload(
        "cluster of 3, 256 callers, 10,000 keys",
        1,
        256,
        10_000,
        true,
    ),
];

/// What a contender did.
#[derive(Clone, Copy)]
pub struct Speed {
    pub contender: Contender,
    pub per_second: f64,
    /// In µs, of a single caller.
    pub median: f64,
}

/// For each workload the speed of each contender that can do it.
pub fn measure(server: &Servers, cluster: &Servers, plan: Plan) -> Vec<Vec<Speed>> {
    let speeds = WORKLOADS.iter().map(|workload| {
        eprintln!("peers: {}", workload.name);
        let contenders: &[Contender] = match workload.is_on_cluster {
            true => &Contender::ON_A_CLUSTER,
            false => &Contender::ALL,
        };
        let servers = if workload.is_on_cluster {
            cluster
        } else {
            server
        };
        let mut all: Vec<(Contender, Vec<Speed>)> = contenders
            .iter()
            .map(|&contender| (contender, Vec::new()))
            .collect();
        for _ in 0..plan.rounds {
            for (contender, speeds) in &mut all {
                servers.forget_all();
                speeds.extend(once(*contender, workload, servers, plan));
            }
        }
        let medians = all.into_iter().filter_map(|(_, speeds)| median(speeds));
        medians.collect()
    });
    speeds.collect()
}

fn once(contender: Contender, workload: &Workload, servers: &Servers, plan: Plan) -> Option<Speed> {
    let task = Task {
        contender,
        urls: servers.urls(),
        quota: PLENTY,
        callers: workload.callers,
        keys: workload.keys,
        begins: 0,
        ends: 0,
        tells_times: false,
    };
    let told = processes::run(&task, workload.processes, plan.round)?;
    Some(Speed {
        contender,
        per_second: told.decisions as f64 / plan.round.as_secs_f64(),
        median: told.median as f64 / 1_000.0,
    })
}

/// The round in the middle.
fn median(mut speeds: Vec<Speed>) -> Option<Speed> {
    speeds.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    speeds.get(speeds.len() / 2).copied()
}
