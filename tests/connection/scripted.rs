//! A server that answers as the test says.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::load::{at_last, ms};
use crate::proxy::parse;

/// An answer to TIME.
pub const TIME: &str = "*2\r\n$1\r\n1\r\n$1\r\n0\r\n";

/// What happens to a command.
pub enum Reply {
    /// An answer in Redis's protocol.
    Answer(String),
    /// An answer in Redis's protocol, after which the connection is closed.
    Last(String),
    /// The connection is closed.
    Close,
    /// No answer, and the connection stays open.
    Silence,
}

/// Listens on a free port until it is dropped.
pub struct Scripted {
    pub port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

type Script = dyn Fn(&[String]) -> Reply + Send + Sync;

struct Shared {
    /// Its answer to a command, whose words it gets.
    script: Mutex<Arc<Script>>,
    commands: Mutex<Vec<String>>,
    accepted: Mutex<Vec<Instant>>,
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Scripted {
    /// Answers as `script` says. What is asked over each new connection is answered unless the
    /// connection is closed.
    pub async fn start(script: impl Fn(&[String]) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            script: Mutex::new(Arc::new(script)),
            commands: Mutex::default(),
            accepted: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self {
            port,
            shared,
            accepting,
        }
    }

    /// Answers as `script` says from now on.
    pub fn answers(&self, script: impl Fn(&[String]) -> Reply + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// How often it got a command of this name.
    pub fn got(&self, name: &str) -> usize {
        let commands = self.shared.commands.lock().unwrap();
        commands.iter().filter(|command| *command == name).count()
    }

    /// Waits until it has got a command this many times more than when this was called.
    pub fn until_got(&self, name: &str, more: usize) -> impl Future<Output = ()> {
        let goal = self.got(name) + more;
        at_last(name, async move {
            while self.got(name) < goal {
                sleep(ms(1)).await;
            }
        })
    }

    /// How many connections it has accepted.
    pub fn connections(&self) -> usize {
        self.shared.accepted.lock().unwrap().len()
    }

    /// When the first of its connections were accepted, once there are this many.
    pub async fn accepted(&self, connections: usize) -> Vec<Instant> {
        at_last("connections", async {
            loop {
                let accepted = self.shared.accepted.lock().unwrap().clone();
                if accepted.len() >= connections {
                    return accepted[..connections].to_vec();
                }
                sleep(ms(1)).await;
            }
        })
        .await
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new(); // ends them with this task
    loop {
        let (client, _) = listener.accept().await.unwrap();
        shared.accepted.lock().unwrap().push(Instant::now());
        connections.spawn(answer(client, Arc::clone(&shared)));
    }
}

async fn answer(mut client: TcpStream, shared: Arc<Shared>) {
    let mut requests = Vec::new();
    while let Ok(1..) = client.read_buf(&mut requests).await {
        while let Some((command, length)) = parse(&requests) {
            requests.drain(..length);
            let words: Vec<_> = command
                .0
                .iter()
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect();
            shared.commands.lock().unwrap().push(command.name());
            let script = Arc::clone(&shared.script.lock().unwrap());
            let reply = match (command.name().as_str(), script(&words)) {
                (_, reply @ (Reply::Close | Reply::Last(_))) => reply,
                ("CLIENT", _) => Reply::Answer("+OK\r\n".to_owned()),
                ("TIME", _) => Reply::Answer(TIME.to_owned()),
                (_, reply) => reply,
            };
            match reply {
                Reply::Answer(answer) => {
                    if client.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
                Reply::Last(answer) => {
                    let _ = client.write_all(answer.as_bytes()).await;
                    return;
                }
                Reply::Close => return,
                Reply::Silence => {}
            }
        }
    }
}
