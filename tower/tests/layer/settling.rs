//! Costs that are known only afterwards.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use redisson_rate_limiter::{
    Ending, Error, Faults, FixedWindow, Gcra, KeyedRateLimiter, Limiter, MemoryStore, Policy,
    QuotaBucket, Rate, RedissonClient, Rule, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
};
use redisson_rate_limiter_tower::key::Header;
use redisson_rate_limiter_tower::{Charged, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::events::Events;
use crate::fixture::{MINUTE, by_rules, left, of, per_minute};
use crate::support::Server;

/// A layer that charges 5, and then what the response says.
fn layer(limiter: impl redisson_rate_limiter::Limiter + 'static) -> RateLimitLayer {
    RateLimitLayer::new(limiter, Header::new("x-user"))
        .cost(|_| 5)
        .settle(|response| response.headers.get("x-cost")?.to_str().ok()?.parse().ok())
}

/// The response to a request that has cost this much.
async fn ask(layer: &RateLimitLayer, cost: &'static str) -> Response<String> {
    let handler = service_fn(move |_: Request<String>| async move {
        let response = Response::builder().header("x-cost", cost);
        Ok::<_, Infallible>(response.body(String::new()).unwrap())
    });
    layer.layer(handler).oneshot(of("alice")).await.unwrap()
}

fn limiter(rate: u64) -> KeyedRateLimiter {
    let client = RedissonClient::in_memory();
    client
        .keyed_rate_limiter("tokens:", Rate::overall(rate, MINUTE))
        .unwrap()
}

async fn available(limiter: &KeyedRateLimiter) -> u64 {
    limiter
        .rate_limiter("alice")
        .available_permits()
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_request_costs_what_its_response_says() {
    for (cost, expected) in [
        ("5", 15),
        ("2", 18),
        ("0", 20),
        ("9", 11),
        ("20", 0),
        ("unknown", 15),
    ] {
        let limiter = limiter(20);
        assert_eq!(ask(&layer(limiter.clone()), cost).await.status(), 200);
        assert_eq!(available(&limiter).await, expected, "{cost}");
    }
}

#[tokio::test(start_paused = true)]
async fn permits_that_the_limiter_lacks_are_not_charged() {
    let limiter = limiter(7);
    assert_eq!(ask(&layer(limiter.clone()), "10000").await.status(), 200);
    assert_eq!(available(&limiter).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_charged_the_difference_and_gives_it_back() {
    let limiter = per_minute(&RedissonClient::in_memory(), 20);
    ask(&layer(limiter.clone()), "2").await;
    assert_eq!(left(&limiter, "alice").await, 18);
    ask(&layer(limiter.clone()), "7").await;
    assert_eq!(left(&limiter, "alice").await, 11);
}

/// Which of nine logins are rejected, of which the first three and the sixth succeed.
async fn rejected_logins(limiter: impl Limiter + 'static) -> Vec<usize> {
    let layer = RateLimitLayer::new(limiter, Header::new("x-user"))
        .settle(|response| response.status.is_success().then_some(0));
    let mut rejected = Vec::new();
    for attempt in 1..=9 {
        let status = if [1, 2, 3, 6].contains(&attempt) {
            200
        } else {
            401
        };
        let handler = service_fn(move |_: Request<String>| async move {
            let response = Response::builder().status(status);
            Ok::<_, Infallible>(response.body(String::new()).unwrap())
        });
        let response = layer.layer(handler).oneshot(of("alice")).await.unwrap();
        if response.status() == 429 {
            rejected.push(attempt);
        }
    }
    rejected
}

#[tokio::test(start_paused = true)]
async fn only_failures_count_if_a_success_settles_for_nothing() {
    fn limiter(policy: impl Policy + 'static) -> Arc<dyn Limiter> {
        let client = RedissonClient::in_memory();
        Arc::new(client.policy_limiter(policy).unwrap())
    }
    for limiter in [
        limiter(FixedWindow::new(4, MINUTE)),
        limiter(SlidingWindowLog::new(4, MINUTE)),
        limiter(SlidingWindowCounter::new(4, MINUTE)),
        limiter(TokenBucket::per_second(1).with_capacity(4)),
        limiter(QuotaBucket::new(4, MINUTE)),
        limiter(Gcra::per_second(1).with_burst(4)),
    ] {
        assert_eq!(rejected_logins(limiter.clone()).await, [9], "{limiter:?}");
    }
}

/// What a login form answers.
fn answer(status: u16, grpc: Option<&'static str>) -> Response<String> {
    let mut response = Response::builder().status(status);
    if let Some(grpc) = grpc {
        response = response.header("grpc-status", grpc);
    }
    response.body(String::new()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_rule_counts_only_requests_whose_responses_say_that_they_have_failed() {
    for (has_own_sense, counted, answered) in [
        (false, true, Some(answer(401, None))),
        (false, true, Some(answer(503, None))),
        (false, true, Some(answer(200, Some("16")))),
        (false, true, None),
        (false, false, Some(answer(200, None))),
        (false, false, Some(answer(303, None))),
        (false, false, Some(answer(200, Some("0")))),
        (true, true, Some(answer(200, None))),
        (true, false, Some(answer(303, None))),
    ] {
        for ending in [Ending::Failure, Ending::Success] {
            let client = RedissonClient::in_memory();
            let limiter = per_minute(&client, 20);
            let other = client
                .keyed_rate_limiter("calls:", Rate::overall(20, MINUTE))
                .unwrap();
            let rules = client.rules([
                Rule::new(limiter.clone()).by(["user"]).count_only(ending),
                Rule::new(other.clone()).by(["user"]),
            ]);
            let mut layer = by_rules(Arc::new(rules.unwrap()));
            if has_own_sense {
                layer = layer.failure_when(|response| !response.status.is_redirection());
            }
            let handler = service_fn(|_: Request<String>| {
                std::future::ready(answered.clone().ok_or("it has failed without a response"))
            });
            let response = layer.layer(handler).oneshot(of("alice")).await;
            let status = |it: &Response<String>| it.status();
            assert_eq!(
                response.as_ref().ok().map(status),
                answered.as_ref().map(status)
            );
            let is_counted = counted == (ending == Ending::Failure);
            let expected = if is_counted { 19 } else { 20 };
            assert_eq!(
                left(&limiter, "alice").await,
                expected,
                "{answered:?} {ending:?}"
            );
            assert_eq!(available(&other).await, 19);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_settles_what_its_ending_leaves_charged() {
    let client = RedissonClient::in_memory();
    let limiter = per_minute(&client, 20);
    let rule = Rule::new(limiter.clone())
        .by(["user"])
        .count_only(Ending::Failure);
    let rules = Arc::new(client.rules([rule]).unwrap());
    let layer = by_rules(rules).settle(|_, _| Some(7));
    for (status, expected) in [(200, 20), (401, 13)] {
        let handler = service_fn(move |_: Request<String>| async move {
            Ok::<_, Infallible>(answer(status, None))
        });
        layer.layer(handler).oneshot(of("alice")).await.unwrap();
        assert_eq!(left(&limiter, "alice").await, expected, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn charges_that_are_not_settled_are_reported_once_a_minute_without_keys() {
    let (store, faults) = (MemoryStore::new(), Faults::new());
    let client = RedissonClient::builder().in_memory_with_faults(&store, &faults);
    let limiter = client.keyed_rate_limiter("tokens:", Rate::overall(20, MINUTE));
    let layer = layer(limiter.unwrap());
    let events = Events::start();
    for told in [1, 0, 0] {
        let handler = service_fn(|_: Request<String>| async {
            faults.lose_store(); // between the estimate and what it has cost
            let response = Response::builder().header("x-cost", "7");
            Ok::<_, Infallible>(response.body(String::new()).unwrap())
        });
        layer.layer(handler).oneshot(of("alice")).await.unwrap();
        faults.end();
        let mut seen = events.take();
        seen.retain(|event| event.contains("not settled"));
        assert_eq!(seen.len(), told, "{seen:?}");
        for event in seen {
            assert!(
                event.contains("unavailable") && !event.contains("alice"),
                "{event}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_rule_is_settled_by_its_own_cost() {
    let client = RedissonClient::in_memory();
    let rate = Rate::overall(20, MINUTE);
    let tokens = client.keyed_rate_limiter("tokens:", rate).unwrap();
    let calls = client.keyed_rate_limiter("calls:", rate).unwrap();
    let rules = [
        Rule::new(calls.clone()).by(["user"]),
        Rule::new(tokens.clone()).by(["user"]).cost(5),
    ];
    let layer = by_rules(Arc::new(client.rules(rules).unwrap()));
    let handler = service_fn(|request: Request<String>| async move {
        let charged = request.extensions().get::<Charged>().unwrap();
        let of_tokens = |rule: &str| (rule == "tokens:").then_some(7);
        charged.settle_each(of_tokens).await.unwrap();
        assert_eq!(charged.clone().refund().await.unwrap(), 1); // of the calls
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    layer.layer(handler).oneshot(of("alice")).await.unwrap();
    assert_eq!(
        (available(&tokens).await, available(&calls).await),
        (13, 20)
    );
}

#[tokio::test(start_paused = true)]
async fn a_response_settles_each_rule_also_in_shadow_mode() {
    for (tokens_in_shadow, all_in_shadow) in [(false, false), (true, false), (true, true)] {
        let client = RedissonClient::in_memory();
        let rate = Rate::overall(20, MINUTE);
        let tokens = client.keyed_rate_limiter("tokens:", rate).unwrap();
        let calls = client.keyed_rate_limiter("calls:", rate).unwrap();
        let of_tokens = Rule::new(tokens.clone()).by(["user"]);
        let of_tokens = of_tokens.cost(5);
        let rules = client.rules([
            Rule::new(calls.clone()).by(["user"]),
            match tokens_in_shadow {
                true => of_tokens.in_shadow(),
                false => of_tokens,
            },
        ]);
        let rules = Arc::new(rules.unwrap());
        rules.set_shadow(all_in_shadow);
        let layer = by_rules(rules).settle(|response, rule| match rule {
            "tokens:" => response.headers.get("x-cost")?.to_str().ok()?.parse().ok(),
            _ => None,
        });
        for (cost, left) in [("7", 13), ("1", 12), ("unknown", 7)] {
            let handler = service_fn(move |request: Request<String>| async move {
                let charged = request.extensions().get::<Charged>().unwrap();
                assert_eq!(charged.decision().is_none(), all_in_shadow);
                let response = Response::builder().header("x-cost", cost);
                Ok::<_, Infallible>(response.body(String::new()).unwrap())
            });
            let response = layer.layer(handler).oneshot(of("alice")).await.unwrap();
            assert_eq!(response.headers().contains_key("ratelimit"), !all_in_shadow);
            assert_eq!(available(&tokens).await, left, "{cost}");
        }
        assert_eq!(available(&calls).await, 17);
    }
}

#[tokio::test(start_paused = true)]
async fn an_arc_of_a_limiter_is_a_limiter() {
    let limiter = Arc::new(limiter(20));
    ask(&layer(Arc::clone(&limiter)), "2").await;
    assert_eq!(available(&limiter).await, 18);
    let any: Arc<dyn Limiter> = limiter.clone();
    ask(&layer(any), "1").await;
    assert_eq!(available(&limiter).await, 17);
    let rule = Rule::new(limiter.clone());
    let rules = RedissonClient::in_memory().rules([rule]);
    assert!(rules.is_err(), "it is of another client");
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_is_not_settled() {
    let limiter = limiter(6);
    let layer = layer(limiter.clone());
    assert_eq!(ask(&layer, "3").await.status(), 200);
    assert_eq!(ask(&layer, "3").await.status(), 429);
    assert_eq!(available(&limiter).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_charge_is_settled_once() {
    let limiter = limiter(20);
    let handler = service_fn(|request: Request<String>| async move {
        let charged = request.extensions().get::<Charged>().unwrap();
        charged.settle(7).await.unwrap();
        charged.settle(9).await.unwrap();
        assert_eq!(charged.clone().refund().await.unwrap(), 0);
        let response = Response::builder().header("x-cost", "11");
        Ok::<_, Infallible>(response.body(String::new()).unwrap())
    });
    let service = layer(limiter.clone()).layer(handler);
    service.oneshot(of("alice")).await.unwrap();
    assert_eq!(available(&limiter).await, 13);
}

#[tokio::test(start_paused = true)]
async fn a_charge_of_a_policy_is_settled_once() {
    for handlers in ["settle 5", "settle 7", "settle 2", "refund"] {
        let limiter = per_minute(&RedissonClient::in_memory(), 20);
        let handler = service_fn(move |request: Request<String>| async move {
            let charged = request.extensions().get::<Charged>().unwrap();
            match handlers.strip_prefix("settle ") {
                Some(cost) => charged.settle(cost.parse().unwrap()).await.unwrap(),
                None => assert_eq!(charged.refund().await.unwrap(), 5),
            }
            let response = Response::builder().header("x-cost", "11");
            Ok::<_, Infallible>(response.body(String::new()).unwrap())
        });
        let service = layer(limiter.clone()).layer(handler);
        service.oneshot(of("alice")).await.unwrap();
        let expected = match handlers {
            "settle 7" => 13,
            "settle 2" => 18,
            "refund" => 20,
            _ => 15,
        };
        assert_eq!(left(&limiter, "alice").await, expected, "{handlers}");
    }
}

/// The first of two rules, of which the second may be in shadow mode, or of two layers, cannot be
/// settled or refunded, because its keys hold something else.
#[tokio::test]
async fn a_charge_that_cannot_be_corrected_does_not_affect_others() {
    let server = Server::start();
    let client = RedissonClient::builder().response_timeout(MINUTE);
    let client = client.connect(&server.url()).await.unwrap();
    let cases = ["rules", "shadow", "layers"].map(|by| [(by, true), (by, false)]);
    for (by, is_refund) in cases.into_iter().flatten() {
        let limiter = |name: &str| {
            let prefix = format!("{name}:{by}:{is_refund}:");
            let keyed = client.keyed_rate_limiter(&prefix, Rate::overall(20, MINUTE));
            keyed.unwrap()
        };
        let (broken, sound) = (limiter("broken"), limiter("sound"));
        let raw = server.connection().await;
        let handler = {
            let name = broken.rate_limiter("alice").name().to_owned();
            service_fn(move |request: Request<String>| {
                let charged = request.extensions().get::<Charged>().unwrap().clone();
                let (mut raw, name) = (raw.clone(), name.clone());
                async move {
                    let permits = format!("{{{name}}}:permits");
                    for command in [vec!["DEL", &permits], vec!["SET", &permits, "no set"]] {
                        let mut sent = redis::cmd(command[0]);
                        sent.arg(&command[1..]).exec_async(&mut raw).await.unwrap();
                    }
                    let failed = match is_refund {
                        true => charged.refund().await.map(|_| ()),
                        false => charged.settle_each(|_| Some(3)).await,
                    };
                    let failed = failed.unwrap_err();
                    assert!(matches!(failed, Error::BadState { .. }), "{failed:?}");
                    Ok::<_, Infallible>(Response::new(String::new()))
                }
            })
        };
        let key = || Header::new("x-user");
        // The charge of the inner layer is corrected first.
        let response = if by != "layers" {
            let rule = |limiter: &KeyedRateLimiter| Rule::new(limiter.clone()).by(["user"]).cost(5);
            let second = match by {
                "shadow" => rule(&sound).in_shadow(),
                _ => rule(&sound),
            };
            let rules = client.rules([rule(&broken), second]).unwrap();
            let layer = by_rules(Arc::new(rules));
            layer.layer(handler).oneshot(of("alice")).await
        } else {
            let layer = |limiter| RateLimitLayer::new(limiter, key()).cost(|_| 5);
            let service = layer(sound.clone()).layer(layer(broken).layer(handler));
            service.oneshot(of("alice")).await
        };
        assert_eq!(response.unwrap().status(), 200);
        let expected = if is_refund { 20 } else { 17 };
        assert_eq!(available(&sound).await, expected);
    }
}
