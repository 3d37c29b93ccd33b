//! The hash slots of a cluster: which one a command is for, and which node serves it.

use std::collections::HashSet;

use redis::{Arg, Cmd, RedisError, Value, from_redis_value, from_redis_value_ref};

use super::address::Endpoint;

const SLOTS: u16 = 16384;

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

/// The slot of a key: of the part in its first braces, if there is one.
pub(super) fn slot_of_key(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|&byte| byte == b'}')?;
        (close > 0).then(|| &rest[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// The slot of a command's first key; `None` for a command without keys.
pub(super) fn slot_of(command: &Cmd) -> Option<u16> {
    let mut args = command.args_iter().map(|arg| match arg {
        Arg::Simple(bytes) => bytes,
        _ => b"",
    });
    let name = args.next()?;
    if name.eq_ignore_ascii_case(b"EVALSHA") || name.eq_ignore_ascii_case(b"EVAL") {
        let keys = args.nth(1)?;
        if keys == b"0" {
            return None;
        }
    }
    args.next().map(slot_of_key)
}

/// Which node serves which slots.
#[derive(Debug, Default)]
pub(super) struct SlotMap {
    /// First slot, last slot and node, in order of the slots.
    ranges: Vec<(u16, u16, Endpoint)>,
}

impl SlotMap {
    /// Reads the answer to CLUSTER SLOTS of the node `asked`.
    pub(super) fn read(answer: Value, asked: &Endpoint) -> Result<Self, RedisError> {
        let entries: Vec<Vec<Value>> = from_redis_value(answer)?;
        let mut ranges = Vec::with_capacity(entries.len());
        for entry in &entries {
            let [first, last, Value::Array(node), ..] = &entry[..] else {
                continue;
            };
            let [host, port, ..] = &node[..] else {
                continue;
            };
            let host: Option<String> = from_redis_value_ref(host)?;
            let node = named_by(asked, host.as_deref(), from_redis_value_ref(port)?);
            let (first, last) = (from_redis_value_ref(first)?, from_redis_value_ref(last)?);
            ranges.push((first, last, node));
        }
        ranges.sort_unstable_by_key(|&(first, _, _)| first);
        Ok(Self { ranges })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Endpoint> {
        let after = self.ranges.partition_point(|&(first, _, _)| first <= slot);
        let (_, last, node) = self.ranges.get(after.checked_sub(1)?)?;
        (slot <= *last).then_some(node)
    }

    pub(super) fn nodes(&self) -> HashSet<&Endpoint> {
        self.ranges.iter().map(|(_, _, node)| node).collect()
    }
}

/// A node that the node `asked` names. It omits its own host if it does not know it.
pub(super) fn named_by(asked: &Endpoint, host: Option<&str>, port: u16) -> Endpoint {
    let (own, is_tls) = match asked {
        Endpoint::Tcp { host, is_tls, .. } => (host.as_str(), *is_tls),
        Endpoint::Unix(_) => ("", false),
    };
    let host = host
        .filter(|host| !matches!(*host, "" | "?"))
        .unwrap_or(own);
    Endpoint::Tcp {
        host: host.to_owned(),
        port,
        is_tls,
    }
}

#[cfg(test)]
mod tests {
    use redis::cmd;

    use super::*;

    fn node(port: u16) -> Endpoint {
        Endpoint::Tcp {
            host: "h".to_owned(),
            port,
            is_tls: false,
        }
    }

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of_key(b"foo"), 12182);
        assert_eq!(slot_of_key(b"{foo}:value"), 12182);
        assert_eq!(slot_of_key(b"{}foo"), crc16(b"{}foo") % SLOTS);
        assert_eq!(slot_of_key(b"x{foo}{bar}"), 12182);
    }

    #[test]
    fn a_command_is_for_the_slot_of_its_first_key() {
        assert_eq!(slot_of(cmd("HMGET").arg("foo").arg("rate")), Some(12182));
        assert_eq!(
            slot_of(cmd("EVALSHA").arg("hash").arg(1).arg("foo")),
            Some(12182)
        );
        assert_eq!(slot_of(cmd("EVAL").arg("source").arg(0).arg("foo")), None);
        assert_eq!(slot_of(&cmd("TIME")), None);
    }

    #[test]
    fn a_slot_has_the_owner_of_its_range() {
        let map = SlotMap {
            ranges: vec![(0, 99, node(1)), (200, 16383, node(2))],
        };
        assert_eq!(map.owner(0), Some(&node(1)));
        assert_eq!(map.owner(99), Some(&node(1)));
        assert_eq!(map.owner(100), None);
        assert_eq!(map.owner(200), Some(&node(2)));
        assert_eq!(map.owner(16383), Some(&node(2)));
    }

    #[test]
    fn a_node_that_omits_its_host_has_the_host_that_was_asked() {
        assert_eq!(named_by(&node(1), None, 7), node(7));
        assert_eq!(named_by(&node(1), Some(""), 7), node(7));
    }
}
