//! A cluster: a link to each of its nodes, and the slot map, which says which node a command is
//! for.
//!
//! A redirected command did not run, so it is sent to the node that the redirection names. When a
//! node redirects, fails or cannot be reached, the map is read again in the background; in the
//! meantime the call's own retries go on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value, cmd};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::address::{Endpoint, Server};
use super::failure::{Failure, timed_out};
use super::limits::{Limits, Repeat};
use super::per_runtime::PerRuntime;
use super::request::Message;
use super::resolver::Resolver;
use super::server_link::{Link, WaitUntil};
use super::settings::Settings;
use super::slots::{self, SlotMap};
use crate::escaped::Escaped;
use crate::lock::Lock;

/// The most redirections that a command follows before it pauses.
const REDIRECTIONS: usize = 5;
/// The time that one node has to answer with the slot map.
const PATIENCE: Duration = Duration::from_secs(1);
/// The slot map is read at most this often.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Cluster(Arc<Inner>);

struct Inner {
    /// The nodes that the client was configured with.
    seeds: Vec<Server>,
    settings: Arc<Settings>,
    slots: ArcSwap<SlotMap>,
    nodes: PerRuntime<Nodes>,
}

/// The links of one runtime.
#[derive(Default)]
struct Nodes {
    links: Lock<HashMap<Endpoint, Arc<Link>>>,
    /// The last task that was started to read the slot map.
    refreshing: Lock<Option<AbortHandle>>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for nodes in self.0.nodes.all() {
            if let Some(task) = nodes.refreshing.lock().take() {
                task.abort();
            }
        }
    }
}

impl Cluster {
    pub(super) fn new(seeds: Vec<Server>, settings: Arc<Settings>) -> Self {
        Self(Arc::new(Inner {
            seeds,
            settings,
            slots: ArcSwap::default(),
            nodes: PerRuntime::new(),
        }))
    }

    /// Returns the current runtime's link to the node that is known to hold a key.
    pub(super) fn link(&self, key: &[u8]) -> Result<Arc<Link>, Failure> {
        let nodes = self.0.nodes.current(Nodes::default)?;
        let node = self.node_for(&nodes, Some(slots::slot_of_key(key)))?;
        let link = self.0.link(&nodes, &node);
        if !link.breaker().is_healthy() {
            // A call that the breaker refuses is not sent, and so is not redirected to another node
            // that has the slot by now.
            self.refresh_soon(&nodes);
        }
        Ok(link)
    }

    /// Returns the node of a slot. Reads the slot map in the background if none is known.
    fn node_for(&self, nodes: &Arc<Nodes>, slot: Option<u16>) -> Result<Endpoint, Failure> {
        let node = self.0.node_for(slot);
        if node.is_none() || self.0.slots.load().is_empty() {
            self.refresh_soon(nodes);
        }
        node.ok_or_else(|| {
            let error = ServerErrorKind::ClusterDown.into();
            Failure::NotRun((error, "no node serves the slot").into())
        })
    }

    pub(super) async fn send(
        &self,
        message: Message<'_>,
        limits: Limits,
    ) -> Result<Value, Failure> {
        let nodes = self.0.nodes.current(Nodes::default)?;
        let mut node = self.node_for(&nodes, slots::slot_of(message.command()))?;
        let mut limits = limits;
        let mut asking = false;
        for _ in 0..REDIRECTIONS {
            let link = self.0.link(&nodes, &node);
            let sending = link.send(message, asking, limits, WaitUntil::Refused);
            let failure = match sending.await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let Failure::NotRun(error) = &failure else {
                if !matches!(failure, Failure::Refused(_)) {
                    self.refresh_soon(&nodes);
                }
                return Err(failure);
            };
            asking = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
            if !asking {
                self.refresh_soon(&nodes);
            }
            match redirection(error, &node) {
                Some(target) => {
                    node = target;
                    limits.waits_to_connect = true; // nothing has waited for this node
                }
                None => return Err(failure),
            }
        }
        let error = ServerErrorKind::TryAgain.into();
        Err(Failure::NotRun((error, "the slot is moving").into()))
    }

    pub(super) fn node_of(&self, key: &str) -> Option<Endpoint> {
        self.0.node_for(Some(slots::slot_of_key(key.as_bytes())))
    }

    pub(super) fn way_to(&self, node: Option<&Endpoint>) -> Option<(Arc<Resolver>, &Settings)> {
        Some((self.0.resolver(node?), &self.0.settings))
    }

    /// All nodes that serve slots, or before the map was read those that the client was configured
    /// with.
    pub(super) fn servers(&self) -> Result<Vec<Endpoint>, Failure> {
        let nodes = self.0.nodes.current(Nodes::default)?;
        let slots = self.0.slots.load();
        let mut all: Vec<_> = slots.nodes().into_iter().collect();
        if all.is_empty() {
            all.extend(self.0.seeds.iter().map(|seed| &seed.endpoint));
            self.refresh_soon(&nodes);
        }
        Ok(all.into_iter().cloned().collect())
    }

    /// The links of the current runtime, or of all runtimes if it has none.
    pub(super) fn links(&self) -> Vec<Arc<Link>> {
        let links = |nodes: &Arc<Nodes>| nodes.links.lock().values().cloned().collect::<Vec<_>>();
        self.0.nodes.in_use().iter().flat_map(links).collect()
    }

    /// The current runtime's link to a node.
    pub(super) fn link_to(&self, node: &Endpoint) -> Result<Arc<Link>, Failure> {
        let nodes = self.0.nodes.current(Nodes::default)?;
        Ok(self.0.link(&nodes, node))
    }

    /// Sends a message to one node, which follows no redirection.
    pub(super) async fn send_to(
        &self,
        node: &Endpoint,
        message: Message<'_>,
        limits: Limits,
    ) -> Result<Value, Failure> {
        let nodes = self.0.nodes.current(Nodes::default)?;
        let link = self.0.link(&nodes, node);
        let answer = link.send(message, false, limits, WaitUntil::Deadline).await;
        if answer.is_err() {
            self.refresh_soon(&nodes); // another node may have its slots by now
        }
        answer
    }

    /// Reads the slot map in the background, unless this runtime is about to.
    fn refresh_soon(&self, nodes: &Arc<Nodes>) {
        let mut refreshing = nodes.refreshing.lock();
        if refreshing.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let inner = Arc::clone(&self.0);
        let task = tokio::spawn(async move {
            let result = inner.refresh(Instant::now() + PATIENCE * 4).await;
            if let Err(failure) = result {
                tracing::debug!(failure = ?Escaped(&failure), "the slot map cannot be read");
            }
            sleep(PAUSE).await;
        });
        *refreshing = Some(task.abort_handle());
    }

    /// Reads the slot map from the first node that has it.
    pub(super) async fn refresh(&self, deadline: Instant) -> Result<(), Failure> {
        self.0.refresh(deadline).await
    }
}

impl Inner {
    async fn refresh(&self, deadline: Instant) -> Result<(), Failure> {
        let nodes = self.nodes.current(Nodes::default)?;
        let slots = cmd("CLUSTER").arg("SLOTS").take();
        let mut last_failure = Failure::NotSent(timed_out());
        for node in self.nodes_to_ask(&nodes) {
            if Instant::now() >= deadline {
                break;
            }
            let link = self.link(&nodes, &node);
            let limits = Limits::new(deadline.min(Instant::now() + PATIENCE), Repeat::Safe);
            let message = Message::Command(&slots);
            let sending = link.send(message, false, limits, WaitUntil::Refused);
            let answer = sending.await;
            let read =
                answer.and_then(|answer| SlotMap::read(answer, &node).map_err(Failure::Refused));
            match read {
                Ok(map) if !map.is_empty() => {
                    self.adopt(map);
                    return Ok(());
                }
                Ok(_) => {
                    let error = (
                        ServerErrorKind::ClusterDown.into(),
                        "the node's slot map is empty",
                    );
                    last_failure = Failure::NotRun(error.into());
                }
                Err(failure) => last_failure = failure,
            }
        }
        Err(last_failure)
    }

    /// The node that serves a slot, or any node for a command without keys. Before a map was read,
    /// a node that the client was configured with: it redirects commands.
    fn node_for(&self, slot: Option<u16>) -> Option<Endpoint> {
        let slots = self.slots.load();
        match slots.is_empty() {
            true => self.seeds.first().map(|seed| seed.endpoint.clone()),
            false => slots.owner(slot.unwrap_or(0)).cloned(),
        }
    }

    fn link(&self, nodes: &Nodes, node: &Endpoint) -> Arc<Link> {
        let mut links = nodes.links.lock();
        if let Some(link) = links.get(node) {
            return Arc::clone(link);
        }
        let link = Link::start(self.resolver(node), Arc::clone(&self.settings));
        let link = Arc::new(link);
        links.insert(node.clone(), Arc::clone(&link));
        link
    }

    fn resolver(&self, node: &Endpoint) -> Arc<Resolver> {
        let options = self.seeds.first().map(|seed| seed.options.clone());
        Arc::new(Resolver::node(Server {
            endpoint: node.clone(),
            options: options.unwrap_or_default(),
        }))
    }

    /// The nodes that may know the slot map: those with an open connection first, in rotation, and
    /// last those that the client was configured with.
    fn nodes_to_ask(&self, nodes: &Nodes) -> Vec<Endpoint> {
        let slots = self.slots.load();
        let mut known: Vec<_> = slots.nodes().into_iter().cloned().collect();
        let links = nodes.links.lock();
        let is_open = |node: &Endpoint| links.get(node).is_some_and(|link| link.is_open());
        known.sort_by_cached_key(|node| (!is_open(node), uuid::Uuid::new_v4()));
        known.extend(self.seeds.iter().map(|seed| seed.endpoint.clone()));
        known
    }

    fn adopt(&self, map: SlotMap) {
        let map = Arc::new(map);
        let before = self.slots.swap(Arc::clone(&map));
        let (now, before) = (map.nodes(), before.nodes());
        for node in now.difference(&before) {
            tracing::info!(node = %Escaped(node), "a node of the cluster serves slots");
        }
        for node in before.difference(&now) {
            tracing::info!(node = %Escaped(node), "a node of the cluster serves slots no more");
        }
        // On each runtime: one that makes no calls does not read the map, and would try to connect
        // to the removed node for ever.
        for nodes in self.nodes.all() {
            let removed: Vec<_> = nodes
                .links
                .lock()
                .extract_if(|node, _| !now.contains(node))
                .collect();
            drop(removed); // calls that use them still hold them
        }
    }
}

/// The node that a redirection names.
pub(super) fn redirection(error: &RedisError, from: &Endpoint) -> Option<Endpoint> {
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some(slots::named_by(from, Some(host), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn node(port: u16) -> Endpoint {
        Endpoint::Tcp {
            host: "127.0.0.1".to_owned(),
            port,
            is_tls: false,
        }
    }

    /// All slots on this node.
    fn map(port: u16) -> SlotMap {
        let primary = vec![
            Value::BulkString(b"127.0.0.1".to_vec()),
            Value::Int(port.into()),
        ];
        let range = vec![Value::Int(0), Value::Int(16_383), Value::Array(primary)];
        let answer = Value::Array(vec![Value::Array(range)]);
        SlotMap::read(answer, &node(port)).unwrap()
    }

    #[test]
    fn the_links_to_a_node_that_has_left_end_on_every_runtime() {
        let runtimes: [Runtime; 2] =
            std::array::from_fn(|_| Builder::new_current_thread().enable_all().build().unwrap());
        let cluster = Cluster::new(Vec::new(), Arc::new(Settings::for_test()));
        let inner = &cluster.0;
        inner.adopt(map(1));
        let links = |runtime: &Runtime| {
            let _entered = runtime.enter();
            let nodes = inner.nodes.current(Nodes::default).unwrap();
            inner.link(&nodes, &inner.node_for(None).unwrap());
            nodes
        };
        let nodes = runtimes.each_ref().map(links);
        inner.adopt(map(2));
        assert!(nodes.iter().all(|nodes| nodes.links.lock().is_empty()));
    }
}
