//! One open connection: it sends commands, and notices when it is no longer usable.
//!
//! It is retired when the server closes it, when calls wait and nothing arrives for longer than an
//! answer takes, or when the server says that another server must be asked. A retired connection
//! gets no further command. A call that may be repeated leaves it; any other call waits for its
//! answer there, because a slow server still sends it.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::socket2::Socket;
use redis::{
    AsyncConnectionConfig, Cmd, Pipeline, ProtocolVersion, PushInfo, RedisConnectionInfo,
    RedisError, Value,
};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::credentials::Credentials;
use super::failure::{self, Failure, closed, timed_out};
use super::given::{Cloned, Given};
use super::known_scripts::KnownScripts;
use super::limits::{Limits, Repeat};
use super::one_server::OneServer;
use super::request::Outgoing;
use super::round_trip::RoundTrip;
use super::settings::OnPush;
use super::traffic::Traffic;
use super::transport::Transport;

/// A connection that was used this recently is assumed to be alive.
const FRESH: Duration = Duration::from_millis(5);
/// The silence limit is checked this often while it passes: a process that was stopped for a while
/// must see the silence go on before it retires the connection.
const CHECKS: u32 = 4;

/// Why a connection gets no further command.
#[derive(Debug, Clone)]
pub(super) enum Retired {
    Closed,
    Silent(Duration),
    Refused(RedisError),
}

impl fmt::Display for Retired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(f, "the connection was closed"),
            Self::Silent(limit) => write!(f, "no answer came for {limit:?}"),
            Self::Refused(error) => write!(f, "the server answered: {error}"),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    retired: OnceLock<Retired>,
    /// Nothing is read or written any more.
    has_ended: AtomicBool,
    retirement: Notify,
}

impl State {
    fn retire(&self, reason: Retired) {
        if self.retired.set(reason).is_ok() {
            self.retirement.notify_one();
        }
    }
}

pub(super) struct Open {
    connection: MultiplexedConnection,
    socket: Socket,
    is_tls: bool,
    traffic: Arc<Traffic>,
    state: Arc<State>,
    driver: AbortHandle,
    pub(super) one_server: Arc<OneServer>,
    pub(super) scripts: KnownScripts,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Ends the task that reads and writes.
struct DriverGuard(Arc<State>);

impl Drop for DriverGuard {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
        self.0.retire(Retired::Closed);
    }
}

impl Open {
    /// Starts to read and write. Nothing is sent yet, unless it is for messages: then redis-rs logs
    /// in with these credentials.
    pub(super) async fn start(
        transport: Transport,
        traffic: Arc<Traffic>,
        messages: Option<(&OnPush, Option<&Credentials>)>,
    ) -> Result<Self, RedisError> {
        // Without a login, a database or a library name, redis-rs sends nothing by itself.
        let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
        let mut config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(None);
        if let Some((OnPush(on_push), credentials)) = messages {
            info = info.set_protocol(ProtocolVersion::RESP3);
            if let Some(credentials) = credentials {
                let username = credentials.username.as_deref();
                info = info.set_username(username.unwrap_or("default"));
                info = info.set_password(&credentials.password);
            }
            let on_push = Arc::clone(on_push);
            let push = move |info: PushInfo| {
                on_push(info);
                Ok::<_, Infallible>(())
            };
            config = config.set_push_sender(push);
        }
        let opened = MultiplexedConnection::new_with_config(&info, transport.stream, config);
        let (connection, driver) = opened.await?;
        let state = Arc::<State>::default();
        let guard = DriverGuard(Arc::clone(&state));
        let driver = tokio::spawn(async move {
            let _guard = guard;
            driver.await;
        });
        Ok(Self {
            connection,
            socket: transport.socket,
            is_tls: transport.is_tls,
            traffic,
            state,
            driver: driver.abort_handle(),
            one_server: Arc::default(),
            scripts: KnownScripts::default(),
        })
    }

    /// Whether one server is known to have all keys; `key` is one of them.
    pub(super) fn is_one_server(&self, key: &str) -> bool {
        let connection = || Arc::new(Cloned(self.connection.clone())) as Arc<dyn Given>;
        self.one_server.has_all_keys(key, connection)
    }

    /// Sends a command, without a time limit.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, RedisError> {
        let mut connection = self.connection.clone();
        let answer = connection.send_packed_command(command).await?;
        failure::extract_error(answer)
    }

    /// Sends several commands, without a time limit. Each has an answer of its own, which may be an
    /// error.
    pub(super) async fn ask_all(&self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let mut connection = self.connection.clone();
        connection
            .send_packed_commands(commands, 0, commands.len())
            .await
    }

    pub(super) fn is_retired(&self) -> bool {
        self.state.retired.get().is_some()
    }

    fn retire(&self, reason: Retired) {
        self.state.retire(reason);
    }

    /// Waits until the connection is retired.
    pub(super) async fn retirement(&self) -> Retired {
        loop {
            if let Some(reason) = self.state.retired.get() {
                return reason.clone();
            }
            self.state.retirement.notified().await;
        }
    }

    /// Whether a command may be sent: retires a connection that was closed or fell silent
    /// unnoticed.
    pub(super) fn is_usable(&self, round_trip: &RoundTrip) -> bool {
        if !self.is_retired() && self.traffic.idle() >= FRESH {
            let limit = round_trip.silence_limit();
            match self.peek() {
                Peek::Closed => self.retire(Retired::Closed),
                Peek::Silent if self.traffic.silence() >= limit => {
                    self.retire(Retired::Silent(limit));
                }
                Peek::Silent | Peek::Data => {}
            }
        }
        !self.is_retired()
    }

    /// Whether there is unread data that only TLS can interpret, such as the end of the session, on
    /// a runtime that has not polled for a while.
    pub(super) fn has_unread(&self) -> bool {
        self.is_tls && self.traffic.idle() >= FRESH && matches!(self.peek(), Peek::Data)
    }

    /// What the operating system has received for a runtime that has not polled for a while.
    fn peek(&self) -> Peek {
        match self.socket.peek(&mut [MaybeUninit::uninit()]) {
            Ok(0) => Peek::Closed,
            Ok(_) => Peek::Data,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Peek::Silent,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Peek::Silent,
            Err(_) => Peek::Closed,
        }
    }

    /// Sends a command and waits for its answer until the deadline.
    pub(super) async fn call(
        &self,
        request: Outgoing<'_>,
        limits: Limits,
        round_trip: &RoundTrip,
    ) -> Result<Value, Failure> {
        let start = Instant::now();
        let (writes, mut reads) = (self.traffic.writes(), self.traffic.reads());
        self.traffic.expect_answer();
        let mut connection = self.connection.clone();
        let answer = request.send(&mut connection);
        tokio::pin!(answer);
        let limit = round_trip.silence_limit();
        let timer = sleep_until(limits.deadline.min(start + limit / CHECKS));
        tokio::pin!(timer);
        let mut silent_checks = 0;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => {
                    let answer = answer.and_then(failure::extract_error);
                    let answer = answer.map_err(|error| self.failure(error, writes));
                    if failure::is_answered(&answer) {
                        round_trip.learn(start.elapsed());
                    }
                    return answer;
                }
                () = &mut timer => {}
            }
            let now = Instant::now();
            if self.state.has_ended.load(Ordering::Acquire) {
                // redis-rs may lose a command that arrives while the connection ends.
                return Err(self.failure(closed(), writes));
            }
            if self.traffic.reads() == reads {
                silent_checks += 1;
            } else {
                (reads, silent_checks) = (self.traffic.reads(), 0);
                self.traffic.expect_answer();
            }
            let silence = self.traffic.silence();
            let is_last = now >= limits.deadline;
            if silent_checks >= 2 && (silence >= limit || is_last) {
                self.retire(Retired::Silent(silence));
            }
            if is_last {
                return Err(Failure::Lost(None));
            }
            if limits.repeat == Repeat::Safe && self.is_retired() {
                return Err(Failure::Lost(Some(timed_out())));
            }
            let check = now + limit / CHECKS;
            timer.as_mut().reset(limits.deadline.min(check));
        }
    }

    fn failure(&self, error: RedisError, writes: u64) -> Failure {
        if failure::wants_another_connection(&error) {
            self.retire(Retired::Refused(error.clone()));
            return Failure::NotRun(error);
        }
        match Failure::from(error) {
            // The connection has ended, so what it has not written by now is never written.
            Failure::Lost(Some(error)) if self.traffic.writes() == writes => {
                Failure::NotSent(error)
            }
            other => other,
        }
    }
}

enum Peek {
    Closed,
    Silent,
    Data,
}

#[cfg(test)]
pub(super) mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use redis::cmd;
    use redis::io::tcp::socket2::{Domain, Type};
    use tokio::io::{AsyncWrite, AsyncWriteExt, DuplexStream, duplex, join, sink};
    use tokio::task::yield_now;
    use tokio::time::advance;

    use super::super::traffic::Counted;
    use super::*;

    /// Accepts nothing, like a socket whose send buffer is full, and reports it.
    struct Full(Arc<Notify>);

    impl AsyncWrite for Full {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.notify_one();
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// An open connection, and the server's side of what is read from it.
    async fn open(writer: impl AsyncWrite + Send + Unpin + 'static) -> (Open, DuplexStream) {
        let (reader, server) = duplex(1);
        let traffic = Arc::new(Traffic::new());
        let transport = Transport {
            stream: Box::new(Counted {
                stream: join(reader, writer),
                traffic: Arc::clone(&traffic),
            }),
            socket: Socket::new(Domain::IPV4, Type::STREAM, None).unwrap(),
            is_tls: false,
        };
        (Open::start(transport, traffic, None).await.unwrap(), server)
    }

    /// The same over a stream of the test's own, in both directions.
    pub(in crate::link) async fn open_over() -> (Open, DuplexStream) {
        let (client, server) = duplex(4096);
        let traffic = Arc::new(Traffic::new());
        let transport = Transport {
            stream: Box::new(Counted {
                stream: client,
                traffic: Arc::clone(&traffic),
            }),
            socket: Socket::new(Domain::IPV4, Type::STREAM, None).unwrap(),
            is_tls: false,
        };
        (Open::start(transport, traffic, None).await.unwrap(), server)
    }

    /// Why a call fails.
    async fn failure_of_a_call(open: &Open, limits: Limits) -> Failure {
        let command = cmd("INCR").arg("key").take();
        let request = Outgoing {
            command: &command,
            asking: false,
        };
        let round_trip = RoundTrip::default();
        open.call(request, limits, &round_trip).await.unwrap_err()
    }

    /// The same if the connection ends once `is_under_way` holds for the call.
    async fn failure_at_the_end(
        writer: impl AsyncWrite + Send + Unpin + 'static,
        is_under_way: impl AsyncFn(&Traffic),
    ) -> Failure {
        let (open, server) = open(writer).await;
        let call = failure_of_a_call(&open, Limits::for_test());
        let (failure, ()) = tokio::join!(call, async {
            is_under_way(&open.traffic).await;
            drop(server);
        });
        failure
    }

    #[tokio::test]
    async fn a_command_of_which_nothing_was_written_was_not_sent() {
        let tried = Arc::<Notify>::default();
        let writer = Full(Arc::clone(&tried));
        let failure = failure_at_the_end(writer, async |_| tried.notified().await).await;
        assert!(matches!(failure, Failure::NotSent(_)), "{failure:?}");
    }

    #[tokio::test]
    async fn a_command_that_was_written_may_have_run() {
        let written = async |traffic: &Traffic| {
            while traffic.writes() == 0 {
                yield_now().await;
            }
        };
        let failure = failure_at_the_end(sink(), written).await;
        assert!(matches!(failure, Failure::Lost(Some(_))), "{failure:?}");
    }

    /// The first time at which a call looks at its connection.
    fn first_check() -> Duration {
        RoundTrip::default().silence_limit() / CHECKS
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_redis_rs_lost_while_the_connection_ended_ends_too() {
        let (open, _server) = open(sink()).await;
        open.state.has_ended.store(true, Ordering::Release);
        let start = Instant::now();
        let failure = failure_of_a_call(&open, Limits::for_test()).await;
        assert!(matches!(failure, Failure::Lost(Some(_))), "{failure:?}");
        assert_eq!(start.elapsed(), first_check());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_stood_still_keeps_its_connection() {
        let (open, mut server) = open(sink()).await;
        let command = cmd("INCR").arg("key").take();
        let request = Outgoing {
            command: &command,
            asking: false,
        };
        let round_trip = RoundTrip::default();
        let limits = Limits::new(Instant::now() + Duration::from_secs(60), Repeat::Safe);
        let (answer, ()) = tokio::join!(open.call(request, limits, &round_trip), async {
            advance(round_trip.silence_limit() * 2).await;
            server.write_all(b":1\r\n").await.unwrap();
        });
        assert_eq!(answer.unwrap(), Value::Int(1));
        assert!(!open.is_retired());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_repeatable_call_leaves_a_retired_connection() {
        let minute = Duration::from_secs(60);
        for (repeat, ends) in [(Repeat::Safe, first_check()), (Repeat::Never, minute)] {
            let (open, _server) = open(sink()).await;
            open.retire(Retired::Silent(minute));
            let start = Instant::now();
            let failure = failure_of_a_call(&open, Limits::new(start + minute, repeat)).await;
            assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
            assert_eq!(start.elapsed(), ends, "{repeat:?}");
        }
    }
}
