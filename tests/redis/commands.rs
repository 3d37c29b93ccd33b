//! Commands of the application's own, over the client's connections.

use redisson_rate_limiter::{Error, RedissonClient, Reply};

use crate::support::Server;
use crate::support::cluster::Cluster;

fn text(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec())
}

#[tokio::test]
async fn a_command_returns_what_the_server_answers() {
    let server = Server::start();
    for resp3 in ["", "/?protocol=resp3"] {
        let url = format!("{}{resp3}", server.url());
        let client = RedissonClient::connect(&url).await.unwrap();
        client.command(["FLUSHALL"]).await.unwrap();
        assert_eq!(client.command(["GET", "a"]).await.unwrap(), Reply::Nil);
        assert_eq!(client.command(["SET", "a", "1"]).await.unwrap(), text("OK"));
        let added = client.command(["HSET", "h", "field", "value"]).await;
        assert_eq!(added.unwrap(), Reply::Integer(1));
        let fields = client.command(["HGETALL", "h"]).await.unwrap();
        assert_eq!(fields, Reply::Array(vec![text("field"), text("value")]));
        client.command(["ZADD", "z", "1.5", "m"]).await.unwrap();
        let score = client.command(["ZSCORE", "z", "m"]).await.unwrap();
        assert_eq!(score, text("1.5"));
        let script = "return { redis.pcall('hget', 'a', 'b'), 7 }";
        let Reply::Array(list) = client.command(["EVAL", script, "0"]).await.unwrap() else {
            panic!("a script returns a list");
        };
        assert!(
            matches!(&list[..], [Reply::Error(error), Reply::Integer(7)] if error.contains("WRONGTYPE"))
        );
        let bytes: [&[u8]; 3] = [b"SET", b"b", b"\x00\xff"];
        client.command(bytes).await.unwrap();
        let stored = client.command(["GET", "b"]).await.unwrap();
        assert_eq!(stored, Reply::Bytes(vec![0, 255]));
    }
}

#[tokio::test]
async fn a_command_that_the_server_refuses_is_the_error_of_its_kind() {
    let server = Server::start();
    let client = RedissonClient::connect(&server.url()).await.unwrap();
    let unknown = client.command(["NOSUCH"]).await;
    assert!(matches!(unknown, Err(Error::Redis { .. })), "{unknown:?}");
    client.command(["SET", "a", "1"]).await.unwrap();
    let of_another_type = client.command(["ZCARD", "a"]).await;
    assert!(matches!(of_another_type, Err(Error::BadState { .. })));
    let in_memory = RedissonClient::in_memory().command(["PING"]).await;
    assert!(matches!(in_memory, Err(Error::InvalidArgument { .. })));
}

#[tokio::test]
async fn on_a_cluster_a_command_goes_to_its_keys_or_to_each_primary() {
    let cluster = Cluster::start();
    let client = RedissonClient::connect(&cluster.urls().join(","))
        .await
        .unwrap();
    for number in 0..30 {
        let key = format!("key:{number}");
        client.command(["SET", &key, "1"]).await.unwrap();
    }
    // The error names no limiter.
    let in_two_slots = client.command(["EVAL", "return 1", "2", "key:1", "key:2"]);
    let refused = in_two_slots.await;
    assert!(matches!(refused, Err(Error::Redis { .. })), "{refused:?}");
    let servers = client.servers().unwrap();
    assert_eq!(servers.len(), 3);
    let mut sum = 0;
    for server in servers {
        let Reply::Integer(keys) = server.command(["DBSIZE"]).await.unwrap() else {
            panic!("a number of keys");
        };
        assert!(keys > 0, "{server:?}");
        assert!(server.address().starts_with("127.0.0.1:"), "{server:?}");
        sum += keys;
    }
    assert_eq!(sum, 30);
}

#[test]
fn a_server_takes_commands_on_another_runtime_than_it_was_listed_on() {
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap()
    };
    let cluster = Cluster::start();
    let (first, second) = (runtime(), runtime());
    let servers = first.block_on(async {
        let urls = cluster.urls().join(",");
        let client = RedissonClient::connect(&urls).await.unwrap();
        client.servers().unwrap()
    });
    drop(first);
    second.block_on(async {
        for server in servers {
            assert_eq!(server.command(["PING"]).await.unwrap(), text("PONG"));
        }
    });
}
