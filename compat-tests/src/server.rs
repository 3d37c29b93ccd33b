use std::time::Duration;

use redis::{Client, RedisResult, aio::MultiplexedConnection};
use redis_test::server::RedisServer;
use tokio::time;

/// A Redis server of the test's own, on a free port, gone on drop.
pub struct Server {
    url: String,
    _process: RedisServer,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// The port may be taken between being found free and being bound, and then another server answers there, so
    /// this asks which process it is.
    pub async fn start() -> Self {
        for _ in 0..10 {
            let mut process = RedisServer::new();
            let (host, port) = process.host_and_port().expect("a server with a port");
            let url = format!("redis://{host}:{port}");
            let client = Client::open(url.as_str()).expect("a server's address");
            while process
                .process
                .try_wait()
                .expect("a child's state")
                .is_none()
            {
                if process_id(&client)
                    .await
                    .is_ok_and(|id| id == process.process.id())
                {
                    return Self {
                        url,
                        _process: process,
                    };
                }
                time::sleep(Duration::from_millis(2)).await;
            }
        }
        panic!("redis-server ends as soon as it is started");
    }

    /// `redis://host:port`, as Redisson and the redis crate both read it.
    pub fn url(&self) -> &str {
        &self.url
    }

    pub async fn connection(&self) -> MultiplexedConnection {
        let client = Client::open(self.url()).expect("a server's address");
        client
            .get_multiplexed_async_connection()
            .await
            .expect("a connection to the server")
    }
}

async fn process_id(client: &Client) -> RedisResult<u32> {
    let mut connection = client.get_multiplexed_async_connection().await?;
    let info: redis::InfoDict = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut connection)
        .await?;
    Ok(info.get("process_id").unwrap_or(0))
}
