//! Has Maven build `compat-tests/java`: the driver, and the jars of each Redisson version.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use crate::version::Version;

/// The class path of the driver with one version of Redisson; builds what is not built yet.
pub fn class_path(version: Version) -> String {
    static TARGET: OnceLock<PathBuf> = OnceLock::new();
    let target = TARGET.get_or_init(build);
    format!("{0}/classes:{0}/{version}/*", target.display())
}

/// The directory of what was built from the sources as they are now.
fn build() -> PathBuf {
    let java = Path::new(env!("CARGO_MANIFEST_DIR")).join("java");
    let target = java.join("target");
    let stamp = target.join("stamp");
    fs::create_dir_all(&target).expect("a directory for what Maven builds");

    let _lock = Lock::acquire(&target.join("lock"));
    let sources = sources(&java);
    if fs::read_to_string(&stamp).is_ok_and(|built_from| built_from == sources) {
        return target;
    }
    // Jars of another state of the poms would stay on the class path.
    for version in Version::LEGACY.into_iter().chain(Version::ALL) {
        let _ = fs::remove_dir_all(target.join(version.to_string()));
    }
    let maven = Command::new("mvn")
        .args(["--batch-mode", "--quiet", "compile"])
        .current_dir(&java)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("cannot run mvn ({e}): install Maven and a JDK of at least 17"));
    assert!(
        maven.status.success(),
        "Maven could not build {}; it needs a JDK of at least 17 (javac too):\n{}{}",
        java.display(),
        String::from_utf8_lossy(&maven.stdout),
        String::from_utf8_lossy(&maven.stderr),
    );
    fs::write(&stamp, sources).expect("the stamp of what Maven built");
    target
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
