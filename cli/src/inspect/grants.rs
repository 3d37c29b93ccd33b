//! A limiter as it is stored: settings, value, and its grants, a page at a time.

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

/// How many grants a call reads.
pub(crate) const PAGE: usize = 500;
/// How often a limiter that changes is read.
const READINGS: u32 = 4;

/// The three keys of one limiter, of all clients or of one, without the grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) keys: [String; 3],
    /// Their types: `none` if there is no key.
    pub(crate) types: [String; 3],
    pub(crate) settings: Settings,
    /// How many other fields the hash has.
    pub(crate) other_fields: u64,
    /// As it is stored; empty if missing.
    pub(crate) value: String,
    pub(crate) grants: u64,
    /// In ms; -1 if it does not expire, -2 if there is no key.
    pub(crate) lives: [i64; 3],
}

impl Stored {
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
    /// By how many ms it was made after now.
    pub(crate) fn ahead(&self, now: i64) -> i64 {
        self.score
            .saturating_sub(self.member.ahead())
            .saturating_sub(now)
    }
}

/// What a reading has found out besides the grants.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) stored: Stored,
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
    /// Whether nothing changed while it was read.
    pub(crate) is_exact: bool,
}

/// What a step that removes or corrects compares, so that it changes nothing that has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Empty if there is no limiter.
    pub(crate) rate_type: String,
    pub(crate) value: String,
    pub(crate) grants: u64,
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

impl Reading {
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            rate_type: self.stored.settings.rate_type.clone(),
            value: self.stored.value.clone(),
            grants: self.stored.grants,
            first: self.first.clone(),
            last: self.last.clone(),
        }
    }
}

/// Reads the limiter, and passes on each grant, the oldest first. One of several pages is read
/// until two readings in a row find the same, a few times: between them it was so. A grant that
/// goes and another that comes leave number and value as they were. `start` begins each reading. A
/// terminal shows how far it is.
pub(crate) async fn read<T>(
    client: &RedissonClient,
    name: &str,
    of: Option<&str>,
    start: impl Fn(&Stored, i64) -> T,
    mut note: impl FnMut(&mut T, Grant),
) -> Result<(Reading, T), Failure> {
    let keys = keys_of(client, name, of);
    let (mut readings, mut found_before) = (1, None);
    let mut progress = Progress::new();
    loop {
        let (stored, now, mut page) = read_page(client, &keys, 0).await?;
        let mut noted = start(&stored, now);
        let first = page.first().map(|it| it.raw.clone()).unwrap_or_default();
        let (mut last, mut place) = (Vec::new(), 0);
        let mut found = DefaultHasher::new();
        stored.value.hash(&mut found);
        while !page.is_empty() {
            let is_last = page.len() < PAGE;
            place += page.len();
            for grant in page {
                (&grant.raw, grant.score).hash(&mut found);
                last.clone_from(&grant.raw);
                note(&mut noted, grant);
            }
            if is_last {
                break;
            }
            progress.show(|| {
                let (of, grants) = (shown(name, 40), stored.grants);
                format!("{of}: {place} of {grants} grants, pass {readings} of at most {READINGS}")
            });
            (_, _, page) = read_page(client, &keys, place).await?;
        }
        let found = Some(found.finish());
        let is_exact = place <= PAGE || found == found_before;
        if is_exact || readings == READINGS {
            let reading = Reading {
                stored,
                first,
                last,
                is_exact,
            };
            return Ok((reading, noted));
        }
        (readings, found_before) = (readings + 1, found);
    }
}

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
