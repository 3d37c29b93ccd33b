//! The Python client `lua/python/client.py` in a process of its own, and its tests.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../lua/python")
}

/// The client's own tests.
pub fn tests() -> std::process::Command {
    let mut command = std::process::Command::new("python3");
    command.args(["-B", "-m", "unittest"]).current_dir(folder());
    command
}

/// What `lossy.py` says of a client over a server, which makes so many calls in each of
/// four processes. The client is this program, which imports `client.py`.
///
/// # Panics
///
/// Without Python 3.
pub fn lossy(port: u16, calls: u32, client: &[&str]) -> Output {
    let (calls, port) = (calls.to_string(), port.to_string());
    run(&["lossy.py", "--calls", &calls, &port], client)
}

/// Holds a client to the dialogues of the vectors.
///
/// # Panics
///
/// Without Python 3.
pub fn dialogues(client: &[&str]) -> Output {
    run(&["dialogues.py"], client)
}

fn run(program: &[&str], client: &[&str]) -> Output {
    let mut command = std::process::Command::new("python3");
    command.arg("-B").args(program).args(client);
    let output = command.current_dir(folder()).output();
    output.unwrap_or_else(|error| panic!("cannot run python3 ({error}): install Python 3"))
}

/// A limiter of the Python client. Dropping it ends the process.
pub struct Limiter {
    // Never read: it ends with this.
    _process: Child,
    calls: ChildStdin,
    results: Lines<BufReader<ChildStdout>>,
}

impl Limiter {
    /// A client of the server at this port.
    ///
    /// # Panics
    ///
    /// Without Python 3.
    pub fn start(port: u16, name: &str) -> Self {
        let mut process = Command::new("python3")
            .args(["-B", "client.py"])
            .current_dir(folder())
            .args([&port.to_string(), name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run python3 ({error}): install Python 3"));
        let calls = process.stdin.take().expect("its stdin is a pipe");
        let stdout = process.stdout.take().expect("its stdout is a pipe");
        Self {
            _process: process,
            calls,
            results: BufReader::new(stdout).lines(),
        }
    }

    /// Makes a call, with its arguments behind its name, and waits for what it returns.
    pub async fn call(&mut self, call: &str) -> String {
        let line = format!("{call}\n");
        let written = self.calls.write_all(line.as_bytes()).await;
        written.expect("the client takes calls");
        let result = self.results.next_line().await;
        let result = result.expect("the client's output");
        result.unwrap_or_else(|| panic!("the client ended in {call}"))
    }

    /// A call that returns a number.
    pub async fn number(&mut self, call: &str) -> u64 {
        let result = self.call(call).await;
        let number = result.parse().ok();
        number.unwrap_or_else(|| panic!("{call} returned {result}"))
    }
}
