//! What the server runs, by MONITOR, including the commands of scripts.

#![allow(dead_code, reason = "each test file uses what it needs")]

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::support::Server;

/// A connection in MONITOR.
pub struct Monitor(BufReader<TcpStream>);

const END: &str = "the end of what is looked at";

impl Monitor {
    pub async fn of(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port()))
            .await
            .unwrap();
        let mut monitor = Self(BufReader::new(stream));
        monitor.0.get_mut().write_all(b"MONITOR\r\n").await.unwrap();
        assert_eq!(monitor.line().await, "+OK");
        monitor
    }

    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).await.unwrap();
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// The names of the commands that ran since the last time, those of scripts in lower case after
    /// `lua `.
    pub async fn commands(&mut self, server: &Server) -> Vec<String> {
        let mut commands = self.commands_and_arguments(server).await;
        commands
            .iter_mut()
            .map(|words| words.swap_remove(0))
            .collect()
    }

    /// The commands that ran since the last time with their arguments, as MONITOR writes them.
    pub async fn commands_and_arguments(&mut self, server: &Server) -> Vec<Vec<String>> {
        let mut mark = server.connection().await;
        let _: String = redis::cmd("ECHO")
            .arg(END)
            .query_async(&mut mark)
            .await
            .unwrap();
        let mut commands = Vec::new();
        loop {
            // +1700000000.123456 [0 127.0.0.1:50000] "EVALSHA" "…", or [0 lua] "get" "…"
            let line = self.line().await;
            if line.contains(END) {
                return commands;
            }
            let (_, rest) = line.split_once('[').unwrap();
            let (from, command) = rest.split_once("] \"").unwrap();
            let command = command.strip_suffix('"').unwrap();
            let mut words: Vec<_> = command.split("\" \"").map(str::to_owned).collect();
            let name = &mut words[0];
            if name.eq_ignore_ascii_case("client") || name.eq_ignore_ascii_case("hello") {
                continue; // what connecting takes
            }
            *name = if from.ends_with("lua") {
                format!("lua {}", name.to_lowercase())
            } else {
                name.to_uppercase()
            };
            commands.push(words);
        }
    }
}
