//! On a cluster the five keys of a limiter must be in one slot.

use redisson_rate_limiter::{Error, LeakyBucket, Rate, Rule};

use crate::clients::patient;
use crate::fixture::SECOND;
use crate::keys;
use crate::support::Server;

#[tokio::test]
async fn unbalanced_and_empty_braces_are_refused_before_anything_is_sent() {
    let (server, _file) = with_all_slots().await;
    let mut raw = server.connection().await;
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
async fn rules_say_why_a_cluster_refuses_the_names_of_their_limiters() {
    let (server, _file) = with_all_slots().await;
    let client = patient(&server.url()).await;
    let buckets = client.policy_limiter(LeakyBucket::new(1, SECOND)).unwrap();
    let keyed = client.keyed_rate_limiter("{}orders:", Rate::overall(1, SECOND));
    let keyed = keyed.unwrap().with_name("orders");
    let buckets = buckets.with_prefix("{}orders:").with_name("orders");
    for rule in [Rule::new(keyed), Rule::new(buckets)] {
        let refused = client.rules([rule.by(["user"])]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "invalid rule `orders`: it has a limiter whose name cannot be used: its braces would \
             spread its keys over several slots of the cluster"
        );
    }
}

#[tokio::test]
async fn on_one_server_names_with_any_braces_are_accepted() {
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

/// The one node of a cluster.
async fn with_all_slots() -> (Server, Removed) {
    let file = format!(
        "{}/nodes-{}.conf",
        std::env::temp_dir().display(),
        uuid::Uuid::new_v4()
    );
    let server = Server::start_with(&["--cluster-enabled", "yes", "--cluster-config-file", &file]);
    let mut assign = redis::cmd("CLUSTER");
    assign.arg("ADDSLOTSRANGE").arg(0).arg(16_383);
    let mut raw = server.connection().await;
    let _: () = assign.query_async(&mut raw).await.unwrap();
    (server, Removed(file))
}

/// A file that is removed at the end of the test.
struct Removed(String);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // the server may have ended before it wrote it
    }
}
