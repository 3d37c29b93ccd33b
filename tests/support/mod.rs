//! Redis servers and clusters of the test's own, on ports of its own, stopped when they are
//! dropped.

#![allow(dead_code, reason = "each test file uses what it needs")]

pub mod cluster;
pub mod ports;

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// The program that `REDISRS_SERVER_BIN` names, or `redis-server`.
pub fn server_program() -> OsString {
    env::var_os("REDISRS_SERVER_BIN").unwrap_or_else(|| "redis-server".into())
}

/// Whether the servers have sharded channels, by which clients tell others that permits came free:
/// from Redis 7 on.
pub fn has_channels() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(|| {
        let version = Command::new(server_program()).arg("--version").output();
        let version = String::from_utf8(version.expect("its version").stdout);
        let version = version.expect("a text");
        let number = version.split_once("v=").expect("a number").1;
        let major = number.split('.').next().and_then(|it| it.parse().ok());
        major.is_some_and(|it: u32| it >= 7)
    });
    *HAS
}

/// A running server.
pub struct Server {
    process: Process,
    port: u16,
    arguments: Vec<String>,
    /// Where it keeps its data.
    folder: TempDir,
}

/// Arguments with which a server has its data again when it was killed.
pub const KEEPS_DATA: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "no"];

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let port = if arguments.contains(&"--cluster-enabled") {
            ports::reserve_for_node()
        } else {
            ports::reserve()
        };
        Self::start_at(port, arguments)
    }

    /// Starts a server on a port that is reserved, as that of an earlier server is. Returns when it
    /// takes connections.
    pub fn start_at(port: u16, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the server");
        let arguments: Vec<_> = arguments.iter().map(|&it| it.to_owned()).collect();
        Self {
            process: run(port, &folder, &arguments),
            port,
            arguments,
            folder,
        }
    }

    /// Kills it, and starts it again with the data that it has kept: none, unless its arguments say
    /// so.
    pub fn start_again(&mut self) {
        self.process.end(); // its port must be free
        self.process = run(self.port, &self.folder, &self.arguments);
    }

    /// Sends the process a signal, such as `KILL`.
    pub fn signal(&self, signal: &str) {
        send(signal, self.process());
    }

    /// The id of the process.
    pub fn process(&self) -> u32 {
        self.process.0.id()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Another connection, to read the keys and to corrupt them.
    pub async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).unwrap();
        let config = without_timeouts();
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        connection.await.unwrap()
    }
}

/// Returns when it takes connections.
fn run(port: u16, folder: &TempDir, arguments: &[String]) -> Process {
    let mut command = Command::new(server_program());
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--dir"])
        .arg(folder.path())
        .args(arguments);
    let mut process = Process::start(&command, Stdio::piped());
    let stdout = process.0.stdout.take().expect("its stdout is a pipe");
    let mut log = String::new();
    for line in BufReader::new(stdout).lines() {
        let line = line.expect("its log");
        if line.contains("Ready to accept connections") {
            return process;
        }
        log += &(line + "\n");
    }
    panic!("{command:?} has ended:\n{log}");
}

/// The settings of a connection to a server that may be slow on a busy machine.
pub fn without_timeouts() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
}

/// Sends a process a signal.
pub fn send(signal: &str, process: u32) {
    let signal = match signal {
        "CONT" => Signal::CONT,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        other => panic!("no test has sent {other} so far"),
    };
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    kill_process(process.expect("the id of a process"), signal).expect("the process runs");
}

/// A program that runs until it is dropped.
pub struct Process(Child);

impl Process {
    pub fn start(command: &Command, stdout: Stdio) -> Self {
        let started = spawn(command, stdout);
        Self(started.unwrap_or_else(|error| panic!("{command:?} did not start: {error}")))
    }

    fn end(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts a server that ends with this process, whatever ends it. On Linux the kernel sees to it
/// when the thread that started the server ends, so that is one which lives as long as the process.
fn spawn(command: &Command, stdout: Stdio) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static STARTER: LazyLock<mpsc::Sender<Job>> = LazyLock::new(|| {
        let (jobs, next_jobs) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for (mut command, started) in next_jobs {
                let _ = started.send(command.spawn());
            }
        });
        jobs
    });

    let program = command.get_program();
    let mut job = if cfg!(target_os = "linux") {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(["--pdeathsig", "KILL"]).arg(program);
        setpriv
    } else {
        Command::new(program)
    };
    job.args(command.get_args())
        .stdin(Stdio::null())
        .stdout(stdout);
    let (started, child) = mpsc::channel();
    STARTER
        .send((job, started))
        .expect("the thread that starts servers");
    child.recv().expect("the thread that starts servers")
}
