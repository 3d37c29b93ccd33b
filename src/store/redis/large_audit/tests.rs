//! Random steps of clients during an audit, on a server. Whatever they do, the permits left and
//! those of all grants add up to the rate after the audit. If they did so before it, they do so
//! throughout.

use std::sync::atomic::{AtomicI64, Ordering};

use proptest::prelude::*;
use redis::aio::MultiplexedConnection;

use super::*;
use crate::clock::Clock;
use crate::grant::Grant;
use crate::permit;
use crate::random_cases::{cases_of, run_on_a_server};
use crate::store::redis::limiter::RedisLimiter;
use crate::store::{AcquireCall, IfMissing, LimiterChange, LimiterStore, PermitsInUse};
use crate::support::Server;
use crate::window::{Requests, Settings};

const NAME: &str = "n";
const VALUE: &str = "{n}:value";
const PERMITS: &str = "{n}:permits";
const AUDIT: &str = "{n}:audit";
const INTERVAL: i64 = 1_000;
const STEPS_PER_CASE: usize = 60;

/// What a client does, or that time passes.
#[derive(Debug, Clone)]
enum Other {
    Pass(i64),
    Acquire(u32),
    Release(u32),
    /// One of the last grants, all of it or less.
    Refund(usize, u32),
    /// The permits in use are kept.
    UpdateRate(i64),
    /// A grant by a clock that is this many ms behind.
    PeersGrant(i64, u32),
}

fn an_other() -> impl Strategy<Value = Other> {
    prop_oneof![
        3 => prop_oneof![4 => 1..150_i64, 1 => 300..900_i64].prop_map(Other::Pass),
        12 => (1..4_u32).prop_map(Other::Acquire),
        2 => prop_oneof![1..3_u32, 1..9_u32].prop_map(Other::Release),
        3 => (0..40_usize, 1..4_u32).prop_map(|(which, permits)| Other::Refund(which, permits)),
        1 => (30..120_i64).prop_map(Other::UpdateRate),
        1 => (0..800_i64, 1..4_u32).prop_map(|(age, permits)| Other::PeersGrant(age, permits)),
    ]
}

#[derive(Debug, Clone)]
struct Case {
    rate: i64,
    before: Vec<Other>,
    /// By how much peers have changed the permits left.
    drift: i64,
    /// What is done during each step of the audit.
    during: Vec<Vec<Other>>,
}

fn a_case() -> impl Strategy<Value = Case> {
    let before = prop::collection::vec(an_other(), STEPS_PER_CASE / 2);
    let drift = prop_oneof![Just(0), -20..20_i64];
    let during = prop::collection::vec(prop::collection::vec(an_other(), 0..5), 0..12);
    (30..120_i64, before, drift, during).prop_map(|(rate, before, drift, during)| Case {
        rate,
        before,
        drift,
        during,
    })
}

#[test]
fn whatever_clients_do_during_an_audit_no_permit_is_lost_or_made() {
    run_on_a_server(cases_of(STEPS_PER_CASE), &a_case(), audit_case);
}

struct Clients {
    raw: MultiplexedConnection,
    limiter: RedisLimiter,
    now: Arc<AtomicI64>,
    rate: i64,
    calls: u64,
    grants: Vec<Grant>,
}

#[tokio::test]
async fn a_release_that_shrinks_grants_behind_expired_ones_ends_an_audit() {
    let server = Server::start();
    let mut clients = Clients::of(server.connection().await, 100).await;
    let permits = |permits, grants| std::iter::repeat_n(Other::Acquire(permits), grants);
    let pages = |pages| pages * page() as usize;
    let before = permits(1, pages(1)).chain([Other::Pass(INTERVAL / 2)]);
    for other in before.chain(permits(3, pages(2))) {
        clients.take(&other).await;
    }
    let mut audit = clients.audit();
    for _ in 0..2 {
        assert!(clients.step(&mut audit).await.is_some());
    }
    clients.take(&Other::Pass(INTERVAL / 2)).await; // the first page has expired
    clients.take(&Other::Release(1)).await; // out of a grant of the second one
    while clients.step(&mut audit).await.is_some() {}
    assert_eq!(clients.all_permits().await, clients.rate);
}

async fn audit_case(raw: MultiplexedConnection, case: Case) {
    let mut clients = Clients::of(raw, case.rate).await;
    for other in &case.before {
        clients.take(other).await;
    }
    let left = clients.left().await;
    clients.set_left(left + case.drift).await;

    let (store, keys) = (clients.limiter.store.clone(), Keys::new(NAME, "client"));
    let mut audit = None;
    for others in &case.during {
        let audit_step = async {
            let audit = audit.get_or_insert_with(|| LargeAudit::new(&keys, RateType::Overall));
            audit.step(&store).await
        };
        let others = async {
            for other in others {
                clients.take(other).await;
            }
        };
        if tokio::join!(audit_step, others).0.is_none() {
            audit = None;
            clients.end_audit().await;
        }
        if case.drift == 0 {
            assert_eq!(clients.all_permits().await, clients.rate);
        }
    }
    // Without others an audit comes to its end.
    clients.end_audit().await;
    let mut audit = clients.audit();
    while clients.step(&mut audit).await.is_some() {}
    assert_eq!(clients.all_permits().await, clients.rate);
}

impl Clients {
    async fn of(raw: MultiplexedConnection, rate: i64) -> Self {
        let now = Arc::new(AtomicI64::new(1_000_000));
        let store = RedisStore::over(
            raw.clone(),
            Clock::shown_by(&now),
            Duration::from_secs(30),
            Arc::default(),
        );
        store.is_auditing.store(true, Ordering::Release); // the client starts no audit of its own
        let mut clients = Self {
            raw,
            limiter: RedisLimiter::new(store, Arc::new(Keys::new(NAME, "client"))),
            now,
            rate,
            calls: 0,
            grants: Vec::new(),
        };
        let valid = clients.settings();
        let change = LimiterChange::SetRate(valid);
        clients.limiter.change(change).await.unwrap();
        clients.set_left(rate).await;
        clients
    }

    fn audit(&self) -> LargeAudit {
        LargeAudit::new(&self.limiter.keys, RateType::Overall)
    }

    async fn step(&self, audit: &mut LargeAudit) -> Option<Duration> {
        audit.step(&self.limiter.store).await
    }

    fn settings(&self) -> Settings {
        Settings {
            rate: self.rate,
            interval: INTERVAL,
            rate_type: RateType::Overall,
            keep_alive: 0,
        }
    }

    async fn take(&mut self, other: &Other) {
        match *other {
            Other::Pass(millis) => {
                self.now.fetch_add(millis, Ordering::Relaxed);
            }
            Other::Acquire(permits) => self.acquire(permits).await,
            Other::Release(permits) => {
                self.limiter.release(permits).await.unwrap();
            }
            Other::Refund(which, permits) => {
                if let Some(place) = self.grants.len().checked_sub(which + 1) {
                    let grant = {
                        let it = &self.grants[place];
                        Grant::new(it.score, it.call_id, permits)
                    };
                    self.limiter.refund(&grant).await.unwrap();
                }
            }
            Other::UpdateRate(rate) => {
                self.rate = rate;
                let (rate, keep) = (self.settings(), PermitsInUse::Keep);
                let change = LimiterChange::UpdateRate(rate, keep, IfMissing::DoNothing);
                assert!(self.limiter.change(change).await.unwrap());
            }
            Other::PeersGrant(age, permits) => {
                if self.left().await >= i64::from(permits) {
                    self.calls += 1;
                    let score = self.now.load(Ordering::Relaxed) - age;
                    let member = permit::encode(&self.calls.to_le_bytes(), permits);
                    let mut both = redis::pipe();
                    both.atomic().zadd(PERMITS, &member[..], score);
                    both.decr(VALUE, permits);
                    both.exec_async(&mut self.raw).await.unwrap();
                }
            }
        }
    }

    async fn acquire(&mut self, permits: u32) {
        self.calls += 1;
        // The id is the same in each run, because grants of the same time are ordered by it.
        let id = (u128::from(self.calls) * 0x9e37_79b9).to_be_bytes();
        let call = AcquireCall::new(Requests::one(permits)).with_id(id);
        let deadline = self.limiter.call_deadline();
        let answer = self.limiter.acquire(&call, deadline).await.unwrap();
        if call.requests.taken(&answer) > 0 {
            self.grants.push(answer.grant(call.id, permits));
        }
    }

    async fn query<T: redis::FromRedisValue>(&mut self, command: &[&str]) -> T {
        let mut whole = redis::Cmd::new();
        whole.arg(command).query_async(&mut self.raw).await.unwrap()
    }

    async fn left(&mut self) -> i64 {
        self.query(&["GET", VALUE]).await
    }

    async fn set_left(&mut self, left: i64) {
        self.query(&["SET", VALUE, &left.to_string()]).await
    }

    /// Ends the audit as if its client were gone and its lease were over.
    async fn end_audit(&mut self) {
        self.query(&["DEL", AUDIT]).await
    }

    /// The permits left and those of all grants. Without a grant nothing is in use, whatever the
    /// value.
    async fn all_permits(&mut self) -> i64 {
        let grants: Vec<Vec<u8>> = self.query(&["ZRANGE", PERMITS, "0", "-1"]).await;
        if grants.is_empty() {
            return self.rate;
        }
        let held = grants.iter().map(|grant| permit::decode(grant).unwrap().1);
        self.left().await + held.map(i64::from).sum::<i64>()
    }
}
