//! A token bucket is a hash with `tokens` and `last_refill_timestamp`, as in common scripts.

use redis::AsyncCommands;
use redisson_rate_limiter::TokenBucket;

use crate::fixture::{Fixture, NAME, denied, passed};
use crate::keys::{self, assert_lives_for};

async fn fields(fixture: &mut Fixture) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = fixture.raw.hgetall(NAME).await.unwrap();
    fields.sort();
    fields
}

fn bucket(refilled_at: &str, tokens: &str) -> Vec<(String, String)> {
    vec![
        ("last_refill_timestamp".to_owned(), refilled_at.to_owned()),
        ("tokens".to_owned(), tokens.to_owned()),
    ]
}

#[tokio::test]
async fn the_bucket_is_a_hash_that_lives_for_three_times_the_time_to_fill() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .by(TokenBucket::per_second(2).with_capacity(1_000))
        .await;
    let since = keys::time(&mut fixture.raw).await;
    assert!(passed(&limiter, 3).await);
    assert_eq!(fields(&mut fixture).await, bucket("1000", "997"));
    assert_lives_for(&mut fixture.raw, NAME, 1_500_000, since).await;
    assert_eq!(keys::names(&mut fixture.raw).await, [NAME]);
}

#[tokio::test]
async fn a_time_to_live_of_no_whole_milliseconds_is_rounded_up() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .by(TokenBucket::per_second(7).with_capacity(100))
        .await;
    let since = keys::time(&mut fixture.raw).await;
    assert!(passed(&limiter, 1).await);
    assert_lives_for(&mut fixture.raw, NAME, 42_858, since).await;
}

#[tokio::test]
async fn the_time_to_live_is_written_when_less_than_two_times_to_fill_are_left() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .by(TokenBucket::per_second(2).with_capacity(1_000))
        .await;
    for (left, is_written) in [(1_400_000, false), (999_999, true)] {
        assert!(passed(&limiter, 1).await);
        fixture.run(&["PEXPIRE", NAME, &left.to_string()]).await;
        let expires = async |fixture: &mut Fixture| -> i64 {
            let mut command = redis::cmd("PEXPIRETIME");
            command
                .arg(NAME)
                .query_async(&mut fixture.raw)
                .await
                .unwrap()
        };
        let before = expires(&mut fixture).await;
        assert!(passed(&limiter, 1).await);
        assert_eq!(expires(&mut fixture).await != before, is_written, "{left}");
    }
}

#[tokio::test]
async fn the_timestamp_moves_by_the_time_that_the_tokens_took() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .by(TokenBucket::per_second(2).with_capacity(100))
        .await;
    assert!(passed(&limiter, 100).await);
    fixture.at(3_900); // 5 tokens after 2,500 ms, 400 ms of the next
    assert!(passed(&limiter, 1).await);
    assert_eq!(fields(&mut fixture).await, bucket("3500", "4"));
}

#[tokio::test]
async fn fractions_of_milliseconds_that_a_token_takes_have_their_own_field() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .by(TokenBucket::per_second(3).with_capacity(300))
        .await;
    assert!(passed(&limiter, 300).await);
    let fraction = |parts: &str| ("last_refill_fraction".to_owned(), parts.to_owned());
    fixture.at(1_334); // the token came after 333 1/3 ms
    assert!(passed(&limiter, 1).await);
    let expected = [vec![fraction("1")], bucket("1333", "0")].concat();
    assert_eq!(fields(&mut fixture).await, expected);
    fixture.at(2_000); // the third after a whole second
    assert!(passed(&limiter, 2).await);
    assert_eq!(fields(&mut fixture).await, bucket("2000", "0"));
}

#[tokio::test]
async fn what_is_denied_writes_nothing() {
    let mut fixture = Fixture::start().await;
    let limiter = fixture
        .by(TokenBucket::per_second(2).with_capacity(1_000))
        .await;
    assert!(passed(&limiter, 999).await);
    fixture.at(1_700);
    let before = fixture.everything().await;
    assert_eq!(denied(&limiter, 3).await, (2, 300));
    assert_eq!(fixture.everything().await, before);
}

#[tokio::test]
async fn the_bucket_of_the_script_in_circulation_is_taken_over() {
    // Whatever the order of the fields, and whatever other fields there are.
    for order in [
        ["tokens", "last_refill_timestamp"],
        ["last_refill_timestamp", "tokens"],
    ] {
        let mut fixture = Fixture::start().await;
        fixture.run(&["HSET", NAME, "capacity", "1000"]).await;
        for field in order {
            let value = if field == "tokens" { "5" } else { "1000" };
            fixture.run(&["HSET", NAME, field, value]).await;
        }
        let limiter = fixture
            .by(TokenBucket::per_second(2).with_capacity(1_000))
            .await;
        fixture.at(2_000);
        assert_eq!(denied(&limiter, 9).await, (7, 1_000));
        let since = keys::time(&mut fixture.raw).await;
        assert!(passed(&limiter, 7).await);
        let other = ("capacity".to_owned(), "1000".to_owned());
        let expected = [vec![other], bucket("2000", "0")].concat();
        assert_eq!(fields(&mut fixture).await, expected);
        assert_lives_for(&mut fixture.raw, NAME, 1_500_000, since).await;
    }
}

#[tokio::test]
async fn a_fraction_of_a_token_that_a_peer_wrote_is_no_token() {
    let mut fixture = Fixture::start().await;
    fixture
        .run(&[
            "HSET",
            NAME,
            "tokens",
            "4.75",
            "last_refill_timestamp",
            "1000",
        ])
        .await;
    let limiter = fixture
        .by(TokenBucket::per_second(2).with_capacity(1_000))
        .await;
    assert_eq!(denied(&limiter, 5).await, (4, 500));
}

#[tokio::test]
async fn a_bucket_that_lacks_a_field_is_full() {
    for (field, value) in [("tokens", "5"), ("last_refill_timestamp", "1000")] {
        let mut fixture = Fixture::start().await;
        fixture.run(&["HSET", NAME, field, value]).await;
        let limiter = fixture
            .by(TokenBucket::per_second(2).with_capacity(1_000))
            .await;
        assert!(passed(&limiter, 1_000).await);
        assert_eq!(fields(&mut fixture).await, bucket("1000", "0"));
    }
}

#[tokio::test]
async fn a_key_that_is_no_bucket_is_an_error_and_stays() {
    for (field, bad) in [
        ("tokens", "many"),
        ("tokens", ""),
        ("tokens", "nan"),
        ("tokens", "inf"),
        ("tokens", "1e17"),
        ("last_refill_timestamp", "soon"),
        ("last_refill_timestamp", "-inf"),
        ("last_refill_fraction", "some"),
    ] {
        let mut fixture = Fixture::start().await;
        fixture
            .run(&["HSET", NAME, "tokens", "5", "last_refill_timestamp", "1000"])
            .await;
        fixture.run(&["HSET", NAME, field, bad]).await;
        let limiter = fixture
            .by(TokenBucket::per_second(2).with_capacity(1_000))
            .await;
        fixture.assert_is_bad_for(&limiter, field).await;
    }
    let mut fixture = Fixture::start().await;
    fixture.run(&["SET", NAME, "5"]).await;
    let limiter = fixture
        .by(TokenBucket::per_second(2).with_capacity(1_000))
        .await;
    fixture.assert_is_bad_for(&limiter, "a string").await;
}
