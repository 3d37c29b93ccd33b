//! A Redis server of the test's own, on a free port, stopped when it is dropped.

#![allow(dead_code, reason = "each test file uses what it needs")]

use std::env;
use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use redis::AsyncConnectionConfig;
use redis::ConnectionAddr;
use redis::aio::MultiplexedConnection;
use redis_test::server::RedisServer;
use redis_test::utils::get_random_available_port;
use tempfile::TempDir;

/// The program that `REDISRS_SERVER_BIN` names, or `redis-server`. A cluster of `redis_test` takes it too.
pub fn server_program() -> OsString {
    env::var_os("REDISRS_SERVER_BIN").unwrap_or_else(|| "redis-server".into())
}

/// A running server.
pub struct Server {
    process: RedisServer,
    port: u16,
    /// Where a replica keeps what it copies.
    _folder: TempDir,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with more arguments. Another process may take the free port first: then the next one is tried.
    pub fn start_with(arguments: &[&str]) -> Self {
        for _ in 0..10 {
            let port = get_random_available_port();
            if let Some(server) = Self::start_at(port, arguments) {
                return server;
            }
        }
        panic!("redis-server did not start on any of ten free ports");
    }

    pub fn start_at(port: u16, arguments: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder for the server");
        let process = RedisServer::new_with_addr_tls_modules_and_spawner(
            ConnectionAddr::Tcp("127.0.0.1".to_owned(), port),
            None,
            None,
            false,
            None,
            &[],
            |command| {
                let command = command.arg("--dir").arg(folder.path());
                spawn(command.args(arguments)).unwrap_or_else(|error| {
                    panic!("these tests need redis-server, which did not start: {error}")
                })
            },
        );
        let mut server = Self {
            process,
            port,
            _folder: folder,
        };
        server.answers().then_some(server)
    }

    /// Waits until the server takes connections; `false` where it ended instead. Its log tells: at the port another
    /// server may answer, which took it first.
    fn answers(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(30) {
            if let Ok(Some(_)) = self.process.process.try_wait() {
                return false;
            }
            let log = self.process.log_file_contents();
            if log.is_some_and(|log| log.contains("Ready to accept connections")) {
                return true;
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!(
            "redis-server takes no connections: {:?}",
            self.process.log_file_contents()
        );
    }

    /// Sends the process a signal, such as `KILL`.
    pub fn signal(&self, signal: &str) {
        let pid = self.process.process.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(status.expect("kill runs").success());
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
        // The server may be slow on a busy machine.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        connection.await.unwrap()
    }
}

/// A program that runs until it is dropped.
pub struct Process(Child);

impl Process {
    pub fn start(command: &Command) -> Self {
        Self(spawn(command).expect("the program starts"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill(); // it may have ended
        let _ = self.0.wait();
    }
}

/// Starts a server that ends with this process, whatever ends it. On Linux the kernel sees to it when the thread that
/// started the server ends, so that is one which lives as long as the process.
fn spawn(command: &Command) -> io::Result<Child> {
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
        .stdout(Stdio::null());
    let (started, child) = mpsc::channel();
    STARTER
        .send((job, started))
        .expect("the thread that starts servers");
    child.recv().expect("the thread that starts servers")
}
