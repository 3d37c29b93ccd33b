//! A child process, as seen by the test that started it.

use std::env;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::child::{self, Task};
use crate::ledger::Ledger;

/// How long a child may take for its work. A waiter that was passed over would wait for ever.
const PATIENCE: Duration = Duration::from_secs(300);

/// Dropping it kills the child.
pub struct ChildProcess {
    child: Child,
    stdin: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
}

impl ChildProcess {
    /// Starts a child, and waits until it is connected.
    pub async fn start(task: &Task, random: &crate::seeded::Seeded) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .args([
                "--exact",
                "child::a_child_process_does_its_work",
                "--nocapture",
            ])
            .env(child::TASK, task.to_text())
            .env("SEED", random.to_string().replace("SEED=", ""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a child process");
        let stdin = child.stdin.take().expect("its stdin is a pipe");
        let stdout = child.stdout.take().expect("its stdout is a pipe");
        let mut process = Self {
            child,
            stdin,
            reports: BufReader::new(stdout).lines(),
        };
        assert_eq!(process.report().await, child::READY);
        process
    }

    /// Lets it work.
    pub async fn go(&mut self) {
        self.stdin.write_all(b"go\n").await.expect("it listens");
    }

    /// What it holds of each limiter when its work is done.
    pub async fn ledgers(&mut self) -> Vec<Ledger> {
        let report = self.report().await;
        let ledgers = report.split(',').map(Ledger::from_words);
        let ledgers: Option<_> = ledgers.collect();
        ledgers.unwrap_or_else(|| panic!("no ledgers: {report}"))
    }

    async fn report(&mut self) -> String {
        let report = async {
            loop {
                let line = self.reports.next_line().await.expect("its stdout");
                let line = line.expect("the child has ended; see its stderr");
                if let Some(words) = line.strip_prefix(child::REPORT) {
                    return words.to_owned();
                }
            }
        };
        let report = timeout(PATIENCE, report).await;
        report.expect("a report of the child")
    }

    /// Sends it a signal, such as `STOP`.
    pub fn signal(&self, signal: &str) {
        let id = self.child.id().expect("a child that runs");
        crate::support::send(signal, id);
    }

    /// Ends it with SIGKILL. It must not have ended by itself: then it has panicked.
    pub async fn kill(mut self) {
        let ended = self.child.try_wait().expect("the state of a child");
        assert_eq!(ended, None, "the child ended by itself; see its stderr");
        self.child.kill().await.expect("a child that can be killed");
    }
}
