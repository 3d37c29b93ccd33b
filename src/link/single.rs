//! The route to one server or primary.

use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;

use super::address::Endpoint;
use super::failure::Failure;
use super::limits::Limits;
use super::per_runtime::PerRuntime;
use super::request::Message;
use super::resolver::Resolver;
use super::round_trip::Pace;
use super::server_link::{Link, Reached, WaitUntil};
use super::settings::Settings;
use crate::breaker::Breaker;

pub(super) struct Single {
    links: PerRuntime<Link>,
    resolver: Arc<Resolver>,
    settings: Arc<Settings>,
}

impl Single {
    pub(super) fn new(resolver: Resolver, settings: &Arc<Settings>) -> Self {
        Self {
            links: PerRuntime::new(),
            resolver: Arc::new(resolver),
            settings: Arc::clone(settings),
        }
    }

    /// The link of the current runtime.
    fn link(&self) -> Result<Arc<Link>, Failure> {
        let start = || Link::start(Arc::clone(&self.resolver), Arc::clone(&self.settings));
        self.links.current(start)
    }

    /// Whether the server is known to be part of a cluster, whose nodes have links of their own.
    #[cfg(feature = "cluster")]
    pub(super) fn leads_to_cluster(&self) -> bool {
        self.resolver.leads_to_cluster()
    }

    /// Waits for the first connection.
    pub(super) async fn connected(&self, deadline: Instant) -> Result<(), Failure> {
        let ready = self.link()?.ready(deadline, WaitUntil::Refused).await;
        ready.map(drop)
    }

    pub(super) fn is_one_server(&self, key: &str) -> bool {
        self.link().is_ok_and(|link| link.is_one_server(key))
    }

    pub(super) fn refuses_several_keys(&self) {
        if let Ok(link) = self.link() {
            link.refuses_several_keys();
        }
    }

    pub(super) fn node_of(&self, _key: &str) -> Option<Endpoint> {
        None
    }

    pub(super) fn way_to(&self, _node: Option<&Endpoint>) -> Option<(Arc<Resolver>, &Settings)> {
        Some((Arc::clone(&self.resolver), &self.settings))
    }

    pub(super) async fn ready(&self, _key: &str, deadline: Instant) -> Result<Pace, Failure> {
        self.link()?.ready(deadline, WaitUntil::Deadline).await
    }

    pub(super) fn pace(&self, _key: &[u8]) -> Option<Pace> {
        Some(self.link().ok()?.pace())
    }

    pub(super) fn breaker(&self, _key: &str) -> Option<Arc<Breaker>> {
        Some(Arc::clone(self.link().ok()?.breaker()))
    }

    pub(super) fn breakers(&self) -> Vec<Arc<Breaker>> {
        let links = self.links.in_use();
        links
            .iter()
            .map(|link| Arc::clone(link.breaker()))
            .collect()
    }

    pub(super) fn servers(&self) -> Result<Vec<Reached>, Failure> {
        Ok(vec![Reached::only(self.link()?.breaker())])
    }

    pub(super) async fn send(
        &self,
        message: Message<'_>,
        limits: Limits,
    ) -> Result<Value, Failure> {
        let link = self.link()?;
        link.send(message, false, limits, WaitUntil::Deadline).await
    }
}
