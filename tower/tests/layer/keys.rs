//! Keys of requests, and what a client can forge.

use std::future::ready;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Request};
use redisson_rate_limiter::{FixedWindow, RedissonClient, Rule};
use redisson_rate_limiter_tower::key::{ClientAddress, Everyone, Header, Key, Path, bounded};
use redisson_rate_limiter_tower::{ByRules, RateLimitLayer};
use tower::{Layer, ServiceExt};

use crate::fixture::{Handled, MINUTE, ask, by_rules, left, of, per_minute, request};

fn from(peer: &str, name: &'static str, lines: &[&str]) -> Parts {
    let mut request = Request::builder();
    if !peer.is_empty() {
        request = request.extension(peer.parse::<SocketAddr>().unwrap());
    }
    for line in lines {
        request = request.header(name, *line);
    }
    request.body(()).unwrap().into_parts().0
}

#[track_caller]
fn check(key: &ClientAddress, peer: &str, lines: &[&str], expected: &str) {
    let request = from(peer, "x-forwarded-for", lines);
    assert_eq!(
        key.key(&request).as_deref(),
        Some(expected),
        "{peer} {lines:?}"
    );
}

#[test]
fn the_peer_is_believed_whatever_the_header_says() {
    let key = ClientAddress::peer();
    check(&key, "192.0.2.1:80", &["203.0.113.9"], "192.0.2.1");
}

#[test]
fn a_forged_header_changes_nothing_behind_trusted_proxies() {
    let one = ClientAddress::behind_proxies(1);
    for forged in [
        "",
        "203.0.113.9, ",
        "unknown, ",
        "\"203.0.113.9, ",
        ",,,",
        "for=1.2.3.4, ",
    ] {
        check(
            &one,
            "10.0.0.7:80",
            &[&format!("{forged}192.0.2.1")],
            "192.0.2.1",
        );
    }
    check(
        &one,
        "10.0.0.7:80",
        &["203.0.113.9", "192.0.2.1"],
        "192.0.2.1",
    );
    let two = ClientAddress::behind_proxies(2);
    check(
        &two,
        "10.0.0.7:80",
        &["203.0.113.9, 192.0.2.1, 10.0.0.3"],
        "192.0.2.1",
    );
    check(
        &two,
        "10.0.0.7:80",
        &["203.0.113.9", "192.0.2.1", "10.0.0.3"],
        "192.0.2.1",
    );
}

#[test]
fn a_list_with_fewer_entries_than_proxies_ends_at_its_first() {
    let two = ClientAddress::behind_proxies(2);
    check(&two, "10.0.0.7:80", &["192.0.2.1"], "192.0.2.1");
    check(&two, "10.0.0.7:80", &[], "10.0.0.7");
}

#[test]
fn only_trusted_networks_are_followed() {
    let key = ClientAddress::behind_networks(&["10.0.0.0/8", "fd00::/8"]).unwrap();
    check(
        &key,
        "10.0.0.7:80",
        &["203.0.113.9, 192.0.2.1, 10.0.0.3"],
        "192.0.2.1",
    );
    check(
        &key,
        "[fd00::7]:80",
        &["203.0.113.9, 192.0.2.1, 10.0.0.3"],
        "192.0.2.1",
    );
    check(&key, "198.51.100.5:80", &["203.0.113.9"], "198.51.100.5");
    check(&key, "10.0.0.7:80", &["10.0.0.3"], "10.0.0.3");
    // An IPv4 address as a socket for both versions has it.
    check(
        &key,
        "[::ffff:10.0.0.7]:80",
        &["::ffff:192.0.2.1"],
        "192.0.2.1",
    );
}

#[test]
fn an_entry_that_is_no_address_ends_at_the_proxy_that_wrote_it() {
    let key = ClientAddress::behind_proxies(2);
    for entry in [
        "unknown",
        "_hidden",
        "",
        "1.2.3",
        "1.2.3.4.5",
        "[::1",
        "10.0.0.256",
        "é",
    ] {
        check(
            &key,
            "10.0.0.7:80",
            &[&format!("192.0.2.1, {entry}, 10.0.0.3")],
            "10.0.0.3",
        );
    }
}

#[test]
fn an_address_may_have_a_port_or_brackets() {
    let key = ClientAddress::behind_proxies(1).ipv6_prefix(128);
    check(&key, "10.0.0.7:80", &["192.0.2.1:4711"], "192.0.2.1");
    for entry in ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:4711"] {
        check(&key, "10.0.0.7:80", &[entry], "2001:db8::1/128");
    }
}

#[test]
fn addresses_of_one_ipv6_network_share_a_key() {
    let key = ClientAddress::peer();
    check(&key, "[2001:db8:1:2::1]:80", &[], "2001:db8:1:2::/64");
    check(&key, "[2001:db8:1:2:ffff::1]:80", &[], "2001:db8:1:2::/64");
    check(
        &key.ipv6_prefix(48),
        "[2001:db8:1:ffff::1]:80",
        &[],
        "2001:db8:1::/48",
    );
}

#[test]
fn the_field_forwarded_is_read_from_the_right_too() {
    let key = ClientAddress::behind_proxies(1).in_forwarded();
    for element in [
        "for=192.0.2.1",
        "For=\"192.0.2.1:4711\";proto=https",
        "proto=http; by=10.0.0.7 ;FOR = 192.0.2.1",
        "for=203.0.113.9, for=192.0.2.1",
        // A quote that the client has left open.
        "for=\"203.0.113.9, for=192.0.2.1",
    ] {
        let request = from("10.0.0.7:80", "forwarded", &[element]);
        assert_eq!(key.key(&request).as_deref(), Some("192.0.2.1"), "{element}");
    }
    for element in ["proto=https", "for=unknown", "for=_gazonk", "192.0.2.1"] {
        let request = from("10.0.0.7:80", "forwarded", &[element]);
        assert_eq!(key.key(&request).as_deref(), Some("10.0.0.7"), "{element}");
    }
    let other = from("10.0.0.7:80", "x-forwarded-for", &["192.0.2.1"]);
    assert_eq!(key.key(&other).as_deref(), Some("10.0.0.7"));
}

#[test]
fn a_host_that_reads_like_an_address_is_not_taken_for_one() {
    let key = ClientAddress::behind_proxies(1).in_forwarded();
    for (host, expected) in [
        ("a", "192.0.2.1"),
        (r#"a\"b"#, "192.0.2.1"),
        (r"a\\", "192.0.2.1"),
        // It counts for the proxy, even if the proxy has not quoted the host.
        ("a;for=203.0.113.9;b", "10.0.0.7"),
        ("a,for=203.0.113.9;b", "10.0.0.7"),
        (r#"a\";for=203.0.113.9;b=\"c"#, "10.0.0.7"),
        (r#"a";for=203.0.113.9;b="c"#, "10.0.0.7"),
    ] {
        // HAProxy writes the host before the address.
        for element in [
            format!("proto=http;host=\"{host}\";for=192.0.2.1"),
            format!("for=203.0.113.9, host=\"{host}\";for=\"192.0.2.1:4711\""),
            format!("for=\"203.0.113.9, for=192.0.2.1;host=\"{host}\""),
        ] {
            let request = from("10.0.0.7:80", "forwarded", &[&element]);
            assert_eq!(key.key(&request).as_deref(), Some(expected), "{element}");
        }
    }
    for element in [
        "host=a;for=203.0.113.9;for=192.0.2.1",
        "host=\"a;for=203.0.113.9;b\"",
        "for=203.0.113.9;a=\", for=192.0.2.1;host=a\"",
    ] {
        let request = from("10.0.0.7:80", "forwarded", &[element]);
        assert_eq!(key.key(&request).as_deref(), Some("10.0.0.7"), "{element}");
    }
}

#[test]
fn the_peer_is_found_where_the_server_keeps_it() {
    let (mut request, ()) = Request::new(()).into_parts();
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    request.extensions.insert(address);
    assert_eq!(
        ClientAddress::peer().key(&request).as_deref(),
        Some("192.0.2.1")
    );
    let key = ClientAddress::peer().with_peer(|_| Some(IpAddr::from([192, 0, 2, 2])));
    assert_eq!(key.key(&request).as_deref(), Some("192.0.2.2"));
}

#[tokio::test(start_paused = true)]
async fn requests_without_an_address_share_one_limit() {
    let client = RedissonClient::in_memory();
    let limiter = per_minute(&client, 2);
    let layer = RateLimitLayer::new(limiter.clone(), ClientAddress::peer());
    for status in [200, 200, 429] {
        assert_eq!(ask(&layer, request()).await.status(), status);
    }
    assert_eq!(left(&limiter, "unknown").await, 0);
    // The proxy's word is enough, where the proxy is trusted.
    let layer = RateLimitLayer::new(limiter, ClientAddress::behind_proxies(1));
    let mut forwarded = request();
    forwarded
        .headers_mut()
        .insert("x-forwarded-for", HeaderValue::from_static("192.0.2.1"));
    assert_eq!(ask(&layer, forwarded).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn nobody_escapes_by_leaving_out_the_header() {
    let client = RedissonClient::in_memory();
    let layer = RateLimitLayer::new(per_minute(&client, 1), Header::new("x-user"));
    assert_eq!(ask(&layer, request()).await.status(), 200);
    assert_eq!(ask(&layer, of("")).await.status(), 429);
    assert_eq!(ask(&layer, of("alice")).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_megabyte_is_one_key_of_71_bytes() {
    let long = "k".repeat(1 << 20);
    let hash = "sha256-17b08269fd437b655d318c05c440dbab79afec7f92c056472a59a8d7208ce389";
    for is_found_by_a_task in [false, true] {
        let limiter = per_minute(&RedissonClient::in_memory(), 1);
        let layer = match is_found_by_a_task {
            false => RateLimitLayer::new(limiter.clone(), Header::new("x-user")),
            true => RateLimitLayer::with_async_key(limiter.clone(), |request| {
                let user = request.headers["x-user"].to_str().unwrap().to_owned();
                Box::pin(async { Some(user) })
            }),
        };
        for status in [200, 429] {
            assert_eq!(ask(&layer, of(&long)).await.status(), status);
        }
        assert_eq!(ask(&layer, of(&format!("{long}k"))).await.status(), 200);
        assert_eq!((hash.len(), left(&limiter, hash).await), (71, 0));
        assert_eq!(left(&limiter, &long).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_may_be_found_by_a_task() {
    async fn user(request: &Parts) -> Option<String> {
        tokio::task::yield_now().await;
        let user = request.headers.get("x-user")?;
        user.to_str().ok().map(str::to_uppercase)
    }

    let client = RedissonClient::in_memory();
    let limiter = per_minute(&client, 1);
    let layer = RateLimitLayer::with_async_key(limiter.clone(), |request| Box::pin(user(request)));
    assert_eq!(ask(&layer, of("alice")).await.status(), 200);
    assert_eq!(left(&limiter, "ALICE").await, 0);
    assert_eq!(ask(&layer, request()).await.status(), 200);
    assert_eq!(left(&limiter, "unknown").await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_attribute_may_be_found_by_a_task() {
    async fn session(request: &Parts) -> Option<String> {
        tokio::task::yield_now().await;
        let user = request.headers.get("x-user")?;
        user.to_str().ok().map(str::to_uppercase)
    }

    let client = RedissonClient::in_memory();
    let all = client.policy_limiter(FixedWindow::new(9, MINUTE)).unwrap();
    let (users, all) = (per_minute(&client, 1), all.with_prefix("all:"));
    let rules = client.rules([
        Rule::new(users.clone()).by(["user"]),
        Rule::new(all.clone()),
    ]);
    let rules = Arc::new(rules.unwrap());
    let shared = Arc::clone(&rules);
    let layer = RateLimitLayer::by_rules(shared);
    let layer = layer.async_attribute("user", |it| Box::pin(session(it)));
    let long = "k".repeat(300);
    for (user, status) in [("alice", 200), ("alice", 429), (&long, 200), ("", 200)] {
        let response = ask(&layer, of(user)).await;
        assert_eq!(response.status(), status, "{user}");
    }
    assert_eq!(ask(&layer, request()).await.status(), 200); // only the other rule applies
    assert_eq!(left(&users, "ALICE").await, 0);
    assert_eq!(left(&users, &bounded(long.to_uppercase().into())).await, 0);
    assert_eq!(left(&all, "all").await, 5);

    // The attribute is that of one layer: one inside has its own, and none without.
    let without = by_rules(Arc::clone(&rules));
    let nested = layer.layer(without.layer(Handled::default().service()));
    let response = nested.oneshot(of("bob")).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(left(&all, "all").await, 3);
}

#[test]
fn a_hash_depends_on_secret_and_key_and_shows_neither() {
    let hash = |secret: &str, key: &str| {
        let hashed = Header::new("x-user").hashed(secret);
        assert!(!format!("{hashed:?}").contains(secret));
        let (request, _) = of(key).into_parts();
        hashed.key(&request).unwrap().into_owned()
    };
    // RFC 4231, test case 2.
    assert_eq!(
        hash("Jefe", "what do ya want for nothing?"),
        "5bdcc146bf60754e6a042426089575c7"
    );
    assert_ne!(hash("one", "sk-123"), hash("two", "sk-123"));
    assert_ne!(hash("one", "sk-123"), hash("one", "sk-124"));
    assert_eq!(
        Header::new("x-user")
            .hashed("one")
            .key(&request().into_parts().0),
        None
    );
}

#[test]
fn no_two_combinations_share_a_key() {
    let both = Header::new("x-user").and(Header::new("x-app"));
    let key = |user: &str, app: &str| {
        let mut request = of(user);
        request
            .headers_mut()
            .insert("x-app", HeaderValue::from_str(app).unwrap());
        both.key(&request.into_parts().0).unwrap().into_owned()
    };
    assert_eq!(key("alice", "web"), "alice:web");
    assert_ne!(key("a:b", "c"), key("a", "b:c"));
    assert_ne!(key("a%3Ab", "c"), key("a:b", "c"));
    assert_eq!(both.key(&of("alice").into_parts().0), None);
    let or = Header::new("x-app").or(Everyone);
    assert_eq!(
        or.key(&of("alice").into_parts().0).as_deref(),
        Some("everyone")
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_key_is_a_key_that_is_missing() {
    let client = RedissonClient::in_memory();
    let limiter = per_minute(&client, 3);
    let empty = |_: &Parts| Some(String::new());
    for layer in [
        RateLimitLayer::new(limiter.clone(), empty),
        RateLimitLayer::with_async_key(limiter.clone(), |_| {
            Box::pin(async { Some(String::new()) })
        }),
    ] {
        assert_eq!(ask(&layer, request()).await.status(), 200);
    }
    let tunnel = || {
        let request = Request::connect("example.com:443");
        request.body(String::new()).unwrap()
    };
    let layer = RateLimitLayer::new(limiter.clone(), Path);
    for status in [200, 429] {
        assert_eq!(ask(&layer, tunnel()).await.status(), status);
    }
    assert_eq!(left(&limiter, "unknown").await, 0);

    let (tunnel, _) = tunnel().into_parts();
    assert_eq!(Path.or(Everyone).key(&tunnel).as_deref(), Some("everyone"));
    assert_eq!(Everyone.and(Path).key(&tunnel), None);
    assert_eq!(Path.hashed("secret").key(&tunnel), None);
}

#[tokio::test(start_paused = true)]
async fn a_host_is_compared_without_its_port_also_an_ipv6_address() {
    let client = RedissonClient::in_memory();
    for (host, value) in [
        ("example.com", "example.com"),
        ("[2001:DB8::1]", "[2001:db8::1]"),
        ("[2001:db8::1]:8080", "[2001:db8::1]"),
    ] {
        let rule = Rule::block("seen").when("host", [value]);
        let layer = by_rules(Arc::new(client.rules([rule]).unwrap()));
        let request = Request::get("/").header("host", host);
        let response = ask(&layer, request.body(String::new()).unwrap()).await;
        assert_eq!(response.status(), 403, "{host}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_host_of_the_target_takes_precedence_over_that_of_the_field() {
    let client = RedissonClient::in_memory();
    let rule = Rule::block("seen").when("host", ["example.com"]);
    let layer = by_rules(Arc::new(client.rules([rule]).unwrap()));
    for (target, field, status) in [
        ("http://example.com/", "other.example", 403),
        ("http://other.example/", "example.com", 200),
    ] {
        let request = Request::get(target).header("host", field);
        let response = ask(&layer, request.body(String::new()).unwrap()).await;
        assert_eq!(response.status(), status, "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn rules_see_the_attributes_of_http() {
    let client = RedissonClient::in_memory();
    let request = || {
        let request = Request::get("/login?next=/")
            .header("host", "Example.COM:8080")
            .header("x-user", "alice")
            .header("x-forwarded-for", "2001:db8::9")
            .extension(SocketAddr::from(([192, 0, 2, 1], 80)));
        request.body(String::new()).unwrap()
    };
    for (attribute, value, of_peer, behind_a_proxy) in [
        ("method", "GET", true, true),
        ("method", "get", false, false),
        ("host", "example.com", true, true),
        ("path", "/login", true, true),
        ("path", "/log*", true, true),
        ("route", "*", false, false),
        ("address", "192.0.2.0/24", true, false),
        ("address", "2001:db8::9", false, true),
        ("user", "alice", false, true),
    ] {
        let rule = Rule::block("seen").when(attribute, [value]);
        let rules = Arc::new(client.rules([rule]).unwrap());
        let plain = RateLimitLayer::by_rules(Arc::clone(&rules));
        let behind = by_rules(rules).address(ClientAddress::behind_proxies(1));
        for (layer, expected) in [(plain, of_peer), (behind, behind_a_proxy)] {
            let is_seen = ask(&layer, request()).await.status() == 403;
            assert_eq!(is_seen, expected, "{attribute} {value}");
        }
    }
    // An attribute of the application replaces that of the layer, and an empty one counts as
    // missing.
    for (path, status) in [(Some("/login"), 403), (Some(""), 200), (None, 200)] {
        let rule = Rule::block("seen").when("path", ["*"]);
        let layer = by_rules(Arc::new(client.rules([rule]).unwrap()));
        let path = path.map(str::to_owned);
        let later = path.clone();
        let at_once = layer
            .clone()
            .attribute("path", move |_: &Parts| path.clone());
        let later = layer.async_attribute("path", move |_| Box::pin(ready(later.clone())));
        for layer in [at_once, later] {
            assert_eq!(ask(&layer, request()).await.status(), status);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_attribute_that_is_added_last_replaces_those_of_its_name() {
    type Added = fn(RateLimitLayer<ByRules>, &'static str) -> RateLimitLayer<ByRules>;
    let client = RedissonClient::in_memory();
    let rule = Rule::block("old").when("user", ["old"]);
    let layer = by_rules(Arc::new(client.rules([rule]).unwrap()));
    let of_key = |layer: RateLimitLayer<ByRules>, user: &'static str| {
        layer.attribute("user", move |_: &Parts| Some(user.to_owned()))
    };
    let of_session = |layer: RateLimitLayer<ByRules>, user: &'static str| {
        layer.async_attribute("user", move |_| Box::pin(ready(Some(user.to_owned()))))
    };
    for old in [of_key, of_session] as [Added; 2] {
        let old = old(layer.clone(), "old");
        assert_eq!(ask(&old, request()).await.status(), 403);
        for new in [of_key, of_session] as [Added; 2] {
            let new = new(old.clone(), "new");
            assert_eq!(ask(&new, request()).await.status(), 200);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_counts_the_network_of_an_address() {
    let client = RedissonClient::in_memory();
    let rule = Rule::new(per_minute(&client, 1)).by(["address/56"]);
    let layer = by_rules(Arc::new(client.rules([rule]).unwrap()));
    for (address, status) in [
        ("2001:db8::1", 200),
        ("2001:db8:0:ff::1", 429),
        ("2001:db8:0:100::1", 200),
        ("::ffff:192.0.2.1", 200),
        ("192.0.2.1", 429),
    ] {
        let address: IpAddr = address.parse().unwrap();
        let request = Request::builder().extension(address);
        let response = ask(&layer, request.body(String::new()).unwrap()).await;
        assert_eq!(response.status(), status, "{address}");
    }
}

#[test]
fn a_trusted_network_may_be_written_as_one_of_ipv6() {
    for network in [
        "::ffff:10.0.0.0/104",
        "::ffff:10.0.0.7",
        "::ffff:10.0.0.7/128",
    ] {
        let key = ClientAddress::behind_networks(&[network]).unwrap();
        for peer in ["10.0.0.7:80", "[::ffff:10.0.0.7]:80"] {
            check(&key, peer, &["192.0.2.1"], "192.0.2.1");
        }
        check(&key, "11.0.0.7:80", &["192.0.2.1"], "11.0.0.7");
    }
}
