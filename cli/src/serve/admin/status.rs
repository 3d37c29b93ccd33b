//! What the status page shows, as JSON.

use serde_json::{Value, json};

use crate::serve::rules::ShownRule;
use crate::serve::service::Service;

pub(super) fn status(service: &Service) -> Value {
    let shown = service.rules.shown();
    let (asking, denied) = service.usage.hottest();
    let servers = service.client.health().servers.into_iter().map(|it| {
        json!({
            "server": &*it.server,
            "breaker": it.breaker.as_str(),
            "last_cause": it.last_cause.map(|cause| cause.to_string()),
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
        "rules_error": shown.error,
        "servers": servers.collect::<Value>(),
        "rules": rules.collect::<Value>(),
        "asking": asking,
        "denied": denied,
    })
}

fn rule(service: &Service, ShownRule { config, .. }: &ShownRule, all_in_shadow: bool) -> Value {
    json!({
        "name": config.name,
        "key": config.key,
        "policy": config.policy,
        "is_shadow": config.shadow || all_in_shadow,
        "use": service.usage.of_rule(&config.name),
    })
}
