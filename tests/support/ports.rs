//! Ports of this process: no other program takes one, whether a server listens on it, has not
//! started yet or has ended.

use std::mem;

use tokio::net::TcpSocket;

/// How far above a node's port its port for the other nodes of the cluster is.
const BUS: u16 = 10_000;

/// A free port on 127.0.0.1, which is this process's until it ends.
pub fn reserve() -> u16 {
    bind(0).expect("a free port")
}

/// A free port for a node of a cluster, whose port for the other nodes is reserved too.
pub fn reserve_for_node() -> u16 {
    loop {
        let port = reserve();
        if port.checked_add(BUS).and_then(bind).is_some() {
            return port;
        }
    }
}

/// Binds a socket that never listens, and stays open. Linux gives its port to no connection and to
/// nobody who asks for any free port, but lets a server that asks for this one listen on it.
fn bind(port: u16) -> Option<u16> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], port).into()).ok()?;
    // From here on: to bind with it could give one port to two processes.
    socket.set_reuseaddr(true).expect("an option of sockets");
    let port = socket.local_addr().expect("a bound socket").port();
    if cfg!(target_os = "linux") {
        mem::forget(socket);
    }
    Some(port)
}
