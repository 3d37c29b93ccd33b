//! Finds out whether the user of the connection has the permissions that limiters need: by ACL
//! DRYRUN on the limiter's keys, which changes nothing, or, if the server lacks that, by a
//! temporary limiter.

use std::time::Duration;

use redisson_rate_limiter::{Error, Rate, Reply};

use super::finding::{Code, Finding};
use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::reply::text;

/// The commands in docs/connections.md that have a key, each with the arguments after its key.
const ON_KEYS: [(&str, &[&str]); 33] = [
    ("TYPE", &[]),
    ("EXISTS", &[]),
    ("UNLINK", &[]),
    ("PTTL", &[]),
    ("PEXPIRE", &["1000"]),
    ("PEXPIREAT", &["1000"]),
    ("PERSIST", &[]),
    ("GET", &[]),
    ("MGET", &[]),
    ("SET", &["1"]),
    ("INCRBY", &["1"]),
    ("DECRBY", &["1"]),
    ("HMGET", &["rate"]),
    ("HSET", &["rate", "1"]),
    ("HSETNX", &["rate", "1"]),
    ("HDEL", &["rate"]),
    ("ZADD", &["1", "m"]),
    ("ZCARD", &[]),
    ("ZCOUNT", &["1", "2"]),
    ("ZSCORE", &["m"]),
    ("ZRANGE", &["0", "1"]),
    ("ZRANGEBYSCORE", &["0", "1"]),
    ("ZREVRANGE", &["0", "1"]),
    ("ZREVRANGEBYSCORE", &["1", "0"]),
    ("ZRANK", &["m"]),
    ("ZREM", &["m"]),
    ("ZREMRANGEBYRANK", &["0", "1"]),
    ("LINDEX", &["0"]),
    ("LRANGE", &["0", "1"]),
    ("LSET", &["0", "x"]),
    ("LTRIM", &["0", "1"]),
    ("RPUSH", &["x"]),
    ("RPUSHX", &["x"]),
];

/// The commands in docs/connections.md that have no key.
const WITHOUT_KEYS: [&str; 4] = ["TIME", "INFO", "ROLE", "PING"];
const SCRIPTS: [&str; 2] = ["EVALSHA", "EVAL"];

pub(super) async fn examine(context: &Context, name: &str) -> Result<Option<Finding>, Failure> {
    let refused = match dry_run(context, name).await? {
        Some(refused) => refused,
        None => tried(context, name).await?,
    };
    if refused.is_empty() {
        return Ok(None);
    }
    let text = format!(
        "the user of this connection may not: {}",
        refused.join(", ")
    );
    Ok(Some(Finding::new(Code::NotPermitted, text)))
}

/// The commands that are refused by ACL DRYRUN; `None` if the server lacks it or refuses it.
async fn dry_run(context: &Context, name: &str) -> Result<Option<Vec<String>>, Failure> {
    let Ok(user) = context.client.command(["ACL", "WHOAMI"]).await else {
        return Ok(None);
    };
    let user = text(&user);
    let limiter = context.client.rate_limiter(name);
    let [_, value, ..] = limiter.keys();
    let scripts = SCRIPTS.map(|it| vec![it, "return 1", "2", name, value]);
    let others = WITHOUT_KEYS.map(|it| vec![it]);
    let on_keys = ON_KEYS.iter().flat_map(|(command, rest)| {
        // The settings and the other keys have names of different forms, and the user needs
        // permission for both.
        [name, value].map(|key| [&[*command, key], *rest].concat())
    });
    let mut refused = Vec::new();
    for words in on_keys.chain(scripts).chain(others) {
        let asked = ["ACL", "DRYRUN", &user]
            .into_iter()
            .chain(words.iter().copied());
        match context.client.command(asked).await {
            Ok(Reply::Bytes(answer)) if answer == b"OK" => {}
            Ok(_) => {
                let what = match words.get(1) {
                    Some(key) if !words[0].starts_with("EVAL") => {
                        format!("{} {}", words[0], key.escape_debug())
                    }
                    _ => words[0].to_owned(),
                };
                refused.push(what);
            }
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(refused))
}

/// Creates a temporary limiter whose name begins with this one, takes a permit and gives it back.
/// Returns what is refused.
async fn tried(context: &Context, name: &str) -> Result<Vec<String>, Failure> {
    const LIFE: Duration = Duration::from_secs(5);
    // The id of the process keeps another `doctor` with the same client id from using it too.
    let own = format!("{}:{}", context.client.id(), std::process::id());
    let limiter = context.client.rate_limiter(&format!("{name}:doctor:{own}"));
    let rate = Rate::overall(1, Duration::from_secs(1)).keep_alive(LIFE);
    let steps = async {
        limiter.try_set_rate(rate).await?;
        limiter.try_acquire(1).await?;
        limiter.release(1).await?;
        limiter.available_permits().await.map(|_| ())
    };
    let tried = steps.await;
    let deleted = limiter.delete().await;
    match tried.and(deleted) {
        Ok(_) => Ok(Vec::new()),
        Err(Error::PermissionDenied { source }) => {
            Ok(vec![source.to_string().escape_debug().to_string()])
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_permissions_are_those_of_the_page_about_connections() {
        let page = include_str!("../../../../docs/connections.md");
        let (_, rule) = page.split_once("ACL SETUSER app on ").unwrap();
        let (rule, _) = rule.split_once("# on each node of a cluster").unwrap();
        let of_page = rule
            .split_whitespace()
            .filter_map(|word| word.strip_prefix('+'))
            .map(str::to_uppercase);
        let on_keys = ON_KEYS.iter().map(|(command, _)| *command);
        let tried = on_keys.chain(SCRIPTS).chain(WITHOUT_KEYS);
        let tried: BTreeSet<_> = tried.map(str::to_owned).collect();
        assert_eq!(tried, of_page.collect());
    }
}
