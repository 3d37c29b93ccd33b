//! The grants of limiters in the order in which the server made them, from the script writes that
//! MONITOR shows.

use std::collections::HashMap;

use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::monitor_line::words;
use crate::support::Server;

const END: &str = "the end of what is looked at";

/// What happened to one limiter's permits.
#[derive(Debug, Default)]
pub struct Window {
    /// Score and permits of each grant that was not taken away, live or not.
    grants: HashMap<Vec<u8>, (i64, i64)>,
    /// The latest score.
    last: i64,
    /// The most that was in use at a time.
    pub most_in_use: i64,
    /// Permits of all grants that were ever made.
    pub granted: i64,
    /// Permits of grants that were taken away.
    pub given_back: i64,
}

impl Window {
    fn add(&mut self, score: i64, member: Vec<u8>) {
        if self.grants.contains_key(&member) {
            return; // a request that came twice takes nothing the second time
        }
        let permits = permits_of(&member);
        self.grants.insert(member, (score, permits));
        self.granted += permits;
        self.last = self.last.max(score);
    }

    fn remove(&mut self, member: &[u8]) {
        if let Some((_, permits)) = self.grants.remove(member) {
            self.given_back += permits;
        }
    }

    /// Notes how much is in use after a script has ended.
    fn note_use(&mut self, interval: i64) {
        let horizon = self.last - interval;
        let live = self.grants.values().filter(|(score, _)| *score > horizon);
        let in_use = live.map(|(_, permits)| permits).sum();
        self.most_in_use = self.most_in_use.max(in_use);
    }
}

fn permits_of(member: &[u8]) -> i64 {
    let permits = member[member.len() - 4..].try_into().unwrap();
    i64::from(u32::from_le_bytes(permits))
}

/// Reads a server's MONITOR until the test asks for the result.
pub struct Windows(JoinHandle<HashMap<String, Window>>);

impl Windows {
    pub async fn of(server: &Server, interval: i64) -> Self {
        let address = ("127.0.0.1", server.port());
        let mut lines = BufReader::new(TcpStream::connect(address).await.unwrap());
        lines.get_mut().write_all(b"MONITOR\r\n").await.unwrap();
        let mut line = Vec::new();
        lines.read_until(b'\n', &mut line).await.unwrap();
        assert_eq!(line, b"+OK\r\n");
        Self(tokio::spawn(read(lines, interval)))
    }

    /// What happened to each limiter's permits until now, by the names of the zsets.
    pub async fn until_now(self, redis: &mut MultiplexedConnection) -> HashMap<String, Window> {
        let echo: String = redis::cmd("ECHO")
            .arg(END)
            .query_async(redis)
            .await
            .unwrap();
        assert_eq!(echo, END);
        self.0.await.unwrap()
    }
}

async fn read(mut lines: BufReader<TcpStream>, interval: i64) -> HashMap<String, Window> {
    let mut windows = HashMap::<String, Window>::new();
    let mut touched: Option<String> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        lines.read_until(b'\n', &mut line).await.unwrap();
        let text = String::from_utf8_lossy(&line);
        // +1700000000.123456 [0 127.0.0.1:50000] "EVALSHA" "…", or [0 lua] "get" "…"
        let (_, rest) = text.split_once('[').unwrap();
        let (from, command) = rest.split_once("] ").unwrap();
        if !from.ends_with("lua") {
            if let Some(window) = touched.take().and_then(|name| windows.get_mut(&name)) {
                window.note_use(interval);
            }
            if command.contains(END) {
                return windows;
            }
            continue;
        }
        let is_written = command.starts_with("\"zadd\"") || command.starts_with("\"zrem\"");
        if !is_written {
            continue;
        }
        let words = words(command.trim_end());
        let name = String::from_utf8(words[1].clone()).unwrap();
        let window = windows.entry(name.clone()).or_default();
        let member = words.last().unwrap();
        if words[0] == b"zadd" {
            let score = &words[words.len() - 2];
            let score = std::str::from_utf8(score).unwrap().parse().unwrap();
            window.add(score, member.clone());
        } else {
            window.remove(member);
        }
        touched = Some(name);
    }
}
