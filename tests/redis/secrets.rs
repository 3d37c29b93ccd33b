//! Wrong credentials are a separate error, and no text contains a password.

use std::error::Error as _;
use std::fmt::Debug;

use redisson_rate_limiter::{Error, Rate, RedissonClient, Result};

use crate::fixture::{HOUR, NAME, ms};
use crate::support::{Server, ports};

const SECRET: &str = "correct-horse-battery";

/// All that can be printed of an error and its sources.
fn texts_of(error: &Error) -> String {
    let mut texts = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(error) = source {
        texts += &format!(" {error} {error:?} {error:#?}");
        source = error.source();
    }
    texts
}

fn refused<T: Debug>(result: Result<T>) -> Error {
    let error = result.expect_err("it must fail");
    let texts = texts_of(&error);
    assert!(!texts.contains(SECRET), "{texts}");
    error
}

fn url(user: &str, address: &str) -> String {
    format!("redis://{user}:{SECRET}@{address}")
}

#[tokio::test]
async fn a_wrong_password_is_refused_credentials() {
    let server = Server::start_with(&["--requirepass", "another"]);
    let address = format!("127.0.0.1:{}", server.port());
    for user in ["", "default", "nobody"] {
        let error = refused(RedissonClient::connect(&url(user, &address)).await);
        assert!(
            matches!(error, Error::AuthenticationFailed { .. }),
            "{user}: {error:?}"
        );
    }
}

#[tokio::test]
async fn no_password_where_one_is_needed_is_refused_credentials() {
    let server = Server::start_with(&["--requirepass", SECRET]);
    let error = match RedissonClient::connect(&server.url()).await {
        Ok(client) => refused(client.rate_limiter(NAME).exists().await),
        Err(error) => refused::<()>(Err(error)),
    };
    assert!(
        matches!(error, Error::AuthenticationFailed { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_client_with_a_right_password_does_not_show_it() {
    let server = Server::start_with(&["--requirepass", SECRET]);
    let url = url("", &format!("127.0.0.1:{}", server.port()));
    let builder = RedissonClient::builder().response_timeout(ms(2_000));
    assert!(!format!("{builder:?} {builder:#?}").contains(SECRET));
    let client = builder.connect(&url).await.unwrap();
    let limiter = client.rate_limiter(NAME);
    limiter.set_rate(Rate::overall(5, HOUR)).await.unwrap();
    assert!(limiter.try_acquire(1).await.unwrap());
    let shown = format!("{client:?} {client:#?} {limiter:?} {limiter:#?}");
    assert!(!shown.contains(SECRET), "{shown}");
    assert!(shown.contains(client.id()), "{shown}");

    refused(limiter.try_acquire(6).await);
    drop(server);
    refused(limiter.try_acquire(1).await);
    refused(limiter.try_acquire(1).await);
    refused(limiter.set_rate(Rate::overall(5, HOUR)).await);
}

#[tokio::test]
async fn urls_that_lead_nowhere_are_not_repeated_in_the_error() {
    let closed = format!("127.0.0.1:{}", ports::reserve());
    let open = Server::start();
    let open = format!("127.0.0.1:{}", open.port());
    let urls = [
        url("user", &closed),
        format!("{},{}", url("user", &closed), url("user", &closed)),
        // Two URLs mean a cluster, and this server is not part of one.
        format!("{},{}", url("user", &open), url("user", &open)),
        url("user", "127.0.0.1:port"),
        url("user", "127.0.0.1:1/no-database"),
        format!("http://user:{SECRET}@127.0.0.1"),
        format!("redis://user:{SECRET}"),
        format!("redis+unix:///no/such/socket?user=user&pass={SECRET}"),
        format!("redis+unix:///no/such/socket?db=x&pass={SECRET}"),
        SECRET.to_owned(),
    ];
    for urls in urls {
        let builder = RedissonClient::builder().response_timeout(ms(200));
        refused(builder.connect(&urls).await);
    }
}
