//! Finding keys without blocking a server: SCAN on each primary, a page at a time.

use redisson_rate_limiter::Server;

use super::reply::{bytes, list, text};
use crate::commands::Context;
use crate::failure::Failure;

/// How many keys a server looks at in one call: less than a millisecond of its time.
const PAGE: &str = "500";

/// The pages of all primaries, one at a time.
pub(crate) struct Scan {
    servers: Vec<Server>,
    cursor: Vec<u8>,
    pattern: Vec<u8>,
    of_type: Option<&'static str>,
    pub(crate) calls: u64,
}

impl Scan {
    /// Keys that the pattern matches, of this type if one is given.
    pub(crate) fn new(
        context: &Context,
        pattern: &str,
        of_type: Option<&'static str>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            servers: context.client.servers()?,
            cursor: b"0".to_vec(),
            pattern: pattern.as_bytes().to_vec(),
            of_type,
            calls: 0,
        })
    }

    /// The keys of the next page, which may have none; `None` at the end. A key may be in several pages if a server's table of
    /// keys grows or shrinks meanwhile.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>, Failure> {
        let Some(server) = self.servers.last() else {
            return Ok(None);
        };
        let mut words: Vec<&[u8]> = vec![b"SCAN", &self.cursor, b"MATCH", &self.pattern];
        words.extend([&b"COUNT"[..], PAGE.as_bytes()]);
        if let Some(of_type) = self.of_type {
            words.extend([&b"TYPE"[..], of_type.as_bytes()]);
        }
        let mut page = list(server.command(words).await?).into_iter();
        self.calls += 1;
        let (cursor, keys) = (page.next(), page.next());
        self.cursor = cursor.map(bytes).unwrap_or_default();
        if self.cursor == b"0" || self.cursor.is_empty() {
            self.servers.pop();
            self.cursor = b"0".to_vec();
        }
        Ok(Some(
            keys.map(list)
                .unwrap_or_default()
                .into_iter()
                .map(bytes)
                .collect(),
        ))
    }
}

/// The pattern that matches this text only.
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

/// Whether it may match several names.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// The ids of the clients that a limiter has keys of, and how many calls that took. Each is looked for on all servers, because
/// the names of a limiter that should not be on a cluster may be anywhere.
pub(crate) async fn clients_of(context: &Context, name: &str) -> Result<Vec<String>, Failure> {
    let limiter = context.client.rate_limiter(name);
    let [_, value, _, permits, _] = limiter.keys();
    let mut clients = std::collections::BTreeSet::new();
    for key in [value, permits] {
        let start = format!("{key}:");
        let mut scan = Scan::new(context, &format!("{}*", literally(&start)), None)?;
        while let Some(keys) = scan.next().await? {
            let keys = keys
                .into_iter()
                .filter_map(|key| String::from_utf8(key).ok());
            clients.extend(keys.filter_map(|key| key.strip_prefix(&start).map(str::to_owned)));
        }
    }
    Ok(clients.into_iter().collect())
}

/// What a call on a server says in a text.
pub(crate) async fn said<const N: usize>(
    server: &Server,
    words: [&str; N],
) -> Result<String, Failure> {
    Ok(text(&server.command(words).await?))
}
