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

/// Listens on a free port and forwards what arrives, until it is dropped.
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
    pub async fn all_delivered(&mut self) {
        let delivered = self.under_way.wait_for(|&count| count == 0).await;
        delivered.expect("the proxy lives");
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
        connections.spawn(forward(client, Arc::clone(&shared)));
    }
}

/// What is still to be done about an answer.
struct Expected {
    fault: Option<Fault>,
    /// Held until the server has run the request.
    _held: Held,
}

/// How the client's connection ends.
enum End {
    Closed,
    /// Its next read fails instead of finding the end.
    Reset,
    /// It stays open.
    Frozen,
}

/// Ends when the connection does, and the server has run all that it was sent.
async fn forward(mut client: TcpStream, shared: Arc<Shared>) {
    let Some(mut server) = shared.connect().await else {
        return;
    };
    let mut state = Passing::default();
    match state.relay(&mut client, &mut server, &shared).await {
        End::Closed => drop(client),
        End::Reset => {
            let _ = client.set_zero_linger();
            drop(client);
        }
        End::Frozen => {
            state.run_out(server).await;
            pending::<()>().await;
            return;
        }
    }
    state.run_out(server).await;
}

/// What has come in over a connection and is not forwarded yet.
#[derive(Default)]
struct Passing {
    requests: Vec<u8>,
    answers: Vec<u8>,
    expected: VecDeque<Expected>,
}

impl Passing {
    async fn relay(
        &mut self,
        client: &mut TcpStream,
        server: &mut TcpStream,
        shared: &Arc<Shared>,
    ) -> End {
        loop {
            while let Some((command, length)) = parse(&self.requests) {
                let request: Vec<u8> = self.requests.drain(..length).collect();
                let fault = shared.plan.fault_of(&command);
                let held = shared.hold();
                match fault {
                    Some(Fault::ResetBeforeServer) => return End::Reset,
                    Some(Fault::FrozenBeforeServer) => return End::Frozen,
                    Some(Fault::RequestLate(time)) => {
                        shared.deliver_later(request, time);
                        return End::Closed;
                    }
                    Some(Fault::ReplayedLate(time)) => shared.deliver_later(request.clone(), time),
                    Some(Fault::ReplayedAtOnce) => shared.deliver(&request).await,
                    Some(Fault::RequestDelayed(time)) => sleep(time).await,
                    _ => {}
                }
                if server.write_all(&request).await.is_err() {
                    return End::Closed;
                }
                self.expected.push_back(Expected { fault, _held: held });
            }
            while let Some((answer, fault)) = self.next_answer() {
                let half = answer.len() / 2;
                let forwarded = match fault {
                    Some(Fault::AnswerDropped) => return End::Closed,
                    Some(Fault::ResetAfterServer) => return End::Reset,
                    Some(Fault::FrozenAfterServer) => return End::Frozen,
                    Some(Fault::AnswerTorn) => {
                        let _ = client.write_all(&answer[..half]).await;
                        return End::Closed;
                    }
                    Some(Fault::AnswerTornDelayed(time)) => {
                        match client.write_all(&answer[..half]).await {
                            Ok(()) => {
                                sleep(time).await;
                                client.write_all(&answer[half..]).await
                            }
                            failed => failed,
                        }
                    }
                    Some(Fault::AnswerDelayed(time)) => {
                        sleep(time).await;
                        client.write_all(&answer).await
                    }
                    _ => client.write_all(&answer).await,
                };
                if forwarded.is_err() {
                    return End::Closed;
                }
            }
            let read = tokio::select! {
                read = client.read_buf(&mut self.requests) => read,
                read = server.read_buf(&mut self.answers) => read,
            };
            if !matches!(read, Ok(1..)) {
                return End::Closed;
            }
        }
    }

    fn next_answer(&mut self) -> Option<(Vec<u8>, Option<Fault>)> {
        let end = answer_end(&self.answers, 0).filter(|_| !self.answers.is_empty())?;
        let expected = self.expected.pop_front().expect("an answer to a request");
        Some((self.answers.drain(..end).collect(), expected.fault))
    }

    /// Nothing is forwarded any more; the server runs what it has been sent all the same.
    async fn run_out(mut self, mut server: TcpStream) {
        while !self.expected.is_empty() {
            if self.next_answer().is_none()
                && !matches!(server.read_buf(&mut self.answers).await, Ok(1..))
            {
                return;
            }
        }
    }
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
