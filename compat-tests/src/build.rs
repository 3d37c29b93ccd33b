//! Has Maven build `compat-tests/java`: the driver, and the jars of each Redisson version.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::version::Version;

/// The class path of the driver with one version of Redisson; builds what is not built yet.
pub fn class_path(version: Version) -> String {
    let java = Path::new(env!("CARGO_MANIFEST_DIR")).join("java");
    let target = java.join("target");
    fs::create_dir_all(&target).expect("a directory for what Maven builds");
    let _lock = Lock::acquire(&target.join("lock"));
    let sources = sources(&java);
    build(
        &java,
        &target.join("classes"),
        &sources,
        &["-f", "driver.xml"],
    );
    let jars = target.join(version.to_string());
    let which = format!("-Dredisson.version={version}");
    build(&java, &jars, &sources, &["-f", "redisson.xml", &which]);
    format!("{0}/classes:{0}/{version}/*", target.display())
}

/// Has Maven build a directory from the sources as they are now, unless it is.
fn build(java: &Path, directory: &Path, sources: &str, arguments: &[&str]) {
    let stamp = directory.join("stamp");
    if fs::read_to_string(&stamp).is_ok_and(|built_from| built_from == sources) {
        return;
    }
    // Jars of another state of the poms would stay on the class path.
    let _ = fs::remove_dir_all(directory);
    let maven = Command::new("mvn")
        .args(["--batch-mode", "--quiet"])
        .args(arguments)
        .arg("compile")
        .current_dir(java)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("cannot run mvn ({e}): install Maven and a JDK of at least 17"));
    assert!(
        maven.status.success(),
        "Maven could not build {}; it needs a JDK of at least 17 (javac too):\n{}{}",
        directory.display(),
        String::from_utf8_lossy(&maven.stdout),
        String::from_utf8_lossy(&maven.stderr),
    );
    fs::write(stamp, sources).expect("the stamp of what Maven built");
}

/// All that decides what gets built, in one text.
fn sources(java: &Path) -> String {
    let mut files = Vec::new();
    for directory in [java, &java.join("src/main/java/ratelimiter/compat")] {
        let entries = fs::read_dir(directory).expect("the Java sources");
        files.extend(entries.map(|entry| entry.expect("a Java source").path()));
    }
    files.retain(|file| file.extension().is_some_and(|e| e == "xml" || e == "java"));
    files.sort();
    files
        .iter()
        .map(|file| fs::read_to_string(file).expect("a Java source"))
        .collect()
}

/// Keeps other processes from building at the same time. The kernel frees it when this process
/// dies.
struct Lock(Child);

impl Lock {
    /// Waits for the lock. `flock` holds it as long as its command, which waits for the end of its
    /// stdin.
    fn acquire(file: &Path) -> Self {
        let mut flock = Command::new("flock")
            .arg(file)
            .args(["sh", "-c", "echo locked; cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run flock ({e}): install util-linux"));
        let mut locked = String::new();
        let stdout = flock.stdout.take().expect("flock's stdout is a pipe");
        BufReader::new(stdout)
            .read_line(&mut locked)
            .expect("flock's answer");
        assert_eq!(
            locked,
            "locked\n",
            "flock could not lock {}",
            file.display()
        );
        Self(flock)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Waiting closes stdin first.
        let _ = self.0.wait();
    }
}
