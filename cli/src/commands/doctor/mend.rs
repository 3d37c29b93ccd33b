//! What `--fix` does. Each step is a script of bounded work that changes nothing if the keys have
//! changed since they were read.

use std::sync::LazyLock;

use super::finding::{Fix, Legacy};
use super::limiter::settled;
use super::places::namesake;
use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::grants::{Expected, Stored, read};
use crate::inspect::member::{Generation, Member};
use crate::inspect::reply::text;
use crate::inspect::sample::keys_of;
use crate::inspect::script::Script;
use crate::inspect::tally::{Place, read_tally};

static SETTLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/settle.lua")));
static REPLACE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/replace_members.lua")));
static REMOVE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/remove_unused.lua")));
static EXPIRE: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/give_time_to_live.lua")));

/// The most tries to correct the value of a limiter that is in use. Tries after which it has fewer
/// grants do not count.
const TRIES: u32 = 20;
/// The most members that one call replaces.
const MEMBERS: usize = 500;
/// The most members that one pass over the grants keeps in memory.
const KEPT: usize = 20 * MEMBERS;

/// Applies a fix, except [`Fix::Value`], which [`mend_value`] applies. Returns whether it is done;
/// if not, another try may succeed.
pub(super) async fn mend(
    context: &Context,
    place: &Place,
    fix: &Fix,
    legacy: Legacy,
) -> Result<bool, Failure> {
    match fix {
        Fix::Members => mend_members(context, place, legacy).await,
        Fix::Value => Ok(true), // corrected after all fixes that change the members
        Fix::Remove(expected) => remove(context, place, expected, Which::Both).await,
        Fix::Expire => is_written(&EXPIRE, context, place, None, &[]).await,
    }
}

/// Which keys of a place to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Both,
    Value,
    Permits,
}

/// Removes keys if they are as expected. Returns whether any was removed.
pub(crate) async fn remove(
    context: &Context,
    place: &Place,
    expected: &Expected,
    which: Which,
) -> Result<bool, Failure> {
    let grants = expected.grants.to_string();
    let which = match which {
        Which::Both => "both",
        Which::Value => "value",
        Which::Permits => "permits",
    };
    let arguments = [
        expected.rate_type.as_bytes(),
        expected.value.as_bytes(),
        grants.as_bytes(),
        &expected.first,
        &expected.last,
        which.as_bytes(),
    ];
    is_written(&REMOVE, context, place, namesake(&place.name), &arguments).await
}

/// Runs a script that returns the number of keys of this place that it has written. Returns whether
/// it has written any.
async fn is_written(
    script: &Script,
    context: &Context,
    place: &Place,
    further_key: Option<String>,
    arguments: &[&[u8]],
) -> Result<bool, Failure> {
    let keys = keys_of(&context.client, &place.name, place.client.as_deref());
    let keys = keys.iter().chain(&further_key);
    let keys: Vec<_> = keys.map(String::as_bytes).collect();
    let written = script.run(&context.client, &keys, arguments).await?;
    Ok(text(&written) != "0")
}

/// Corrects the value, if it is wrong or the fixes have changed the members. Returns whether the
/// value is right; if not, another try may succeed.
pub(super) async fn mend_value(
    context: &Context,
    place: &Place,
    fixes: &[Fix],
    legacy: Legacy,
) -> Result<bool, Failure> {
    let is_due =
        fixes.contains(&Fix::Members) && legacy != Legacy::Count || fixes.contains(&Fix::Value);
    Ok(!is_due || settle(context, place).await?)
}

/// Corrects the value, and returns whether it is right.
async fn settle(context: &Context, place: &Place) -> Result<bool, Failure> {
    let (mut tries, mut grants) = (0, u64::MAX);
    while tries < TRIES {
        let (reading, tally) = read_tally(&context.client, place).await?;
        let stored = &reading.stored;
        // A call takes permits out of a bounded number of grants, so many calls may be necessary.
        tries += u32::from(stored.grants >= grants);
        grants = stored.grants;
        let Some((rate, _)) = stored.settings.numbers() else {
            return Ok(false);
        };
        if !reading.is_exact {
            continue;
        }
        let to_be = settled(rate, stored.value(), &tally);
        let [_, value, permits] = &stored.keys;
        let numbers = [
            stored.grants.to_string(),
            to_be.left.to_string(),
            to_be.to_take.to_string(),
            tally.horizon.to_string(),
        ];
        let [number, left, to_take, horizon] = numbers.each_ref().map(String::as_bytes);
        let arguments = [
            stored.value.as_bytes(),
            number,
            &reading.first,
            &reading.last,
            left,
            to_take,
            horizon,
        ];
        let keys = [value.as_bytes(), permits.as_bytes()];
        let done = SETTLE.run(&context.client, &keys, &arguments).await?;
        if text(&done) == "done" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes members that are no grants or hold nothing, and removes or rewrites grants of old
/// versions as `legacy` says. Returns true.
async fn mend_members(context: &Context, place: &Place, legacy: Legacy) -> Result<bool, Failure> {
    loop {
        let replaced = |member: &Member| match member.generation {
            Generation::Malformed => Some(Vec::new()),
            generation if generation.is_legacy() => match legacy {
                Legacy::Count => None,
                Legacy::Remove => Some(Vec::new()),
                Legacy::Migrate => Some(member.migrated()),
            },
            _ if member.permits == 0 && !member.is_fence() => Some(Vec::new()),
            _ => None,
        };
        let start = |_: &Stored, _| Vec::new();
        let client = place.client.as_deref();
        let reading = read(
            &context.client,
            &place.name,
            client,
            start,
            |found, grant| {
                if found.len() < KEPT
                    && let Some(replacement) = replaced(&grant.member)
                {
                    found.push((grant.raw, replacement));
                }
            },
        );
        let (reading, found): (_, Vec<(Vec<u8>, Vec<u8>)>) = reading.await?;
        let permits = &reading.stored.keys[2];
        for chunk in found.chunks(MEMBERS) {
            let pairs = chunk.iter().flat_map(|(old, new)| [&old[..], &new[..]]);
            let pairs: Vec<_> = pairs.collect();
            REPLACE
                .run(&context.client, &[permits.as_bytes()], &pairs)
                .await?;
        }
        if found.len() < KEPT {
            return Ok(true);
        }
    }
}
