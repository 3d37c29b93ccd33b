//! URLs, and what servers, nodes and Sentinels answer while a connection is set up or redirected.

use std::time::Duration;

use redis::{RedisError, Value, from_redis_value};

use super::address::Endpoint;
use super::failure::{self, Failure};
use super::server_time::{self, ServerTime};
use super::slots::SlotMap;
use super::{address, cluster, sentinel, setup};

/// Parses a URL, and formats the result.
pub fn read_url(url: &str) {
    if let Ok(address) = address::parse(url) {
        let _ = address.to_string();
    }
}

/// Reads an answer as each of the expected ones.
pub fn read_answer(answer: Value) {
    let asked = Endpoint::Tcp {
        host: "host".to_owned(),
        port: 1,
        is_tls: false,
    };
    if let Ok(slots) = SlotMap::read(answer.clone(), &asked) {
        for slot in [0, 1, 8_191, 16_383] {
            slots.owner(slot);
        }
        slots.nodes();
    }
    let _ = sentinel::read_address(answer.clone());
    if let Ok(time) = from_redis_value(answer.clone()) {
        let server_time = ServerTime::unknown();
        server_time.learn(server_time::millis(time));
        server_time.after(Duration::from_secs(1));
    }
    setup::is_primary(&answer);
    if let Value::SimpleString(line) = answer {
        refused(&line);
    }
}

/// An error as the server sends it.
fn refused(line: &str) {
    let line = line.replace(['\r', '\n'], " ");
    let sent = redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
    if let Ok(Value::ServerError(error)) = sent {
        let error = RedisError::from(error);
        let asked = Endpoint::Unix("socket".into());
        cluster::redirection(&error, &asked);
        failure::wants_another_connection(&error);
        let _ = failure::of_answer(error.clone());
        let _ = Failure::from(error);
    }
}
