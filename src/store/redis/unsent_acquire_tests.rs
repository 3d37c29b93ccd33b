//! Calls that are not sent: acquires that wait for a connection are not noted as ones that may have
//! run.

use std::task::{Context, Waker};

use tokio::task::yield_now;

use super::client::RedisStore;
use super::limiter::RedisLimiter;
use crate::clock::Clock;
use crate::keys::Keys;
use crate::link::failure::Failure;
use crate::link::limits::Limits;
use crate::link::{Connecting, Message};
use crate::store::AcquireCall;
use crate::support::Server;
use crate::window::Requests;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

async fn store_on(server: &Server) -> RedisStore {
    let connecting = Connecting {
        response_timeout: RESPONSE_TIMEOUT,
        ..Connecting::default()
    };
    let (url, clock) = (server.url(), Clock::server());
    let connected = RedisStore::connect(&url, connecting, Arc::default(), clock).await;
    connected.unwrap()
}

#[tokio::test]
async fn a_call_on_several_keys_needs_a_connection_that_was_asked_for_them() {
    let server = Server::start();
    let connection = &store_on(&server).await.connection;
    let command = redis::cmd("PING");
    let send = || {
        connection.send(
            Message::Command(&command),
            Limits::for_test().on_one_server(),
        )
    };
    for _ in 0..2 {
        assert!(matches!(send().await, Err(Failure::NotSent(_))));
        while !connection.is_one_server("key") {
            yield_now().await;
        }
        assert!(send().await.is_ok());
        // The next connection may lead elsewhere.
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL")
            .arg("TYPE")
            .arg("normal")
            .arg("SKIPME")
            .arg("no");
        let _ = connection
            .send(Message::Command(&kill), Limits::for_test())
            .await;
        while connection.is_one_server("key") {
            yield_now().await;
        }
        let minute = Instant::now() + Duration::from_secs(60);
        connection.ready("key", minute).await.unwrap();
    }
}

#[tokio::test]
async fn acquires_that_wait_for_a_connection_have_certainly_not_run() {
    let server = Server::start();
    let store = store_on(&server).await;
    drop(server);
    let connection = &store.connection;
    // Until the client knows that the connection is lost.
    while connection.ready("l", Instant::now()).await.is_ok() {
        yield_now().await;
    }
    let limiter = RedisLimiter::new(store.clone(), Arc::new(Keys::new("l", "client")));
    let deadline = Instant::now() + RESPONSE_TIMEOUT;
    // So many that the last ones would share a call.
    let calls: [_; 32] = std::array::from_fn(|_| AcquireCall::new(Requests::one(1)));
    let mut acquires = calls
        .each_ref()
        .map(|call| Box::pin(limiter.acquire_call(call, deadline)));
    let mut context = Context::from_waker(Waker::noop());
    for (call, acquire) in calls.iter().zip(&mut acquires) {
        assert!(acquire.as_mut().poll(&mut context).is_pending());
        assert!(!call.may_have_run());
    }
}
