//! Decisions per second and their CPU time: workloads by contenders, in rounds in which the
//! contenders take turns.

use std::time::Duration;

use benchmarks::{median, spread};

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
/// All but the first request on a key are denied.
const SCARCE: Quota = Quota { limit: 1, ..PLENTY };

pub struct Workload {
    pub name: &'static str,
    pub contenders: &'static [Contender],
    processes: usize,
    /// In each process.
    callers: usize,
    keys: usize,
    quota: Quota,
    is_on_cluster: bool,
    is_close: bool,
}

impl Workload {
    /// Whether the times of single decisions are measured: those of one caller.
    pub fn has_median(&self) -> bool {
        self.callers == 1
    }
}

const MANY_KEYS: usize = 10_000;

const ONE_CALLER: Workload = Workload {
    name: "one caller",
    contenders: &Contender::ALL,
    processes: 1,
    callers: 1,
    keys: 1,
    quota: PLENTY,
    is_on_cluster: false,
    is_close: true,
};

const USERS: Workload = Workload {
    name: "256 callers, 10,000 keys",
    callers: 256,
    keys: MANY_KEYS,
    ..ONE_CALLER
};

/// Each has a section of the page.
pub const LEADING: [Workload; 4] = [
    USERS,
    Workload {
        name: "256 callers, 1 key",
        callers: 256,
        is_close: false,
        ..ONE_CALLER
    },
    ONE_CALLER,
    Workload {
        name: "through the layer, 256 callers, 10,000 keys",
        contenders: &Contender::LAYERS,
        ..USERS
    },
];

pub const OTHERS: [Workload; 4] = [
    Workload {
        name: "16 callers, 1 key",
        callers: 16,
        is_close: false,
        ..ONE_CALLER
    },
    Workload {
        name: "256 callers, 10,000 keys, mostly denied",
        quota: SCARCE,
        is_close: false,
        ..USERS
    },
    Workload {
        name: "4 processes of 64 callers, 10,000 keys",
        processes: 4,
        callers: 64,
        is_close: false,
        ..USERS
    },
    Workload {
        name: "cluster of 3, 256 callers, 10,000 keys",
        contenders: &Contender::ON_A_CLUSTER,
        is_on_cluster: true,
        is_close: false,
        ..USERS
    },
];

/// What a contender did: the medians of its rounds.
#[derive(Clone, Copy)]
pub struct Speed {
    pub contender: Contender,
    pub per_second: f64,
    /// By how much the rounds lie apart, as a part of `per_second`: half of the range.
    pub spread: f64,
    /// In µs, of a single caller.
    pub median: f64,
    /// CPU time of a decision in µs.
    pub client: f64,
    pub server: f64,
}

/// The speeds of all contenders of each workload.
pub struct Speeds {
    pub leading: Vec<Vec<Speed>>,
    pub others: Vec<Vec<Speed>>,
}

pub fn measure(server: &Servers, cluster: &Servers, plan: Plan) -> Speeds {
    let all = |workloads: &[Workload]| {
        let each = workloads.iter().map(|workload| {
            let servers = match workload.is_on_cluster {
                true => cluster,
                false => server,
            };
            measure_one(workload, servers, plan)
        });
        each.collect()
    };
    Speeds {
        leading: all(&LEADING),
        others: all(&OTHERS),
    }
}

fn measure_one(workload: &Workload, servers: &Servers, plan: Plan) -> Vec<Speed> {
    eprintln!("peers: {}", workload.name);
    let all = workload.contenders.iter();
    let mut all: Vec<(Contender, Vec<Speed>)> = all.map(|&it| (it, Vec::new())).collect();
    let rounds = match workload.is_close {
        true => plan.close_rounds,
        false => plan.rounds,
    };
    for _ in 0..rounds {
        for (contender, speeds) in &mut all {
            servers.forget_all();
            speeds.extend(once(*contender, workload, servers, plan));
        }
    }
    let each = all.into_iter();
    each.filter_map(|(_, speeds)| medians(&speeds)).collect()
}

fn once(contender: Contender, workload: &Workload, servers: &Servers, plan: Plan) -> Option<Speed> {
    let task = Task {
        contender,
        urls: servers.urls(),
        quota: workload.quota,
        callers: workload.callers,
        keys: workload.keys,
        begins: 0,
        ends: 0,
        tells_times: false,
    };
    let told = processes::run(&task, workload.processes, plan.round, servers)?;
    if told.decisions == 0 {
        return None;
    }
    let micros = |nanos: u64| nanos as f64 / told.decisions as f64 / 1_000.0;
    Some(Speed {
        contender,
        per_second: told.decisions as f64 / plan.round.as_secs_f64(),
        spread: 0.0,
        median: told.median as f64 / 1_000.0,
        client: micros(told.clients),
        server: micros(told.servers),
    })
}

/// The median of each number.
fn medians(speeds: &[Speed]) -> Option<Speed> {
    let all = |number: fn(&Speed) -> f64| speeds.iter().map(number).collect::<Vec<_>>();
    let first = speeds.first()?;
    Some(Speed {
        contender: first.contender,
        per_second: median(all(|speed| speed.per_second)),
        spread: spread(&all(|speed| speed.per_second)),
        median: median(all(|speed| speed.median)),
        client: median(all(|speed| speed.client)),
        server: median(all(|speed| speed.server)),
    })
}
