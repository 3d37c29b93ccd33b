//! Removes keys that may be a limiter's or another program's, after a question for each.

use super::mend::{Which, remove};
use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::tally::{Place, read_tally};
use crate::question::{ask, is_yes};
use crate::report::number_of;
use crate::terminal::shown;

/// Asks for each key of the place whether to remove it, and returns whether all are removed. If the
/// value is kept, the key with the grants is kept too: without it, the value would be found again
/// as a place of its own.
pub(super) async fn ask_and_remove(context: &Context, place: &Place) -> Result<bool, Failure> {
    for (key, which) in [(1, Which::Value), (2, Which::Permits)] {
        let (reading, tally) = read_tally(&context.client, place).await?;
        let stored = &reading.stored;
        if stored.types[key] == "none" {
            continue;
        }
        let holds = match which {
            Which::Permits => number_of(stored.grants, "member"),
            _ => shown(&stored.value, 40),
        };
        let name = stored.keys[key].escape_debug();
        let question = format!("Remove {name}, which holds {holds}? [y/N]");
        let may_remove = tally.is_possible(stored) && reading.is_exact;
        let is_removed = may_remove
            && is_yes(&ask(&question)?)
            && remove(context, place, &reading.expected(), which).await?;
        if !is_removed {
            return Ok(false);
        }
    }
    Ok(true)
}
