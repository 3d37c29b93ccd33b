//! A store that goes down, falls silent or refuses, and comes back: the in-memory one with faults.

use std::time::Duration;

use super::RESPONSE_TIMEOUT;
use crate::breaker::Breaker;
use crate::clock::Clock;
use crate::store::memory::{Faults, FaultyStore, Loss, MemoryClient, MemoryStore};
use crate::{FailurePolicy, LimiterOptions, RedissonClient};

/// Clients that share a store and its circuit breaker. A call takes a round trip of 1 ms.
#[derive(Debug, Clone)]
pub(in super::super) struct Remote {
    memory: MemoryStore,
    pub(in super::super) store: FaultyStore,
    faults: Faults,
}

impl Remote {
    pub(in super::super) fn new() -> Self {
        let (memory, faults) = (MemoryStore::new(), Faults::default());
        let client = MemoryClient::new(&memory, Clock::server());
        let remote = Self {
            store: FaultyStore::new(client, &faults, RESPONSE_TIMEOUT, Default::default()),
            memory,
            faults,
        };
        remote.set_round_trip(Duration::from_millis(1));
        remote
    }

    pub(in super::super) fn client(&self, policy: FailurePolicy) -> RedissonClient {
        let builder =
            RedissonClient::builder().default_options(LimiterOptions::new().failure_policy(policy));
        builder.build(self.store.clone())
    }

    /// A client of the same limiters whose calls take no time and are not counted.
    pub(in super::super) fn at_once(&self) -> RedissonClient {
        RedissonClient::builder().in_memory(&self.memory)
    }

    pub(super) fn breaker(&self) -> &Breaker {
        self.store.breaker()
    }

    /// The connection is lost, and cannot be made again.
    pub(in super::super) fn go_down(&self) {
        self.faults.lose_store();
    }

    pub(super) fn come_back(&self) {
        self.faults.end();
    }

    /// There is a connection, and no answer.
    pub(super) fn come_back_silent(&self) {
        self.set_loss(Loss::OfCalls);
        self.come_back();
    }

    /// From now on calls fare so, also while there is a connection.
    pub(in super::super) fn set_loss(&self, loss: Loss) {
        self.faults.network().set_loss(loss);
    }

    pub(in super::super) fn set_round_trip(&self, round_trip: Duration) {
        self.faults.network().set_round_trip(round_trip);
    }

    pub(in super::super) fn take_calls(&self) -> usize {
        self.faults.network().take_calls()
    }
}
