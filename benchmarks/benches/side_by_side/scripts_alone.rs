//! The two acquire scripts alone, in pipelines that take turns: so the server is what limits them,
//! and what slows the machine down for a while slows both.

use std::{sync::Arc, time::Instant};

use benchmarks::median;
use redis::{Pipeline, Value, aio::ConnectionManager};

use crate::{
    plan::Plan,
    recorded_call::{RecordedCall, Script},
    setup::Setup,
    workload::{MANY, Traffic, Workload},
};

/// Decisions a second of each, in the median of its pipelines.
pub struct ScriptsAlone {
    pub traffic: Traffic,
    pub ours: f64,
    pub redissons: f64,
}

/// A script, the limiter that it is for, and how long its pipelines took, in seconds.
struct Contender {
    call: Arc<RecordedCall>,
    keys: Vec<String>,
    calls: u64,
    seconds: Vec<f64>,
}

pub async fn measure(setup: &mut Setup, plan: &Plan) -> Vec<ScriptsAlone> {
    let mut all = Vec::new();
    for traffic in [Traffic::Granted, Traffic::Denied] {
        all.push(take_turns(setup, traffic, plan).await);
    }
    all
}

async fn take_turns(setup: &mut Setup, traffic: Traffic, plan: &Plan) -> ScriptsAlone {
    let rate = Workload::on_one_limiter(MANY, traffic).rate();
    let mut contenders =
        [("ours", Script::Ours), ("redissons", Script::Redissons)].map(|(name, script)| {
            let call = setup.call_of(script);
            Contender {
                keys: call.keys_of(name),
                call,
                calls: 0,
                seconds: Vec::new(),
            }
        });
    let names = ["ours", "redissons"].map(str::to_owned);
    setup.fresh(&names, rate, plan.window).await;
    let mut connection = setup.connection();
    let start = Instant::now();
    let warm_up = plan.window;
    while start.elapsed() < warm_up + plan.measured * plan.rounds as u32 {
        for contender in &mut contenders {
            let seconds = contender.pipeline(&mut connection, rate).await;
            if start.elapsed() >= warm_up {
                contender.seconds.push(seconds);
            }
        }
    }
    let [ours, redissons] = contenders.map(|contender| MANY as f64 / median(contender.seconds));
    ScriptsAlone {
        traffic,
        ours,
        redissons,
    }
}

impl Contender {
    async fn pipeline(&mut self, connection: &mut ConnectionManager, rate: u64) -> f64 {
        let mut commands = Pipeline::with_capacity(MANY);
        for _ in 0..MANY {
            self.calls += 1;
            let random = u128::from(self.calls).to_be_bytes();
            commands.add_command(self.call.command(&self.keys, random, rate));
        }
        let start = Instant::now();
        let answers: Vec<Value> = commands
            .query_async(connection)
            .await
            .expect("answers of the script");
        let seconds = start.elapsed().as_secs_f64();
        for answer in &answers {
            self.call.is_granted(answer); // it is one
        }
        seconds
    }
}
