//! The data of the status page, as JSON.

use redisson_rate_limiter::BreakerState;
use serde_json::{Value, json};

use crate::rules::ShownRule;
use crate::service::Service;

pub(super) fn status(service: &Service) -> Value {
    let shown = service.rules.shown();
    let servers = service.client.health().servers.into_iter().map(|it| {
        let cause = it.last_cause.filter(|_| it.breaker != BreakerState::Closed);
        json!({
            "server": &*it.server,
            "breaker": it.breaker.as_str(),
            "last_cause": cause.map(|cause| cause.to_string()),
        })
    });
    let rules = shown
        .rules
        .iter()
        .map(|it| rule(service, it, shown.is_shadow));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": service.usage.since.elapsed().as_secs(),
        "is_ready": service.is_ready(),
        "alerts": alerts(service),
        "recent": service.usage.recent(),
        "unmatched": service.usage.unmatched(),
        "servers": servers.collect::<Value>(),
        "rules": rules.collect::<Value>(),
    })
}

/// What an operator has to know first, the most serious alert on top.
fn alerts(service: &Service) -> Value {
    let mut alerts = Vec::new();
    if *service.closing.borrow() {
        alerts.push(json!({ "title": "The server is shutting down", "cause": "" }));
    }
    if let Some(away) = service.store.away() {
        let title = if service.fails_without_store() {
            "The store does not answer, requests get 503"
        } else {
            "The store does not answer, the failure policy decides"
        };
        let since_s = away.since.elapsed().as_secs();
        alerts.push(json!({ "title": title, "cause": away.cause, "since_s": since_s }));
    }
    if let Some(refused) = &service.rules.shown().refused {
        let title = "The rules file is refused, the rules before it are in force";
        let since_s = refused.since.elapsed().as_secs();
        alerts.push(json!({ "title": title, "cause": refused.cause, "since_s": since_s }));
    }
    alerts.into()
}

fn rule(service: &Service, shown: &ShownRule, all_in_shadow: bool) -> Value {
    let config = &shown.config;
    let usage = service.usage.of_rule(&config.name);
    json!({
        "name": config.name,
        "applies": shown.applies(),
        "limit": shown.limit(),
        "is_shadow": config.shadow || all_in_shadow,
        "use": usage,
        "asking": usage.asking,
        "denied": usage.denied,
    })
}
