//! A connection that is lost while it is set up, and a server that holds no limiters.

use std::error::Error as _;

use redisson_rate_limiter::{Error, RedissonClient};

use crate::load::{PATIENT, ample, ms};
use crate::proxy::{Fate, Proxy};
use crate::scripted::{Reply, Scripted};
use crate::sentinels::Sentinel;
use crate::support::Server;

#[tokio::test]
async fn a_connection_that_is_lost_while_it_is_set_up_is_made_again() {
    let server = Server::start();
    for command in ["CLIENT", "TIME", "INFO", "ROLE"] {
        for fate in [
            Fate::CutBeforeServer,
            Fate::CutBeforeAnswer,
            Fate::CutWithinAnswer,
        ] {
            let proxy = Proxy::to(server.port()).await;
            for _ in 0..3 {
                proxy.next(command, fate);
            }
            let builder = RedissonClient::builder().response_timeout(PATIENT);
            let client = builder.connect(&proxy.url()).await;
            let client = client.unwrap_or_else(|error| panic!("{command}, {fate:?}: {error}"));
            ample(&client, "limiter").await;
        }
    }
}

#[tokio::test]
async fn a_server_that_loses_each_new_connection_is_named_with_the_cause() {
    let server = Scripted::start(|_| Reply::Close).await;
    let url = format!("redis://127.0.0.1:{}", server.port);
    let builder = RedissonClient::builder().response_timeout(ms(500));
    let error = builder.connect(&url).await.unwrap_err();
    let Error::StoreUnavailable { cause, .. } = &error else {
        panic!("{error:?}");
    };
    let text = "the connection was lost while it was set up";
    assert!(error.to_string().contains(text), "{error}");
    assert!(cause.source().is_some());
    assert!(server.connections() > 1);
}

#[tokio::test]
async fn a_sentinel_that_is_taken_for_a_server_is_an_error_that_says_so() {
    let server = Server::start();
    let sentinel = Sentinel::of(&server).await;
    let url = format!("redis://127.0.0.1:{}", sentinel.port);
    match RedissonClient::connect(&url).await.unwrap_err() {
        Error::InvalidArgument { argument, reason } => {
            assert_eq!(argument, "url");
            assert!(reason.contains("redis-sentinel://"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}
