//! Passwords that change while the client runs, and a server with too many clients.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use redis::aio::MultiplexedConnection;
use redisson_rate_limiter::{Credentials, Error, Event, RedissonClient, RedissonClientBuilder};

use crate::load::{Load, PATIENT, ample, at_last, impatient_client, ms};
use crate::scripted::{Reply, Scripted};
use crate::support::Server;

async fn run(raw: &mut MultiplexedConnection, command: &[&str]) {
    let mut all = redis::Cmd::new();
    for part in command {
        all.arg(*part);
    }
    let _: redis::Value = all.query_async(raw).await.unwrap();
}

/// Logs in as `app`, with the password that is known now.
fn builder(known: &Arc<Mutex<String>>) -> RedissonClientBuilder {
    let known = Arc::clone(known);
    RedissonClient::builder().credentials(move || {
        let password = known.lock().unwrap().clone();
        async move { Ok::<_, Infallible>(Credentials::new("app", password)) }
    })
}

#[tokio::test]
async fn a_password_that_changes_and_is_put_right_costs_no_patient_call() {
    let server = Server::start();
    let mut raw = server.connection().await;
    run(
        &mut raw,
        &["ACL", "SETUSER", "app", "on", ">first", "~*", "+@all"],
    )
    .await;
    let known = Arc::new(Mutex::new("first".to_owned()));
    let patient = builder(&known).response_timeout(PATIENT);
    let patient = patient.connect(&server.url()).await.unwrap();
    let impatient = builder(&known)
        .response_timeout(ms(500))
        .wait_for_server(PATIENT);
    let impatient = impatient.connect(&server.url()).await.unwrap();
    let limiter = ample(&patient, "limiter").await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;

    run(&mut raw, &["ACL", "SETUSER", "app", "resetpass", ">second"]).await;
    run(&mut raw, &["CLIENT", "KILL", "USER", "app"]).await;
    let refused = impatient.rate_limiter("limiter").try_acquire(1).await;
    let Err(Error::AuthenticationFailed { source }) = refused else {
        panic!("{refused:?}");
    };
    let text = format!("{source} {source:?}");
    assert!(
        text.contains("WRONGPASS") && !text.contains("first"),
        "{text}"
    );

    *known.lock().unwrap() = "second".to_owned();
    load.until_granted(20).await;
    load.end_taken_once(&mut raw).await;
    // Its calls fail at once until it is connected again.
    let limiter = impatient.rate_limiter("limiter");
    while limiter.try_acquire(1).await.is_err() {}
}

#[tokio::test]
async fn a_server_that_asks_for_a_login_is_not_connected_to_without_one() {
    let server = Server::start();
    let mut raw = server.connection().await;
    run(&mut raw, &["CONFIG", "SET", "requirepass", "secret"]).await;
    let connected = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&connected);
    let builder = RedissonClient::builder().on_event(move |event| {
        seen.fetch_or(matches!(event, Event::Connected { .. }), Ordering::SeqCst);
    });
    let error = builder.connect(&server.url()).await.unwrap_err();
    let is_refused = matches!(error, Error::AuthenticationFailed { .. });
    assert!(is_refused, "{error:?}");
    assert!(!connected.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_user_that_is_deleted_and_set_again_costs_no_patient_call() {
    let server = Server::start();
    let mut raw = server.connection().await;
    let set = ["ACL", "SETUSER", "app", "on", ">first", "~*", "+@all"];
    run(&mut raw, &set).await;
    let known = Arc::new(Mutex::new("first".to_owned()));
    let patient = builder(&known).response_timeout(PATIENT);
    let patient = patient.connect(&server.url()).await.unwrap();
    let limiter = ample(&patient, "limiter").await;
    let load = Load::on(&limiter);
    load.until_granted(20).await;
    run(&mut raw, &["ACL", "DELUSER", "app"]).await; // closes its connections
    let impatient = builder(&known)
        .response_timeout(ms(500))
        .wait_for_server(PATIENT);
    let refused = impatient.connect(&server.url()).await.unwrap_err();
    assert!(
        matches!(refused, Error::AuthenticationFailed { .. }),
        "{refused:?}"
    );
    run(&mut raw, &set).await;
    load.until_granted(20).await;
    load.end_taken_once(&mut raw).await;
}

#[tokio::test]
async fn a_provider_that_fails_is_asked_again_and_its_error_is_the_cause() {
    let server = Server::start();
    let works = Arc::new(Mutex::new(true));
    let asked = Arc::clone(&works);
    let builder = RedissonClient::builder()
        .response_timeout(ms(500))
        .wait_for_server(PATIENT)
        .credentials(move || {
            let works = *asked.lock().unwrap();
            async move {
                match works {
                    true => Ok(Credentials::password("any")),
                    false => Err("the vault is sealed"),
                }
            }
        });
    let mut raw = server.connection().await;
    run(&mut raw, &["CONFIG", "SET", "requirepass", "any"]).await;
    let client = builder.connect(&server.url()).await.unwrap();
    let limiter = ample(&client, "limiter").await;
    *works.lock().unwrap() = false;
    run(&mut raw, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    let error = limiter.available_permits().await.unwrap_err();
    assert!(matches!(error, Error::StoreUnavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("the vault is sealed"), "{error}");
    *works.lock().unwrap() = true;
    while limiter.available_permits().await.is_err() {}
}

#[tokio::test]
async fn a_server_that_takes_no_more_clients_is_asked_again() {
    // Without a login another command is the first that is refused.
    for login in ["", "default:secret@"] {
        let server = Server::start();
        let mut raw = server.connection().await;
        if !login.is_empty() {
            run(&mut raw, &["CONFIG", "SET", "requirepass", "secret"]).await;
        }
        full(
            &format!("redis://{login}127.0.0.1:{}", server.port()),
            &mut raw,
        )
        .await;
    }
}

async fn full(url: &str, raw: &mut MultiplexedConnection) {
    let patient = RedissonClient::builder().response_timeout(PATIENT);
    let patient = patient.connect(url).await.unwrap();
    let impatient = impatient_client(url).await;
    let limiter = ample(&patient, "limiter").await;
    let load = Load::on(&limiter);
    run(raw, &["CONFIG", "SET", "maxclients", "1"]).await;
    run(raw, &["CLIENT", "KILL", "TYPE", "normal"]).await;
    let limiter = impatient.rate_limiter("limiter");
    loop {
        let error = limiter.exists().await.unwrap_err();
        assert!(matches!(error, Error::StoreUnavailable { .. }), "{error:?}");
        // The connection may be closed before the server's error is read.
        if error.to_string().contains("max number of clients") {
            break;
        }
    }
    run(raw, &["CONFIG", "SET", "maxclients", "100"]).await;
    load.until_granted(20).await;
    load.end_taken_once(raw).await;
}

/// A server that is full may close a connection before its error is read.
#[tokio::test]
async fn the_cause_is_what_a_server_last_said_before_closing_connections() {
    const FULL: &str = "max number of clients reached";
    let server = Scripted::start(|_| Reply::Answer("$0\r\n\r\n".to_owned())).await;
    let client = impatient_client(&format!("redis://127.0.0.1:{}", server.port)).await;
    let limiter = client.rate_limiter("limiter");
    let is_full = async || {
        let error = limiter.exists().await.unwrap_err();
        error.to_string().contains(FULL)
    };
    server.answers(|words| match &words[0][..] {
        "CLIENT" => Reply::Last(format!("-ERR {FULL}\r\n")), // the first command
        _ => Reply::Close,
    });
    at_last("its words", async { while !is_full().await {} }).await;
    server.answers(|_| Reply::Close);
    server.accepted(server.connections() + 3).await;
    assert!(is_full().await);
    drop(server); // nobody listens any more
    at_last("another cause", async { while is_full().await {} }).await;
}
