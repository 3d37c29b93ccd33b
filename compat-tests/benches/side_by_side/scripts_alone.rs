//! The two acquire scripts alone, sent in pipelines: so the server has always something to do, and what a call costs
//! the client does not count.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use redis::{Pipeline, Value, aio::ConnectionManager};
use tokio::task::JoinSet;

use crate::{
    plan::Plan,
    recorded_call::{RecordedCall, Script},
    sample::median,
    setup::{NAME, Setup},
    workload::{MANY, Traffic, Workload},
};

/// Decisions a second of each.
pub struct ScriptsAlone {
    pub traffic: Traffic,
    pub ours: f64,
    pub redissons: f64,
}

pub const PIPELINES: usize = 4;
pub const CALLS_OF_A_PIPELINE: usize = MANY / PIPELINES;

pub async fn measure(setup: &mut Setup, plan: &Plan) -> Vec<ScriptsAlone> {
    let mut all = Vec::new();
    for traffic in [Traffic::Granted, Traffic::Denied] {
        let (mut ours, mut redissons) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            ours.push(turn(setup, Script::Ours, traffic, plan).await);
            redissons.push(turn(setup, Script::Redissons, traffic, plan).await);
        }
        all.push(ScriptsAlone {
            traffic,
            ours: median(ours),
            redissons: median(redissons),
        });
    }
    all
}

async fn turn(setup: &mut Setup, script: Script, traffic: Traffic, plan: &Plan) -> f64 {
    let rate = Workload::on_one_limiter(MANY, traffic).rate();
    setup.fresh(&[NAME.to_owned()], rate, plan.window).await;
    let call = setup.call_of(script);
    let answered = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut pipelines = JoinSet::new();
    for pipeline in 0..PIPELINES as u64 {
        pipelines.spawn(send(
            setup.connection(),
            Arc::clone(&call),
            rate,
            pipeline,
            Arc::clone(&answered),
            Arc::clone(&is_over),
        ));
    }
    tokio::time::sleep(plan.window).await;
    let (start, before) = (Instant::now(), answered.load(Ordering::Relaxed));
    tokio::time::sleep(plan.measured).await;
    let decisions = answered.load(Ordering::Relaxed) - before;
    let elapsed = start.elapsed();
    is_over.store(true, Ordering::Relaxed);
    pipelines.join_all().await;
    decisions as f64 / elapsed.as_secs_f64()
}

/// Sends a pipeline, and again as soon as it is answered.
async fn send(
    mut connection: ConnectionManager,
    call: Arc<RecordedCall>,
    rate: u64,
    pipeline: u64,
    answered: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
) {
    let keys = call.keys_of(NAME);
    let mut calls: u64 = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut commands = Pipeline::with_capacity(CALLS_OF_A_PIPELINE);
        for _ in 0..CALLS_OF_A_PIPELINE {
            calls += 1;
            let mut random = [0; 16];
            random[..8].copy_from_slice(&pipeline.to_le_bytes());
            random[8..].copy_from_slice(&calls.to_le_bytes());
            commands.add_command(call.command(&keys, random, rate));
        }
        let answers: Vec<Value> = commands
            .query_async(&mut connection)
            .await
            .expect("answers of the script");
        for answer in &answers {
            call.is_granted(answer); // it is one
        }
        answered.fetch_add(answers.len() as u64, Ordering::Relaxed);
    }
}
