//! Whatever a server, a node of a cluster or a Sentinel answers, reading it does not panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redis::Value;
use redisson_rate_limiter::fuzzing;

/// How deep an answer is nested at most.
const DEPTH: u32 = 4;

/// Reads a value off the front of the bytes.
fn value(bytes: &mut &[u8], depth: u32) -> Value {
    let Some((&kind, rest)) = bytes.split_first() else {
        return Value::Nil;
    };
    *bytes = rest;
    let length = usize::from(kind >> 3);
    match kind & 7 {
        0 => Value::Nil,
        1 => Value::Int(i64::from_le_bytes(take(bytes, 8).first_chunk().copied().unwrap_or_default())),
        2 => Value::Int(i64::from(kind >> 3)),
        3 => Value::BulkString(take(bytes, length).to_vec()),
        4 => Value::BulkString(take(bytes, length * 8).to_vec()),
        5 => Value::SimpleString(String::from_utf8_lossy(take(bytes, length)).into_owned()),
        6 if depth > 0 => Value::Array((0..length).map(|_| value(bytes, depth - 1)).collect()),
        _ => Value::Okay,
    }
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count.min(bytes.len()));
    *bytes = rest;
    taken
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes;
    fuzzing::read_answer(value(&mut bytes, DEPTH));
});
