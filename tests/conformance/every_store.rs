//! How each behaviour becomes a test on every store.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fixture::Fixture;
use crate::support::cluster;

/// The cluster on which all behaviours run, one after another.
pub struct Cluster {
    urls: String,
    /// The behaviours that failed.
    pub failed: Vec<&'static str>,
    _servers: cluster::Cluster,
}

impl Cluster {
    pub fn start() -> Self {
        let servers = cluster::Cluster::start();
        Self {
            urls: servers.urls().join(","),
            failed: Vec::new(),
            _servers: servers,
        }
    }

    pub fn run(&mut self, name: &'static str, behaviour: &dyn Fn(Fixture)) {
        let fixture = Fixture::on_cluster(&self.urls, name);
        if catch_unwind(AssertUnwindSafe(|| behaviour(fixture))).is_err() {
            self.failed.push(name);
        }
    }
}

/// Makes each behaviour a test in memory and one on a Redis server of its own, and runs all on one
/// cluster. The first list is of behaviours that bring their runtimes with them, the last one of
/// those that need a server.
macro_rules! on_every_store {
    (
        with_their_own_runtimes { $($of_runtimes:ident { $($with_runtimes:ident,)* })* }
        everywhere { $($file:ident { $($behaviour:ident,)* })* }
        on_servers { $($of_servers:ident { $($on_servers:ident,)* })* }
    ) => {
        mod in_memory {
            $(mod $of_runtimes { $(
                #[test]
                fn $with_runtimes() {
                    crate::$of_runtimes::$with_runtimes(crate::fixture::Fixture::in_memory());
                }
            )* })*
            $(mod $file { $(
                #[tokio::test(start_paused = true)]
                async fn $behaviour() {
                    crate::$file::$behaviour(crate::fixture::Fixture::in_memory()).await;
                }
            )* })*
        }

        mod on_redis {
            $(mod $of_runtimes { $(
                #[test]
                fn $with_runtimes() {
                    crate::$of_runtimes::$with_runtimes(crate::fixture::Fixture::on_redis());
                }
            )* })*
            $(mod $file { $(
                #[tokio::test]
                async fn $behaviour() {
                    crate::$file::$behaviour(crate::fixture::Fixture::on_redis()).await;
                }
            )* })*
            $(mod $of_servers { $(
                #[tokio::test]
                async fn $on_servers() {
                    crate::$of_servers::$on_servers(crate::fixture::Fixture::on_redis()).await;
                }
            )* })*
        }

        #[test]
        fn every_behaviour_is_the_same_on_a_cluster() {
            let mut cluster = crate::every_store::Cluster::start();
            $($(cluster.run(stringify!($with_runtimes), &$of_runtimes::$with_runtimes);)*)*
            $($(
                cluster.run(stringify!($behaviour), &|fixture| {
                    fixture::runtime().block_on($file::$behaviour(fixture));
                });
            )*)*
            $($(
                cluster.run(stringify!($on_servers), &|fixture| {
                    fixture::runtime().block_on($of_servers::$on_servers(fixture));
                });
            )*)*
            assert_eq!(cluster.failed, Vec::<&str>::new());
        }
    };
}
