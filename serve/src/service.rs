//! The state that all connections share, and the decision on requests of every protocol.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusHandle;
use redisson_rate_limiter::{
    BreakerState, DecisionSource, Error, ErrorKind, FailurePolicy, Health, JointDecision,
    RedissonClient, Result, Verdict,
};
use redisson_rate_limiter_metrics::Metrics;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::arguments::ServeArguments;
use super::credentials::Credentials;
use super::grpc_health::GrpcHealth;
use super::joint::denies;
use super::log;
use super::part::Part;
use super::rules::{RulesFile, Shown};
use super::usage::Usage;

const RULES_VALID: &str = "rate_limiter_rules_valid";
const RULES_RELOADS: &str = "rate_limiter_rules_reloads_total";
const UNMATCHED: &str = "rate_limiter_unmatched_requests_total";
const READ: &str = "read";
const REFUSED: &str = "refused";

pub(super) struct Service {
    pub(super) client: RedissonClient,
    pub(super) rules: RulesFile,
    pub(super) credentials: Credentials,
    pub(super) settings: ServeArguments,
    /// The longest time that the store may take for a response.
    pub(super) response_timeout: Duration,
    pub(super) grpc_health: GrpcHealth,
    pub(super) usage: Arc<Usage>,
    pub(super) metrics: Metrics,
    pub(super) prometheus: PrometheusHandle,
    /// Whether the server is shutting down.
    pub(super) closing: watch::Sender<bool>,
    pub(super) store: StoreState,
}

/// Whether the store answers: `None` if it does.
#[derive(Debug)]
pub(super) struct StoreState(Mutex<Option<Away>>);

/// Since when the store does not answer, and why.
#[derive(Debug, Clone)]
pub(super) struct Away {
    pub(super) since: Instant,
    pub(super) cause: String,
}

impl StoreState {
    /// The state of the store when the client was connected.
    pub(super) fn new(health: &Health) -> Self {
        let cause = health
            .servers
            .iter()
            .filter(|it| it.breaker != BreakerState::Closed)
            .find_map(|it| it.last_cause.as_ref());
        Self(Mutex::new(cause.map(|cause| Away {
            since: Instant::now(),
            cause: cause.to_string(),
        })))
    }

    pub(super) fn away(&self) -> Option<Away> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn note(&self, answer: Result<()>) {
        let mut away = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *away = answer.err().map(|error| Away {
            since: away.take().map_or_else(Instant::now, |it| it.since),
            cause: error.to_string(),
        });
    }
}

impl Service {
    /// Whether requests are decided: not while the server is shutting down, nor while the store is
    /// away and requests fail for that reason.
    pub(super) fn is_ready(&self) -> bool {
        !*self.closing.borrow() && (!self.fails_without_store() || self.store.away().is_none())
    }

    /// Whether requests fail while the store does not answer.
    pub(super) fn fails_without_store(&self) -> bool {
        self.settings.failure_policy == FailurePolicy::Error
    }

    /// Asks the store whether it answers, and logs a change.
    pub(super) async fn probe(&self) {
        let was_away = self.store.away().is_some();
        self.store.note(self.client.ping().await);
        match self.store.away() {
            Some(away) if !was_away => self.warn_of_store(&away),
            None if was_away => log::line("ready: the store answers again"),
            _ => {}
        }
    }

    pub(super) fn warn_of_store(&self, away: &Away) {
        let cause = &away.cause;
        if self.fails_without_store() {
            log::warning(format_args!("not ready: the store is away: {cause}"));
        } else {
            log::warning(format_args!(
                "the store is away, the failure policy decides: {cause}"
            ));
        }
    }

    /// Reads the rules again, and the tokens and certificates too if `and_credentials` is true.
    pub(super) fn reload(&self, and_credentials: bool) {
        if and_credentials {
            match self.credentials.reload(&self.settings) {
                Ok(()) => log::line("credentials: read again"),
                Err(error) => log::warning(format_args!("credentials: kept the old ones: {error}")),
            }
        }
        let read = self.rules.reload();
        count_reload(&read);
        match read {
            Ok(change) => {
                let shown = self.rules.shown();
                self.usage.keep(|name| shown.rule(name).is_some());
                let rules = shown.rules.len();
                log::line(format_args!("rules: read again, {rules} of them; {change}"));
            }
            Err(error) => log::warning(format_args!("rules: kept the old ones: {error}")),
        }
    }

    /// The longest time that a request may wait for its turn in a leaky bucket. `deadline` is the
    /// time that the client gives the request: half of it is left for the answer.
    pub(super) fn longest_turn(&self, deadline: Option<Duration>) -> Duration {
        let longest = self.settings.client_timeout + self.response_timeout;
        deadline.map_or(longest, |deadline| longest.min(deadline / 2))
    }

    /// Decides a request of these parts as one, and charges all or none.
    pub(super) async fn check(&self, parts: &[Part]) -> Result<Verdict> {
        let verdict = self.decide(parts).await;
        self.note(parts, &verdict);
        verdict
    }

    /// Returns what `check` would return, without charging anything.
    pub(super) async fn peek(&self, parts: &[Part]) -> Result<Verdict> {
        self.rules.rules.peek_all(parts).await
    }

    /// Asks until the request is granted, or its next try would come after `wait`. No call is in
    /// flight during its pauses, so a request that is dropped then keeps nothing.
    pub(super) async fn acquire(&self, mut part: Part, wait: Duration) -> Result<Verdict> {
        let until = Instant::now() + wait;
        let mut closing = self.closing.subscribe();
        let verdict = loop {
            part.longest_turn = until - Instant::now();
            let verdict = self.decide(std::slice::from_ref(&part)).await;
            let Some(at) = retry_at(&verdict).filter(|at| *at <= until) else {
                break verdict;
            };
            tokio::select! {
                () = sleep_until(at) => {}
                () = closed(&mut closing) => break Err(Error::Closed),
            }
        };
        self.note(std::slice::from_ref(&part), &verdict);
        verdict
    }

    /// Decides the parts. When the server shuts down, the store still gets time to answer, and
    /// afterwards a request that waits for its turn fails with [`Error::Closed`].
    async fn decide(&self, parts: &[Part]) -> Result<Verdict> {
        let mut closing = self.closing.subscribe();
        let time_left = self
            .response_timeout
            .min(self.settings.shutdown_timeout / 2);
        let ended = async {
            closed(&mut closing).await;
            sleep(time_left).await;
        };
        let decided = self.rules.rules.check_all(parts);
        tokio::select! {
            biased;
            decided = decided => decided,
            () = ended => Err(Error::Closed),
        }
    }

    /// Gives permits back to the RRateLimiters whose rules apply, and returns the number of these
    /// limiters.
    pub(super) async fn release(&self, part: &Part) -> Result<usize> {
        self.rules.rules.release(part).await
    }

    fn note(&self, parts: &[Part], verdict: &Result<Verdict>) {
        let Ok(verdict) = verdict else {
            return;
        };
        let shown = self.rules.shown();
        if let Some(joint) = verdict.decision() {
            self.note_keys(&shown, parts, joint);
        }
        let Verdict::Granted(granted) = verdict else {
            return;
        };
        if let Some(joint) = granted.decision_in_shadow() {
            self.note_keys(&shown, parts, joint);
        }
        for part in parts {
            if granted.decision().is_none() && !shown.rules.iter().any(|it| it.applies_to(part)) {
                counter!(UNMATCHED).increment(1);
                self.usage.note_unmatched(&part.source());
            }
            let allowing = shown.rules.iter().filter(|it| it.allows_all());
            for rule in allowing.filter(|it| it.applies_to(part)) {
                self.usage.note(&rule.config.name, &rule.label(part), true);
            }
        }
    }

    /// Counts, for the status page, the decision of each limiter by rule and key.
    fn note_keys(&self, shown: &Shown, parts: &[Part], joint: &JointDecision) {
        for (place, part) in parts.iter().enumerate() {
            for (name, decision) in joint.of_part(place) {
                if let Some(rule) = shown.rule(name)
                    && (decision.is_granted() || denies(decision))
                {
                    self.usage
                        .note(name, &rule.label(part), decision.is_granted());
                }
            }
        }
    }
}

async fn closed(closing: &mut watch::Receiver<bool>) {
    // The sender is the service's own.
    let _ = closing.wait_for(|is_closing| *is_closing).await;
}

/// Whether a request asks for more than is ever granted at once: more than a limit, than one call
/// can carry, or by more rules than decide together. An error about the URL, such as a database
/// that the server does not have, is not caused by the request.
pub(super) fn costs_too_much(error: &Error) -> bool {
    match error {
        Error::InvalidArgument { argument, .. } => *argument != "url",
        Error::ExceedsLimit { .. } => true,
        // More rules apply to the request than can decide together.
        Error::InvalidRule { .. } => true,
        _ => false,
    }
}

/// Whether a request failed because of its content, such as an entry that leads to a key where
/// something else is stored.
pub(super) fn is_caused_by_request(error: &Error) -> bool {
    costs_too_much(error) || error.kind() == ErrorKind::BadState
}

/// Why a request could not be decided now, if a retry may succeed. The text is for clients, so it
/// does not contain the address of the store.
pub(super) fn unavailable(error: &Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::StoreUnavailable
        | ErrorKind::Indeterminate
        | ErrorKind::AuthenticationFailed => Some("the store is away"),
        ErrorKind::QueueFull => Some("too many requests wait"),
        ErrorKind::Closed => Some("the server ends"),
        _ => None,
    }
}

/// Describes the metrics of the rules, and sets their first values, so that they exist before the
/// first reload and the first request.
pub(super) fn count_first_read() {
    describe_gauge!(
        RULES_VALID,
        "1 where the rules file as it is now is in force, 0 where it is refused"
    );
    describe_counter!(RULES_RELOADS, "How often the rules file was read again");
    describe_counter!(UNMATCHED, "Requests that no rule matched, which are let in");
    counter!(UNMATCHED).increment(0);
    gauge!(RULES_VALID).set(1.0);
    for result in [READ, REFUSED] {
        counter!(RULES_RELOADS, "result" => result).increment(0);
    }
}

fn count_reload<T, E>(read: &std::result::Result<T, E>) {
    let (is_valid, result) = match read {
        Ok(_) => (1.0, READ),
        Err(_) => (0.0, REFUSED),
    };
    gauge!(RULES_VALID).set(is_valid);
    counter!(RULES_RELOADS, "result" => result).increment(1);
}

/// When a denied request can be tried again. `None` if it was not denied, or if a failure policy or
/// a rule that blocks denied it.
fn retry_at(verdict: &Result<Verdict>) -> Option<Instant> {
    let Ok(Verdict::Denied(joint)) = verdict else {
        return None;
    };
    let decision = joint.deciding().1;
    let is_for_good = matches!(
        decision.source(),
        DecisionSource::FailurePolicy | DecisionSource::Rule
    );
    let retry_after = decision.retry_after().filter(|_| !is_for_good)?;
    Instant::now().checked_add(retry_after)
}
