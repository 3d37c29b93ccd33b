//! An acquire that Redisson sends twice, as it does when a response does not come in time.

use std::time::Duration;

use redis::{FromRedisValue, aio::MultiplexedConnection};
use tokio::time::sleep;

use crate::redisson::{ClientOption, Redisson, Servers, Version};

/// Has an impatient client acquire `permits`, and the server take both of its sendings, which it
/// grants as one member. They must be more than a third of what is left: a third sending is denied
/// then. The server has to know the script, by an acquire before.
pub async fn acquire_twice(
    version: Version,
    url: &str,
    redis: &MultiplexedConnection,
    name: &str,
    permits: i64,
) {
    let options = [
        ClientOption::Timeout(250),
        // It does not give up before both are held.
        ClientOption::RetryAttempts(1_000),
        ClientOption::RetryInterval(10),
    ];
    let impatient = Redisson::shared(version)
        .open(Servers::Single(url), &options)
        .await
        .unwrap_or_else(|e| panic!("Redisson {version} on {url}: {e}"))
        .limiter(name);
    let is_there = impatient.is_exists().await;
    assert_eq!(
        is_there,
        Ok(true),
        "it is connected, and the limiter exists"
    );

    // Writes wait until the server holds both sendings.
    let () = client(redis, &["PAUSE", "60000", "WRITE"]).await;
    let acquire = impatient.try_acquire(permits);
    let let_both_through = async {
        while !holds_two_sendings(client(redis, &["LIST"]).await) {
            sleep(Duration::from_millis(5)).await;
        }
        let () = client(redis, &["UNPAUSE"]).await;
    };
    // Which of the sendings it has the answer to does not matter.
    let (answer, ()) = tokio::join!(acquire, let_both_through);
    answer.unwrap_or_else(|e| panic!("Redisson {version}: {e}"));
}

/// The server's CLIENT command.
async fn client<T: FromRedisValue>(redis: &MultiplexedConnection, arguments: &[&str]) -> T {
    let mut command = redis::cmd("CLIENT");
    command.arg(arguments);
    let answer = command.query_async(&mut redis.clone()).await;
    answer.expect("the server's CLIENT command")
}

/// Whether a client that is blocked has sent as much as another call of a script meanwhile, and not
/// only a ping.
fn holds_two_sendings(list: String) -> bool {
    const CALL: usize = 150;
    let unread = |client: &str| {
        let mut fields = client.split(' ');
        let bytes = fields.find_map(|field| field.strip_prefix("qbuf="));
        bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    };
    let mut clients = list.lines();
    clients.any(|client| client.contains(" flags=b ") && unread(client) >= CALL)
}
