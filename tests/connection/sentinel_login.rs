//! Sentinels that ask for a login.

use std::convert::Infallible;

use redisson_rate_limiter::{Credentials, Error, RedissonClient};

use crate::clients::patient;
use crate::load::{PATIENT, ample};
use crate::sentinels::Sentinel;
use crate::support::Server;

/// What a Sentinel whose own user is `watcher` has in its configuration, next to the servers'
/// password.
const OWN_USER: &str = "user default off\nuser watcher on >sentinels +@all\n";

async fn connect(
    sentinel: &Sentinel,
    credentials: Credentials,
) -> redisson_rate_limiter::Result<RedissonClient> {
    let url = format!(
        "redis-sentinel://:servers@127.0.0.1:{}/orders",
        sentinel.port
    );
    let builder = RedissonClient::builder().response_timeout(PATIENT);
    let builder = builder.sentinel_credentials(move || {
        let credentials = credentials.clone();
        async move { Ok::<_, Infallible>(credentials) }
    });
    builder.connect(&url).await
}

#[tokio::test]
async fn sentinels_with_a_user_of_their_own_get_it() {
    let primary = Server::start_with(&["--requirepass", "servers"]);
    let sentinel = Sentinel::start(primary.port(), OWN_USER, "watcher:sentinels@").await;
    let own = Credentials::new("watcher", "sentinels");
    let client = connect(&sentinel, own).await.unwrap();
    ample(&client, "limiter").await;

    for wrong in [
        Credentials::new("watcher", "servers"),
        Credentials::password("servers"),
    ] {
        let error = connect(&sentinel, wrong).await.unwrap_err();
        assert!(
            matches!(error, Error::AuthenticationFailed { .. }),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn sentinels_with_a_password_of_their_own_get_it() {
    let primary = Server::start_with(&["--requirepass", "servers"]);
    let sentinel = Sentinel::start(
        primary.port(),
        "requirepass sentinels",
        "default:sentinels@",
    );
    let sentinel = sentinel.await;
    let own = Credentials::password("sentinels");
    let client = connect(&sentinel, own).await.unwrap();
    ample(&client, "limiter").await;
}

#[tokio::test]
async fn sentinels_that_share_the_servers_password_get_that() {
    let primary = Server::start_with(&["--requirepass", "servers"]);
    let sentinel = Sentinel::start(primary.port(), "requirepass servers", "default:servers@").await;
    let url = format!(
        "redis-sentinel://:servers@127.0.0.1:{}/orders",
        sentinel.port
    );
    let client = patient(&url).await;
    ample(&client, "limiter").await;
}

#[tokio::test]
async fn the_documented_acl_rule_for_sentinels_is_enough_and_needed() {
    let page = include_str!("../../docs/connections.md").lines();
    let mut rules = page.filter_map(|line| line.strip_prefix("redis-cli ACL SETUSER watcher "));
    let rule = rules.next().unwrap().replace('\'', "");
    let primary = Server::start_with(&["--requirepass", "servers"]);
    let config =
        format!("user watcher {rule}\nuser operator on >operator +@all\nuser default off\n");
    let sentinel = Sentinel::start(primary.port(), &config, "operator:operator@").await;
    let watcher = Credentials::new("watcher", "secret");
    let client = connect(&sentinel, watcher.clone()).await.unwrap();
    ample(&client, "limiter").await;

    let without = ["ACL", "SETUSER", "watcher", "-@all"];
    sentinel.ask(&without).await.unwrap();
    let error = connect(&sentinel, watcher).await.unwrap_err();
    assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
}
