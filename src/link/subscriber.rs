//! Messages about permits that other clients have freed, for those who wait.
//!
//! A client has one more connection for them to each server that holds limiters with waiters, on
//! its background thread. A waiter subscribes to its limiter's channel before a long sleep. Then
//! the limiter's value is read, over the same connection: so permits that come free before the
//! subscription are not missed. A channel that has had no listener for some seconds is unsubscribed
//! from, and a connection without channels is closed.
//!
//! A lost message only delays a waiter until its queue asks anyway, at most a second. So after a
//! failure the connection is made anew after a pause, and all channels are subscribed to again. A
//! channel whose limiter is on another server, or whose subscription fails for a reason that
//! passes, is dropped: its waiter subscribes again before its next long sleep. Only where the
//! server knows no sharded channels (before Redis 7), or permits none, nothing is tried for a
//! minute.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{Pipeline, PushInfo, PushKind, RedisError, Value, from_redis_value_ref};
use smallvec::SmallVec;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, interval, sleep, timeout};

use super::address::Endpoint;
use super::connection::Connection;
use super::failure::Failure;
use super::open::Open;
use super::settings::OnPush;
use super::setup::expect_primary;
use crate::backoff::{random, shortened};
use crate::box_future::BoxFuture;
use crate::escaped::Escaped;
use crate::lock::Lock;

/// The most channels on one server. Further waiters ask by themselves.
const CAPACITY: usize = 16_384;
/// How often it is checked whether each channel still has listeners, and where its limiter is.
const TICK: Duration = Duration::from_secs(1);
/// A channel is unsubscribed from after this many ticks without a listener.
const IDLE_TICKS: u8 = 5;
/// The server is asked whether it is still the primary once in this many ticks.
const CHECK_TICKS: u32 = 5;
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a refusal.
const REFUSED: Duration = Duration::from_secs(60);
/// How long a step of the set-up or an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many channels one round trip subscribes to.
const AT_ONCE: usize = 128;

/// Called with the number of permits that are available, after each message.
type OnFreed = dyn Fn(i64) + Send + Sync;

/// Serves the channels of one server.
type Task = BoxFuture<'static, ()>;

/// The subscriptions of one client.
pub(crate) struct Subscriber {
    connection: Arc<Connection>,
    nodes: Lock<HashMap<Option<Endpoint>, Arc<Node>>>,
    /// Dropped when the client is closed, which ends the tasks.
    alive: Lock<Option<watch::Sender<()>>>,
}

/// One server, and the channels of the limiters that it holds.
struct Node {
    /// `None` if there is no cluster.
    endpoint: Option<Endpoint>,
    client_id: String,
    channels: Lock<Channels>,
    changed: Notify,
}

#[derive(Default)]
struct Channels {
    by_name: HashMap<String, Channel>,
    /// The channels to subscribe to, or whose value is to be read again for a new listener.
    to_ask: Vec<String>,
    /// Whether a task serves the channels.
    is_served: bool,
    /// Until when nothing is tried, after a refusal.
    refused_until: Option<Instant>,
}

struct Channel {
    /// A key of the limiter, which determines its server, and holds the permits left.
    value: String,
    listeners: SmallVec<[Weak<OnFreed>; 1]>,
    /// The number of ticks in a row without a listener.
    idle_ticks: u8,
}

/// Why a connection is no longer used.
enum Ended {
    /// There are no channels.
    Unused,
    /// It was lost, or its server is no primary or not ready: another attempt may succeed.
    Lost,
    /// The client was dropped: nobody listens.
    Abandoned,
    /// The server knows no sharded channels, or permits none.
    Refused(RedisError),
}

impl From<RedisError> for Ended {
    fn from(error: RedisError) -> Self {
        match Failure::from(error) {
            Failure::Refused(error) => Self::Refused(error),
            _ => Self::Lost,
        }
    }
}

impl Subscriber {
    pub(crate) fn new(connection: &Arc<Connection>) -> Arc<Self> {
        Arc::new(Self {
            connection: Arc::clone(connection),
            nodes: Lock::default(),
            alive: Lock::new(Some(watch::Sender::new(()))),
        })
    }

    /// Calls `on_freed`, until it is dropped, whenever another client frees permits of a limiter.
    /// `name` is the limiter's channel, and `value` the key of its permits left. Returns the task
    /// that serves the channels of the server, unless that runs already.
    pub(crate) fn watch(
        self: &Arc<Self>,
        client_id: &str,
        name: String,
        value: &str,
        on_freed: &Arc<OnFreed>,
    ) -> Option<Task> {
        let mut alive = self.alive.lock().as_ref()?.subscribe();
        let endpoint = self.connection.node_of(value);
        self.connection.way_to(endpoint.as_ref())?;
        let mut nodes = self.nodes.lock();
        let node = nodes.entry(endpoint).or_insert_with_key(|endpoint| {
            Arc::new(Node {
                endpoint: endpoint.clone(),
                client_id: client_id.to_owned(),
                channels: Lock::default(),
                changed: Notify::new(),
            })
        });
        let mut channels = node.channels.lock();
        if channels.refused_until.is_some_and(|at| Instant::now() < at)
            || channels.by_name.len() >= CAPACITY && !channels.by_name.contains_key(&name)
        {
            return None;
        }
        channels.to_ask.push(name.clone());
        let channel = channels.by_name.entry(name).or_insert_with(|| Channel {
            value: value.to_owned(),
            listeners: SmallVec::new(),
            idle_ticks: 0,
        });
        channel.listeners.push(Arc::downgrade(on_freed));
        node.changed.notify_one();
        let is_served = std::mem::replace(&mut channels.is_served, true);
        if is_served {
            return None;
        }
        let (node, subscriber) = (Arc::clone(node), Arc::downgrade(self));
        Some(Box::pin(async move {
            tokio::select! {
                _ = alive.changed() => {} // the client is closed or dropped
                () = node.serve(&subscriber) => {}
            }
        }))
    }

    /// Ends all subscriptions, now and later.
    pub(crate) fn close(&self) {
        drop(self.alive.lock().take());
    }

    /// Opens a connection to a node for its messages.
    async fn open(this: &Weak<Self>, node: &Arc<Node>) -> Result<Open, Ended> {
        let weak = Arc::downgrade(node);
        let on_push = OnPush(Arc::new(move |push| {
            if let Some(node) = weak.upgrade() {
                node.receive(push);
            }
        }));
        let (resolver, settings) = {
            // The client may be dropped while this waits for the connection.
            let this = this.upgrade().ok_or(Ended::Abandoned)?;
            let way = this.connection.way_to(node.endpoint.as_ref());
            let (resolver, settings) = way.ok_or(Ended::Lost)?;
            (resolver, settings.of_subscriber(on_push))
        };
        let round_trip = Arc::default();
        let opened = resolver.open(&settings, &round_trip, PATIENCE, true).await;
        let (open, _endpoint) = opened?;
        Ok(open)
    }
}

impl Node {
    /// Keeps the channels subscribed to, until there are none.
    async fn serve(self: Arc<Self>, subscriber: &Weak<Subscriber>) {
        loop {
            let ended = match Subscriber::open(subscriber, &self).await {
                Ok(open) => self.serve_over(&open, subscriber).await,
                Err(ended) => ended,
            };
            match ended {
                Ended::Lost => {
                    sleep(shortened(PAUSE, random())).await;
                    self.sweep(subscriber); // the limiters may be elsewhere by now
                }
                Ended::Refused(error) => {
                    tracing::debug!(error = %Escaped(&error), "the server permits no subscription");
                    let mut channels = self.channels.lock();
                    channels.by_name.clear();
                    channels.refused_until = Some(Instant::now() + REFUSED);
                }
                Ended::Unused => {}
                Ended::Abandoned => return,
            }
            if self.ends(subscriber) {
                return;
            }
        }
    }

    /// Whether the task ends because there are no channels; if so, another one may start.
    fn ends(&self, subscriber: &Weak<Subscriber>) -> bool {
        let subscriber = subscriber.upgrade();
        let mut nodes = subscriber.as_ref().map(|it| it.nodes.lock());
        let mut channels = self.channels.lock();
        if !channels.by_name.is_empty() {
            return false;
        }
        channels.is_served = false;
        if let (Some(nodes), None) = (&mut nodes, channels.refused_until) {
            nodes.remove(&self.endpoint); // it may have left the cluster
        }
        true
    }

    /// Keeps the channels subscribed to over one connection. Returns why it is no longer used.
    async fn serve_over(&self, open: &Open, subscriber: &Weak<Subscriber>) -> Ended {
        {
            let mut channels = self.channels.lock();
            channels.to_ask = channels.by_name.keys().cloned().collect();
        }
        let mut ticks = interval(TICK);
        ticks.tick().await;
        let mut number = 0_u32;
        loop {
            let step = async {
                self.subscribe(open).await?;
                tokio::select! {
                    _ = open.retirement() => return Err(Ended::Lost),
                    () = self.changed.notified() => return Ok(()),
                    _ = ticks.tick() => {}
                }
                number += 1;
                Self::unsubscribe(open, &self.sweep(subscriber)).await?;
                if number.is_multiple_of(CHECK_TICKS) {
                    // Others publish on another server if this one is no longer a primary.
                    expect_primary(open, PATIENCE).await?;
                }
                match self.channels.lock().by_name.is_empty() {
                    true => Err(Ended::Unused),
                    false => Ok(()),
                }
            };
            if let Err(ended) = step.await {
                return ended;
            }
        }
    }

    /// Subscribes to the new channels, and reads what is available.
    async fn subscribe(&self, open: &Open) -> Result<(), Ended> {
        loop {
            let mut asked = Vec::new();
            let mut commands = Pipeline::new();
            {
                let mut channels = self.channels.lock();
                let rest = channels.to_ask.len().saturating_sub(AT_ONCE);
                for name in channels.to_ask.split_off(rest) {
                    if let Some(channel) = channels.by_name.get(&name) {
                        commands.cmd("SSUBSCRIBE").arg(&name);
                        commands.cmd("GET").arg(&channel.value);
                        // Later listeners ask again: this answer may be older than what they saw.
                        asked.push((name, channel.listeners.clone()));
                    }
                }
            }
            if asked.is_empty() {
                return Ok(());
            }
            let answers = ask_all(open, &commands).await?;
            for ((name, listeners), answers) in asked.iter().zip(answers.chunks_exact(2)) {
                let [subscribed, value] = answers else {
                    continue;
                };
                if let Value::ServerError(error) = subscribed {
                    match Ended::from(RedisError::from(error.clone())) {
                        Ended::Lost => drop(self.channels.lock().by_name.remove(name)),
                        refused => return Err(refused),
                    }
                    continue;
                }
                let available = match value {
                    Value::Nil => Some(i64::MAX), // nothing is in use
                    value => from_redis_value_ref(value).ok(),
                };
                if let Some(available) = available {
                    notify(listeners, available);
                }
            }
        }
    }

    /// Drops the channels that nobody listens to, and those whose limiter is on another node, and
    /// returns their names.
    fn sweep(&self, subscriber: &Weak<Subscriber>) -> Vec<String> {
        let subscriber = subscriber.upgrade();
        let mut channels = self.channels.lock();
        let left = channels.by_name.extract_if(|_, channel| {
            channel.listeners.retain(|it| it.strong_count() > 0);
            channel.idle_ticks = match channel.listeners.is_empty() {
                true => channel.idle_ticks + 1,
                false => 0,
            };
            let is_elsewhere = subscriber.as_ref().is_some_and(|it| {
                let node = it.connection.node_of(&channel.value);
                node.is_some() && node != self.endpoint
            });
            is_elsewhere || channel.idle_ticks >= IDLE_TICKS
        });
        left.map(|(name, _)| name).collect()
    }

    /// Unsubscribes from these channels.
    async fn unsubscribe(open: &Open, names: &[String]) -> Result<(), Ended> {
        for names in names.chunks(AT_ONCE) {
            let mut commands = Pipeline::new();
            for name in names {
                commands.cmd("SUNSUBSCRIBE").arg(name);
            }
            ask_all(open, &commands).await?;
        }
        Ok(())
    }

    /// Handles what the server pushed, and ignores what is no message of a client's script.
    fn receive(&self, push: PushInfo) {
        let mut texts = push.data.iter().map(|part| match part {
            Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
            _ => None,
        });
        let Some(Some(name)) = texts.next() else {
            return;
        };
        match push.kind {
            PushKind::SMessage => {
                let message = texts.next().flatten().and_then(|it| it.split_once(' '));
                let Some((Ok(available), sender)) =
                    message.map(|(it, sender)| (it.parse(), sender))
                else {
                    return;
                };
                // The waiters of this client know already what it frees.
                if sender != self.client_id {
                    let channels = self.channels.lock();
                    let listeners = channels.by_name.get(name).map(|it| it.listeners.clone());
                    drop(channels);
                    notify(&listeners.unwrap_or_default(), available);
                }
            }
            // Its slot is elsewhere, unless this client has left it. A channel that was added anew
            // since is subscribed to next.
            PushKind::SUnsubscribe => {
                let mut channels = self.channels.lock();
                if !channels.to_ask.iter().any(|added| added == name) {
                    channels.by_name.remove(name);
                }
            }
            _ => {}
        }
    }
}

/// Calls the listeners with the number of permits available. The caller must hold no lock.
fn notify(listeners: &[Weak<OnFreed>], available: i64) {
    for on_freed in listeners.iter().filter_map(Weak::upgrade) {
        on_freed(available);
    }
}

async fn ask_all(open: &Open, commands: &Pipeline) -> Result<Vec<Value>, Ended> {
    let answers = timeout(PATIENCE, open.ask_all(commands)).await;
    Ok(answers.map_err(|_| Ended::Lost)??)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::timeout_at;

    use super::super::open::tests::open_over;
    use super::*;

    const CHANNEL: &str = "channel";

    fn channel(listeners: &[&Arc<OnFreed>]) -> Channel {
        Channel {
            value: "value".to_owned(),
            listeners: listeners.iter().map(|it| Arc::downgrade(it)).collect(),
            idle_ticks: 0,
        }
    }

    fn node_of(listeners: &[&Arc<OnFreed>]) -> Arc<Node> {
        let channels = Channels {
            by_name: HashMap::from([(CHANNEL.to_owned(), channel(listeners))]),
            ..Channels::default()
        };
        Arc::new(Node {
            endpoint: None,
            client_id: String::new(),
            channels: Lock::new(channels),
            changed: Notify::new(),
        })
    }

    /// A server of this role: answers subscriptions, and notes how many times it is asked for the
    /// role.
    async fn serve_as(role: &str, mut stream: DuplexStream, asked: &Lock<Vec<Duration>>) {
        let (start, mut bytes) = (Instant::now(), [0; 4096]);
        while let Ok(length @ 1..) = stream.read(&mut bytes).await {
            let request = String::from_utf8_lossy(&bytes[..length]);
            let answer = if request.contains("ROLE") {
                asked.lock().push(start.elapsed());
                format!("*1\r\n${}\r\n{role}\r\n", role.len())
            } else {
                "+OK\r\n$-1\r\n".to_owned() // to SSUBSCRIBE and GET
            };
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    /// Serves a channel over a server of this role for up to 58 s, and calls `then` once it is
    /// subscribed to. Returns how that ended, if it did, and when the server was asked for its
    /// role.
    async fn ends(role: &str, then: impl Fn(&Node)) -> (Option<Ended>, Vec<Duration>) {
        let (called, asked) = (Arc::new(Notify::new()), Lock::default());
        let subscribed = Arc::clone(&called);
        let on_freed: Arc<OnFreed> = Arc::new(move |_| subscribed.notify_one());
        let node = node_of(&[&on_freed]);
        let (open, stream) = open_over().await;
        let until = Instant::now() + Duration::from_secs(58);
        let gone = Weak::new();
        let served = timeout_at(until, node.serve_over(&open, &gone));
        let ended = tokio::select! {
            ended = served => ended.ok(),
            () = serve_as(role, stream, &asked) => panic!("the connection was closed"),
            () = async {
                called.notified().await;
                then(&node);
                std::future::pending().await
            } => None,
        };
        let asked = asked.lock().clone();
        (ended, asked)
    }

    fn unsubscribed(channel: &str) -> PushInfo {
        PushInfo {
            kind: PushKind::SUnsubscribe,
            data: vec![Value::BulkString(channel.into()), Value::Int(0)],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_no_primary_any_more_is_left() {
        let (ended, asked) = ends("slave", |_| {}).await;
        assert!(matches!(ended, Some(Ended::Lost)));
        assert_eq!(asked, [TICK * CHECK_TICKS]);
        let (ended, asked) = ends("master", |_| {}).await;
        assert!(ended.is_none());
        assert_eq!(asked.len(), 11, "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_whose_subscription_the_server_ends_is_dropped() {
        let (ended, asked) = ends("master", |node| node.receive(unsubscribed(CHANNEL))).await;
        assert!(matches!(ended, Some(Ended::Unused)));
        assert!(asked.is_empty());
        // The client itself has unsubscribed from that channel.
        let (ended, _) = ends("master", |node| node.receive(unsubscribed("another"))).await;
        assert!(ended.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_channel_that_is_added_anew_outlives_the_end_of_its_last_subscription() {
        let node = node_of(&[]);
        let left = (0..IDLE_TICKS).flat_map(|_| node.sweep(&Weak::new()));
        assert_eq!(left.collect::<Vec<_>>(), [CHANNEL]);
        // A waiter adds it before the server has answered that the client has left it.
        let called = Arc::new(Notify::new());
        let listener: Arc<OnFreed> = {
            let called = Arc::clone(&called);
            Arc::new(move |_| called.notify_one())
        };
        {
            let mut channels = node.channels.lock();
            let added = channel(&[&listener]);
            channels.by_name.insert(CHANNEL.to_owned(), added);
            channels.to_ask.push(CHANNEL.to_owned());
        }
        node.receive(unsubscribed(CHANNEL));
        let (open, stream) = open_over().await;
        let asked = Lock::default();
        tokio::select! {
            subscribed = node.subscribe(&open) => assert!(subscribed.is_ok()),
            () = serve_as("master", stream, &asked) => panic!("the connection was closed"),
        }
        let is_called = timeout(TICK, called.notified()).await;
        assert!(is_called.is_ok(), "it is not subscribed to");
    }

    /// How subscribing to the channel ends if the server answers with this error.
    async fn refused_with(error: &str) -> Result<(), Ended> {
        let listener: Arc<OnFreed> = Arc::new(|_| {});
        let node = node_of(&[&listener]);
        node.channels.lock().to_ask.push(CHANNEL.to_owned());
        let (open, mut stream) = open_over().await;
        let answer = async {
            stream.read_u8().await.unwrap();
            let answers = format!("-{error}\r\n$-1\r\n");
            stream.write_all(answers.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        };
        let subscribed = tokio::select! {
            subscribed = node.subscribe(&open) => subscribed,
            () = answer => unreachable!("it waits"),
        };
        // A waiter without a channel subscribes again before its next sleep.
        assert_eq!(Arc::weak_count(&listener) == 0, subscribed.is_ok());
        subscribed
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_lasting_refusal_of_a_subscription_ends_those_of_all_channels() {
        for passing in [
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL.",
            "LOADING Redis is loading the dataset in memory",
            "MOVED 1 127.0.0.1:7000",
        ] {
            assert!(refused_with(passing).await.is_ok(), "{passing}");
        }
        for lasting in ["NOPERM no channel", "ERR unknown command 'SSUBSCRIBE'"] {
            let refused = refused_with(lasting).await;
            assert!(matches!(refused, Err(Ended::Refused(_))), "{lasting}");
        }
    }

    #[test]
    fn the_task_of_a_client_that_is_gone_ends() {
        let node = node_of(&[]);
        let gone = Weak::new();
        let served = pin!(node.serve(&gone));
        assert!(
            served
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready()
        );
    }
}
