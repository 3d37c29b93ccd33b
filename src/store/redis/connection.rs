//! The one thing the backend needs of a connection: send a command, get its answer.
//!
//! redis-rs keeps the connection up. What it re-sends by itself is turned off here: only the caller of `send` knows
//! which command may be sent twice.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::io::tcp::TcpSettings;
use redis::{
    Client, Cmd, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisResult, ServerErrorKind, Value,
};

use tokio::time::timeout;

use super::failure::{self, Failure};
use crate::error::{Error, Result};

pub(super) type Sending<'a> = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>>;

/// A connection that many callers share.
pub(crate) trait Connection: Send + Sync {
    fn send<'a>(&'a self, command: &'a Cmd) -> Sending<'a>;
}

/// Any of redis-rs's shared connections, as the caller configured it.
pub(crate) struct Shared<C>(pub(crate) C);

impl<C> Connection for Shared<C>
where
    C: ConnectionLike + Clone + Send + Sync + 'static,
{
    fn send<'a>(&'a self, command: &'a Cmd) -> Sending<'a> {
        let mut connection = self.0.clone();
        Box::pin(async move { refused(connection.req_packed_command(command).await?) })
    }
}

/// A cluster. A command that a node redirects has not run, so it may follow.
struct Cluster(ClusterConnection);

impl Connection for Cluster {
    fn send<'a>(&'a self, command: &'a Cmd) -> Sending<'a> {
        let mut connection = self.0.clone();
        Box::pin(async move {
            let answer = connection.req_packed_command(command).await;
            let answer = answer.and_then(refused);
            match &answer {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                    match node_of(error) {
                        Some(node) => ask(&mut connection, command, node).await,
                        None => answer,
                    }
                }
                _ => answer,
            }
        })
    }
}

/// The node that a redirection names.
fn node_of(error: &redis::RedisError) -> Option<SingleNodeRoutingInfo> {
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some(SingleNodeRoutingInfo::ByAddress {
        host: host.to_owned(),
        port: port.parse().ok()?,
    })
}

/// Runs a command on the node that a slot is moving to.
async fn ask(
    connection: &mut ClusterConnection,
    command: &Cmd,
    node: SingleNodeRoutingInfo,
) -> RedisResult<Value> {
    let mut asking = redis::pipe();
    asking.cmd("ASKING").ignore().add_command(command.clone());
    let mut answers = connection.route_pipeline(asking, 0, 2, node).await?;
    refused(answers.pop().unwrap_or_default())
}

/// An answer that is an error. One that holds an error among others is an answer.
fn refused(answer: Value) -> RedisResult<Value> {
    match answer {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}

/// A connection and whether a cluster is at its other end.
pub(super) struct Connected {
    pub(super) connection: Arc<dyn Connection>,
    pub(super) is_cluster: bool,
}

/// Connects to one server, or to a cluster where several URLs are given or the one server is part of one.
pub(super) async fn connect(urls: &str, limit: Duration) -> Result<Connected> {
    let nodes = parse(urls)?;
    match timeout(limit, connect_to(nodes, limit)).await {
        Ok(connected) => connected,
        Err(_elapsed) => Err(failure::of_connecting(
            std::io::Error::from(std::io::ErrorKind::TimedOut).into(),
        )),
    }
}

async fn connect_to(nodes: Vec<ConnectionInfo>, limit: Duration) -> Result<Connected> {
    if let [node] = nodes.as_slice() {
        let server = connect_server(node.clone(), limit).await?;
        if !is_part_of_cluster(&server).await {
            return Ok(Connected {
                connection: Arc::new(server),
                is_cluster: false,
            });
        }
    }
    let cluster = connect_cluster(nodes, limit).await?;
    Ok(Connected {
        connection: Arc::new(Cluster(cluster)),
        is_cluster: true,
    })
}

fn parse(urls: &str) -> Result<Vec<ConnectionInfo>> {
    urls.split(',')
        .map(|url| {
            let info = url.trim().into_connection_info();
            // What did not parse is not repeated: it may hold a password.
            info.map_err(|_| Error::InvalidArgument {
                argument: "url",
                reason: "it is not a Redis URL such as redis://host:6379 (several: comma-separated)",
            })
            .map(|info| info.set_tcp_settings(tcp_settings()))
        })
        .collect()
}

fn tcp_settings() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

async fn connect_server(
    server: ConnectionInfo,
    limit: Duration,
) -> Result<Shared<ConnectionManager>> {
    let client = Client::open(server).map_err(failure::of_connecting)?;
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(0)
        .set_connection_timeout(Some(limit))
        .set_response_timeout(None);
    let manager = ConnectionManager::new_with_config(client, config).await;
    manager.map(Shared).map_err(failure::of_connecting)
}

async fn connect_cluster(nodes: Vec<ConnectionInfo>, limit: Duration) -> Result<ClusterConnection> {
    let client = ClusterClientBuilder::new(nodes)
        .retries(0)
        .connection_timeout(limit)
        .response_timeout(limit)
        .tcp_settings(tcp_settings())
        .build()
        .map_err(failure::of_connecting)?;
    client
        .get_async_connection()
        .await
        .map_err(failure::of_connecting)
}

/// A server that does not let us ask is taken as one that stands alone.
async fn is_part_of_cluster(server: &Shared<ConnectionManager>) -> bool {
    let answer = server.send(redis::cmd("INFO").arg("cluster")).await;
    match answer.and_then(|value| Ok(redis::from_redis_value::<String>(value)?)) {
        Ok(info) => info.lines().any(|line| line.trim() == "cluster_enabled:1"),
        Err(error) => {
            if let Failure::Lost = failure::classify(&error) {
                tracing::warn!(%error, "could not ask whether the server is part of a cluster");
            }
            false
        }
    }
}
