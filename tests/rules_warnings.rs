//! What rules warn of by `tracing`: requests that they refuse because the rules do not fit them.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redisson_rate_limiter::{FixedWindow, Rate, RedissonClient, Rule, Rules};
use tokio::runtime::Builder;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

const HOUR: Duration = Duration::from_secs(3600);

/// The warnings of this thread.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?};").unwrap();
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().starts_with("redisson_rate_limiter")
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Rules of these names, each for two requests an hour.
fn rules(client: &RedissonClient, names: impl Iterator<Item = String>) -> Vec<Rule> {
    let rule = |name: String| {
        let limiter = client.policy_limiter(FixedWindow::new(2, HOUR)).unwrap();
        let limiter = limiter.with_prefix(format!("{name}:")).with_name(name);
        Rule::new(limiter)
    };
    names.map(rule).collect()
}

fn named(names: &[&str]) -> impl Iterator<Item = String> {
    names.iter().map(|it| (*it).to_owned())
}

#[test]
fn a_rule_that_can_never_grant_a_request_is_warned_of_once() {
    let warnings = Warnings::default();
    let said = || std::mem::take(&mut *warnings.0.lock().unwrap());
    let ask = |rules: &Rules, cost: u32| {
        let request = [("cost", cost.to_string())];
        rules.check_now(&request).unwrap().map(|_| ())
    };
    tracing::subscriber::with_default(warnings.clone(), || {
        let client = RedissonClient::in_memory();
        let too_much =
            "message=a request costs more than the limit of a rule: it is never granted;";
        for names in [&["one"][..], &["one", "other"]] {
            let of_rules = client.rules(rules(&client, named(names))).unwrap();
            ask(&of_rules, 1).unwrap();
            assert_eq!(said(), Vec::<String>::new());
            for _ in 0..3 {
                ask(&of_rules, 3).unwrap_err();
            }
            assert_eq!(said(), [format!("{too_much}rules=one;")]);
            of_rules.replace(rules(&client, named(names))).unwrap();
            ask(&of_rules, 3).unwrap_err();
            assert_eq!(said().len(), 1); // anew for other rules
        }
        // What an RRateLimiter never grants is known to the store only.
        let orders = client.rate_limiter("orders");
        let runtime = Builder::new_current_thread().build().unwrap();
        let set = runtime.block_on(orders.try_set_rate(Rate::overall(1, HOUR)));
        assert!(set.unwrap());
        let mut both = rules(&client, named(&["one"]));
        both.push(Rule::new(orders));
        ask(&client.rules(both).unwrap(), 2).unwrap_err();
        assert_eq!(said(), [format!("{too_much}rules=orders;")]);
        let many = (0..33).map(|place| format!("rule {place:02}"));
        let of_rules = client.rules(rules(&client, many)).unwrap();
        for _ in 0..3 {
            ask(&of_rules, 1).unwrap_err();
        }
        let said = said();
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("rule 00, rule 01, "), "{said:?}");
        assert!(said[0].contains("more rules apply to a request than can decide it together"));
    });
}
