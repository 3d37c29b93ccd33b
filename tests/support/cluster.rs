//! A Redis Cluster of the test's own, stopped when it is dropped.

use std::thread;
use std::time::Duration;

use redis::{Cmd, Connection, Value};

use super::{Server, ports};

const SLOTS: usize = 16_384;
const PRIMARIES: usize = 3;

pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Three primaries, each with a third of the slots.
    pub fn start() -> Self {
        Self::of(PRIMARIES)
    }

    /// Three primaries, each with a third of the slots and a replica.
    pub fn with_replicas() -> Self {
        Self::of(2 * PRIMARIES)
    }

    /// Three primaries at these ports.
    pub fn start_at(ports: [u16; PRIMARIES]) -> Self {
        Self::at(&ports)
    }

    fn of(size: usize) -> Self {
        let ports: Vec<_> = (0..size).map(|_| ports::reserve_for_node()).collect();
        Self::at(&ports)
    }

    fn at(ports: &[u16]) -> Self {
        let size = ports.len();
        // A busy machine may hold up a node for long: it is no failure unless the test makes it
        // one.
        let arguments = [
            ["--cluster-enabled", "yes"],
            ["--cluster-node-timeout", "60000"],
        ];
        let nodes: Vec<_> = ports
            .iter()
            .map(|&port| Server::start_at(port, &arguments.concat()))
            .collect();
        let mut connections: Vec<_> = nodes.iter().map(connection).collect();
        for (place, node) in connections.iter_mut().enumerate() {
            if place < PRIMARIES {
                let slots = place * SLOTS / PRIMARIES..(place + 1) * SLOTS / PRIMARIES;
                let mut add = redis::cmd("CLUSTER");
                ask(add.arg("ADDSLOTS").arg(slots.collect::<Vec<_>>()), node);
            }
            let mut epoch = redis::cmd("CLUSTER");
            ask(epoch.arg("SET-CONFIG-EPOCH").arg(place + 1), node);
            let mut meet = redis::cmd("CLUSTER");
            ask(meet.arg("MEET").arg("127.0.0.1").arg(nodes[0].port()), node);
        }
        for node in &mut connections {
            until(|| {
                let info = cluster(node, "INFO");
                info.contains("cluster_state:ok")
                    && info.contains(&format!("cluster_known_nodes:{size}\r"))
                    && !cluster(node, "NODES").contains("handshake")
            });
        }
        let ids: Vec<_> = connections
            .iter_mut()
            .map(|node| cluster(node, "MYID"))
            .collect();
        for (replica, primary) in connections[PRIMARIES..].iter_mut().zip(&ids) {
            let mut replicate = redis::cmd("CLUSTER");
            ask(replicate.arg("REPLICATE").arg(primary), replica);
        }
        for replica in &mut connections[PRIMARIES..] {
            until(|| {
                let info: String = redis::cmd("INFO").query(replica).unwrap();
                info.contains("master_link_status:up")
            });
        }
        for node in &mut connections {
            let each = 2 + size / PRIMARIES; // first and last slot, and the nodes
            until(|| {
                let mut slots = redis::cmd("CLUSTER");
                let slots: Vec<Vec<Value>> = slots.arg("SLOTS").query(node).unwrap();
                slots.len() == PRIMARIES && slots.iter().all(|range| range.len() == each)
            });
        }
        Self { nodes }
    }

    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }
}

fn connection(node: &Server) -> Connection {
    let client = redis::Client::open(node.url()).unwrap();
    client.get_connection().unwrap()
}

fn ask(command: &Cmd, node: &mut Connection) {
    command.exec(node).unwrap();
}

/// The answer to CLUSTER with this subcommand, a text.
fn cluster(node: &mut Connection, subcommand: &str) -> String {
    let mut command = redis::cmd("CLUSTER");
    command.arg(subcommand).query(node).unwrap()
}

/// Polls until the condition holds: a cluster does not notify its clients.
fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_millis(10));
    }
}
