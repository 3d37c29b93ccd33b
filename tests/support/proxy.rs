//! A proxy before the server that loses or delays requests and answers as the test says.

#![allow(dead_code, reason = "each test file uses what it needs")]

#[path = "resp.rs"]
mod resp;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use resp::answer_end;

pub use resp::{Command, parse};

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It gets lost, and the connection with it.
    CutBeforeServer,
    /// The server runs it; its answer gets lost, and the connection with it.
    CutBeforeAnswer,
    /// The server runs it; its answer arrives without its last bytes, and the connection gets lost.
    CutWithinAnswer,
    /// The server runs it; what comes back is no answer of a Redis server.
    Garbled,
    /// It waits, and all behind it, until the test lets it through.
    Held,
    /// The server gets it twice, and the client the first answer.
    Twice,
}

/// Listens on a free port and forwards what arrives, until it is dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    held: mpsc::UnboundedReceiver<Held>,
    accepting: JoinHandle<()>,
}

/// A request that waits. The server gets it with the changes that the test makes.
pub struct Held {
    pub command: Command,
    let_through: oneshot::Sender<Command>,
    answered: oneshot::Receiver<()>,
}

struct Shared {
    servers: Mutex<Vec<u16>>,
    fates: Mutex<VecDeque<(&'static str, Fate)>>,
    seen: Mutex<Vec<Command>>,
    /// Connections up to this one are frozen.
    frozen: watch::Sender<u64>,
    accepted: AtomicU64,
    refuses: AtomicBool,
    held: mpsc::UnboundedSender<Held>,
}

impl Held {
    /// Lets it through and waits until the server has answered.
    pub async fn let_through(self) {
        let Self {
            command,
            let_through,
            answered,
        } = self;
        assert!(let_through.send(command).is_ok(), "its connection is gone");
        within(answered).await.expect("its connection stays");
    }
}

impl Proxy {
    pub async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, held) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            servers: Mutex::new(vec![server]),
            fates: Mutex::default(),
            seen: Mutex::default(),
            frozen: watch::Sender::new(0),
            accepted: AtomicU64::new(0),
            refuses: AtomicBool::new(false),
            held: sender,
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self {
            port,
            shared,
            held,
            accepting,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Gives the next command of this name this fate. Several are met in the order in which they
    /// were given.
    pub fn next(&self, command: &'static str, fate: Fate) {
        self.shared.fates.lock().unwrap().push_back((command, fate));
    }

    /// Lets nothing pass any more on the existing connections, without closing them. New ones work.
    pub fn freeze(&self) {
        let accepted = self.shared.accepted.load(Ordering::SeqCst);
        self.shared.frozen.send_replace(accepted);
    }

    /// Closes new connections at once, or no more.
    pub fn refuse_new(&self, refuse: bool) {
        self.shared.refuses.store(refuse, Ordering::SeqCst);
    }

    /// New connections lead to this server.
    pub fn lead_to(&self, server: u16) {
        self.lead_to_several(&[server]);
    }

    /// New connections lead to these servers, each of which has its part of the keys.
    pub fn lead_to_several(&self, servers: &[u16]) {
        *self.shared.servers.lock().unwrap() = servers.to_vec();
    }

    /// The next request that is held.
    pub async fn held(&mut self) -> Held {
        within(self.held.recv()).await.unwrap()
    }

    /// All commands so far, in order, whatever happened to them; then forgets them.
    pub fn take_seen(&self) -> Vec<Command> {
        std::mem::take(&mut *self.shared.seen.lock().unwrap())
    }

    /// As [`take_seen`](Self::take_seen), the names only.
    pub fn take_names(&self) -> Vec<String> {
        self.take_seen().iter().map(Command::name).collect()
    }

    /// As [`take_seen`](Self::take_seen), without acquires that were sent again because their
    /// answer was late.
    pub fn take_calls(&self) -> Vec<Command> {
        let mut calls: Vec<Command> = Vec::new();
        for command in self.take_seen() {
            if !calls.iter().any(|call| command.repeats(call)) {
                calls.push(command);
            }
        }
        calls
    }

    /// As [`take_calls`](Self::take_calls), the names only.
    pub fn take_call_names(&self) -> Vec<String> {
        self.take_calls().iter().map(Command::name).collect()
    }
}

/// Waits for an event that must happen; if it does not, the test fails.
async fn within<T>(event: impl Future<Output = T>) -> T {
    let waiting = timeout(Duration::from_secs(120), event);
    waiting.await.expect("a request")
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new(); // ends them with this task
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        if shared.refuses.load(Ordering::SeqCst) {
            continue;
        }
        client.set_nodelay(true).unwrap();
        let number = shared.accepted.fetch_add(1, Ordering::SeqCst) + 1;
        let shared = Arc::clone(&shared);
        let mut frozen = shared.frozen.subscribe();
        connections.spawn(async move {
            let is_frozen = tokio::select! {
                () = forward(&mut client, shared) => false,
                result = frozen.wait_for(|&frozen| number <= frozen) => result.is_ok(),
            };
            if is_frozen {
                pending::<()>().await; // the client's end stays open
            }
        });
    }
}

/// `None` if the connection is lost.
async fn ask(server: &mut TcpStream, request: &[u8], answer: &mut Vec<u8>) -> Option<()> {
    server.write_all(request).await.ok()?;
    answer.clear();
    while answer_end(answer, 0).is_none() {
        match server.read_buf(answer).await {
            Ok(1..) => {}
            _ => return None,
        }
    }
    Some(())
}

/// One command at a time: the next one goes to the server when this one's answer is there.
async fn forward(client: &mut TcpStream, shared: Arc<Shared>) {
    let ports = shared.servers.lock().unwrap().clone();
    let mut servers = Vec::new();
    for port in ports {
        let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
            return; // the client sees its connection closed
        };
        server.set_nodelay(true).unwrap();
        servers.push(server);
    }
    let (mut requests, mut answer) = (Vec::new(), Vec::new());
    loop {
        while let Some((command, length)) = parse(&requests) {
            requests.drain(..length);
            shared.seen.lock().unwrap().push(command.clone());
            let fate = shared.fate_of(&command);
            let (command, tell) = match fate {
                Some(Fate::CutBeforeServer) => return,
                Some(Fate::Held) => match shared.hold(command).await {
                    Some((command, tell)) => (command, Some(tell)),
                    None => return, // nobody will let it through
                },
                Some(
                    Fate::CutBeforeAnswer | Fate::CutWithinAnswer | Fate::Garbled | Fate::Twice,
                )
                | None => (command, None),
            };
            let place = command.place_of_key(servers.len());
            let server = &mut servers[place];
            let request = command.wire_form();
            if ask(server, &request, &mut answer).await.is_none() {
                return;
            }
            if fate == Some(Fate::Twice) && ask(server, &request, &mut Vec::new()).await.is_none() {
                return;
            }
            if fate == Some(Fate::CutBeforeAnswer) {
                return;
            }
            if fate == Some(Fate::CutWithinAnswer) {
                let _ = client.write_all(&answer[..answer.len() / 2]).await; // it may be gone too
                return;
            }
            if fate == Some(Fate::Garbled) {
                answer = b"HTTP/1.1 503 Service Unavailable\r\n\r\n".to_vec();
            }
            let forwarded = client.write_all(&answer).await;
            if let Some(tell) = tell {
                let _ = tell.send(()); // who let it through may not wait for this
            }
            if forwarded.is_err() {
                return;
            }
        }
        answer.clear();
        // The first direction that ends closes both.
        tokio::select! {
            read = client.read_buf(&mut requests) => match read {
                Ok(1..) => {}
                _ => return,
            },
            _ = servers[0].read_buf(&mut answer) => return,
        }
    }
}

impl Shared {
    /// Shows a command to the test, and waits until it goes on, perhaps changed, with whom to tell
    /// of its answer.
    async fn hold(&self, command: Command) -> Option<(Command, oneshot::Sender<()>)> {
        let (let_through, may_pass) = oneshot::channel();
        let (tell, answered) = oneshot::channel();
        let held = Held {
            command,
            let_through,
            answered,
        };
        self.held.send(held).ok()?;
        Some((may_pass.await.ok()?, tell))
    }

    fn fate_of(&self, command: &Command) -> Option<Fate> {
        let mut fates = self.fates.lock().unwrap();
        // Over a slow connection a script's text may take the place of its hash.
        let is_call = |name: &str| name == "EVALSHA" && command.has_text();
        let place = fates
            .iter()
            .position(|(name, _)| *name == command.name() || is_call(name))?;
        fates.remove(place).map(|(_, fate)| fate)
    }
}
