//! One open connection: it sends commands, and notices when it is no longer usable.
//!
//! It is retired when the server closes it, when calls wait and nothing arrives for longer than an
//! answer takes, or when the server says that another server must be asked. A retired connection
//! gets no further command. A call that may be repeated leaves one that was closed or is silent;
//! any other call waits for its answer there, because a slow server still sends it.
//!
//! Whether anything arrives is checked by one task, however many calls wait: so they take no time
//! from reading on a machine that is too busy. It is not the task that reads, which may be held up
//! by a thread that blocks: then another connection serves the calls.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
use super::known_scripts::KnownScripts;
use super::limits::{Limits, Repeat};
use super::one_server::OneServer;
use super::request::{Outgoing, Sender};
use super::round_trip::RoundTrip;
use super::settings::OnPush;
use super::supplied::SendsCommands;
use super::traffic::Traffic;
use super::transport::Transport;
use super::unanswered::Unanswered;

/// A connection that was used this recently is assumed to be alive.
const FRESH: Duration = Duration::from_millis(5);
/// The silence limit has passed after this many checks in a row that found nothing new: a process
/// that was stopped for a while must see the silence go on before it retires the connection.
const CHECKS: u32 = 4;
/// After this many silent checks, a call that ends without an answer retires the connection too.
const SILENT_AT_DEADLINE: u32 = 2;

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
    /// No answer is expected any more.
    is_given_up: AtomicBool,
    /// Nothing is read or written any more.
    has_ended: AtomicBool,
    /// Notified when any of the fields above changes.
    changed: Notify,
    unanswered: Arc<Unanswered>,
    /// How many checks in a row have found nothing new.
    silent_checks: AtomicU32,
}

impl State {
    fn retire(&self, reason: Retired) {
        // A server that refuses a command still answers the others.
        if !matches!(reason, Retired::Refused(_)) {
            self.is_given_up.store(true, Ordering::Release);
        }
        let _ = self.retired.set(reason); // unless it was retired before
        self.changed.notify_waiters();
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.retire(Retired::Closed);
    }

    /// Waits until `get` returns a value.
    async fn until<T>(&self, get: impl Fn(&Self) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(value) = get(self) {
                return value;
            }
            changed.await;
        }
    }

    /// Retires the connection when an answer is expected and nothing arrives.
    async fn watch(&self, traffic: &Traffic, round_trip: &RoundTrip) {
        // A caller may have given up because of the silence, so a silent connection is watched on.
        let is_expected = || self.unanswered.is_any() || traffic.silence().is_some();
        loop {
            self.unanswered.first().await;
            let (mut reads, mut silent_checks) = (traffic.reads(), 0);
            self.silent_checks.store(0, Ordering::Relaxed);
            while is_expected() {
                let limit = round_trip.silence_limit();
                let pause = limit / CHECKS;
                let due = Instant::now() + pause;
                sleep_until(due).await;
                let now = traffic.reads();
                if now != reads {
                    (reads, silent_checks) = (now, 0);
                } else if due.elapsed() <= pause {
                    silent_checks += 1; // later, what has arrived may not have been read yet
                }
                self.silent_checks.store(silent_checks, Ordering::Relaxed);
                if silent_checks >= CHECKS && is_expected() {
                    return self.retire(Retired::Silent(limit));
                }
            }
        }
    }
}

pub(super) struct Open {
    sender: Sender,
    /// `None` for a supplied connection, which is never retired.
    socket: Option<Socket>,
    is_tls: bool,
    traffic: Arc<Traffic>,
    round_trip: Arc<RoundTrip>,
    state: Arc<State>,
    tasks: Vec<AbortHandle>,
    pub(super) one_server: Arc<OneServer>,
    pub(super) scripts: KnownScripts,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Ends the task that reads and writes.
struct DriverGuard(Arc<State>);

impl Drop for DriverGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Open {
    /// Starts to read and write. Nothing is sent yet, unless it is for messages: then redis-rs logs
    /// in with these credentials.
    pub(super) async fn start(
        transport: Transport,
        traffic: Arc<Traffic>,
        round_trip: &Arc<RoundTrip>,
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
        let (watched, counted, pace) = (state.clone(), traffic.clone(), Arc::clone(round_trip));
        let watch = tokio::spawn(async move { watched.watch(&counted, &pace).await });
        Ok(Self {
            sender: Sender::Own(connection),
            socket: Some(transport.socket),
            is_tls: transport.is_tls,
            traffic,
            round_trip: Arc::clone(round_trip),
            state,
            tasks: vec![driver.abort_handle(), watch.abort_handle()],
            one_server: Arc::default(),
            scripts: KnownScripts::default(),
        })
    }

    /// A connection that the application supplies, which is always open.
    pub(super) fn supplied(
        connection: Arc<dyn SendsCommands>,
        round_trip: &Arc<RoundTrip>,
    ) -> Self {
        Self {
            sender: Sender::Supplied(connection),
            socket: None,
            is_tls: false,
            traffic: Arc::new(Traffic::new()),
            round_trip: Arc::clone(round_trip),
            state: Arc::default(),
            tasks: Vec::new(),
            one_server: Arc::default(),
            scripts: KnownScripts::default(),
        }
    }

    /// Whether one server is known to have all keys; `key` is one of them.
    pub(super) fn is_one_server(&self, key: &str) -> bool {
        self.one_server.has_all_keys(key, || self.sender.shared())
    }

    /// Sends a command, without a time limit.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value, RedisError> {
        let request = Outgoing {
            command,
            asking: false,
        };
        failure::extract_error(request.send(&self.sender).await?)
    }

    /// Sends several commands, without a time limit. Each has an answer of its own, which may be an
    /// error.
    pub(super) async fn ask_all(&self, commands: &Pipeline) -> Result<Vec<Value>, RedisError> {
        self.sender.send_all(commands).await
    }

    pub(super) fn is_retired(&self) -> bool {
        self.state.retired.get().is_some()
    }

    fn retire(&self, reason: Retired) {
        self.state.retire(reason);
    }

    /// Waits until the connection is retired.
    pub(super) async fn retirement(&self) -> Retired {
        self.state.until(|it| it.retired.get().cloned()).await
    }

    /// Whether a command may be sent: retires a connection that was closed or fell silent
    /// unnoticed.
    pub(super) fn is_usable(&self) -> bool {
        if !self.is_retired() && self.traffic.idle() >= FRESH {
            let limit = self.round_trip.silence_limit();
            match self.peek() {
                Peek::Closed => self.retire(Retired::Closed),
                Peek::Silent if self.traffic.silence() >= Some(limit) => {
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
        let Some(socket) = &self.socket else {
            return Peek::Data;
        };
        match socket.peek(&mut [MaybeUninit::uninit()]) {
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
    ) -> Result<Value, Failure> {
        let (start, writes) = (Instant::now(), self.traffic.writes());
        let sending = pin!(request.send(&self.sender));
        // Whether the connection has ended; `None` while the call waits on.
        let has_left = |state: &State| {
            let has_ended = state.has_ended.load(Ordering::Acquire);
            let is_left =
                limits.repeat == Repeat::Safe && state.is_given_up.load(Ordering::Acquire);
            (has_ended || is_left).then_some(has_ended)
        };
        tokio::select! {
            biased;
            answer = self.state.unanswered.wait_for(sending) => {
                let answer = answer.and_then(failure::extract_error);
                let answer = answer.map_err(|error| self.failure(error, writes));
                if failure::is_answered(&answer) {
                    self.round_trip.learn(start.elapsed());
                }
                answer
            }
            has_ended = self.state.until(has_left) => Err(match has_ended {
                // redis-rs may lose a command that arrives while the connection ends.
                true => self.failure(closed(), writes),
                false => Failure::Lost(Some(timed_out())),
            }),
            () = sleep_until(limits.deadline) => {
                let silent_checks = self.state.silent_checks.load(Ordering::Relaxed);
                if silent_checks >= SILENT_AT_DEADLINE {
                    self.retire(Retired::Silent(start.elapsed()));
                }
                Err(Failure::Lost(None))
            }
        }
    }

    fn failure(&self, error: RedisError, writes: u64) -> Failure {
        if self.socket.is_none() {
            return Failure::from(error);
        }
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
    use std::future::poll_fn;
    use std::net::{TcpListener, TcpStream};
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use redis::cmd;
    use redis::io::tcp::socket2::{Domain, Type};
    use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, duplex, join, sink};
    use tokio::task::yield_now;
    use tokio::time::{advance, sleep};

    use super::super::traffic::Counted;
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

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
        (open_by(join(reader, writer), unconnected()).await, server)
    }

    /// An open connection over a stream, and the server's side of the stream.
    pub(in crate::link) async fn open_over() -> (Open, DuplexStream) {
        let (client, server) = duplex(4096);
        (open_by(client, unconnected()).await, server)
    }

    fn unconnected() -> Socket {
        Socket::new(Domain::IPV4, Type::STREAM, None).unwrap()
    }

    async fn open_by(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        socket: Socket,
    ) -> Open {
        let traffic = Arc::new(Traffic::new());
        let counted = Counted {
            stream,
            traffic: Arc::clone(&traffic),
        };
        let transport = Transport {
            stream: Box::new(counted),
            socket,
            is_tls: false,
        };
        let opened = Open::start(transport, traffic, &Arc::default(), None).await;
        opened.unwrap()
    }

    fn limits_of_a_minute(repeat: Repeat) -> Limits {
        Limits::new(Instant::now() + Duration::from_secs(60), repeat)
    }

    async fn a_call(open: &Open, limits: Limits) -> Result<Value, Failure> {
        let command = cmd("INCR").arg("key").take();
        let request = Outgoing {
            command: &command,
            asking: false,
        };
        open.call(request, limits).await
    }

    /// Why a call fails.
    async fn failure_of_a_call(open: &Open, limits: Limits) -> Failure {
        a_call(open, limits).await.unwrap_err()
    }

    /// Why a call fails if the connection ends when `is_under_way` returns.
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

    /// How long a connection of which nothing is known may be silent.
    fn silence_limit() -> Duration {
        RoundTrip::default().silence_limit()
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_redis_rs_lost_while_the_connection_ended_ends_too() {
        let (open, _server) = open(sink()).await;
        let start = Instant::now();
        let call = failure_of_a_call(&open, Limits::for_test());
        let (failure, ()) = tokio::join!(call, async {
            sleep(ms(1)).await;
            open.state.end();
        });
        assert!(matches!(failure, Failure::Lost(Some(_))), "{failure:?}");
        assert_eq!(start.elapsed(), ms(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_stood_still_keeps_its_connection() {
        let before_the_last_check = silence_limit() / 4 * 3 + ms(1);
        for waits_before in [Duration::ZERO, before_the_last_check] {
            let (open, mut server) = open(sink()).await;
            let limits = limits_of_a_minute(Repeat::Safe);
            let (answer, ()) = tokio::join!(a_call(&open, limits), async {
                sleep(waits_before).await;
                advance(silence_limit() * 2).await;
                server.write_all(b":1\r\n").await.unwrap();
            });
            assert_eq!(answer.unwrap(), Value::Int(1), "{waits_before:?}");
            assert!(!open.is_retired());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_repeatable_call_leaves_a_silent_connection() {
        let minute = Duration::from_secs(60);
        for (repeat, ends) in [(Repeat::Safe, silence_limit()), (Repeat::Never, minute)] {
            let (open, _server) = open(sink()).await;
            let start = Instant::now();
            let (failure, cause) = tokio::join!(
                failure_of_a_call(&open, Limits::new(start + minute, repeat)),
                async { (open.retirement().await, start.elapsed()) },
            );
            assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
            assert_eq!(start.elapsed(), ends, "{repeat:?}");
            assert!(matches!(cause.0, Retired::Silent(_)), "{cause:?}");
            assert_eq!(cause.1, silence_limit());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn calls_with_less_time_retire_a_silent_connection_too() {
        for (quarters, is_retired) in [(1, false), (3, true)] {
            let (open, _server) = open(sink()).await;
            let deadline = Instant::now() + silence_limit() / 4 * quarters + ms(1);
            let limits = Limits::new(deadline, Repeat::Never);
            let failure = failure_of_a_call(&open, limits).await;
            assert!(matches!(failure, Failure::Lost(None)), "{failure:?}");
            assert_eq!(open.is_retired(), is_retired);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_one_of_many_calls_is_not_silent() {
        let (open, mut server) = open(sink()).await;
        let limits = limits_of_a_minute(Repeat::Safe);
        let call = || a_call(&open, limits);
        let calls = async { tokio::join!(call(), call(), call()) };
        let answers = async {
            for answer in [b":1\r\n", b":2\r\n", b":3\r\n"] {
                sleep(silence_limit() / 5 * 4).await;
                server.write_all(answer).await.unwrap();
            }
        };
        let (answers, ()) = tokio::join!(calls, answers);
        let values = [answers.0, answers.1, answers.2].map(Result::unwrap);
        assert_eq!(values, [1, 2, 3].map(Value::Int));
    }

    /// The first of two calls is answered halfway to the limit. Its caller may not be polled then.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_answered_is_not_waited_for_though_nobody_polls_it() {
        for is_answered_too in [true, false] {
            let (open, mut server) = open(sink()).await;
            let limits = limits_of_a_minute(Repeat::Never);
            let mut calls = [0; 2].map(|_| Box::pin(a_call(&open, limits)));
            let mut context = Context::from_waker(Waker::noop());
            for call in &mut calls {
                assert!(call.as_mut().poll(&mut context).is_pending());
            }
            sleep(silence_limit() / 2).await;
            server.write_all(b":1\r\n").await.unwrap();
            if is_answered_too {
                server.write_all(b":2\r\n").await.unwrap();
            }
            sleep(silence_limit() * 3).await;
            assert_eq!(open.is_retired(), !is_answered_too);
            let [first, _second] = calls;
            assert_eq!(first.await.unwrap(), Value::Int(1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_refused_leaves_the_answers_to_others() {
        let (open, mut server) = open(sink()).await;
        let limits = limits_of_a_minute(Repeat::Safe);
        let (first, second, ()) = tokio::join!(
            failure_of_a_call(&open, limits),
            failure_of_a_call(&open, limits),
            async {
                for _ in 0..2 {
                    sleep(ms(1)).await;
                    server.write_all(b"-READONLY a replica\r\n").await.unwrap();
                }
            },
        );
        for failure in [first, second] {
            assert!(matches!(failure, Failure::NotRun(_)), "{failure:?}");
        }
        assert!(open.is_retired());
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeatable_call_leaves_a_connection_that_is_silent_after_a_refusal() {
        let (open, mut server) = open(sink()).await;
        let limits = limits_of_a_minute(Repeat::Safe);
        let start = Instant::now();
        let (_, failure, ()) = tokio::join!(
            failure_of_a_call(&open, limits),
            failure_of_a_call(&open, limits),
            async { server.write_all(b"-READONLY a replica\r\n").await.unwrap() },
        );
        assert!(matches!(failure, Failure::Lost(_)), "{failure:?}");
        assert!(start.elapsed() <= silence_limit() / 4 * 5);
    }

    /// Whether a connection to a server that is silent is used for another call, long after the
    /// runtime has sent the first one as far as `writer` takes it.
    async fn is_usable_later(writer: impl AsyncWrite + Send + Unpin + 'static) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let (reader, _server) = duplex(1);
        let open = open_by(join(reader, writer), socket.into()).await;
        let limits = limits_of_a_minute(Repeat::Safe);
        let mut call = pin!(failure_of_a_call(&open, limits));
        let mut context = Context::from_waker(Waker::noop());
        assert!(call.as_mut().poll(&mut context).is_pending());
        yield_now().await; // it is written
        advance(silence_limit() * 2).await;
        open.is_usable()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_written_yet_is_not_waited_for_in_vain() {
        assert!(is_usable_later(Full(Arc::default())).await);
        assert!(!is_usable_later(sink()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_is_woken_for_nothing_but_its_own_end() {
        let (open, _server) = open(sink()).await;
        let mut polls = 0;
        let limits = limits_of_a_minute(Repeat::Never);
        let mut call = pin!(failure_of_a_call(&open, limits));
        poll_fn(|cx| {
            polls += 1;
            call.as_mut().poll(cx)
        })
        .await;
        // At the start, when the connection is retired, and at the deadline.
        assert_eq!(polls, 3);
    }
}
