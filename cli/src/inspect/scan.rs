//! Finds keys without blocking a server, by SCAN on each primary, a page at a time.

use std::collections::BTreeSet;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use redisson_rate_limiter::{RedissonClient, Server};

use super::reply::{bytes, list, text};
use crate::failure::Failure;

/// The most calls of TYPE at the same time.
const AT_ONCE: usize = 32;

/// The number of keys that a server looks at in one call, which takes less than a millisecond of
/// its time.
const PAGE: &str = "500";

/// A walk over the keys of all primaries, one page at a time.
pub(crate) struct Scan {
    /// The servers that are left. The walk is at the last one.
    servers: Vec<Server>,
    cursor: Vec<u8>,
    pattern: Vec<u8>,
    of_type: Option<&'static str>,
    /// Whether SCAN has the option TYPE, as from Redis 6.0 on. Otherwise TYPE is called for each
    /// key.
    takes_type: bool,
    pub(crate) calls: u64,
}

impl Scan {
    /// Starts a walk over the keys that match the pattern, and have this type if one is given.
    pub(crate) fn new(
        client: &RedissonClient,
        pattern: &str,
        of_type: Option<&'static str>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            servers: client.servers()?,
            cursor: b"0".to_vec(),
            pattern: pattern.as_bytes().to_vec(),
            of_type,
            takes_type: true,
            calls: 0,
        })
    }

    /// Gives up the current server. Returns the walk over the servers that are left, if any.
    pub(crate) fn without_this_server(mut self) -> Option<Self> {
        self.servers.pop();
        self.cursor = b"0".to_vec();
        (!self.servers.is_empty()).then_some(self)
    }

    /// Returns the keys of the next page, which may be empty, or `None` at the end. A key may be in
    /// several pages if a server's table of keys grows or shrinks meanwhile.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let Some(server) = self.servers.last() else {
            return Ok(None);
        };
        let words: [&[u8]; 6] = [
            b"SCAN",
            &self.cursor,
            b"MATCH",
            &self.pattern,
            b"COUNT",
            PAGE.as_bytes(),
        ];
        let of_type = self.of_type.filter(|_| self.takes_type);
        let of_type = of_type.map(|it| [&b"TYPE"[..], it.as_bytes()]);
        let page = server.command(words.into_iter().chain(of_type.into_iter().flatten()));
        let page = match page.await.map_err(Failure::from) {
            Err(failure) if of_type.is_some() && failure.to_string().contains("syntax error") => {
                self.takes_type = false;
                server.command(words).await?
            }
            page => page?,
        };
        let mut page = list(page).into_iter();
        self.calls += 1;
        let (cursor, keys) = (page.next(), page.next());
        let keys = keys.map(list).unwrap_or_default().into_iter().map(bytes);
        let keys = match self.of_type.filter(|_| !self.takes_type) {
            None => keys.collect(),
            Some(of_type) => only(server, of_type, keys).await?,
        };
        self.cursor = cursor.map(bytes).unwrap_or_default();
        if self.cursor == b"0" || self.cursor.is_empty() {
            self.servers.pop();
            self.cursor = b"0".to_vec();
        }
        Ok(Some(keys))
    }
}

/// Keeps the keys of this type.
async fn only(
    server: &Server,
    of_type: &str,
    keys: impl Iterator<Item = Vec<u8>>,
) -> Result<Vec<Vec<u8>>, Failure> {
    let asked = keys.map(async |key| {
        let answer = server.command([&b"TYPE"[..], &key]).await?;
        Ok::<_, Failure>((text(&answer) == of_type).then_some(key))
    });
    let kept = stream::iter(asked).buffered(AT_ONCE);
    kept.try_filter_map(async |key| Ok(key)).try_collect().await
}

/// The pattern that matches only this text.
pub(crate) fn literally(text: &str) -> String {
    let special = |it: char| matches!(it, '*' | '?' | '[' | ']' | '\\' | '^');
    let mut pattern = String::new();
    for it in text.chars() {
        if special(it) {
            pattern.push('\\');
        }
        pattern.push(it);
    }
    pattern
}

/// Whether a text is a pattern, which may match several names.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Finds the clients that a limiter has keys of. Returns the first `most` ids and the number of
/// further clients. To bound the memory, only the first ids are kept, so the further clients are
/// counted by the keys with values or by those with grants, whichever are more. All servers are
/// scanned, because a name that a cluster refuses may have its keys in any slot.
pub(crate) async fn clients_of(
    client: &RedissonClient,
    name: &str,
    most: usize,
) -> Result<(BTreeSet<String>, usize), Failure> {
    let limiter = client.rate_limiter(name);
    let [_, value, _, permits, _] = limiter.keys();
    let (mut first, mut is_all, mut largest) = (BTreeSet::new(), true, 0);
    for key in [value, permits] {
        let start = format!("{key}:");
        let mut scan = Scan::new(client, &format!("{}*", literally(&start)), None)?;
        let mut found = 0;
        while let Some(keys) = scan.next().await? {
            let keys = keys
                .into_iter()
                .filter_map(|key| String::from_utf8(key).ok());
            for id in keys.filter_map(|key| key.strip_prefix(&start).map(str::to_owned)) {
                found += 1;
                first.insert(id);
                if first.len() > most {
                    first.pop_last();
                    is_all = false;
                }
            }
        }
        largest = largest.max(found);
    }
    let more = if is_all {
        0
    } else {
        largest.max(most.saturating_add(1)) - most
    };
    Ok((first, more))
}

/// Calls a server, and returns its reply as a text.
pub(crate) async fn text_reply<const N: usize>(
    server: &Server,
    words: [&str; N],
) -> Result<String, Failure> {
    Ok(text(&server.command(words).await?))
}
