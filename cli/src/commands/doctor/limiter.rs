//! Finds what is wrong with the keys of a limiter: those of all clients, or those of one client.

use std::time::Duration;

use super::finding::{Code, Finding, Fix, Legacy, Options};
use crate::commands::show::in_words;
use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::grants::{Reading, Stored};
use crate::inspect::member::Generation;
use crate::inspect::tally::{Place, Tally, read_tally};
use crate::rate;
use crate::report::number_of;

/// The corrections of a limiter, computed from what was read.
pub(super) struct Settled {
    /// The value without `to_take`: the rate less the permits of all grants.
    pub(super) left: i64,
    /// The permits that were given back but are still in live grants. They are taken out of the
    /// grants and added to the value.
    pub(super) to_take: i64,
}

/// Computes the corrections of a limiter as the library's scripts do. A release by Redisson raises
/// the value and leaves the grants, so it has given back at most the value, and at most the excess
/// of value and live grants over the rate. If the value is below zero, which Redisson never makes
/// it, the whole excess was given back.
pub(super) fn settled(rate: i64, value: Option<i64>, tally: &Tally) -> Settled {
    let left = rate.saturating_sub(tally.permits);
    let to_take = value.map_or(0, |value| {
        let clamped = value.min(rate);
        let excess = clamped.saturating_sub(rate - tally.live).max(0);
        let most = if clamped >= 0 { clamped } else { excess };
        excess.min(most).min(tally.live)
    });
    Settled { left, to_take }
}

pub(super) async fn examine(
    context: &Context,
    place: &Place,
    options: Options,
) -> Result<Vec<Finding>, Failure> {
    let spread = spread(&place.name);
    let (reading, tally) = match read_tally(&context.client, place).await {
        Ok(read) => read,
        Err(failure) if failure.is_not_permitted() => {
            let text = format!("the user of this connection may not read it: {failure}");
            return Ok(vec![Finding::new(Code::NotPermitted, text)]);
        }
        // A cluster refuses keys in different slots.
        Err(failure) => return spread.map(|it| vec![it]).ok_or(failure),
    };
    let found = find(place, &reading, &tally, options);
    Ok(spread.into_iter().chain(found).collect())
}

fn find(place: &Place, reading: &Reading, tally: &Tally, options: Options) -> Vec<Finding> {
    let legacy = options.legacy;
    let stored = &reading.stored;
    let settings = &stored.settings;
    if stored.types[0] != "hash" || !settings.are_a_limiters() {
        return without_limiter(reading, tally);
    }
    let mut findings = Vec::new();
    if stored.other_fields > 0 {
        let fields = number_of(stored.other_fields, "field");
        let text = format!("the hash has {fields} that no limiter has: nothing of it is touched");
        return vec![Finding::new(Code::NotProven, text)];
    }
    wrong_types(stored, &mut findings);
    if !findings.is_empty() {
        return findings;
    }
    let has_keys = stored.types[1] != "none" || stored.types[2] != "none";
    let is_of_client = place.client.is_some();
    if has_keys && is_of_client && !tally.is_proven(stored) {
        return not_proven(stored, tally);
    }
    if has_keys && is_of_client != settings.is_per_client() && !settings.rate_type.is_empty() {
        if !tally.is_proven(stored) {
            return not_proven(stored, tally);
        }
        let text = match is_of_client {
            true => "keys of a client, but the rate is for all clients together: nobody uses them",
            false => "keys of all clients, but the rate is for each client: nobody uses them",
        };
        findings.push(Finding::new(Code::KeysOfOtherType, text).fixed_by_removal(reading));
        return findings;
    }
    if !is_of_client {
        unreadable_settings(stored, &mut findings);
    }
    // Without a type, the hash may be another program's that has a rate and an interval too.
    let is_readable = matches!(settings.rate_type.as_str(), "0" | "1");
    let Some((rate, _)) = settings.numbers().filter(|_| is_readable) else {
        return findings;
    };
    members(tally, legacy, &mut findings);
    value(rate, reading, tally, legacy, &mut findings);
    times_to_live(stored, &mut findings);
    if tally.ahead > 0 {
        let text = format!(
            "a client's clock is {} ahead of the server's",
            in_words(tally.ahead)
        );
        findings.push(Finding::new(Code::ClockAhead, text));
    }
    let has_life = stored.lives[1] >= 0 || stored.lives[2] >= 0;
    if is_of_client && has_keys && !has_life && tally.newest <= tally.horizon {
        let ago = in_words(tally.now.saturating_sub(tally.newest));
        let text = format!("the client took its last permit {ago} ago, and its keys never expire");
        let finding = Finding::new(Code::IdleClient, text).fixed_by_removal(reading);
        let is_old = tally.now.saturating_sub(tally.newest) >= options.idle;
        findings.push(match is_old {
            true => finding,
            false => finding
                .only_noted()
                .not_fixed("with a shorter --idle TIME, --fix removes the keys"),
        });
    }
    findings
}

/// The findings for keys with a value or grants whose limiter has no settings.
fn without_limiter(reading: &Reading, tally: &Tally) -> Vec<Finding> {
    let stored = &reading.stored;
    if !tally.is_proven(stored) {
        return not_proven(stored, tally);
    }
    let text = "there are permits, and no settings: the next limiter of this name may use them";
    vec![Finding::new(Code::KeysLeftBehind, text).fixed_by_removal(reading)]
}

/// The finding for keys that may be a limiter's or another program's. There is none for keys that
/// cannot be a limiter's.
fn not_proven(stored: &Stored, tally: &Tally) -> Vec<Finding> {
    if !tally.is_possible(stored) {
        return Vec::new();
    }
    let siblings = stored.keys.iter().zip(&stored.types).skip(1);
    let keys: Vec<_> = { siblings.filter(|(_, found)| *found != "none") }
        .map(|(key, _)| key.escape_debug().to_string())
        .collect();
    if keys.is_empty() {
        return Vec::new();
    }
    let text = format!(
        "{} may be another program's: no grant says that a limiter wrote it",
        keys.join(" and ")
    );
    vec![Finding::new(Code::NotProven, text)]
}

fn wrong_types(stored: &Stored, findings: &mut Vec<Finding>) {
    for ((key, found), expected) in stored
        .keys
        .iter()
        .zip(&stored.types)
        .zip(["hash", "string", "zset"])
    {
        if found != "none" && found != expected {
            let text = format!("{} is a {found}, and not a {expected}", key.escape_debug());
            findings.push(Finding::new(Code::WrongType, text));
        }
    }
}

fn unreadable_settings(stored: &Stored, findings: &mut Vec<Finding>) {
    let settings = &stored.settings;
    if settings.is_stopped() {
        let text = "the rate is 0, as setRate(0) leaves it: each request is refused";
        findings.push(Finding::new(Code::Stopped, text));
    }
    let faults = settings
        .faults()
        .into_iter()
        .skip(usize::from(settings.is_stopped()));
    findings.extend(faults.map(|it| Finding::new(Code::SettingsUnreadable, it)));
    if let Some(keep_alive) = settings.short_keep_alive() {
        let (_, interval) = settings.numbers().unwrap_or_default();
        let [keep_alive, interval] = [keep_alive, interval].map(millis_in_words);
        let text = format!(
            "the keep alive of {keep_alive} is shorter than the interval of {interval}: after that \
             time without a request the limiter is gone, with the permits in use"
        );
        findings.push(Finding::new(Code::KeepAliveTooShort, text));
    }
}

fn millis_in_words(millis: i64) -> String {
    rate::as_argument(Duration::from_millis(millis.unsigned_abs()))
}

fn members(tally: &Tally, legacy: Legacy, findings: &mut Vec<Finding>) {
    let mut removed = |code, text| findings.push(Finding::new(code, text).fixed_by(Fix::Members));
    if let Some((number, _)) = tally.by_generation.get(&Generation::Malformed) {
        let (members, are) = (
            number_of(*number, "member"),
            if *number == 1 {
                "is no grant"
            } else {
                "are no grants"
            },
        );
        let text = format!("{members} {are}: once it has expired, each call of Redisson fails");
        removed(Code::MalformedMembers, text);
    }
    if tally.without_permits > 0 {
        let grants = number_of(tally.without_permits, "grant");
        let text = format!(
            "{grants} of 0 permits or less, of which Redisson makes billions, or which it never removes"
        );
        removed(Code::MembersWithoutPermits, text);
    }
    for (generation, (number, permits)) in &tally.by_generation {
        if generation.is_legacy() {
            let (grants, permits) = (
                number_of(*number, "grant"),
                number_of(permits.unsigned_abs(), "permit"),
            );
            let by = in_words(tally.legacy_until().max(0));
            let text = format!(
                "{grants} of {permits} by {generation}: Redisson from 3.17 on may grant billions \
                 once they have expired, from {by} on"
            );
            let finding = Finding::new(Code::LegacyMembers, text);
            findings.push(match legacy {
                Legacy::Count => finding.not_fixed(
                    "with --legacy migrate, --fix rewrites them for Redisson 3.17 and later; \
                     with --legacy remove, it removes them",
                ),
                Legacy::Migrate | Legacy::Remove => finding.fixed_by(Fix::Members),
            });
        }
    }
}

fn value(rate: i64, reading: &Reading, tally: &Tally, legacy: Legacy, findings: &mut Vec<Finding>) {
    let stored = &reading.stored;
    // Legacy grants hold permits too, because their clients have taken them from the value. If the
    // grants are removed, these permits become free.
    let permits = match legacy {
        Legacy::Count | Legacy::Migrate => tally.permits.saturating_add(tally.legacy),
        Legacy::Remove => tally.permits,
    };
    let in_use = format!("the stored grants hold {permits} of {rate}");
    let finding = match stored.value() {
        None if stored.value.is_empty() && stored.types[1] == "none" => {
            if permits == 0 {
                return;
            }
            let text = format!("no value, but {in_use}: Redisson grants all {rate} again");
            Finding::new(Code::ValueMissing, text)
        }
        None => {
            let text = format!(
                "the value is `{}`, which is no number as Redis writes it",
                stored.value.escape_debug()
            );
            Finding::new(Code::ValueUnreadable, text)
        }
        Some(value) => {
            let sum = value.saturating_add(permits);
            let is_above = if value > rate { ", above the rate" } else { "" };
            if sum < rate {
                let lost = number_of(sum.abs_diff(rate), "permit");
                let come = if sum == rate - 1 { "comes" } else { "come" };
                let text = format!("{lost} never {come} back: the value is {value}, {in_use}");
                Finding::new(Code::PermitsLost, text)
            } else if sum > rate {
                let more = number_of(sum.abs_diff(rate), "permit");
                let text = format!("{more} too many: the value is {value}{is_above}, {in_use}");
                Finding::new(Code::PermitsTooMany, text)
            } else {
                return;
            }
        }
    };
    let has_legacy = tally.by_generation.keys().any(|it| it.is_legacy());
    findings.push(if !reading.is_exact {
        let text = format!(
            "it changed while its {} were read; {}",
            number_of(stored.grants, "grant"),
            finding.text
        );
        Finding::new(Code::NotChecked, text)
    } else if has_legacy && legacy == Legacy::Count {
        // The right value depends on what is done with the legacy grants.
        finding.not_fixed("with --legacy migrate or --legacy remove, --fix sets the value")
    } else {
        let after = settled(rate, stored.value(), tally);
        let value = match stored.value.as_str() {
            "" => "none",
            value => value,
        };
        let mut change = format!(
            "the value: {} -> {}",
            value.escape_debug(),
            after.left + after.to_take
        );
        if after.to_take > 0 {
            let in_use = (tally.live, tally.live - after.to_take);
            change += &format!(", the permits in use: {} -> {}", in_use.0, in_use.1);
        }
        let finding = match has_legacy {
            true => finding, // the change depends on what is done with the legacy grants
            false => finding.changing(change),
        };
        finding.fixed_by(Fix::Value)
    });
}

fn times_to_live(stored: &Stored, findings: &mut Vec<Finding>) {
    let settings = &stored.settings;
    let text = match stored.lives[0] {
        left if left > 0 => "the settings expire",
        _ if settings.keep_alive().is_some() => "the limiter has a keep alive",
        _ => return,
    };
    let without = stored.keys.iter().zip(stored.lives);
    let keys: Vec<_> = { without.filter(|(_, left)| *left == -1) }
        .map(|(key, _)| key.escape_debug().to_string())
        .collect();
    if keys.is_empty() {
        return;
    }
    let text = format!("{text}, but {} would stay", keys.join(" and "));
    let finding = Finding::new(Code::NoTimeToLive, text);
    // With a time to live shorter than the interval, permits in use would be lost.
    findings.push(match settings.short_keep_alive() {
        Some(_) => finding.not_fixed(
            "by hand: the keep alive is shorter than the interval; \
             `rratelimiter update NAME RATE --keep-alive TIME` gives it a longer one",
        ),
        None => finding.fixed_by(Fix::Expire),
    });
}

/// The finding for a name whose keys a cluster puts into different slots.
fn spread(name: &str) -> Option<Finding> {
    let value = match name.contains('{') {
        true => format!("{name}:value"),
        false => format!("{{{name}}}:value"),
    };
    (hash_tag(name) != hash_tag(&value)).then(|| {
        let text = "its braces put the settings and the permits into different slots of a cluster, which refuses it";
        Finding::new(Code::SeveralSlots, text)
    })
}

/// The part of a key that decides its slot in a cluster.
fn hash_tag(key: &str) -> &str {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    tag.map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty())
        .unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(permits: i64, live: i64) -> Tally {
        Tally {
            permits,
            live,
            ..Tally::new(&Stored::default(), 0)
        }
    }

    #[test]
    fn a_limiter_is_settled_as_the_library_corrects_it() {
        for (value, permits, live, expected) in [
            (Some(2), 3, 3, (7, 0)),     // sent again
            (Some(10), 3, 3, (7, 3)),    // released by Redisson
            (Some(13), 0, 0, (10, 0)),   // above the rate
            (Some(0), 12, 12, (-2, 0)),  // a lowered rate
            (Some(-6), 18, 18, (-8, 2)), // a reservation, and a release by Redisson
            (Some(5), 8, 6, (2, 1)),     // and one that expired
            (None, 4, 4, (6, 0)),
        ] {
            let it = settled(10, value, &tally(permits, live));
            assert_eq!(
                (it.left, it.to_take),
                expected,
                "{value:?} {permits} {live}"
            );
        }
    }

    #[test]
    fn names_that_a_cluster_refuses_are_found() {
        for name in ["a{b", "a}b", "{}", "x{}y"] {
            assert!(spread(name).is_some(), "{name}");
        }
        for name in ["a", "a{t}b", "a:b"] {
            assert!(spread(name).is_none(), "{name}");
        }
    }
}
