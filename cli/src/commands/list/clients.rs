//! The clients of limiters with a rate for each client: how many have taken permits, and which has
//! the most in use.

use std::collections::{BTreeMap, HashSet};

use futures_util::stream::{self, StreamExt};

use super::AT_ONCE;
use crate::commands::doctor::places::place_of;
use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::sample::{Clients, Kind, RateSample, Sample, sample};
use crate::inspect::scan::Scan;

/// The most clients of a limiter that are sampled. Further ones are only counted.
const MOST: usize = 10_000;

/// Finds the clients of these limiters by one walk over the keys. Returns the number of calls of
/// SCAN.
pub(super) async fn look_for(context: &Context, samples: &mut [Sample]) -> Result<u64, Failure> {
    let mut by_name: BTreeMap<String, (&mut RateSample, HashSet<String>)> = BTreeMap::new();
    for it in samples {
        if let Kind::Rate(rate) = &mut it.kind {
            rate.clients = Some(Clients::default());
            by_name.insert(it.name.clone(), (&mut **rate, HashSet::new()));
        }
    }
    let mut scan = Scan::new(&context.client, "*:permits:*", Some("zset"))?;
    while let Some(keys) = scan.next().await? {
        let mut found = Vec::new();
        for key in keys.into_iter().filter_map(|it| String::from_utf8(it).ok()) {
            let Some((name, client)) = owner_of(&key, &by_name) else {
                continue;
            };
            let Some((rate, seen)) = by_name.get_mut(&name) else {
                continue;
            };
            if seen.len() < MOST {
                // SCAN may return a key twice.
                if seen.insert(client.clone()) {
                    found.push((name, client));
                }
            } else if let Some(clients) = &mut rate.clients {
                clients.number += 1;
            }
        }
        let looks = found.into_iter().map(async |(name, client)| {
            let look = sample(&context.client, &name, Some(&client), i64::MAX).await;
            (name, client, look)
        });
        let mut looks = stream::iter(looks).buffered(AT_ONCE);
        while let Some((name, client, look)) = looks.next().await {
            let look = match look {
                Err(failure) if failure.is_of_one_key() => continue,
                look => look?,
            };
            if let (Some((rate, _)), Some(look)) = (by_name.get_mut(&name), look) {
                note(rate, client, look);
            }
        }
    }
    Ok(scan.calls)
}

/// The limiter and the client that a key with grants belongs to.
fn owner_of<T>(key: &str, by_name: &BTreeMap<String, T>) -> Option<(String, String)> {
    let place = place_of(key)?;
    let client = place.client?;
    // `orders` and `{orders}` have the same keys for grants.
    let names = [place.name.clone(), format!("{{{}}}", place.name)];
    let name = names.into_iter().find(|it| by_name.contains_key(it))?;
    Some((name, client))
}

fn note(rate: &mut RateSample, client: String, look: Sample) {
    let (Kind::Rate(of_client), Some(clients)) = (look.kind, &mut rate.clients) else {
        return;
    };
    clients.number += 1;
    let in_use = of_client.in_use().unwrap_or(0);
    let most = clients.fullest.as_ref().map(|(_, in_use)| *in_use);
    if most.is_none_or(|most| in_use > most) {
        clients.fullest = Some((client, in_use));
    }
    // The limiter gets the worst health of its clients.
    if of_client.health.rank() < rate.health.rank() {
        rate.health = of_client.health;
    }
}
