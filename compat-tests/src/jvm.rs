//! One running driver (`compat-tests/java`) and the line protocol that it speaks; see
//! `Driver.java`.

use std::{
    collections::HashMap,
    env, fmt,
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use tokio::sync::oneshot;

use crate::{build, version::Version};

/// An exception of Redisson; or `Unsupported`, where the version lacks the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JavaError {
    /// The exception's simple class name.
    pub class: String,
    pub message: String,
}

impl JavaError {
    pub fn is_unsupported(&self) -> bool {
        self.class == "Unsupported"
    }
}

impl fmt::Display for JavaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl std::error::Error for JavaError {}

pub type Result<T> = std::result::Result<T, JavaError>;

type Answer = Result<Vec<String>>;

/// Who waits for which answer; `None` once the JVM has ended.
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>>;

/// A JVM with the driver, killed on drop. It also ends by itself when this process does, by the end
/// of its stdin.
pub(crate) struct Jvm {
    process: Child,
    requests: Mutex<ChildStdin>,
    waiting: Waiting,
    next_seq: AtomicU64,
}

impl Jvm {
    pub(crate) fn start(version: Version) -> Self {
        let class_path = build::class_path(version);
        let java = match env::var_os("JAVA_HOME") {
            Some(home) => Path::new(&home).join("bin/java"),
            None => "java".into(),
        };
        let mut process = Command::new(&java)
            .args([
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Xshare:auto",
                "-Xmx256m",
            ])
            .args(["-cp", &class_path, "ratelimiter.compat.Driver"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| {
                panic!(
                    "cannot run {} ({e}): install a JDK of at least 17",
                    java.display()
                )
            });
        let requests = Mutex::new(process.stdin.take().expect("the JVM's stdin is a pipe"));
        let answers = process.stdout.take().expect("the JVM's stdout is a pipe");
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        // A thread, not a task: a JVM that several tests share outlives the runtime of each.
        thread::spawn({
            let waiting = Arc::clone(&waiting);
            move || dispatch(answers, &waiting)
        });
        Self {
            process,
            requests,
            waiting,
            next_seq: AtomicU64::new(0),
        }
    }

    pub(crate) async fn request(&self, command: &str, args: &[&str]) -> Answer {
        let answer = self
            .send(command, args)
            .expect("the JVM has ended; see its stderr");
        answer
            .await
            .expect("the JVM ended without an answer; see its stderr")
    }

    /// Sends a request whose answer may be awaited or not; `None` when the JVM has ended.
    pub(crate) fn send(&self, command: &str, args: &[&str]) -> Option<oneshot::Receiver<Answer>> {
        let seq = self.next_seq.fetch_add(1, Ordering::Relaxed);
        let mut line = format!("{seq} {command}");
        for arg in args {
            line.push(' ');
            line.push_str(&encode(arg));
        }
        line.push('\n');
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().unwrap().as_mut()?.insert(seq, sender);
        self.requests
            .lock()
            .unwrap()
            .write_all(line.as_bytes())
            .ok()?;
        Some(answer)
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Gives each answer to the one who waits for it, until the JVM ends.
fn dispatch(answers: ChildStdout, waiting: &Waiting) {
    for line in BufReader::new(answers).lines().map_while(io::Result::ok) {
        let (seq, answer) = parse(&line).unwrap_or_else(|| panic!("not an answer: {line}"));
        let sender = waiting
            .lock()
            .unwrap()
            .as_mut()
            .and_then(|waiting| waiting.remove(&seq));
        if let Some(sender) = sender {
            // A request may have been cancelled, and nobody waits.
            let _ = sender.send(answer);
        }
    }
    *waiting.lock().unwrap() = None;
}

fn parse(line: &str) -> Option<(u64, Answer)> {
    let mut words = line.split(' ');
    let seq = words.next()?.parse().ok()?;
    let answer = match words.next()? {
        "ok" => Ok(words.map(decode).collect::<Option<_>>()?),
        "err" => Err(JavaError {
            class: words.next()?.into(),
            message: decode(words.next()?)?,
        }),
        _ => return None,
    };
    Some((seq, answer))
}

/// Percent-encoding; a lone `%` is the empty string.
fn encode(arg: &str) -> String {
    if arg.is_empty() {
        return "%".into();
    }
    let mut word = String::new();
    for byte in arg.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => word.push(byte.into()),
            _ => word.push_str(&format!("%{byte:02X}")),
        }
    }
    word
}

fn decode(word: &str) -> Option<String> {
    if word == "%" {
        return Some(String::new());
    }
    let mut parts = word.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(code, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_one_word_and_decodes_to_itself() {
        for arg in ["", " ", "%", "a b+c{d}", "ü\n"] {
            let word = encode(arg);
            assert!(!word.is_empty() && !word.contains([' ', '\n']), "{word}");
            assert_eq!(decode(&word).as_deref(), Some(arg));
        }
    }
}
