//! Reads a limiter as it is stored: settings, value and grants, a page at a time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use redisson_rate_limiter::RedissonClient;

use super::member::Member;
use super::reply::{bytes, exactly, integer, list, number, score, text};
use super::sample::keys_of;
use super::script::Script;
use super::settings::Settings;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::terminal::shown;

static GRANTS: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../lua/grants.lua")));

/// The most grants that one call reads.
pub(crate) const PAGE: usize = 500;
/// The most passes over a limiter whose grants change meanwhile.
const READINGS: u32 = 4;

/// The three keys of a limiter, those of all clients or those of one client, without the grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The names of the keys with the settings, the value and the grants.
    pub(crate) keys: [String; 3],
    /// The types of the keys; `none` if a key does not exist.
    pub(crate) types: [String; 3],
    pub(crate) settings: Settings,
    /// The number of fields of the hash that are not settings.
    pub(crate) other_fields: u64,
    /// The text of the value; empty if it is missing.
    pub(crate) value: String,
    /// The number of grants.
    pub(crate) grants: u64,
    /// The times to live of the keys in ms; -1 if a key does not expire, -2 if it does not exist.
    pub(crate) lives: [i64; 3],
}

impl Stored {
    /// The value as a number; `None` if it is missing or not an integer.
    pub(crate) fn value(&self) -> Option<i64> {
        integer(&self.value)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Grant {
    pub(crate) member: Member,
    pub(crate) raw: Vec<u8>,
    pub(crate) score: i64,
}

impl Grant {
    /// How far in the future the grant was made, in ms; negative if in the past.
    pub(crate) fn ahead(&self, now: i64) -> i64 {
        self.score
            .saturating_sub(self.member.ahead())
            .saturating_sub(now)
    }
}

/// What a reading has found besides the grants.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) stored: Stored,
    /// The member of the oldest grant; empty if there is none.
    pub(crate) first: Vec<u8>,
    /// The member of the newest grant; empty if there is none.
    pub(crate) last: Vec<u8>,
    /// Whether the limiter did not change while it was read.
    pub(crate) is_exact: bool,
}

/// The state that a script compares with the stored one before it removes keys: if they differ, the
/// limiter has changed since it was read, and the script does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    /// The field `type` of the settings; empty if there are none.
    pub(crate) rate_type: String,
    pub(crate) value: String,
    pub(crate) grants: u64,
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

impl Reading {
    pub(crate) fn expected(&self) -> Expected {
        Expected {
            rate_type: self.stored.settings.rate_type.clone(),
            value: self.stored.value.clone(),
            grants: self.stored.grants,
            first: self.first.clone(),
            last: self.last.clone(),
        }
    }
}

/// Reads the limiter, and passes each grant to `note`, the oldest first. `start` makes the initial
/// `T` of each pass from what is stored and the server's time in ms.
///
/// One page is read atomically. Several are read in passes, at most `READINGS`, until two in a row
/// find the same grants and value: between the two nothing has changed. Comparing only the number
/// of grants would not be enough, because one may go while another comes. Shows its progress.
pub(crate) async fn read<T>(
    client: &RedissonClient,
    name: &str,
    client_id: Option<&str>,
    start: impl Fn(&Stored, i64) -> T,
    mut note: impl FnMut(&mut T, Grant),
) -> Result<(Reading, T), Failure> {
    let keys = keys_of(client, name, client_id);
    let (mut readings, mut hash_before) = (1, None);
    let mut progress = Progress::new();
    loop {
        let (stored, now, mut page) = read_page(client, &keys, 0).await?;
        let mut noted = start(&stored, now);
        let first = page.first().map(|it| it.raw.clone()).unwrap_or_default();
        let (mut last, mut place) = (Vec::new(), 0);
        let mut hasher = DefaultHasher::new();
        stored.value.hash(&mut hasher);
        while !page.is_empty() {
            let is_last = page.len() < PAGE;
            place += page.len();
            for grant in page {
                (&grant.raw, grant.score).hash(&mut hasher);
                last.clone_from(&grant.raw);
                note(&mut noted, grant);
            }
            if is_last {
                break;
            }
            progress.show(|| {
                let (name, grants) = (shown(name, 40), stored.grants);
                format!("{name}: {place} of {grants} grants, pass {readings} of at most {READINGS}")
            });
            (_, _, page) = read_page(client, &keys, place).await?;
        }
        let hash = Some(hasher.finish());
        let is_exact = place <= PAGE || hash == hash_before;
        if is_exact || readings == READINGS {
            let reading = Reading {
                stored,
                first,
                last,
                is_exact,
            };
            return Ok((reading, noted));
        }
        (readings, hash_before) = (readings + 1, hash);
    }
}

/// Reads the keys, and the page of grants that begins at the index `place`. Returns what is stored,
/// the server's time in ms, and the grants.
async fn read_page(
    client: &RedissonClient,
    keys: &[String; 3],
    place: usize,
) -> Result<(Stored, i64, Vec<Grant>), Failure> {
    let bytes_of_keys = keys.each_ref().map(String::as_bytes);
    let (place, most) = (place.to_string(), PAGE.to_string());
    let arguments = [place.as_bytes(), most.as_bytes()];
    let reply = GRANTS.run(client, &bytes_of_keys, &arguments).await?;
    let [now, types, settings, others, value, grants, lives, page] = exactly(list(reply))?;
    let types = exactly(list(types))?.map(|it| text(&it));
    let lives = exactly(list(lives))?.map(|it| number(&it).unwrap_or(-2));
    let stored = Stored {
        keys: keys.clone(),
        types,
        settings: Settings::read(&exactly(list(settings))?),
        other_fields: number(&others).unwrap_or_default(),
        value: text(&value),
        grants: number(&grants).unwrap_or_default(),
        lives,
    };
    let mut read = Vec::new();
    let mut page = list(page).into_iter();
    let rate = stored.settings.numbers().map_or(i64::MAX, |(rate, _)| rate);
    while let (Some(member), Some(at)) = (page.next(), page.next()) {
        let raw = bytes(member);
        read.push(Grant {
            member: Member::read(&raw).within(rate),
            raw,
            score: score(&text(&at)),
        });
    }
    Ok((stored, number(&now).unwrap_or_default(), read))
}
