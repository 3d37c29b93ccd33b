//! The header fields, read by this crate, by the crate that writes them, and by a parser of
//! structured fields in Python.

use std::path::Path;
use std::process::Command;
use std::slice;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue};
use redisson_rate_limiter::{Decision, Denied, Granted, Quota, RedissonClient, TokenBucket};
use redisson_rate_limiter_tower::fields::{Fields, Limit, parse, wait};
use serde_json::json;
use sfv::{List, ListEntry, Parser};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn granted(limit: u64, window: Duration, remaining: u64, reset: Duration) -> Decision {
    let granted = Granted::new(1).with_quota(Quota::new(limit, window));
    granted.with_remaining(remaining).with_reset(reset).into()
}

fn fields(form: Fields, limits: &[Limit<'_>]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    form.add_to(&mut headers, limits);
    headers
}

fn ietf(name: &str, decision: &Decision) -> (String, String) {
    let headers = fields(Fields::Ietf, &[Limit::of(name, decision).unwrap()]);
    let text = |name| headers[name].to_str().unwrap().to_owned();
    (text("ratelimit-policy"), text("ratelimit"))
}

/// What the Python package `http-sf`, which `scripts/tools` downloads, reads of a field. Bytes are
/// lists of numbers.
fn read_by_python(field: &HeaderValue, kind: &str) -> serde_json::Value {
    const PROGRAM: &str = "
import http_sf, json, sys
read = http_sf.parse(sys.argv[1].encode(), tltype=sys.argv[2])
print(json.dumps(read, default=list))
";
    let wheels = ["http_sf-1.5.0", "typing_extensions-4.16.0"];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/http-sf");
    let wheels = wheels.map(|it| folder.join(format!("{it}-py3-none-any.whl")));
    for wheel in &wheels {
        let wheel_is_there = wheel.exists();
        assert!(
            wheel_is_there,
            "{wheel:?} is missing: scripts/tools downloads it"
        );
    }
    let output = Command::new("python3")
        .args(["-c", PROGRAM, field.to_str().unwrap(), kind])
        .env("PYTHONPATH", std::env::join_paths(wheels).unwrap())
        .output()
        .expect("python3 is installed");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{field:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn another_implementation_reads_what_is_written() {
    let longest = Duration::from_secs(u64::MAX);
    let user = granted(100, MINUTE, 99, SECOND);
    let name = r#"größe "b" \"#;
    let odd = granted(u64::MAX, longest, 0, longest);
    let short = granted(5, SECOND / 2, 4, SECOND / 2);
    let limits = [
        Limit::of("user", &user).unwrap(),
        Limit::of(name, &odd).unwrap(),
        Limit::of("", &short).unwrap(),
    ];
    let [user, odd, short] = limits;
    let user = user
        .with_unit("content-bytes")
        .with_partition_key(&[0, 255][..]);
    let limits = [user, odd, short];
    let most = 999_999_999_999_999_u64;
    let (name, pk) = (r#"gr__e "b" \"#, [0, 255]);

    let headers = fields(Fields::Ietf, &limits);
    let list = |field| read_by_python(&headers[field], "list");
    assert_eq!(
        list("ratelimit-policy"),
        json!([
            ["user", { "q": 100, "qu": "content-bytes", "w": 60, "pk": pk }],
            [name, { "q": most, "w": most }],
            ["", { "q": 5 }],
        ])
    );
    assert_eq!(
        list("ratelimit"),
        json!([
            ["user", { "r": 99, "t": 0, "pk": pk }],
            [name, { "r": 0, "t": most }],
            ["", { "r": 4, "t": 0 }],
        ])
    );

    let headers = fields(Fields::Draft7, &limits);
    assert_eq!(
        read_by_python(&headers["ratelimit-policy"], "list"),
        json!([[100, { "w": 60 }], [most, { "w": most }], [5, {}]])
    );
    let number = |number| json!([number, {}]);
    assert_eq!(
        read_by_python(&headers["ratelimit"], "dictionary"),
        json!({ "limit": number(100), "remaining": number(99), "reset": number(1) })
    );
}

#[test]
fn numbers_are_at_most_what_a_structured_field_can_hold() {
    let decision = granted(
        u64::MAX,
        Duration::from_secs(u64::MAX),
        u64::MAX,
        Duration::MAX,
    );
    let (policy, limit) = ietf("user", &decision);
    assert_eq!(policy, r#""user";q=999999999999999;w=999999999999999"#);
    assert_eq!(limit, r#""user";r=999999999999999;t=0"#);
    let used_up = granted(u64::MAX, Duration::MAX, 0, Duration::MAX);
    assert_eq!(ietf("user", &used_up).1, r#""user";r=0;t=999999999999999"#);
    for field in [policy, limit] {
        Parser::new(&field).parse::<List>().unwrap();
    }
}

#[test]
fn no_more_is_left_than_the_limit() {
    let headers = |form| {
        let decision = granted(5, MINUTE, 9, SECOND);
        fields(form, &[Limit::of("user", &decision).unwrap()])
    };
    assert_eq!(headers(Fields::Ietf)["ratelimit"], r#""user";r=5;t=0"#);
    assert_eq!(
        headers(Fields::Draft7)["ratelimit"],
        "limit=5, remaining=5, reset=1"
    );
    assert_eq!(headers(Fields::XRateLimit)["x-ratelimit-remaining"], "5");
}

#[test]
fn the_reset_may_be_a_point_in_time() {
    let decision = granted(5, MINUTE, 0, MINUTE);
    let now = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
    };
    let before = (now() + MINUTE).as_secs();
    let headers = fields(
        Fields::XRateLimitAt,
        &[Limit::of("user", &decision).unwrap()],
    );
    let after = (now() + MINUTE).as_secs() + 1; // rounded up
    let reset: u64 = headers["x-ratelimit-reset"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        (before..=after).contains(&reset),
        "{before} {reset} {after}"
    );
    assert_eq!(headers["x-ratelimit-remaining"], "0");
    let [limit] = &parse(
        &headers,
        SystemTime::UNIX_EPOCH + Duration::from_secs(reset - 9),
    )[..] else {
        panic!("{headers:?}");
    };
    assert_eq!(limit.reset, Some(9 * SECOND));
}

#[test]
fn a_window_under_a_second_is_left_out_and_a_longer_one_rounded_up() {
    let policy = |millis| {
        ietf(
            "user",
            &granted(5, Duration::from_millis(millis), 4, SECOND),
        )
        .0
    };
    assert_eq!(policy(999), r#""user";q=5"#);
    assert_eq!(policy(1_000), r#""user";q=5;w=1"#);
    assert_eq!(policy(1_001), r#""user";q=5;w=2"#);
}

#[test]
fn the_time_until_more_is_available_is_rounded_up_and_at_most_the_window() {
    let limit = |millis| {
        let used_up = granted(5, MINUTE, 0, Duration::from_millis(millis));
        ietf("user", &used_up).1
    };
    assert_eq!(limit(0), r#""user";r=0;t=0"#);
    assert_eq!(limit(1), r#""user";r=0;t=1"#);
    assert_eq!(limit(59_001), r#""user";r=0;t=60"#);
    assert_eq!(limit(600_000), r#""user";r=0;t=60"#);
}

/// A bucket of 10,000 that gets ten each second.
#[tokio::test(start_paused = true)]
async fn if_nothing_is_left_the_time_is_that_of_the_next_permit() {
    let policy = TokenBucket::per_second(10).with_capacity(10_000);
    let limiter = RedissonClient::in_memory().policy_limiter(policy).unwrap();
    for (cost, left) in [(9_999, 1), (1, 0), (1, 0)] {
        let decision = limiter.check("user", cost).await.unwrap();
        let limit = Limit::of("user", &decision).unwrap();
        let time = u64::from(left == 0);
        let expected = format!("\"user\";r={left};t={time}");
        let headers = fields(Fields::Ietf, slice::from_ref(&limit));
        assert_eq!(headers["ratelimit"], expected);
        let waits = (left == 0).then_some(SECOND);
        assert_eq!(wait(&headers, SystemTime::now()), waits);
        // That the whole limit is back takes 1,000 s.
        let reset = if left == 0 { 1 } else { 1_000 };
        let expected = format!("limit=10000, remaining={left}, reset={reset}");
        let headers = fields(Fields::Draft7, slice::from_ref(&limit));
        assert_eq!(headers["ratelimit"], expected);
        let headers = fields(Fields::XRateLimit, slice::from_ref(&limit));
        assert_eq!(headers["x-ratelimit-reset"], "1000");
    }
}

#[test]
fn a_denied_request_states_when_something_is_available() {
    let quota = Quota::new(5, MINUTE);
    let denied = Denied::new(SECOND).with_quota(quota).with_reset(MINUTE);
    assert_eq!(ietf("user", &denied.into()).1, r#""user";r=0;t=1"#);
    // It would have granted the request that another limiter denied.
    let not_charged = Denied::new(Duration::ZERO).with_quota(quota);
    let not_charged = not_charged.with_remaining(3).with_reset(MINUTE);
    assert_eq!(ietf("user", &not_charged.into()).1, r#""user";r=3;t=0"#);
    let large = Denied::new(MINUTE).with_quota(quota).with_reset(MINUTE);
    let large = large.with_available_in(SECOND);
    assert_eq!(ietf("user", &large.into()).1, r#""user";r=0;t=1"#);
}

#[test]
fn a_name_that_no_field_can_hold_is_made_printable() {
    let decision = granted(5, MINUTE, 4, MINUTE);
    for (name, written) in [
        ("per user", r#""per user""#),
        (r#"a "b" \c"#, r#""a \"b\" \\c""#),
        ("größe\r\nSet-Cookie: x", r#""gr__e__Set-Cookie: x""#),
        ("", r#""""#),
    ] {
        let (policy, limit) = ietf(name, &decision);
        assert_eq!(policy, format!("{written};q=5;w=60"));
        assert_eq!(limit, format!("{written};r=4;t=0"));
    }
}

#[test]
fn unit_and_partition_key_are_parameters() {
    let decision = granted(5, MINUTE, 4, MINUTE);
    let limit = Limit::of("app", &decision).unwrap();
    let limit = limit
        .with_unit("content-bytes")
        .with_partition_key(&b"App-999"[..]);
    let headers = fields(Fields::Ietf, slice::from_ref(&limit));
    let policy = r#""app";q=5;qu="content-bytes";w=60;pk=:QXBwLTk5OQ==:"#;
    assert_eq!(headers["ratelimit-policy"], policy);
    assert_eq!(headers["ratelimit"], r#""app";r=4;t=0;pk=:QXBwLTk5OQ==:"#);
    let Limit {
        unit,
        partition_key,
        ..
    } = parse(&headers, SystemTime::now()).remove(0);
    assert_eq!((unit, partition_key), (limit.unit, limit.partition_key));
}

#[test]
fn fields_of_two_layers_are_one_list() {
    let decision = granted(5, MINUTE, 4, MINUTE);
    let mut headers = HeaderMap::new();
    for name in ["user", "address"] {
        Fields::Ietf.add_to(&mut headers, &[Limit::of(name, &decision).unwrap()]);
    }
    let limits = parse(&headers, SystemTime::now());
    let names: Vec<_> = limits.iter().map(|it| (&*it.name, it.limit)).collect();
    assert_eq!(names, [("user", Some(5)), ("address", Some(5))]);
}

#[test]
fn the_fields_with_one_limit_have_the_first_one_that_is_added() {
    let strict = Limit::of("user", &granted(5, MINUTE, 4, SECOND)).unwrap();
    let mild = Limit::of("all", &granted(900, MINUTE, 800, MINUTE)).unwrap();
    for (form, name) in [
        (Fields::Draft7, "ratelimit"),
        (Fields::XRateLimit, "x-ratelimit-limit"),
    ] {
        let mut headers = fields(form, &[strict.clone(), mild.clone()]);
        let before = headers.clone();
        form.add_to(&mut headers, slice::from_ref(&mild));
        assert_eq!(headers, before, "{name}");
        let limit = parse(&headers, SystemTime::now()).remove(0);
        assert_eq!((limit.limit, limit.remaining), (Some(5), 4));
        assert_eq!(limit.available_in.or(limit.reset), Some(SECOND));
    }
    assert!(fields(Fields::None, &[strict]).is_empty());
}

#[test]
fn every_form_names_the_fields_that_it_writes() {
    let limit = Limit::of("user", &granted(5, MINUTE, 4, SECOND)).unwrap();
    for form in [
        Fields::Ietf,
        Fields::Draft7,
        Fields::XRateLimit,
        Fields::XRateLimitAt,
        Fields::None,
    ] {
        let headers = fields(form, slice::from_ref(&limit));
        let mut written: Vec<_> = headers.keys().map(|it| it.as_str()).collect();
        written.push("retry-after");
        written.sort_unstable();
        let mut named: Vec<_> = form.names().iter().map(|it| it.as_str()).collect();
        named.sort_unstable();
        assert_eq!(named, written);
    }
}

fn parsed(fields: &[(&'static str, &'static str)], now: u64) -> Vec<Limit<'static>> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, HeaderValue::from_static(value));
    }
    parse(&headers, SystemTime::UNIX_EPOCH + Duration::from_secs(now))
}

#[test]
fn earlier_forms_are_read() {
    let draft7 = [
        ("ratelimit", "limit=100, remaining=50, reset=30"),
        ("ratelimit-policy", "10;w=1, 100;w=60"),
    ];
    let draft3 = [
        ("ratelimit-limit", "100, 10;w=1, 100;w=60"),
        ("ratelimit-remaining", "50"),
        ("ratelimit-reset", "30"),
    ];
    let draft6 = [
        ("ratelimit-limit", "100"),
        ("ratelimit-policy", "10;w=1, 100;w=60"),
        ("ratelimit-remaining", "50"),
        ("ratelimit-reset", "30"),
    ];
    for fields in [&draft7[..], &draft3, &draft6] {
        let limit = parsed(fields, 0).remove(0);
        assert_eq!(
            (limit.limit, limit.remaining, limit.window),
            (Some(100), 50, Some(MINUTE))
        );
        assert_eq!(limit.available_in.or(limit.reset), Some(MINUTE / 2));
    }
}

#[test]
fn a_reset_is_a_number_of_seconds_or_a_point_in_time() {
    let reset = |reset| {
        let fields = [
            ("x-ratelimit-limit", "60"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", reset),
        ];
        parsed(&fields, 1_700_000_000).remove(0).reset
    };
    assert_eq!(reset("30"), Some(MINUTE / 2));
    assert_eq!(reset("1700000030"), Some(MINUTE / 2));
    assert_eq!(reset("1600000000"), Some(Duration::ZERO));
    assert_eq!(reset("999999999"), Some(Duration::from_secs(999_999_999)));
    for in_millis in ["1700000000001", "1700000000000.5"] {
        assert_eq!(reset(in_millis), Some(Duration::from_millis(1)));
    }
    assert_eq!(reset("1000000000000"), Some(Duration::ZERO));
    // Whatever its unit is, it is longer than anybody waits.
    assert!(reset("99999999999999999999") > Some(Duration::from_secs(1 << 40)));
}

#[test]
fn a_fraction_of_a_second_is_rounded_up() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let waits = |fields: &[(&'static str, &'static str)]| {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        wait(&headers, now).map(|it| it.as_secs_f64())
    };
    for (text, seconds) in [
        ("0.001", Some(1.0)),
        ("29.5", Some(30.0)),
        ("30.0", Some(30.0)),
        ("0.0000001", Some(1.0)),
        ("1.", None),
        (".5", None),
        ("1.5.1", None),
        ("-1.5", None),
    ] {
        assert_eq!(waits(&[("retry-after", text)]), seconds, "{text}");
        let used_up = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", text)];
        assert_eq!(waits(&used_up), seconds, "{text}");
    }
    let point = ("x-ratelimit-reset", "1700000029.25");
    assert_eq!(waits(&[("x-ratelimit-remaining", "0"), point]), Some(30.0));
    for field in [r#""user";r=0;t=1.5"#, "limit=1, remaining=0, reset=1.5"] {
        assert_eq!(waits(&[("ratelimit", field)]), Some(2.0), "{field}");
    }
}

#[test]
fn malformed_fields_are_ignored() {
    for field in [
        "",
        "user;r=1",
        r#""user""#,
        r#""user";r=-1"#,
        r#""user";r=1.5"#,
        r#""user";r=1000000000000000"#,
        r#""user;r=1"#,
        r#"("user");r=1"#,
        "limit=1",
        "remaining=1",
        "limit=ten, remaining=1",
    ] {
        assert_eq!(parsed(&[("ratelimit", field)], 0), [], "{field}");
    }
    assert_eq!(parsed(&[("x-ratelimit-limit", "5")], 0), []);
    let of_unknown_policy = parsed(
        &[("ratelimit", r#""user";r=1"#), ("ratelimit-policy", "5;w")],
        0,
    );
    assert_eq!(
        (of_unknown_policy[0].remaining, of_unknown_policy[0].limit),
        (1, None)
    );
}

#[test]
fn a_client_waits_for_what_is_used_up() {
    let waits = |value: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit", HeaderValue::from_static(value));
        wait(&headers, SystemTime::now())
    };
    assert_eq!(waits(r#""a";r=1;t=9, "b";r=2;t=5"#), None);
    assert_eq!(
        waits(r#""a";r=0;t=9, "b";r=0;t=60, "c";r=1;t=90"#),
        Some(MINUTE)
    );
    assert_eq!(waits(r#""a";r=0"#), None);
}

#[test]
fn what_is_written_is_read_in_every_field() {
    let headers = fields(
        Fields::Ietf,
        &[Limit::of("user", &granted(5, MINUTE, 4, SECOND)).unwrap()],
    );
    let text = headers["ratelimit-policy"].to_str().unwrap();
    let list: List = Parser::new(text).parse().unwrap();
    let ListEntry::Item(item) = &list[0] else {
        panic!("an item")
    };
    assert_eq!(item.bare_item.as_string().unwrap().as_str(), "user");
    assert_eq!(item.params["q"].as_integer(), Some(5.into()));
    assert_eq!(item.params["w"].as_integer(), Some(60.into()));
}
