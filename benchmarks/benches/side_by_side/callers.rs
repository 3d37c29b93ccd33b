//! Callers that each ask again as soon as they have their answer, and how long each answer took.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use benchmarks::cpu;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Barrier;

use crate::{plan::Plan, sample::Sample, workload::Workload};

/// One caller.
pub trait Caller: Send + 'static {
    fn is_granted(&mut self, limiter: usize) -> impl Future<Output = bool> + Send;
}

const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const OVER: u8 = 2;

/// One turn: a task for each caller. `server` is the server's process.
pub async fn run<C: Caller>(
    workload: &Workload,
    plan: &Plan,
    server: u32,
    mut new_caller: impl FnMut(u64) -> C,
) -> Sample {
    let phase = Arc::new(AtomicU8::new(WARM_UP));
    let all_known = Arc::new(Barrier::new(workload.callers + 1));
    let tasks: Vec<_> = (0..workload.callers as u64)
        .map(|seed| {
            let caller = new_caller(seed);
            let (workload, phase) = (*workload, Arc::clone(&phase));
            let all_known = Arc::clone(&all_known);
            tokio::spawn(ask_again_and_again(
                caller, seed, workload, all_known, phase,
            ))
        })
        .collect();

    all_known.wait().await;
    tokio::time::sleep(plan.window).await;
    let (start, cpu, server_nanos) = (Instant::now(), process_cpu(), cpu::nanos(server));
    phase.store(MEASURED, Ordering::Relaxed);
    tokio::time::sleep(plan.measured).await;
    phase.store(OVER, Ordering::Relaxed);
    let (elapsed, cpu) = (start.elapsed(), process_cpu() - cpu);
    let server_nanos = cpu::nanos(server) - server_nanos;

    let (mut nanos, mut granted) = (Vec::new(), 0);
    for task in tasks {
        let (of_caller, granted_to_caller) = task.await.expect("a caller");
        nanos.extend(of_caller);
        granted += granted_to_caller;
    }
    nanos.sort_unstable();
    Sample {
        decisions: nanos.len() as u64,
        granted,
        elapsed,
        p50: at(&nanos, 50),
        p99: at(&nanos, 99),
        cpu,
        server_cpu: Duration::from_nanos(server_nanos),
    }
}

async fn ask_again_and_again(
    mut caller: impl Caller,
    seed: u64,
    workload: Workload,
    all_known: Arc<Barrier>,
    phase: Arc<AtomicU8>,
) -> (Vec<u32>, u64) {
    let Workload {
        callers, limiters, ..
    } = workload;
    // A client's first request to a limiter costs more than those that follow. Each is made by one
    // of the callers.
    for limiter in (seed as usize..limiters).step_by(callers) {
        caller.is_granted(limiter).await;
    }
    all_known.wait().await;
    let (mut nanos, mut granted) = (Vec::with_capacity(4096), 0);
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let limiter = random.usize(..limiters);
        let asked = Instant::now();
        let is_granted = caller.is_granted(limiter).await;
        match phase.load(Ordering::Relaxed) {
            WARM_UP => {}
            MEASURED => {
                nanos.push(u32::try_from(asked.elapsed().as_nanos()).unwrap_or(u32::MAX));
                granted += u64::from(is_granted);
            }
            _ => return (nanos, granted),
        }
    }
}

fn at(sorted: &[u32], percent: usize) -> Duration {
    let place = sorted.len().saturating_sub(1) * percent / 100;
    Duration::from_nanos(sorted.get(place).copied().unwrap_or_default().into())
}

/// The CPU time that this process has used.
fn process_cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
