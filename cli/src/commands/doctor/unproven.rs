//! Removes keys that may be a limiter's and may be another program's, after a question for each.

use super::mend::{Which, remove};
use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::tally::{Place, read_tally};
use crate::question::{ask, is_yes};
use crate::report::number_of;
use crate::terminal::shown;

/// Returns whether all of them are gone. A value that is kept keeps the permits: without those it
/// would be found again, as one more place.
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
            && remove(context, place, &reading.seen(), which).await?;
        if !is_removed {
            return Ok(false);
        }
    }
    Ok(true)
}
