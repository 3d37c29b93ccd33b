//! The program, run against a server of the test's own.

use std::env;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

#[path = "../../../tests/support/proxy.rs"]
pub mod proxy;
#[path = "../../../tests/support/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "each test binary has its own")]
pub mod servers;

use crate::watchdog;
use servers::Server;

pub struct Cli {
    pub server: Server,
}

/// What a run printed, and its exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        Self {
            code: output.status.code().expect("not ended by a signal"),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Cli {
    pub fn start() -> Self {
        Self {
            server: Server::start(),
        }
    }

    /// The program with these arguments, which are separated by spaces.
    pub fn command(&self, arguments: &str) -> Command {
        let url = format!("redis://127.0.0.1:{}", self.server.port());
        let mut command = program(arguments);
        command.env("REDIS_URL", url);
        command
    }

    pub fn run(&self, arguments: &str) -> Ran {
        watchdog::output(&mut self.command(arguments)).into()
    }

    /// Runs the program with this standard input.
    pub fn run_with(&self, arguments: &str, input: &str) -> Ran {
        let mut command = self.command(arguments);
        ran_with(&mut command, input)
    }

    /// What the server answers to a command.
    pub fn redis<W: AsRef<[u8]>>(&self, words: &[W]) -> redis::Value {
        let client = redis::Client::open(self.server.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word.as_ref());
        }
        command.query(&mut connection).unwrap()
    }

    /// Writes this many grants of a permit each for the limiter `orders`, as an old Redisson does,
    /// and its value.
    pub fn fill_orders(&self, grants: u32, value: u32) {
        let script = "for i = 1, ARGV[2] do redis.call('zadd', KEYS[2], ARGV[1] - i, string.char(8) .. string.format('%08d', i) .. string.char(1,0,0,0)) end redis.call('set', KEYS[1], ARGV[3])";
        let keys = ["2", "{orders}:value", "{orders}:permits"].map(str::to_owned);
        let args = [
            self.now().to_string(),
            grants.to_string(),
            value.to_string(),
        ];
        let call = ["EVAL", script].map(str::to_owned);
        self.redis(&[&call[..], &keys, &args].concat());
    }

    /// How often the server has executed a command.
    pub fn calls_of(&self, command: &str) -> u64 {
        let stats: String = redis::from_redis_value(self.redis(&["INFO", "commandstats"])).unwrap();
        let calls = stats
            .lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse().unwrap())
    }

    /// The server's clock, in ms.
    pub fn now(&self) -> i64 {
        let script =
            "local time = redis.call('time') return time[1] * 1000 + math.floor(time[2] / 1000)";
        redis::from_redis_value(self.redis(&["EVAL", script, "0"])).unwrap()
    }

    /// The JSON that a run prints.
    pub fn json(&self, arguments: &str) -> serde_json::Value {
        let ran = self.run(&format!("--json {arguments}"));
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
    }
}

/// Runs a command with this standard input, which it need not read.
pub fn ran_with(command: &mut Command, input: &str) -> Ran {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writing = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = watchdog::output_of(child, command);
    writing.join().unwrap();
    output.into()
}

/// The program that `RRATELIMITER_BIN` names, or the one that was built with the tests.
pub fn program(arguments: &str) -> Command {
    let built = || env!("CARGO_BIN_EXE_rratelimiter").into();
    let mut command = Command::new(env::var_os("RRATELIMITER_BIN").unwrap_or_else(built));
    command.args(arguments.split_whitespace());
    command
        .env_remove("REDIS_URL")
        .env_remove("REDIS_PASSWORD_FILE")
        .stdin(Stdio::null());
    command
}
