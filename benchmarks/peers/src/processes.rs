//! Runs processes of callers at the same time, and collects what they tell.

use std::env::current_exe;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::callers::{Task, now};
use crate::servers::Servers;

/// What the processes tell together.
pub struct Told {
    pub decisions: u64,
    /// In ns; of the last process.
    pub median: u64,
    /// CPU time of all processes, in ns.
    pub clients: u64,
    /// The same of the servers.
    pub servers: u64,
    pub grants: Vec<u64>,
}

/// The time in which processes connect and warm up.
const WARM_UP: Duration = Duration::from_millis(700);

/// `None` if a process fails.
pub fn run(task: &Task, processes: usize, length: Duration, servers: &Servers) -> Option<Told> {
    let begins = now() + WARM_UP.as_millis() as u64;
    let task = Task {
        begins,
        ends: begins + length.as_millis() as u64,
        ..task.clone()
    };
    let children: Vec<Child> = (0..processes).map(|_| start(&task)).collect();
    let used = servers.cpu_between(task.begins, task.ends);
    let mut told = Told {
        decisions: 0,
        median: 0,
        clients: 0,
        servers: used,
        grants: Vec::new(),
    };
    for child in children {
        let output = child.wait_with_output().expect("the end of a process");
        if !output.status.success() {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        let text = String::from_utf8(output.stdout).expect("text");
        let mut lines = text.lines();
        let mut numbers = lines.next()?.split(' ').map(|number| number.parse::<u64>());
        told.decisions += numbers.next()?.ok()?;
        told.median = numbers.next()?.ok()?;
        told.clients += numbers.next()?.ok()?;
        let grants = lines.next().unwrap_or_default().split_whitespace();
        told.grants
            .extend(grants.map(|time| time.parse::<u64>().expect("a time")));
    }
    Some(told)
}

fn start(task: &Task) -> Child {
    let mut command = Command::new(current_exe().expect("the path of this program"));
    command.args(task.arguments());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("a process")
}
