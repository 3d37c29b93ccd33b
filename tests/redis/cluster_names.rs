//! On a cluster the five keys of a limiter must be in one slot.

use redisson_rate_limiter::{Error, Rate};

use crate::clients::patient;
use crate::fixture::SECOND;
use crate::keys;
use crate::support::Server;

#[tokio::test]
async fn unbalanced_and_empty_braces_are_refused_before_anything_is_sent() {
    // One node with all slots.
    let file = format!(
        "{}/nodes-{}.conf",
        std::env::temp_dir().display(),
        uuid::Uuid::new_v4()
    );
    let _file = Removed(file.clone());
    let server = Server::start_with(&["--cluster-enabled", "yes", "--cluster-config-file", &file]);
    let mut raw = server.connection().await;
    let mut assign = redis::cmd("CLUSTER");
    assign.arg("ADDSLOTSRANGE").arg(0).arg(16_383);
    let _: () = assign.query_async(&mut raw).await.unwrap();

    let client = patient(&server.url()).await;
    let evals = keys::calls(&mut raw, "evalsha").await;
    for bad in ["a{b", "a}b", "{}", "x{}y", ""] {
        for error in crate::every_method::errors(&client.rate_limiter(bad)).await {
            let Error::InvalidName { name, .. } = &error else {
                panic!("{bad}: {error:?}");
            };
            assert_eq!(name, bad);
        }
    }
    assert!(keys::everything(&mut raw).await.is_empty());
    assert_eq!(keys::calls(&mut raw, "evalsha").await, evals);
}

#[tokio::test]
async fn on_one_server_they_are_names_like_any_other() {
    let server = Server::start();
    let client = patient(&server.url()).await;
    for name in ["a{b", "a}b", "{}", "x{}y"] {
        let limiter = client.rate_limiter(name);
        assert!(
            limiter
                .try_set_rate(Rate::overall(5, SECOND))
                .await
                .unwrap()
        );
        assert!(limiter.try_acquire(5).await.unwrap());
    }
}

/// A file that goes with the test.
struct Removed(String);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // the server may have ended before it wrote it
    }
}
