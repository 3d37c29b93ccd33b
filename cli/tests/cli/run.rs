use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::pseudo_terminal::PseudoTerminal;
use crate::support::{Cli, ran_with};
use crate::watchdog::{Lines, ended, until};

#[test]
fn a_command_runs_with_its_permits_and_its_exit_code_is_the_programs() {
    let cli = Cli::start();
    let ran = cli.run("run orders --rate 2/1h -- sh -c exit${IFS}7");
    assert_eq!(ran.code, 7, "{ran:?}");
    assert_eq!(cli.run("run orders -- echo done").out, "done");
    let denied = cli.run("run orders --timeout 10ms -- echo done");
    assert_eq!((denied.code, denied.out.as_str()), (1, "denied: not run"));
}

#[test]
fn a_command_that_cannot_be_started_ends_as_in_a_shell() {
    let cli = Cli::start();
    cli.run("set orders 9/1h");
    assert_eq!(cli.run("run orders -- no-such-program").code, 127);
    assert_eq!(cli.run("run orders -- /").code, 126);
    assert_eq!(cli.run("run orders --each -- no-such-program").code, 0); // there is no line
    assert_eq!(
        cli.run_with("run orders --each -- no-such-program", "a\n")
            .code,
        127
    );
    // None has used its permit.
    assert_eq!(cli.run("available orders").out, "9");
}

#[test]
fn a_signal_while_it_waits_keeps_no_permits() {
    let cli = Cli::start();
    cli.run("set orders 2/1h");
    cli.run("try orders");
    let mut waiting = cli
        .command("run orders --permits 2 -- echo done")
        .spawn()
        .unwrap();
    let id = i32::try_from(waiting.id()).unwrap();
    wait_until_caught(id);
    kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    assert_eq!(ended(&mut waiting).code(), Some(128 + 15));
    assert_eq!(cli.run("available orders").out, "1");
    cli.run("release orders");
    assert_eq!(cli.run("available orders").out, "2");
}

/// Waits until a process catches the signal that asks it to end.
fn wait_until_caught(id: i32) {
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let mut lines = status.lines();
        let caught = lines.find_map(|line| line.strip_prefix("SigCgt:\t"));
        u64::from_str_radix(caught.unwrap(), 16).unwrap()
    };
    until(caught, |it| it & (1 << 14) != 0);
}

#[test]
fn a_signal_reaches_the_command_that_took_the_programs_place() {
    let cli = Cli::start();
    let script = "run orders --rate 1/s -- sh -c";
    let mut running = cli
        .command(script)
        .arg("trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = Lines::of(running.stdout.take().unwrap()).next();
    let id = Pid::from_raw(i32::try_from(running.id()).unwrap()).unwrap();
    kill_process(id, Signal::TERM).unwrap();
    assert_eq!(
        (line.as_deref(), ended(&mut running).code()),
        (Some("ready"), Some(9))
    );
}

#[test]
fn each_line_is_an_argument_of_a_command_of_its_own() {
    let cli = Cli::start();
    cli.run("set orders 4/1h");
    let ran = cli.run_with("run orders --each -- echo a", "x y\n\nz");
    assert_eq!((ran.code, ran.out.as_str()), (0, "a x y\na \na z"));
    assert_eq!(ran.err, "3 succeeded, 0 failed, 0 not run");
    let ran = cli.run_with("run orders --each --timeout 1s -- echo {} a", "1\n2\n");
    assert_eq!((ran.code, ran.out.as_str()), (1, "1 a"));
    assert_eq!(ran.err, "1 succeeded, 0 failed, 1 not run");
}

#[test]
fn a_line_takes_the_place_of_braces_within_a_word() {
    let cli = Cli::start();
    cli.run("set orders 9/1h");
    let ran = cli.run_with(
        "run orders --each -- echo convert {} {}.png a{}b{}",
        "x\n{} y\n",
    );
    assert_eq!(
        ran.out,
        "convert x x.png axbx\nconvert {} y {} y.png a{} yb{} y"
    );
}

#[test]
fn a_line_whose_command_fails_does_not_stop_the_others() {
    let cli = Cli::start();
    let lines = "run orders --rate 9/1h --each --jobs 3 -- sh -c";
    let mut command = cli.command(lines);
    let ran = ran_with(command.arg("exit $0"), "0\n1\n2\n0\n");
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (123, "2 succeeded, 2 failed, 0 not run")
    );
    assert_eq!(cli.run("available orders").out, "5");
}

#[test]
fn a_signal_to_the_program_reaches_the_commands_of_each_line() {
    let cli = Cli::start();
    cli.run("set orders 9/1h");
    for (name, signal) in [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("TERM", Signal::TERM),
    ] {
        let program = cli.command("run orders --each -- sh -c");
        // In a session of its own it has no terminal, and a background job would ignore some
        // signals.
        let mut command = std::process::Command::new("setsid");
        command
            .args(["env", "--default-signal=INT,QUIT"])
            .arg(program.get_program())
            .args(program.get_args())
            .arg("trap \"echo $0; exit 9\" $0; echo ready; while :; do sleep 0.01; done")
            .env("REDIS_URL", cli.server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut running = command.spawn().unwrap();
        let mut stdin = running.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, format!("{name}\n").as_bytes()).unwrap();
        let mut lines = Lines::of(running.stdout.take().unwrap());
        assert_eq!(lines.next().unwrap(), "ready");
        kill_process(Pid::from_child(&running), signal).unwrap();
        assert_eq!(lines.next().unwrap(), name);
        let code = ended(&mut running).code();
        assert_eq!(code, Some(128 + signal.as_raw()), "{name}");
    }
}

#[test]
fn what_commands_write_on_a_terminal_does_not_mix_with_the_counter() {
    let cli = Cli::start();
    cli.run("set orders 10/1h");
    let program = cli.command("").get_program().display().to_string();
    let mut shell = std::process::Command::new("sh");
    shell.args([
        "-c",
        &format!("seq 3 | {program} run orders --each -- echo request"),
    ]);
    shell.env("REDIS_URL", cli.server.url());
    let mut terminal = PseudoTerminal::start(&shell, 80, 24);
    assert_eq!(terminal.ended(), Some(0));
    let texts: Vec<_> = terminal.output.split("request").collect();
    let (last, before) = texts.split_last().unwrap();
    for text in before {
        let is_clear = text.is_empty() || text.ends_with('\n') || text.ends_with("\x1b[K");
        assert!(is_clear, "{:?}", terminal.output);
    }
    assert!(
        last.ends_with("3 succeeded, 0 failed, 0 not run\r\n"),
        "{:?}",
        terminal.output
    );
}

#[test]
fn no_more_commands_start_once_one_has_died_of_a_signal_or_ended_with_255() {
    for (script, code, why) in [
        ("kill -PIPE $$", 125, "a command died of signal 13"),
        ("exit 255", 124, "a command ended with 255"),
    ] {
        for jobs in ["1", "3"] {
            let cli = Cli::start();
            cli.run("set orders 50/1h");
            let mut command = cli.command(&format!("run orders --each --jobs {jobs} -- sh -c"));
            let ran = ran_with(command.arg(script), &"a\n".repeat(40));
            assert_eq!(ran.code, code, "{ran:?}");
            assert!(
                ran.err.ends_with(&format!("; stopped, as {why}")),
                "{ran:?}"
            );
            let left: u32 = cli.run("available orders").out.parse().unwrap();
            // Of three, those that ran at the same time, and one more for each that was started
            // while the first died.
            let fewest = if jobs == "1" { 49 } else { 44 };
            assert!((fewest..50).contains(&left), "{left} of 50 left");
        }
    }
}

#[test]
fn a_reader_that_has_gone_stops_the_commands_though_no_line_comes() {
    let cli = Cli::start();
    cli.run("set orders 50/1h");
    let mut command = cli.command("run orders --each -- echo");
    let mut running = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = running.stdin.take().unwrap();
    drop(running.stdout.take());
    // The input stays open, as that of `tail -f` does.
    std::io::Write::write_all(&mut stdin, b"a\n").unwrap();
    let mut told = Lines::of(running.stderr.take().unwrap());
    let expected = "0 succeeded, 1 failed, 0 not run; stopped, as a command died of signal 13";
    assert_eq!(told.next().as_deref(), Some(expected));
    assert_eq!(ended(&mut running).code(), Some(125));
    assert_eq!(cli.run("available orders").out, "49");
}

/// No permit is asked for the third line while two commands run.
#[test]
fn no_more_commands_run_at_the_same_time_than_were_asked_for() {
    let cli = Cli::start();
    cli.run("set orders 50/1h");
    let running = tempfile::tempdir().unwrap();
    let started = tempfile::tempdir().unwrap();
    let (running, started) = (running.path().display(), started.path().display());
    let mut command = cli.command("run orders --each --jobs 2 -- sh -c");
    // Each prints how many run with it. The first two wait until both have started.
    let script = format!(
        "mkdir {running}/$0 {started}/$0; \
         if [ $0 -lt 3 ]; then until [ -e {started}/1 ] && [ -e {started}/2 ]; do sleep 0.01; done; fi; \
         ls {running} | wc -l; rmdir {running}/$0"
    );
    let ran = ran_with(command.arg(script), "1\n2\n3\n4\n5\n6\n");
    let at_once: Vec<u32> = ran
        .out
        .lines()
        .map(|it| it.trim().parse().unwrap())
        .collect();
    assert_eq!((at_once.len(), ran.code), (6, 0), "{ran:?}");
    assert!(at_once.iter().all(|it| *it <= 2), "{ran:?}");
}

#[test]
fn commands_of_lines_do_not_read_the_standard_input() {
    let cli = Cli::start();
    cli.run("set orders 50/1h");
    let mut command = cli.command("run orders --each -- sh -c");
    // The standard input is no pipe, which the program may have read to its end, but an empty
    // device.
    let ran = ran_with(
        command.arg("[ -c /dev/stdin ] && echo $0; cat"),
        "1\n2\n3\n",
    );
    assert_eq!((ran.code, ran.out.as_str()), (0, "1\n2\n3"), "{ran:?}");
}
