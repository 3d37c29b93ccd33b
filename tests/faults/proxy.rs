//! A proxy before the server on which a [`Plan`] decides what happens to each request.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Duration, sleep};

use crate::fault::{Fault, Plan};
use crate::resp::{answer_end, parse};

/// Listens on a free port and passes on what comes, as long as it lives.
pub struct FaultProxy {
    port: u16,
    /// How many requests are still to be delivered over other connections.
    under_way: watch::Receiver<usize>,
    accepting: JoinHandle<()>,
}

struct Shared {
    server: u16,
    plan: Arc<Plan>,
    under_way: watch::Sender<usize>,
}

impl FaultProxy {
    pub async fn to(server: u16, plan: &Arc<Plan>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, under_way) = watch::channel(0);
        let shared = Arc::new(Shared {
            server,
            plan: Arc::clone(plan),
            under_way: sender,
        });
        Self {
            port,
            under_way,
            accepting: tokio::spawn(accept(listener, shared)),
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Waits until all requests that are held have been delivered.
    pub async fn settled(&mut self) {
        let settled = self.under_way.wait_for(|&count| count == 0).await;
        settled.expect("the proxy lives");
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new(); // ends them with this task
    loop {
        let (client, _) = listener.accept().await.unwrap();
        client.set_nodelay(true).unwrap();
        while connections.try_join_next().is_some() {}
        connections.spawn(pass_on(client, Arc::clone(&shared)));
    }
}

/// What is still to be done about an answer.
struct Expected {
    fault: Option<Fault>,
    /// Until the server has run it.
    _held: Option<Held>,
}

/// Ends when the connection does.
async fn pass_on(mut client: TcpStream, shared: Arc<Shared>) -> Option<()> {
    let mut server = shared.connect().await?;
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    let mut expected = VecDeque::new();
    loop {
        while let Some((command, length)) = parse(&requests) {
            let request: Vec<u8> = requests.drain(..length).collect();
            let fault = shared.plan.fault_of(&command);
            let mut held = None;
            match fault {
                Some(Fault::ResetBeforeServer) => return reset(&client),
                Some(Fault::FrozenBeforeServer) => {
                    run_out(server, answers, expected).await;
                    return frozen(client).await;
                }
                Some(Fault::RequestLate(time)) => {
                    shared.deliver_later(request, time);
                    return None;
                }
                Some(Fault::ReplayedLate(time)) => shared.deliver_later(request.clone(), time),
                Some(Fault::ReplayedAtOnce) => shared.deliver(&request).await,
                Some(Fault::RequestDelayed(time)) => {
                    held = Some(shared.hold());
                    sleep(time).await;
                }
                _ => {}
            }
            server.write_all(&request).await.ok()?;
            expected.push_back(Expected { fault, _held: held });
        }
        while let Some(end) = answer_end(&answers, 0).filter(|_| !answers.is_empty()) {
            let answer: Vec<u8> = answers.drain(..end).collect();
            let Expected { fault, .. } = expected.pop_front().expect("an answer to a request");
            match fault {
                Some(Fault::AnswerDropped) => return None,
                Some(Fault::ResetAfterServer) => return reset(&client),
                Some(Fault::FrozenAfterServer) => {
                    run_out(server, answers, expected).await;
                    return frozen(client).await;
                }
                Some(Fault::AnswerDelayed(time)) => sleep(time).await,
                Some(Fault::AnswerTorn) => {
                    client.write_all(&answer[..end / 2]).await.ok()?;
                    return None;
                }
                Some(Fault::AnswerTornDelayed(time)) => {
                    client.write_all(&answer[..end / 2]).await.ok()?;
                    sleep(time).await;
                    client.write_all(&answer[end / 2..]).await.ok()?;
                    continue;
                }
                _ => {}
            }
            client.write_all(&answer).await.ok()?;
        }
        tokio::select! {
                   read = client.read_buf(&mut requests) => if !matches!(read, Ok(1..)) {
                       run_out(server, answers, expected).await;
        return None;
                   },
                   read = server.read_buf(&mut answers) => {
                       read.ok().filter(|&length| length > 0)?;
                   }
               }
    }
}

/// Nothing passes any more; the server runs what it has been sent all the same.
async fn run_out(
    mut server: TcpStream,
    mut answers: Vec<u8>,
    mut expected: VecDeque<Expected>,
) -> Option<()> {
    loop {
        while let Some(end) = answer_end(&answers, 0).filter(|_| !answers.is_empty()) {
            answers.drain(..end);
            expected.pop_front();
        }
        if expected.is_empty() || server.read_buf(&mut answers).await.ok()? == 0 {
            return None;
        }
    }
}

/// The client's end stays open.
async fn frozen(_client: TcpStream) -> Option<()> {
    pending().await
}

/// The client's next read fails instead of finding the end.
fn reset(client: &TcpStream) -> Option<()> {
    client.set_zero_linger().ok()
}

impl Shared {
    async fn connect(&self) -> Option<TcpStream> {
        let server = TcpStream::connect(("127.0.0.1", self.server)).await.ok()?;
        server.set_nodelay(true).ok()?;
        Some(server)
    }

    /// Counts a request that the server has yet to get, until this is dropped.
    fn hold(self: &Arc<Self>) -> Held {
        self.under_way.send_modify(|count| *count += 1);
        Held(Arc::clone(self))
    }

    fn deliver_later(self: &Arc<Self>, request: Vec<u8>, time: Duration) {
        let held = self.hold();
        tokio::spawn(async move {
            sleep(time).await;
            held.0.deliver(&request).await;
        });
    }

    /// Sends a request over a connection of its own and waits until it has run.
    async fn deliver(&self, request: &[u8]) {
        let mut server = self.connect().await.expect("the server takes connections");
        server.write_all(request).await.expect("the server reads");
        let mut answer = Vec::new();
        while answer.is_empty() || answer_end(&answer, 0).is_none() {
            let read = server.read_buf(&mut answer).await;
            assert!(read.expect("the server answers") > 0);
        }
    }
}

struct Held(Arc<Shared>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}
