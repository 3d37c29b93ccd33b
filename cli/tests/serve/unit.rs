//! The unit of systemd.

use std::fs;
use std::process::Command;

/// How exposed a service may be, of 100: 16 of 100 is "OK".
const MOST_EXPOSED: &str = "16";

#[test]
fn the_unit_is_valid_and_hardened() {
    let folder = tempfile::tempdir().unwrap();
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/rratelimiter.service");
    let text = fs::read_to_string(unit).unwrap();
    let program = "/usr/local/bin/rratelimiter";
    assert!(text.contains(&format!("ExecStart={program} serve --rules ")));
    // The program has to exist for the unit to be valid.
    let text = text.replace(program, env!("CARGO_BIN_EXE_rratelimiter"));
    let unit = folder.path().join("rratelimiter.service");
    fs::write(&unit, text).unwrap();
    for arguments in [
        &["verify", "--man=no"][..],
        &["security", "--offline=true", "--threshold", MOST_EXPOSED],
    ] {
        let mut command = Command::new("systemd-analyze");
        let output = command.args(arguments).arg(&unit).output();
        let output = output.expect("systemd-analyze is installed: see scripts/tools");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{errors}");
    }
}
