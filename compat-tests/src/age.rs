//! Ages the grants of a limiter, for both clients alike, without waiting.

use redis::{Script, aio::ConnectionLike};

use crate::dump;

/// Moves the scores of all grants `millis` into the past.
pub async fn age(
    connection: &mut impl ConnectionLike,
    name: &str,
    client_ids: &[&str],
    millis: i64,
) {
    let script = Script::new(
        "for _, key in ipairs(KEYS) do
           for _, member in ipairs(redis.call('zrange', key, 0, -1)) do
             redis.call('zincrby', key, -ARGV[1], member)
           end
         end",
    );
    let mut call = script.prepare_invoke();
    for key in dump::keys(name, client_ids).iter().skip(2).step_by(2) {
        call.key(key);
    }
    let () = call
        .arg(millis)
        .invoke_async(connection)
        .await
        .expect("the grants of a limiter");
}
