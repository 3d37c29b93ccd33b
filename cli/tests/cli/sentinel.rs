//! A Sentinel of the test's own.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::servers::{Process, Server, ports, server_program};

/// A Sentinel with these lines in its configuration, and the URL of the primary that it knows as
/// `orders`.
pub fn sentinel_of(primary: &Server, folder: &Path, lines: &str) -> (Process, String) {
    let (file, port) = (folder.join("sentinel.conf"), ports::reserve());
    let config = format!(
        "port {port}\nsentinel monitor orders 127.0.0.1 {} 1\n{lines}",
        primary.port()
    );
    fs::write(&file, config).unwrap();
    let mut command = Command::new(server_program());
    command.arg(&file).arg("--sentinel").current_dir(folder);
    let sentinel = Process::start(&command, Stdio::null());
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::yield_now();
    }
    (
        sentinel,
        format!("redis-sentinel://127.0.0.1:{port}/orders"),
    )
}
