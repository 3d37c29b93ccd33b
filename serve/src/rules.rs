//! The rules of the file, which is read at the start and again whenever it changes.
//!
//! The file's metadata is read once a second. Notifications of the file system would miss changes
//! on network file systems, and exchanged symbolic links, as in a ConfigMap.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use redisson_rate_limiter::{
    Attributes, Error, RedissonClient, Rule, RuleConfig, RuleLimit, Rules, RulesChange, RulesConfig,
};

/// The rules in force, and the result of the last read of their file.
pub(super) struct RulesFile {
    pub(super) rules: Rules,
    path: PathBuf,
    shown: RwLock<Arc<Shown>>,
    /// Locked while the file is read, so that the rules in force are those of the last read.
    stamps: Mutex<Stamps>,
}

/// The stamps of the file; `None` if it did not exist.
struct Stamps {
    /// The stamp at the last read, whether or not the rules were valid.
    when_read: Option<Stamp>,
    /// The stamp at the last check for changes.
    when_checked: Option<Stamp>,
}

/// What the log and the status page report about the rules in force.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) is_shadow: bool,
    pub(super) rules: Vec<ShownRule>,
    /// Why the current file was refused; `None` if its rules are in force.
    pub(super) refused: Option<Refused>,
}

/// Why the file was refused, and since when every version of it was.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) since: Instant,
    pub(super) cause: String,
}

#[derive(Debug, Clone)]
pub(super) struct ShownRule {
    pub(super) config: RuleConfig,
    rule: Rule,
}

/// Metadata that differs after a file has changed, even if another file of the same length and
/// modification time replaced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    /// The device and the number of the inode.
    file: (u64, u64),
    /// The length of the file in bytes.
    length: u64,
    /// The time of the last modification, in seconds and nanoseconds.
    modified: (i64, i64),
    /// The time of the last change of the inode, which programs cannot set, in the same units.
    changed: (i64, i64),
}

impl RulesFile {
    pub(super) fn open(client: &RedissonClient, path: PathBuf) -> Result<Self, String> {
        let stamp = stamp(&path);
        let read = || {
            let config = read(&path)?;
            let rules = client.rules_from(&config)?;
            Ok((Shown::new(config, &rules), rules))
        };
        let (shown, rules) = read().map_err(|it: Error| it.to_string())?;
        Ok(Self {
            rules,
            path,
            shown: RwLock::new(Arc::new(shown)),
            stamps: Mutex::new(Stamps {
                when_read: stamp,
                when_checked: stamp,
            }),
        })
    }

    pub(super) fn shown(&self) -> Arc<Shown> {
        Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the file again, and returns what has changed. If it is refused, the old rules stay.
    pub(super) fn reload(&self) -> Result<RulesChange, String> {
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        stamps.when_read = stamp(&self.path);
        let read = read(&self.path).and_then(|config| {
            let change = self.rules.replace_from(&config)?;
            Ok((change, Shown::new(config, &self.rules)))
        });
        let read = read.map_err(|error| error.to_string());
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

    /// Whether the file differs from the one that was read last, and has not changed since the
    /// previous call: a file that is still being written may have only some of the rules.
    pub(super) fn has_changed(&self) -> bool {
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(&self.path);
        let is_settled = std::mem::replace(&mut stamps.when_checked, now) == now;
        is_settled && stamps.when_read != now
    }
}

/// Reads the rules of a file. Rules must not count only failures or successes, because nobody
/// reports to this server how requests end.
pub(super) fn read(path: &Path) -> Result<RulesConfig, Error> {
    RulesConfig::from_file(path)?.without_count()
}

impl Shown {
    /// Pairs the rules of a configuration with the rules in force that were made of it.
    fn new(config: RulesConfig, rules: &Rules) -> Self {
        let rules = rules.in_force();
        let each = config.rules.into_iter().zip(rules.iter().cloned());
        Self {
            is_shadow: config.shadow,
            rules: each
                .map(|(config, rule)| ShownRule { config, rule })
                .collect(),
            refused: None,
        }
    }

    pub(super) fn rule(&self, name: &str) -> Option<&ShownRule> {
        self.rules.iter().find(|it| it.config.name == name)
    }
}

impl ShownRule {
    /// Describes in words which requests the rule applies to and by what it counts them.
    pub(super) fn applies(&self) -> String {
        let RuleConfig { when, by, .. } = &self.config;
        let mut text = match by.is_empty() {
            true => "all requests".to_owned(),
            false => format!("each {}", by.join(", ")),
        };
        for (place, (name, values)) in when.iter().enumerate() {
            let separator = if place == 0 { " where" } else { " and" };
            // Writing to a String never fails.
            let _ = write!(text, "{separator} {name} = {}", values.join(" | "));
        }
        text
    }

    /// The algorithm and its numbers, in words.
    pub(super) fn limit(&self) -> String {
        self.config.limit.to_string()
    }

    pub(super) fn applies_to(&self, request: &impl Attributes) -> bool {
        self.rule.applies_to(request)
    }

    /// Whether the rule grants every request that it applies to.
    pub(super) fn allows_all(&self) -> bool {
        self.config.limit == RuleLimit::Allow
    }

    /// The key that a request counts for, as people read it.
    pub(super) fn label(&self, request: &impl Attributes) -> String {
        match self.rule.counts_by(request) {
            label if label.is_empty() => "all requests".to_owned(),
            label => label,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: &str = "[[rules]]\nname = \"one\"\nby = [\"user\"]\n\
                        limit = { algorithm = \"fixed_window\", rate = \"1/1s\" }\n";

    #[test]
    fn a_file_in_yaml_has_the_same_rules() {
        let folder = tempfile::tempdir().unwrap();
        let client = RedissonClient::in_memory();
        let rule =
            "rules:\n- name: one\n  by: [user]\n  limit: { algorithm: fixed_window, rate: 1/1s }\n";
        let opened = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            RulesFile::open(&client, path).map(|it| it.shown().rules[0].config.clone())
        };
        let in_toml = opened("rules.toml", RULE).unwrap();
        for name in ["rules.yaml", "rules.yml"] {
            assert_eq!(opened(name, rule).unwrap(), in_toml);
        }
        let refused = opened("rules.yaml", &rule.replace("rate", "rat")).unwrap_err();
        assert!(
            refused.contains("line 4: `limit` of `one`: unknown field `rat`"),
            "{refused}"
        );
    }

    #[test]
    fn a_file_that_is_replaced_by_one_of_equal_length_and_time_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        let write = |path: &Path, rate: &str| {
            fs::write(path, RULE.replace("1/1s", rate)).unwrap();
            let file = fs::File::options().write(true).open(path).unwrap();
            file.set_modified(std::time::SystemTime::UNIX_EPOCH)
                .unwrap();
        };
        write(&path, "1/1s");
        let client = RedissonClient::in_memory();
        let file = RulesFile::open(&client, path.clone()).unwrap();
        assert!(!file.has_changed() && !file.has_changed());
        let other = folder.path().join("other");
        write(&other, "2/1s");
        fs::rename(&other, &path).unwrap();
        assert!(!file.has_changed() && file.has_changed());
        file.reload().unwrap();
        // Writes to the same file, and sets its modification time back.
        let before = stamp(&path).unwrap();
        while stamp(&path).unwrap().changed == before.changed {
            write(&path, "3/1s");
        }
        assert_eq!(stamp(&path).unwrap().modified, before.modified);
        assert!(!file.has_changed() && file.has_changed());
    }

    #[test]
    fn a_rule_describes_in_words_which_requests_it_applies_to() {
        let text = "[[rules]]\nname = \"a\"\nlimit = \"allow\"\n[[rules]]\nname = \"b\"\nlimit = \"block\"\n\
                    by = [\"user\", \"address/56\"]\nwhen = { method = \"GET\", path = [\"/a*\", \"/b\"] }\n";
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        fs::write(&path, text).unwrap();
        let shown = RulesFile::open(&RedissonClient::in_memory(), path)
            .unwrap()
            .shown();
        let told: Vec<_> = shown.rules.iter().map(ShownRule::applies).collect();
        let expected = "each user, address/56 where method = GET and path = /a* | /b";
        assert_eq!(told, ["all requests", expected]);
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
        assert!(file.reload().is_err());
        assert!(!file.has_changed());
        fs::remove_file(&path).unwrap();
        assert!(!file.has_changed());
        assert!(file.has_changed());
        assert!(file.reload().is_err());
        assert_eq!(file.shown().rules.len(), 1);
    }

    #[test]
    fn a_refused_file_keeps_the_rules_and_the_time_of_the_first_refusal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.toml");
        let good = format!("shadow = true\n{RULE}");
        fs::write(&path, &good).unwrap();
        let client = RedissonClient::in_memory();
        let file = RulesFile::open(&client, path.clone()).unwrap();
        let refused = |text: &str| {
            fs::write(&path, text).unwrap();
            let error = file.reload().unwrap_err();
            let shown = file.shown();
            assert!(shown.is_shadow && shown.rules.len() == 1, "{shown:?}");
            let refused = shown.refused.clone().unwrap();
            assert_eq!(refused.cause, error);
            refused
        };
        let (first, second) = (refused("rules = 1"), refused("rules = ["));
        assert_ne!(first.cause, second.cause);
        assert_eq!(first.since, second.since);
        fs::write(&path, good).unwrap();
        file.reload().unwrap();
        assert!(file.shown().refused.is_none());
    }
}
