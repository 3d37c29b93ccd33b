//! The server and the clients of a run, and the turns they take.

use std::{sync::Arc, time::Duration};

use compat_tests::Server;
use redis::{
    IntoConnectionInfo,
    aio::{ConnectionManager, ConnectionManagerConfig},
    io::tcp::TcpSettings,
};
use redisson_rate_limiter::RedissonClient;

use crate::{
    callers,
    contender::Contender,
    plan::Plan,
    recorded_call::{self, RecordedCall, Script},
    redisson::{Api, Redisson},
    rust_callers::{OfScript, OfThisCrate, OfThisCrateByName},
    sample::{Sample, Sampled, Summary},
    workload::{Traffic, Workload},
};

/// The name of the limiter, and what the names of many begin with.
pub const NAME: &str = "orders";

pub struct Setup {
    pub rust: RedissonClient,
    pub java: Redisson,
    /// Prepares limiters, and reads them.
    pub redis: ConnectionManager,
    connection: ConnectionManager,
    our_call: Arc<RecordedCall>,
    redissons_call: Arc<RecordedCall>,
    // Last, so that the clients go before their server.
    server: Server,
}

impl Setup {
    pub async fn start() -> Self {
        let server = Server::start();
        let url = server.url();
        let connection = connect(&url).await;
        let rust = RedissonClient::connect(&url).await.expect("a client");
        let mut java = Redisson::start(&url, server.process());
        let mut redis = connect(&url).await;

        fresh(
            &mut redis,
            &[recorded_call::NAME.to_owned()],
            10,
            Duration::from_secs(60),
        )
        .await;
        let limiter = rust.rate_limiter(recorded_call::NAME);
        let call = async {
            assert!(limiter.try_acquire(1).await.expect("a decision"));
        };
        let our_call = RecordedCall::record(server.port(), Script::Ours, call).await;
        let call = async {
            assert_eq!(java.take(recorded_call::NAME, 1, 1), 1);
        };
        let redissons_call = RecordedCall::record(server.port(), Script::Redissons, call).await;
        Self {
            connection,
            rust,
            java,
            redis,
            our_call: Arc::new(our_call),
            redissons_call: Arc::new(redissons_call),
            server,
        }
    }

    /// Empties the server and gives the limiters their rate.
    pub async fn fresh(&mut self, names: &[String], rate: u64, window: Duration) {
        fresh(&mut self.redis, names, rate, window).await;
    }

    /// Lets the JVM compile what it is going to run.
    pub async fn warm_up(&mut self, plan: &Plan) {
        let workload = Workload::on_one_limiter(16, Traffic::Granted);
        for api in [Api::Sync, Api::Async] {
            self.fresh(&workload.names(NAME), workload.rate(), plan.window)
                .await;
            self.java
                .call(api, NAME, 1, 16, plan.jvm_warm_up, Duration::from_millis(1));
        }
    }

    /// Round after round, each contender has its turn.
    pub async fn sample(&mut self, workload: &Workload, plan: &Plan) -> Sampled {
        let contenders = workload.contenders();
        let mut turns: Vec<Vec<Sample>> = contenders.iter().map(|_| Vec::new()).collect();
        for _ in 0..workload.rounds(plan) {
            for (contender, turns) in contenders.iter().zip(&mut turns) {
                turns.push(self.turn(*contender, workload, plan).await);
            }
        }
        let summaries = contenders.iter().zip(&turns);
        Sampled {
            workload: *workload,
            summaries: summaries
                .map(|(who, turns)| Summary::of(*who, turns))
                .collect(),
        }
    }

    async fn turn(&mut self, contender: Contender, workload: &Workload, plan: &Plan) -> Sample {
        let names = workload.names(NAME);
        self.fresh(&names, workload.rate(), plan.window).await;
        match contender {
            Contender::ThisCrate => {
                let limiters = names.iter().map(|name| self.rust.rate_limiter(name));
                let limiters: Arc<[_]> = limiters.collect();
                callers::run(workload, plan, self.server.process(), |_| {
                    OfThisCrate(Arc::clone(&limiters))
                })
                .await
            }
            Contender::ThisCrateByName => {
                let names: Arc<[_]> = names.into();
                callers::run(workload, plan, self.server.process(), |_| {
                    OfThisCrateByName(self.rust.clone(), Arc::clone(&names))
                })
                .await
            }
            Contender::OurScript => self.bare(&self.our_call, workload, plan).await,
            Contender::RedissonScript => self.bare(&self.redissons_call, workload, plan).await,
            Contender::Redisson => self.of_redisson(Api::Sync, workload, plan),
            Contender::RedissonAsync => self.of_redisson(Api::Async, workload, plan),
        }
    }

    /// What all bare calls share.
    pub fn connection(&self) -> ConnectionManager {
        self.connection.clone()
    }

    pub fn call_of(&self, script: Script) -> Arc<RecordedCall> {
        Arc::clone(match script {
            Script::Ours => &self.our_call,
            Script::Redissons => &self.redissons_call,
        })
    }

    async fn bare(&self, call: &Arc<RecordedCall>, workload: &Workload, plan: &Plan) -> Sample {
        let names = workload.names(NAME);
        let keys: Arc<[_]> = names.iter().map(|name| call.keys_of(name)).collect();
        callers::run(workload, plan, self.server.process(), |caller| OfScript {
            connection: self.connection.clone(),
            call: Arc::clone(call),
            keys: Arc::clone(&keys),
            rate: workload.rate(),
            caller,
            calls: 0,
        })
        .await
    }

    fn of_redisson(&mut self, api: Api, workload: &Workload, plan: &Plan) -> Sample {
        let Workload {
            callers, limiters, ..
        } = *workload;
        self.java
            .call(api, NAME, limiters, callers, plan.window, plan.measured)
    }
}

async fn fresh(redis: &mut ConnectionManager, names: &[String], rate: u64, window: Duration) {
    let mut commands = redis::pipe();
    commands.cmd("FLUSHALL").arg("SYNC").ignore();
    for name in names {
        commands
            .cmd("HSET")
            .arg(name)
            .arg(&["rate", &rate.to_string()])
            .arg(&["interval", &window.as_millis().to_string()])
            .arg(&["type", "0", "keepAliveTime", "0"])
            .ignore();
    }
    let () = commands.query_async(redis).await.expect("fresh limiters");
}

/// As fast as the connection of this crate: a multiplexed one, without delays.
async fn connect(url: &str) -> ConnectionManager {
    let info = url.into_connection_info().expect("a URL");
    let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_response_timeout(None);
    let client = redis::Client::open(info).expect("a client");
    let manager = ConnectionManager::new_with_config(client, config).await;
    manager.expect("a connection")
}
