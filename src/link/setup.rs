//! Setting up a connection: the transport, the login, and what a call must know about it.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, ErrorKind, RedisError, Value, cmd, from_redis_value};
use tokio::time::{Instant, sleep, timeout};

use super::address::{Options, Server};
use super::credentials::Credentials;
use super::failure::{self, Failure, timed_out};
use super::open::Open;
use super::round_trip::RoundTrip;
use super::server_time;
use super::settings::Settings;
use super::traffic::Traffic;
use super::transport;

/// Opens a connection and logs in. Each step may be silent for `step`.
pub(super) async fn open(
    server: &Server,
    settings: &Settings,
    round_trip: &Arc<RoundTrip>,
    step: Duration,
) -> Result<Open, RedisError> {
    let credentials = match &settings.credentials {
        Some(provider) => Some(timeout(step, provider.credentials()).await.map_err(|_| {
            RedisError::from((ErrorKind::Io, "the credentials provider does not answer"))
        })??),
        None => server.options.credentials.clone(),
    };
    let traffic = Arc::new(Traffic::new());
    let connecting = transport::connect(&server.endpoint, &settings.tls, &traffic);
    let transport = unless_silent(&traffic, step, async { Ok(connecting.await?) });
    let transport = transport.await.map_err(failure::of_set_up)?;
    let mut credentials = credentials.as_ref();
    let messages = settings.on_push.as_ref();
    let messages = messages.map(|on_push| (on_push, credentials.take()));
    let starting = Open::start(transport, Arc::clone(&traffic), round_trip, messages);
    let open = unless_silent(&traffic, step, starting);
    let open = open.await.map_err(failure::of_set_up)?;
    let handshake = shake_hands(&open, &server.options, credentials);
    let done = unless_silent(&traffic, step, handshake);
    let (took, server_millis) = done.await.map_err(failure::of_set_up)?;
    round_trip.learn_anew(took);
    if let Some(server_millis) = server_millis {
        settings.server_time.learn(server_millis);
    }
    Ok(open)
}

/// Runs a part of the set-up. It times out when nothing arrives from the server for `step`.
async fn unless_silent<T>(
    traffic: &Traffic,
    step: Duration,
    work: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    tokio::pin!(work);
    let mut reads = traffic.reads();
    loop {
        tokio::select! {
            result = &mut work => return result,
            () = sleep(step) => {}
        }
        let now = traffic.reads();
        if now == reads {
            return Err(timed_out());
        }
        reads = now;
    }
}

/// Logs in, selects the database and asks for the time, all in one round trip. Returns how long it
/// took, and the time.
async fn shake_hands(
    open: &Open,
    options: &Options,
    credentials: Option<&Credentials>,
) -> Result<(Duration, Option<i64>), RedisError> {
    let select = (options.db != 0).then(|| cmd("SELECT").arg(options.db).take());
    let name = cmd("CLIENT")
        .arg("SETINFO")
        .arg("LIB-NAME")
        .arg(env!("CARGO_PKG_NAME"))
        .take();
    let time = cmd("TIME");
    let start = Instant::now();
    let (login, selected, named, time) = tokio::join!(
        log_in(open, options, credentials),
        async {
            match &select {
                Some(select) => open.ask(select).await.map(drop),
                None => Ok(()),
            }
        },
        open.ask(&name),
        open.ask(&time),
    );
    let took = start.elapsed();
    login?;
    // A server that is full says so in its first answer, and closes the connection.
    if let (Err(refusal), Err(lost)) = (&named, &time)
        && lost.is_io_error()
        && !refusal.is_io_error()
        && !is_about_the_name(refusal)
    {
        return Err(refusal.clone());
    }
    let server_millis = match time {
        Ok(time) => Some(server_time::millis(from_redis_value(time)?)),
        Err(error) if error.is_io_error() || error.code() == Some("NOAUTH") => return Err(error),
        // A connection works without the time, too: a call that needs it asks again.
        Err(_) => None,
    };
    selected?;
    Ok((took, server_millis))
}

/// Whether the server knows no name of a library, or does not permit to set one.
fn is_about_the_name(refusal: &RedisError) -> bool {
    let text = refusal.detail().unwrap_or_default().to_ascii_lowercase();
    refusal.code() == Some("NOPERM") || text.contains("setinfo")
}

async fn log_in(
    open: &Open,
    options: &Options,
    credentials: Option<&Credentials>,
) -> Result<(), RedisError> {
    let login = |mut command: Cmd, with_username: bool| {
        if let Some(credentials) = credentials {
            let username = credentials.username.as_deref();
            if options.resp3 {
                command.arg("AUTH").arg(username.unwrap_or("default"));
            } else if let Some(username) = username.filter(|_| with_username) {
                command.arg(username);
            }
            command.arg(&credentials.password);
        }
        command
    };
    if options.resp3 {
        let hello = login(cmd("HELLO").arg(3).take(), true);
        return open.ask(&hello).await.map(drop);
    }
    if credentials.is_none() {
        return Ok(());
    }
    match open.ask(&login(cmd("AUTH"), true)).await {
        // Before Redis 6 there were no user names.
        Err(error)
            if error
                .detail()
                .is_some_and(|text| text.contains("wrong number of arguments")) =>
        {
            open.ask(&login(cmd("AUTH"), false)).await.map(drop)
        }
        Err(error) if is_refused_login(&error) => Err((
            ErrorKind::AuthenticationFailed,
            "the login was refused",
            error.to_string(),
        )
            .into()),
        result => result.map(drop),
    }
}

/// Whether the server refuses the credentials. A server that has too many clients refuses a login
/// for another reason.
fn is_refused_login(error: &RedisError) -> bool {
    let text = error.detail().unwrap_or_default();
    match error.code() {
        Some("WRONGPASS" | "NOAUTH") => true,
        Some("ERR") => text.contains("password"), // before Redis 6
        _ => false,
    }
}

/// Fails if the server says that it is no primary. A server whose ACL forbids the question is taken
/// as one.
pub(super) async fn expect_primary(open: &Open, step: Duration) -> Result<(), RedisError> {
    let role = cmd("ROLE");
    match timeout(step, open.ask(&role)).await {
        Ok(Ok(role)) if !is_primary(&role) => {
            Err((ErrorKind::Io, "the server is no primary").into())
        }
        Ok(Err(error)) if error.is_io_error() => Err(failure::of_set_up(error)),
        Ok(_) => Ok(()),
        Err(_elapsed) => Err(timed_out()),
    }
}

/// Whether the server is part of a cluster. A server that does not permit the question is taken for
/// a single one. Fails for a Sentinel.
pub(super) async fn is_part_of_cluster(open: &Open, step: Duration) -> Result<bool, RedisError> {
    let (info, role) = (cmd("INFO").arg("cluster").take(), cmd("ROLE"));
    let answers = timeout(step, async {
        tokio::join!(open.ask(&info), open.ask(&role))
    });
    let (info, role) = answers.await.map_err(|_elapsed| timed_out())?;
    if role.is_ok_and(|role| names_role(&role, "sentinel")) {
        return Err(failure::is_sentinel());
    }
    match info {
        Ok(info) => {
            let info: String = from_redis_value(info).unwrap_or_default();
            if !info.lines().any(|line| line.trim() == "cluster_enabled:1") {
                return Ok(false);
            }
        }
        Err(error) if matches!(Failure::from(error.clone()), Failure::Refused(_)) => {
            return Ok(false);
        }
        Err(error) => return Err(failure::of_set_up(error)),
    }
    // A proxy before a cluster passes INFO on to a node, and does not know CLUSTER: it is the one
    // server.
    let slots = cmd("CLUSTER").arg("SLOTS").take();
    let answer = timeout(step, open.ask(&slots)).await;
    match answer.map_err(|_elapsed| timed_out())? {
        Err(error) if error.is_io_error() => Err(failure::of_set_up(error)),
        Err(error) => Ok(error.code() != Some("ERR")),
        Ok(_) => Ok(true),
    }
}

pub(super) fn is_primary(role: &Value) -> bool {
    names_role(role, "master")
}

fn names_role(role: &Value, name: &str) -> bool {
    let Value::Array(parts) = role else {
        return false;
    };
    let first = parts.first().cloned().unwrap_or_default();
    from_redis_value::<String>(first).is_ok_and(|first| first == name)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::net::TcpStream;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::net::TcpSocket;

    use super::super::address::Endpoint;
    use super::super::credentials::Provider;
    use super::super::traffic::Counted;
    use super::*;

    const STEP: Duration = Duration::from_millis(500);
    const HOUR: Duration = Duration::from_secs(3600);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Whether a step succeeds in which bytes arrive after each of these pauses, and when it ends.
    async fn reads_after(pauses: &[u64]) -> (bool, Duration) {
        let traffic = Arc::new(Traffic::new());
        let (mut server, stream) = duplex(1);
        let mut stream = Counted {
            stream,
            traffic: Arc::clone(&traffic),
        };
        let start = Instant::now();
        let work = async {
            for &pause in pauses {
                sleep(ms(pause)).await;
                server.write_u8(0).await?;
                stream.read_u8().await?;
            }
            Ok(())
        };
        let result = unless_silent(&traffic, STEP, work).await;
        (result.is_ok(), start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_step_may_take_long_while_bytes_arrive_and_ends_when_none_do() {
        assert_eq!(reads_after(&[400, 400, 400]).await, (true, ms(1_200)));
        assert_eq!(reads_after(&[600]).await, (false, ms(500)));
        assert_eq!(reads_after(&[400, 700]).await, (false, ms(1_000)));
        assert_eq!(reads_after(&[400, 400, 900]).await, (false, ms(1_500)));
    }

    /// Asserts that an attempt to connect to this port ends because nothing answers. Time passes
    /// only while nothing else can happen.
    async fn ends_without_an_answer(port: u16, settings: &Settings) {
        let server = Server {
            endpoint: Endpoint::Tcp {
                host: "127.0.0.1".to_owned(),
                port,
                is_tls: false,
            },
            options: Options::default(),
        };
        let (start, round_trip) = (Instant::now(), Arc::default());
        let opened = open(&server, settings, &round_trip, STEP);
        let Err(error) = timeout(HOUR, opened).await.expect("it ends") else {
            panic!("it is open");
        };
        assert!(error.to_string().contains("does not answer"), "{error}");
        // A step for the connection, and one for what is sent over it.
        assert!((STEP..=2 * STEP).contains(&start.elapsed()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_to_connect_ends_where_nothing_answers() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut settings = Settings::for_test();
        // The kernel makes the connection.
        ends_without_an_answer(address.port(), &settings).await;
        let mut backlog = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, STEP) {
            backlog.push(stream);
        }
        // No further connection is made while the backlog is full.
        ends_without_an_answer(address.port(), &settings).await;
        let provider = Provider::new(pending::<Result<Credentials, Infallible>>);
        settings.credentials = Some(provider);
        ends_without_an_answer(address.port(), &settings).await;
    }
}
