//! The servers, each a process.

use std::env;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

#[derive(Clone, Copy)]
pub enum Kind {
    Serve,
    Limitador,
}

/// Where the programs are.
pub struct Programs {
    rratelimiter: PathBuf,
    limitador: PathBuf,
}

/// A limit that nobody reaches.
pub const LIMIT: u32 = 1_000_000_000;

/// A server that runs until this is dropped.
pub struct Serving {
    child: Child,
    pub address: String,
    _folder: TempDir,
}

/// Builds the programs.
pub fn build() -> Programs {
    // This program is in `target/release/deps`.
    let program = env::current_exe().expect("a program");
    let release = program.ancestors().nth(2).expect("target/release");
    let target = release.parent().expect("target").join("limitador");
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command
            .args(["build", "--release", "--locked"])
            .args(arguments);
        assert!(command.status().expect("cargo runs").success());
    };
    cargo(&["-p", "redisson-rate-limiter-cli"]);
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/limitador/Cargo.toml");
    cargo(&[
        "--manifest-path",
        manifest,
        "--target-dir",
        &target.to_string_lossy(),
    ]);
    Programs {
        rratelimiter: release.join("rratelimiter"),
        limitador: target.join("release/limitador-server"),
    }
}

impl Serving {
    pub fn start(kind: Kind, programs: &Programs, redis: &str, rules: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = match kind {
            Kind::Serve => {
                let file = folder.path().join("rules.toml");
                std::fs::write(&file, rules_file(rules)).expect("a file");
                let mut command = Command::new(&programs.rratelimiter);
                command.args(["serve", "--http", "off", "--admin", "off"]);
                command.args(["--grpc", "127.0.0.1:0", "--rules"]).arg(file);
                command
            }
            Kind::Limitador => {
                let mut command = Command::new(&programs.limitador);
                command.arg(rules.to_string());
                command
            }
        };
        command.env("REDIS_URL", redis);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut address = String::new();
        for line in lines {
            let line = line.expect("a line");
            if let Some((_, at)) = line.split_once("gRPC at ") {
                address = format!("http://{at}");
            }
            if line.contains("ready") {
                break;
            }
        }
        Self {
            child,
            address,
            _folder: folder,
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rules for the entries `key0`, `key1` and so on.
fn rules_file(rules: u32) -> String {
    let rule = |it| {
        format!(
            "[[rules]]\nname = \"rule{it}\"\nwhen = {{ domain = \"bench\" }}\nby = [\"key{it}\"]\n\
             limit = {{ algorithm = \"fixed_window\", rate = \"{LIMIT}/1m\" }}\n"
        )
    };
    (0..rules).map(rule).collect()
}
