//! The server's record of what it granted to whom and when, by MONITOR.

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::monitor_line::words;
use crate::{Peer, Server};

/// What becomes of one permits zset, from the start of this on.
pub struct Record {
    monitor: BufReader<TcpStream>,
    permits_key: String,
    entries: Vec<Entry>,
}

/// What a script did to a permits zset.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When the server did it, by its clock: ms since the epoch.
    pub at: i64,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Granted {
        to: Peer,
        score: i64,
        permits: u32,
    },
    /// Members taken out one by one, as `release` and `refund` do it.
    TakenBack,
}

const END: &str = "the end of the record";

impl Record {
    pub async fn start(server: &Server, permits_key: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port()))
            .await
            .expect("a connection to the server");
        let mut record = Self {
            monitor: BufReader::new(stream),
            permits_key: permits_key.to_owned(),
            entries: Vec::new(),
        };
        let sent = record.monitor.write_all(b"MONITOR\r\n").await;
        sent.expect("the server takes commands");
        assert_eq!(record.line().await, b"+OK");
        record
    }

    /// Waits until somebody has been granted permits.
    pub async fn wait_for_grant(&mut self) {
        let known = self.entries.len();
        while self.entries.len() == known {
            self.read().await;
        }
    }

    /// All up to now, in the server's order.
    pub async fn end(mut self, server: &Server) -> Vec<Entry> {
        let mut mark = server.connection().await;
        let _: String = redis::cmd("ECHO")
            .arg(END)
            .query_async(&mut mark)
            .await
            .expect("an answer");
        while !self.read().await.ends_with(format!("\"{END}\"").as_bytes()) {}
        self.entries
    }

    async fn read(&mut self) -> Vec<u8> {
        let line = self.line().await;
        self.entries.extend(entry(&line, &self.permits_key));
        line
    }

    async fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        let read = self.monitor.read_until(b'\n', &mut line).await;
        let count = read.expect("what the server runs");
        assert_ne!(count, 0, "the server has ended");
        line.truncate(line.trim_ascii_end().len());
        line
    }
}

/// Reads `+1700000000.123456 [0 lua] "zadd" "{n}:permits" "1700000000123" "\x10…"`; `None` for
/// anything else.
fn entry(line: &[u8], permits_key: &str) -> Option<Entry> {
    let line = str::from_utf8(line).expect("MONITOR writes ASCII");
    let (time, command) = line.strip_prefix('+')?.split_once(" [0 lua] ")?;
    let words = words(command);
    let (name, rest) = words.split_first()?;
    if rest.first()? != permits_key.as_bytes() {
        return None;
    }
    let change = match (name.to_ascii_lowercase().as_slice(), &rest[1..]) {
        (b"zadd", [score, member]) => granted(Peer::Java, score, member),
        (b"zadd", [nx, score, member]) if nx == b"nx" => granted(Peer::Rust, score, member),
        (b"zrem", _) => Change::TakenBack,
        _ => return None,
    };
    let micros: i64 = time
        .replacen('.', "", 1)
        .parse()
        .expect("seconds and six digits");
    Some(Entry {
        at: micros / 1000,
        change,
    })
}

fn granted(to: Peer, score: &[u8], member: &[u8]) -> Change {
    let score = str::from_utf8(score)
        .ok()
        .and_then(|text| text.parse().ok());
    let (_, permits) = member
        .split_last_chunk()
        .expect("a member ends in its permits");
    Change::Granted {
        to,
        score: score.expect("a time in ms"),
        permits: u32::from_le_bytes(*permits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_adds_is_a_grant() {
        let of = |line: &str| entry(line.as_bytes(), "{n}:permits");
        let java = r#"+1700000000.123456 [0 lua] "zadd" "{n}:permits" "1700000000120" "\x02\"\\\x03\x00\x00\x00""#;
        let granted = Entry {
            at: 1_700_000_000_123,
            change: Change::Granted {
                to: Peer::Java,
                score: 1_700_000_000_120,
                permits: 3,
            },
        };
        assert_eq!(of(java), Some(granted));
        let rust = of(&java.replace("\"1700000000120\"", "\"nx\" \"1700000000123\""));
        assert!(
            matches!(
                rust,
                Some(Entry {
                    change: Change::Granted { to: Peer::Rust, .. },
                    ..
                })
            ),
            "{rust:?}"
        );
        for other in [
            java.replace("zadd", "zscore"),
            java.replace("{n}", "{m}"),
            java.replace("lua", "127.0.0.1:50000"),
        ] {
            assert_eq!(of(&other), None);
        }
    }
}
