//! A command that the server's ACL forbids is a separate error, and changes nothing.

use redisson_rate_limiter::{Error, Rate, RateLimiter};

use crate::fixture::{Fixture, HOUR, NAME};

/// The limiter, of which 4 of 10 are in use, as a user with these rules may use it.
async fn as_user(fixture: &mut Fixture, rules: &[&str]) -> RateLimiter {
    let limiter = fixture.with(Rate::overall(10, HOUR)).await;
    assert!(limiter.try_acquire(4).await.unwrap());
    let mut command = vec!["ACL", "SETUSER", "worker", "on", ">password"];
    command.extend(rules);
    fixture.run(&command).await;
    let url = format!(
        "redis://worker:password@127.0.0.1:{}",
        fixture.server.port()
    );
    let client = fixture.builder().connect(&url).await.unwrap();
    client.rate_limiter(NAME)
}

async fn assert_refused(fixture: &mut Fixture, limiter: &RateLimiter) {
    let before = fixture.everything().await;
    let errors = [
        limiter.try_acquire(1).await.map(|_| ()),
        limiter.acquire(1).await,
        limiter.check(1).await.map(|_| ()),
    ];
    for error in errors {
        assert!(
            matches!(error, Err(Error::PermissionDenied { .. })),
            "{error:?}"
        );
    }
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_user_that_may_run_no_scripts_is_refused() {
    let mut fixture = Fixture::start().await;
    let limiter = as_user(&mut fixture, &["~*", "+@all", "-eval", "-evalsha"]).await;
    assert_refused(&mut fixture, &limiter).await;
    // Calls without a script still work.
    assert!(limiter.exists().await.unwrap());
    assert_eq!(
        limiter.config().await.unwrap(),
        Some(Rate::overall(10, HOUR))
    );
}

#[tokio::test]
async fn a_user_without_eval_is_refused_if_the_script_is_unknown() {
    let mut fixture = Fixture::start().await;
    let limiter = as_user(&mut fixture, &["~*", "+@all", "-eval"]).await;
    fixture.run(&["SCRIPT", "FLUSH"]).await;
    assert_refused(&mut fixture, &limiter).await;
}

#[tokio::test]
async fn a_user_without_eval_is_served_if_the_script_is_known() {
    let mut fixture = Fixture::start().await;
    let limiter = as_user(&mut fixture, &["~*", "+@all", "-eval"]).await;
    assert!(limiter.try_acquire(6).await.unwrap());
}

#[tokio::test]
async fn a_user_with_evalsha_but_without_zadd_is_refused() {
    let mut fixture = Fixture::start().await;
    let limiter = as_user(&mut fixture, &["~*", "+@all", "-zadd"]).await;
    assert_refused(&mut fixture, &limiter).await;
    assert_eq!(limiter.available_permits().await.unwrap(), 6);
}

#[tokio::test]
async fn a_user_without_the_servers_time_is_refused() {
    let mut fixture = Fixture::start().await;
    let limiter = as_user(&mut fixture, &["~*", "+@all", "-time"]).await;
    assert_refused(&mut fixture, &limiter).await;
}

#[tokio::test]
async fn a_user_for_other_keys_is_refused() {
    let mut fixture = Fixture::start().await;
    let limiter = as_user(&mut fixture, &["~orders:*", "~{orders:*", "+@all"]).await;
    let before = fixture.everything().await;
    for error in crate::every_method::errors(&limiter).await {
        assert!(matches!(error, Error::PermissionDenied { .. }), "{error:?}");
    }
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn a_user_that_may_not_ask_what_the_server_is_can_use_it() {
    let mut fixture = Fixture::start().await;
    let limiter = as_user(&mut fixture, &["~*", "+@all", "-info"]).await;
    assert!(limiter.try_acquire(6).await.unwrap());
}

#[tokio::test]
async fn a_permission_taken_away_while_connected_is_missed_until_given_back() {
    let mut fixture = Fixture::start().await;
    let limiter = as_user(&mut fixture, &["~*", "+@all"]).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    fixture.run(&["ACL", "SETUSER", "worker", "-zadd"]).await;
    assert_refused(&mut fixture, &limiter).await;
    fixture.run(&["ACL", "SETUSER", "worker", "+zadd"]).await;
    assert!(limiter.try_acquire(5).await.unwrap());
    assert!(!limiter.try_acquire(1).await.unwrap());
}
