//! The rules of the file: read at the start and again while requests come in.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use redisson_rate_limiter::{RedissonClient, Rule, RuleConfig, Rules, RulesChange, RulesConfig};
use serde_json::json;

use super::part::Part;
use super::pattern::Pattern;

/// The rules in force, and what came of reading their file last.
pub(super) struct RulesFile {
    pub(super) rules: Rules<Part, ()>,
    path: PathBuf,
    shown: RwLock<Arc<Shown>>,
    /// Held while the file is read, so that the rules in force are those that were read last.
    seen: Mutex<Seen>,
}

/// The file as it was.
struct Seen {
    /// When it was read last, good or bad.
    when_read: Option<Stamp>,
    /// When it was looked at last.
    last: Option<Stamp>,
}

/// What is told about the rules in force.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) is_shadow: bool,
    pub(super) rules: Vec<ShownRule>,
    /// Why the file as it is now was refused, if it was.
    pub(super) refused: Option<Refused>,
}

/// Why a file was refused, and since when there is none that is not.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) since: Instant,
    pub(super) cause: String,
}

#[derive(Debug, Clone)]
pub(super) struct ShownRule {
    pub(super) config: RuleConfig,
    pub(super) pattern: Arc<Pattern>,
}

/// What differs when a file has changed: also one that was replaced by another of the same length
/// and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    length: u64,
    /// In seconds and nanoseconds.
    modified: (i64, i64),
    /// When anything of it was changed, which nobody can set.
    changed: (i64, i64),
}

struct Read {
    rules: Vec<Rule<Part, ()>>,
    shown: Shown,
}

impl RulesFile {
    pub(super) fn open(client: &RedissonClient, path: PathBuf) -> Result<Self, String> {
        let stamp = stamp(&path);
        let read = read(client, &path)?;
        Ok(Self {
            rules: client.rules(read.rules).map_err(|it| it.to_string())?,
            path,
            shown: RwLock::new(Arc::new(read.shown)),
            seen: Mutex::new(Seen {
                when_read: stamp,
                last: stamp,
            }),
        })
    }

    pub(super) fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file again, and returns what has changed. If it is refused, the old rules stay.
    pub(super) fn reload(&self, client: &RedissonClient) -> Result<RulesChange, String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.when_read = stamp(&self.path);
        let read = read(client, &self.path).and_then(|read| {
            let replaced = self.rules.replace(read.rules);
            let change = replaced.map_err(|error| error.to_string())?;
            Ok((change, read.shown))
        });
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok((change, read)) => {
                *shown = Arc::new(read);
                Ok(change)
            }
            Err(error) => {
                *shown = Arc::new(Shown {
                    is_shadow: shown.is_shadow,
                    rules: shown.rules.clone(),
                    refused: Some(Refused {
                        since: shown
                            .refused
                            .as_ref()
                            .map_or_else(Instant::now, |it| it.since),
                        cause: error.clone(),
                    }),
                });
                Err(error)
            }
        }
    }

    /// Whether the file differs from the one that was read last, and not from when this was called
    /// last: one that is being written may have some of the rules only.
    pub(super) fn has_changed(&self) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(&self.path);
        let is_settled = std::mem::replace(&mut seen.last, now) == now;
        is_settled && seen.when_read != now
    }
}

impl Shown {
    pub(super) fn rule(&self, name: &str) -> Option<&ShownRule> {
        self.rules.iter().find(|it| it.config.name == name)
    }
}

impl ShownRule {
    /// The algorithm and its numbers, in words.
    pub(super) fn limit(&self) -> String {
        let policy = json!(self.config.policy);
        let numbers = policy.as_object().into_iter().flatten();
        let numbers = numbers.filter(|(name, _)| *name != "algorithm");
        let words = numbers.map(|(name, value)| format!("{} {value}", name.replace('_', " ")));
        let algorithm = policy["algorithm"].as_str().unwrap_or_default();
        { [algorithm.replace('_', " ")].into_iter() }
            .chain(words)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some(Stamp {
        file: (metadata.dev(), metadata.ino()),
        length: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

fn read(client: &RedissonClient, path: &Path) -> Result<Read, String> {
    let config = RulesConfig::from_file_with(path, |rule| {
        let pattern = Pattern::parse(&rule.key).map_err(|error| ("key", error))?;
        let mut keys = rule.keys.keys();
        keys.try_for_each(|key| pattern.check_key(key))
            .map_err(|error| ("keys", error))
    });
    let config = config.map_err(|error| error.to_string())?;
    let mut read = Read {
        rules: Vec::new(),
        shown: Shown {
            is_shadow: config.shadow,
            ..Shown::default()
        },
    };
    for rule in config.rules {
        let pattern = Pattern::parse(&rule.key)
            .map_err(|error| format!("`key` of `{}`: {error}", rule.name))?;
        let pattern = Arc::new(pattern);
        let made = made(client, &rule, &pattern).map_err(|error| error.to_string())?;
        // Each by itself, so that the rules and their mode change in one step.
        let made = match config.shadow {
            true => made.in_shadow(),
            false => made,
        };
        read.rules.push(made);
        read.shown.rules.push(ShownRule {
            config: rule,
            pattern,
        });
    }
    refuse_too_many(&read.shown.rules)?;
    Ok(read)
}

/// How many rules decide a request together.
const MOST_RULES: usize = 32;

/// Refuses rules of which more apply to each request of one of them than can decide it.
fn refuse_too_many(rules: &[ShownRule]) -> Result<(), String> {
    for rule in rules {
        let wider = rules.iter();
        let wider = wider.filter(|it| it.pattern.applies_wherever(&rule.pattern));
        if wider.count() > MOST_RULES {
            return Err(format!(
                "`key` of `{}`: more than {MOST_RULES} rules apply wherever this one does, and no more decide a request",
                rule.config.name
            ));
        }
    }
    Ok(())
}

fn made(
    client: &RedissonClient,
    config: &RuleConfig,
    pattern: &Arc<Pattern>,
) -> redisson_rate_limiter::Result<Rule<Part, ()>> {
    let first = Arc::clone(pattern);
    let target = move |part: &Part| first.applies_to(part).then(|| first.value(part, 0))?;
    let mut rule = client
        .rule(config, target, |_, _| ())?
        .cost(|part| part.chargeable().unwrap_or(u32::MAX))
        .longest_turn(|part| part.longest_turn);
    for place in 1..pattern.values() {
        let pattern = Arc::clone(pattern);
        rule = rule.and_by(move |part| pattern.value(part, place));
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: &str = "[[rules]]\nname = \"one\"\nkey = \"user\"\n\
                        policy = { algorithm = \"fixed_window\", limit = 1, window_ms = 1000 }\n";

    #[test]
    fn a_file_in_yaml_has_the_same_rules() {
        let folder = tempfile::tempdir().unwrap();
        let client = RedissonClient::in_memory();
        let rule = "rules:\n- name: one\n  key: user\n  policy: { algorithm: fixed_window, limit: 1, window_ms: 1000 }\n";
        let opened = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            RulesFile::open(&client, path).map(|it| it.shown().rules[0].config.clone())
        };
        let in_toml = opened("rules.toml", RULE).unwrap();
        for name in ["rules.yaml", "rules.yml"] {
            assert_eq!(opened(name, rule).unwrap(), in_toml);
        }
        let refused = opened("rules.yaml", &rule.replace("limit", "limmit")).unwrap_err();
        assert!(
            refused.contains("line 4: unknown field `limmit`"),
            "{refused}"
        );
    }

    #[test]
    fn a_file_that_is_replaced_by_one_of_equal_length_and_time_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        let write = |path: &Path, limit: &str| {
            fs::write(path, RULE.replace("limit = 1", limit)).unwrap();
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH)
                .unwrap();
        };
        write(&path, "limit = 1");
        let client = RedissonClient::in_memory();
        let file = RulesFile::open(&client, path.clone()).unwrap();
        assert!(!file.has_changed() && !file.has_changed());
        let other = folder.path().join("other");
        write(&other, "limit = 2");
        fs::rename(&other, &path).unwrap();
        assert!(!file.has_changed() && file.has_changed());
        file.reload(&client).unwrap();
        // The same file, with a time as before.
        let before = stamp(&path).unwrap();
        while stamp(&path).unwrap().changed == before.changed {
            write(&path, "limit = 3");
        }
        assert_eq!(stamp(&path).unwrap().modified, before.modified);
        assert!(!file.has_changed() && file.has_changed());
    }

    #[test]
    fn rules_that_no_request_could_be_decided_by_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let client = RedissonClient::in_memory();
        let opened = |rules: &[(usize, &str)]| {
            let path = folder.path().join("rules.toml");
            let rules = rules.iter().flat_map(|(count, key)| {
                let key = format!("\"{key}\"");
                (0..*count).map(move |place| {
                    let name = format!("\"{} {place}\"", key.trim_matches('"'));
                    RULE.replace("\"one\"", &name).replace("\"user\"", &key)
                })
            });
            fs::write(&path, rules.collect::<String>()).unwrap();
            RulesFile::open(&client, path).map(|_| ())
        };
        opened(&[(10, "*"), (10, "user"), (12, "edge: user, path=/a*")]).unwrap();
        opened(&[(32, "user=a"), (32, "user=b")]).unwrap();
        let refused = opened(&[(10, "*"), (11, "user"), (12, "edge: user, path=/a*")]);
        assert_eq!(
            refused.unwrap_err(),
            "`key` of `edge: user, path=/a* 0`: more than 32 rules apply wherever this one does, and no more decide a \
             request"
        );
        assert!(opened(&[(33, "*")]).is_err());
    }

    #[test]
    fn a_file_that_is_being_written_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        fs::write(&path, RULE).unwrap();
        let client = RedissonClient::in_memory();
        let file = RulesFile::open(&client, path.clone()).unwrap();
        assert!(!file.has_changed());
        for length in [10, 20, 30] {
            fs::write(&path, &RULE[..length]).unwrap();
            assert!(!file.has_changed());
        }
        assert!(file.has_changed());
        assert!(file.reload(&client).is_err());
        assert!(!file.has_changed());
        fs::remove_file(&path).unwrap();
        assert!(!file.has_changed());
        assert!(file.has_changed());
        assert!(file.reload(&client).is_err());
        assert_eq!(file.shown().rules.len(), 1);
    }
}
