//! Random cases of the tests that hold scripts and models together.

#[cfg(feature = "redis")]
pub(crate) use on_a_server::run_on_a_server;

/// The number of cases of `steps` steps each: `MODEL_STEPS` steps in all, or 10,000.
pub(crate) fn cases_of(steps: usize) -> u32 {
    let all = std::env::var("MODEL_STEPS").map_or(10_000, |steps| steps.parse().unwrap());
    u32::try_from(all / steps).unwrap().max(1)
}

#[cfg(feature = "redis")]
mod on_a_server {
    use std::sync::atomic::{AtomicU32, Ordering};

    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestError, TestRunner};
    use redis::aio::MultiplexedConnection;

    use crate::support::Server;

    /// Takes random cases, each on an empty server, and panics with the smallest one that fails.
    pub(crate) fn run_on_a_server<C: std::fmt::Debug + Clone>(
        cases: u32,
        case: &impl Strategy<Value = C>,
        take: impl AsyncFn(MultiplexedConnection, C),
    ) {
        let server = Server::start();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let connection = runtime.block_on(server.connection());
        let config = Config {
            cases,
            failure_persistence: None,
            max_local_rejects: cases.saturating_mul(100), // by default a fixed number for any run
            max_shrink_iters: 20_000,
            ..Config::default()
        };
        let taken = AtomicU32::new(0);
        let result = TestRunner::new(config).run(case, |case| {
            taken.fetch_add(1, Ordering::Relaxed);
            // What a failed case left does not belong to the next.
            runtime.block_on(async {
                let mut connection = connection.clone();
                let () = redis::cmd("FLUSHALL")
                    .query_async(&mut connection)
                    .await
                    .unwrap();
                take(connection, case).await;
            });
            Ok(())
        });
        match result {
            Ok(()) => assert!(taken.into_inner() >= cases),
            Err(TestError::Fail(why, case)) => panic!("{why}\nThe smallest case: {case:#?}"),
            Err(aborted) => panic!("{aborted}"),
        }
    }
}
