//! Each case of `lua/vectors/` on a real server: the same reply and the same keys, byte for byte.
//!
//! With `RECORD_VECTORS=1` the replies and the keys are taken from the server instead and written
//! to the files. Each case then runs twice, the second time with a pause between its keys and its
//! call: what differs depends on the time.

mod json;
mod keyspace;
mod moment;
mod reply;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use serde_json::{Map, Value as Json, json};
use tokio::time::{sleep, timeout};

use crate::include::{assemble, names, read};
use crate::pretty_json::pretty;
use crate::support::Server;
use keyspace::Keyspace;
use moment::Moment;
use reply::Reply;

/// Longer than a case takes, so that what depends on the time differs.
const PAUSE: Duration = Duration::from_millis(40);

/// A script that does not end is killed with the server.
const MINUTE: Duration = Duration::from_secs(60);

/// The result of a case.
struct Outcome {
    reply: Reply,
    after: Keyspace,
    moment: Moment,
}

#[tokio::test]
async fn each_case_has_its_reply_and_leaves_its_keys() {
    let server = Server::start();
    let mut connection = server.connection().await;
    for name in names() {
        let path = path(name);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut file: Json = serde_json::from_str(&text).unwrap();
        let script = assemble(name, read).unwrap_or_else(|error| panic!("{error}"));
        let cases = file["cases"].as_array_mut().unwrap();
        assert!(!cases.is_empty(), "{name}");
        for case in cases {
            if env::var_os("RECORD_VECTORS").is_some() {
                let first = run(&mut connection, &script, case, Duration::ZERO).await;
                let second = run(&mut connection, &script, case, PAUSE).await;
                let has_doubles = reply::has_doubles(name);
                case["reply"] = first
                    .reply
                    .describe(&second.reply, &first.moment, has_doubles);
                case["after"] = first.after.describe(&second.after, case, &first.moment);
            } else {
                let outcome = run(&mut connection, &script, case, Duration::ZERO).await;
                let reply = outcome.reply.check(&case["reply"], &outcome.moment);
                let after = outcome.after.check(&case["after"], &outcome.moment);
                for difference in [reply, after] {
                    difference.unwrap_or_else(|what| panic!("{name}, {}: {what}", case["name"]));
                }
            }
        }
        if env::var_os("RECORD_VECTORS").is_some() {
            fs::write(&path, pretty(&file)).unwrap();
        }
    }
}

#[tokio::test]
async fn a_list_of_requests_that_is_cut_off_comes_to_its_end() {
    let server = Server::start();
    let mut connection = server.connection().await;
    let doubles =
        |numbers: &[f64]| -> Vec<u8> { numbers.iter().flat_map(|it| it.to_le_bytes()).collect() };
    let mut call = redis::cmd("EVAL");
    call.arg(assemble("multi_check.lua", read).unwrap());
    call.arg(2).arg("a").arg("b");
    call.arg(doubles(&[f64::NAN, 1_000.0])).arg("fixed_window");
    call.arg(doubles(&[f64::NAN, 1.0]));
    call.arg(doubles(&[5.0, 60_000.0, 0.0, 0.0]));
    call.arg(doubles(&[1.0, 1.0, 1.0]));
    let reply = timeout(MINUTE, connection.req_packed_command(&call)).await;
    let reply = reply.expect("an end").unwrap();
    let redis::Value::Array(each) = reply else {
        panic!("{reply:?}");
    };
    assert!(matches!(
        each[..],
        [redis::Value::BulkString(_), redis::Value::ServerError(_)]
    ));
}

/// `acquire.json` for `acquire.lua`.
fn path(script: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("lua/vectors");
    folder.join(script).with_extension("json")
}

async fn run(
    connection: &mut MultiplexedConnection,
    script: &str,
    case: &Json,
    pause: Duration,
) -> Outcome {
    let _: () = redis::cmd("FLUSHDB").query_async(connection).await.unwrap();
    let start = moment::server_time(connection).await;
    let before = case["before"]
        .as_object()
        .unwrap_or_else(|| panic!("before: {case}"));
    keyspace::write(connection, before, start).await;
    sleep(pause).await;
    let mut call = redis::cmd("EVAL");
    let keys = list(case, "keys");
    call.arg(script).arg(keys.len());
    for word in keys.iter().chain(list(case, "args")) {
        call.arg(json::bytes(word, start));
    }
    let reply = Reply::new(connection.req_packed_command(&call).await);
    let after = Keyspace::read(connection, start).await;
    let end = moment::server_time(connection).await;
    let moment = Moment { start, end };
    Outcome {
        reply,
        after,
        moment,
    }
}

fn list<'a>(case: &'a Json, name: &str) -> &'a Vec<Json> {
    let list = case["call"][name].as_array();
    list.unwrap_or_else(|| panic!("{name}: {case}"))
}

/// `true` for an object with this one field.
fn is_form(value: &Json, name: &str) -> bool {
    let fields = value.as_object().map(Map::len);
    fields == Some(1) && value.get(name).is_some()
}

fn form(name: &str, value: impl Into<Json>) -> Json {
    let value: Json = value.into();
    json!({ name: value })
}
