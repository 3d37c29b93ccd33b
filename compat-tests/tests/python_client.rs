//! The Python client in `lua/python/`, which was written from `lua/README.md`, beside Redisson and
//! this crate on one limiter. In a binary of its own, so that no other test takes the processors
//! meanwhile.

#[path = "../../tests/support/proxy.rs"]
mod proxy;

use std::time::Duration;

use compat_tests::{
    Both, Peer, Server, python,
    record::{Change, Record},
    redisson::Version,
};
use redisson_rate_limiter::{Decision, Granted, Rate};
use tokio::{task::JoinSet, time::Instant};

use proxy::{Fate, Proxy};

const HOUR: Duration = Duration::from_secs(3600);
const RATE: u32 = 30;
const INTERVAL: i64 = 400;
const DURATION: i64 = 4_000;

const PYTHON: [&str; 4] = ["python3", "-B", "-c", "import client; client.main()"];

#[test]
fn the_python_client_concludes_what_the_vectors_say() {
    let output = python::tests().output().expect("Python 3");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

#[tokio::test]
async fn each_client_sees_what_the_others_took_and_returned() {
    let both = Both::start(Version::V4_7_0).await;
    let limiter = both.limiter("n");
    let mut python = python::Limiter::start(both.server.port(), "n");
    assert_eq!(python.call("try_set_rate 20 3600000").await, "True");
    let rate = Rate::overall(1, HOUR);
    assert!(!limiter.try_set_rate(Peer::Rust, rate).await);
    assert!(!limiter.try_set_rate(Peer::Java, rate).await);

    assert_eq!(python.call("check 7").await, "True");
    assert_eq!(limiter.available_permits().await, 13);
    assert!(limiter.try_acquire(Peer::Java, 5).await);
    let Decision::Granted(Granted { grant, .. }) = limiter.rust.check(4).await.unwrap() else {
        panic!("denied");
    };
    assert_eq!(python.number("available_permits").await, 4);
    assert_eq!(python.call("check 5").await, "False");

    assert_eq!(limiter.rust.refund(grant).await.unwrap(), 4);
    assert_eq!(python.call("check 8").await, "True");
    assert_eq!(limiter.available_permits().await, 0);
    assert_eq!(python.number("refund").await, 8);
    assert_eq!(python.number("refund").await, 0, "once");
    assert_eq!(limiter.available_permits().await, 8);
    assert_eq!(python.call("release 6").await, "None");
    assert_eq!(limiter.available_permits().await, 14);
    limiter.rust.release(6).await.unwrap();
    assert_eq!(python.number("available_permits").await, 20);
}

#[tokio::test]
async fn the_python_client_takes_permits_once_if_a_call_or_its_reply_is_lost() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let mut python = python::Limiter::start(proxy.port(), "n");
    assert_eq!(python.call("try_set_rate 20 3600000").await, "True");
    assert_eq!(python.call("check 1").await, "True"); // the server knows the script
    for (fate, left) in [
        (Fate::CutBeforeServer, 16),
        (Fate::CutBeforeAnswer, 13),
        (Fate::CutWithinAnswer, 10),
        (Fate::Garbled, 7),
    ] {
        proxy.take_seen();
        proxy.next("EVALSHA", fate);
        assert_eq!(python.call("check 3").await, "True");
        let seen = proxy.take_seen();
        let mut attempts = seen.iter().filter(|command| command.name() == "EVALSHA");
        assert!(attempts.next().is_some(), "{fate:?}");
        // The next one knows of an attempt that may have run.
        let next = attempts.next().expect("another attempt");
        assert!(next.0.iter().any(|word| *word == b"retry"), "{fate:?}");
        assert_eq!(python.number("available_permits").await, left, "{fate:?}");
    }
    assert_eq!(python.number("refund").await, 3);
    assert_eq!(python.number("available_permits").await, 10);
}

#[test]
fn the_lossy_proxy_finds_nothing_taken_twice_or_lost() {
    let server = Server::start();
    let output = python::lossy(server.port(), 40, &PYTHON);
    let (told, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{told}");
    assert!(output.status.success(), "{told}{errors}");
    assert!(
        told.contains("swallowed") && told.contains("overtaken"),
        "{told}"
    );
}

#[test]
fn the_lossy_proxy_finds_the_mistakes_of_clients() {
    let sends_anew = "
import client
class Limiter(client.RateLimiter):
    def check(self, permits):
        client.CALL_TIMEOUT = 0.4
        while True:
            try: return super().check(permits)
            except OSError: pass
    def reclaim(self, *_): pass
client.RateLimiter = Limiter
client.main()";
    let gives_up = "
import client
client.CALL_TIMEOUT = 0.01
client.RateLimiter.reclaim = lambda *_: None
client.main()";
    let denies = "
import client
client.RateLimiter.check = lambda *_: None
client.main()";
    let server = Server::start();
    for (program, why) in [
        (sends_anew, "permits were lost, or taken twice"),
        (gives_up, "more calls failed"),
        (denies, "was answered by False"),
    ] {
        let output = python::lossy(server.port(), 25, &["python3", "-B", "-c", program]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{program}: {errors}");
        assert!(errors.contains(why), "{program}: {errors}");
    }
}

#[test]
fn the_lossy_proxy_finds_nothing_that_this_crate_takes_twice_or_loses() {
    let server = Server::start();
    let output = python::lossy(server.port(), 40, &[env!("CARGO_BIN_EXE_line-client")]);
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}{errors}");
}

#[test]
fn the_python_client_speaks_as_the_dialogues_have_it() {
    let output = python::dialogues(&PYTHON);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

#[test]
fn this_crate_speaks_as_the_dialogues_have_it() {
    let output = python::dialogues(&[env!("CARGO_BIN_EXE_line-client")]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

#[test]
fn the_dialogues_find_the_mistakes_of_clients() {
    let mistakes = [
        // It decides anew, and does not ask what the attempt before was granted.
        (
            "client.retry_after = lambda *_: [0, 0, 0]",
            "the latest deadline",
        ),
        (
            "client.RateLimiter.reclaim = lambda *_: None",
            "it does not call reclaim.lua",
        ),
        (
            "client.wait_to_return = lambda *_: 0",
            "it answers before the deadline of attempt 1 has passed",
        ),
        (
            "client.is_of_acquire = lambda *_: True",
            "a reply that is none of the call's",
        ),
        ("client.CLOCK_STEP = -5000", "searches from"),
    ];
    for (mistake, why) in mistakes {
        let program = format!("import client\n{mistake}\nclient.main()");
        let output = python::dialogues(&["python3", "-B", "-c", &program]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{mistake}: {errors}");
        assert!(errors.contains(why), "{mistake}: {errors}");
    }
}

#[tokio::test]
async fn an_attempt_of_the_python_client_after_its_refund_takes_nothing() {
    let server = Server::start();
    let proxy = Proxy::to(server.port()).await;
    let mut python = python::Limiter::start(proxy.port(), "n");
    assert_eq!(python.call("try_set_rate 20 3600000").await, "True");
    assert_eq!(python.call("check 1").await, "True"); // the server knows the script
    proxy.take_seen();
    proxy.next("EVALSHA", Fate::CutBeforeAnswer);
    proxy.next("EVALSHA", Fate::CutBeforeServer);
    assert_eq!(python.call("check 3").await, "True"); // what the first attempt took
    let seen = proxy.take_seen();
    let mut attempts = seen.iter().filter(|command| command.name() == "EVALSHA");
    let lost = attempts.nth(1).expect("an attempt that was lost");
    assert_eq!(python.number("refund").await, 3);

    let mut redis = server.connection().await;
    let mut arriving = redis::cmd("EVALSHA");
    let reply: Vec<u8> = arriving
        .arg(&lost.0[1..])
        .query_async(&mut redis)
        .await
        .unwrap();
    assert_eq!(
        reply.len(),
        8,
        "the server's clock alone: it came after its deadline"
    );
    assert_eq!(python.number("available_permits").await, 19);
}

#[tokio::test]
async fn under_load_no_window_exceeds_the_rate_and_the_sum_is_exact() {
    let both = Both::start(Version::V4_7_0).await;
    let limiter = both.limiter("n");
    let mut python = python::Limiter::start(both.server.port(), "n");
    let set = format!("try_set_rate {RATE} {INTERVAL}");
    assert_eq!(python.call(&set).await, "True");
    let record = Record::start(&both.server, "{n}:permits").await;

    let java = limiter.java.load_waiting(3, 1, DURATION);
    let rust = async {
        let end = Instant::now() + Duration::from_millis(DURATION as u64);
        let mut tasks = JoinSet::new();
        for _ in 0..3 {
            let limiter = limiter.rust.clone();
            tasks.spawn(async move {
                let mut granted = 0;
                loop {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return granted;
                    }
                    granted += u64::from(limiter.try_acquire_timeout(1, left).await.unwrap());
                }
            });
        }
        tasks.join_all().await.into_iter().sum::<u64>()
    };
    let load = format!("load {DURATION}");
    let (java, rust, python) = tokio::join!(java, rust, python.number(&load));
    let java = java.unwrap().grants;
    let entries = record.end(&both.server).await;

    println!("{java} to Redisson, {rust} to this crate, {python} to Python");
    assert!(java > 0 && rust > 0 && python > 0);
    let grants = entries.iter().map(|entry| match entry.change {
        Change::Granted { score, permits, .. } => (entry.at, score, permits),
        Change::TakenBack => panic!("returned: {entry:?}"),
    });
    let grants: Vec<(i64, i64, u32)> = grants.collect();
    for (place, (at, ..)) in grants.iter().enumerate() {
        let window = grants[..=place].iter();
        let window = window.filter(|(_, score, _)| *score > at - INTERVAL);
        let window: u32 = window.map(|(.., permits)| permits).sum();
        assert!(
            window <= RATE,
            "{window} permits in the interval up to {at}"
        );
    }
    let granted: u64 = grants.iter().map(|(.., permits)| u64::from(*permits)).sum();
    assert_eq!(granted, java + rust + python);
}
