//! The JVM with Redisson in its default settings (`SideBySide.java`), and one in its own: no
//! options.

use std::{
    env,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use compat_tests::redisson::Version;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout};

use benchmarks::cpu;

use crate::sample::Sample;

pub const VERSION: Version = Version::V4_7_0;

pub struct Redisson {
    process: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The name of the virtual machine.
    pub jvm: String,
    /// The process of the server, whose CPU time `call` reads.
    server: u32,
}

/// Which of Redisson's APIs calls.
#[derive(Clone, Copy)]
pub enum Api {
    Sync,
    Async,
}

impl Redisson {
    /// `server` is the process of the server.
    pub fn start(url: &str, server: u32) -> Self {
        let java = match env::var_os("JAVA_HOME") {
            Some(home) => Path::new(&home).join("bin/java"),
            None => "java".into(),
        };
        let mut process = Command::new(&java)
            .args(["-cp", &compat_tests::class_path(VERSION)])
            .args(["ratelimiter.compat.SideBySide", url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {} ({e}): install a JDK", java.display()));
        let requests = process.stdin.take().expect("the JVM's stdin is a pipe");
        let answers = process.stdout.take().expect("the JVM's stdout is a pipe");
        let mut redisson = Self {
            process,
            requests,
            answers: BufReader::new(answers),
            jvm: String::new(),
            server,
        };
        redisson.jvm = redisson.line();
        redisson
    }

    pub fn call(
        &mut self,
        api: Api,
        name: &str,
        limiters: usize,
        callers: usize,
        warm_up: Duration,
        measured: Duration,
    ) -> Sample {
        let server = self.server;
        // The JVM has begun to ask when it has read the request.
        let server_nanos = std::thread::spawn(move || {
            std::thread::sleep(warm_up);
            let before = cpu::nanos(server);
            std::thread::sleep(measured);
            cpu::nanos(server) - before
        });
        let api = match api {
            Api::Sync => "sync",
            Api::Async => "async",
        };
        let (warm_up, measured) = (warm_up.as_millis(), measured.as_millis());
        let answer = self.request(&format!(
            "call {api} {name} {limiters} {callers} {warm_up} {measured}"
        ));
        let [decisions, granted, elapsed, p50, p99, cpu] = answer;
        Sample {
            decisions,
            granted,
            elapsed: Duration::from_nanos(elapsed),
            p50: Duration::from_nanos(p50),
            p99: Duration::from_nanos(p99),
            cpu: Duration::from_nanos(cpu),
            server_cpu: Duration::from_nanos(server_nanos.join().expect("a thread")),
        }
    }

    /// Takes so many permits one by one; answers how many were granted.
    pub fn take(&mut self, name: &str, callers: usize, permits: u64) -> u64 {
        let [granted] = self.request(&format!("take {name} {callers} {permits}"));
        granted
    }

    /// So many threads wait for one permit each; answers how long all together.
    pub fn wait(&mut self, name: &str, waiters: usize) -> Duration {
        let [nanos] = self.request(&format!("wait {name} {waiters}"));
        Duration::from_nanos(nanos)
    }

    /// Blocks its thread: nothing else goes on meanwhile.
    fn request<const N: usize>(&mut self, request: &str) -> [u64; N] {
        writeln!(self.requests, "{request}").expect("the JVM has ended; see its stderr");
        let answer = self.line();
        let numbers = answer.split(' ').map(str::parse);
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().expect("numbers");
        numbers.try_into().expect("as many numbers as it answers")
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.answers.read_line(&mut line).expect("the JVM's stdout");
        assert!(length > 0, "the JVM has ended; see its stderr");
        line.trim_end().to_owned()
    }
}

impl Drop for Redisson {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
