//! A call of a client's acquire script, taken down as the client sends it, to be sent without the
//! client.
//!
//! Only the script's hash is needed: the client has left the script with the server.

use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Cmd, Value};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

/// The name of the limiter that calls are recorded on.
pub const NAME: &str = "recorded";

/// Whose script it is: they differ in what their arguments mean.
#[derive(Clone, Copy)]
pub enum Script {
    Ours,
    Redissons,
}

pub struct RecordedCall {
    script: Script,
    hash: Vec<u8>,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl RecordedCall {
    /// Watches the server while `call` takes one permit of the limiter [`NAME`].
    pub async fn record(port: u16, script: Script, call: impl Future<Output = ()>) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("a connection");
        let mut monitor = BufReader::new(stream);
        let asked = monitor.get_mut().write_all(b"MONITOR\r\n").await;
        asked.expect("MONITOR");
        let mut line = String::new();
        monitor.read_line(&mut line).await.expect("MONITOR's OK");
        call.await;
        loop {
            line.clear();
            monitor.read_line(&mut line).await.expect("a command");
            let words = quoted(&line);
            if words
                .first()
                .is_some_and(|w| w.eq_ignore_ascii_case(b"EVALSHA"))
                && words.get(3).is_some_and(|key| key == NAME.as_bytes())
            {
                return Self::new(script, words);
            }
        }
    }

    /// From `EVALSHA hash number key… arg…`.
    fn new(script: Script, mut words: Vec<Vec<u8>>) -> Self {
        let keys: usize = std::str::from_utf8(&words[2])
            .ok()
            .and_then(|number| number.parse().ok())
            .expect("the number of the keys");
        let args = words.split_off(3 + keys);
        let expected = match script {
            Script::Ours => 4,
            Script::Redissons => 3,
        };
        assert_eq!(args.len(), expected, "the arguments of an acquire changed");
        let keys = words.split_off(3);
        Self {
            script,
            hash: words.swap_remove(1),
            keys: keys
                .into_iter()
                .map(|key| String::from_utf8(key).expect("a name in UTF-8"))
                .collect(),
            args,
        }
    }

    /// The keys of the limiter `name`, as the recorded call would have them.
    pub fn keys_of(&self, name: &str) -> Vec<String> {
        self.keys
            .iter()
            .map(|key| key.replace(NAME, name))
            .collect()
    }

    /// The same call on other keys and at another time.
    pub fn command(&self, keys: &[String], random: [u8; 16], rate: u64) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.hash).arg(keys.len());
        for key in keys {
            command.arg(key);
        }
        match self.script {
            // A deadline far away, and the grants already summed at this rate, as in all but a few
            // calls of ours. The member keeps its length byte and its permits.
            Script::Ours => command
                .arg(i64::MAX >> 12)
                .arg([&self.args[1][..1], &random, &self.args[1][17..]].concat())
                .arg(rate)
                .arg(&self.args[3]),
            Script::Redissons => command.arg(&self.args[0]).arg(now()).arg(&random),
        };
        command
    }

    pub fn is_granted(&self, answer: &Value) -> bool {
        match (self.script, answer) {
            // Doubles, the permits left before it the second of them.
            (Script::Ours, Value::BulkString(doubles)) => {
                matches!(doubles[8..16].try_into(), Ok(left) if f64::from_le_bytes(left) > 0.0)
            }
            (Script::Redissons, Value::Nil) => true,
            (Script::Redissons, Value::Int(_wait)) => false,
            _ => panic!("not an answer of an acquire: {answer:?}"),
        }
    }
}

fn now() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.expect("a clock of this era").as_millis() as u64
}

/// The words of a line of MONITOR: `+1700000000.123456 [0 127.0.0.1:50000] "EVALSHA" "…"`.
fn quoted(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut chars = line.bytes().skip_while(|&byte| byte != b']').skip(1);
    while chars.any(|byte| byte == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = chars.next() {
            word.push(match byte {
                b'"' => break,
                b'\\' => match chars.next() {
                    Some(b'n') => b'\n',
                    Some(b'r') => b'\r',
                    Some(b't') => b'\t',
                    Some(b'a') => 7,
                    Some(b'b') => 8,
                    Some(b'x') => {
                        let mut digit = || char::from(chars.next()?).to_digit(16);
                        let (high, low) = (digit(), digit());
                        (high.expect("a digit") * 16 + low.expect("a digit")) as u8
                    }
                    other => other.expect("an escaped character"),
                },
                byte => byte,
            });
        }
        words.push(word);
    }
    words
}
