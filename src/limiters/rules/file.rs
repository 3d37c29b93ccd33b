//! A file of rules, and what its keys mean: with the feature `rules-file`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::rule::Rejection;
use super::{Rule, RuleConfig, RulesConfig};
use crate::decision::Decision;
use crate::error::{Error, Result};
use crate::limiters::Registry;

/// A file of rules, in TOML or YAML, for requests of type `R`: with the feature `rules-file`.
/// [`RulesConfig`] shows what is in it.
///
/// It says where the file is and what its `key`s mean.
/// [`RedissonClient::rules_from`](crate::RedissonClient::rules_from) reads it, and
/// [`Rules::replace_from`](super::Rules::replace_from) reads it again, such as at SIGHUP. A file
/// whose name ends in `.yaml` or `.yml` is YAML, any other one TOML. [`Error::InvalidRulesFile`]
/// names the line and the field of a mistake.
///
/// ```
/// use redisson_rate_limiter::{RedissonClient, RulesFile, Verdict};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("rules.yaml");
/// let text = "
/// rules:
///   - name: per-user
///     key: user
///     policy: { algorithm: fixed_window, limit: 1, window_ms: 60000 }
/// ";
/// std::fs::write(&path, text)?;
///
/// let file = RulesFile::new(&path).key("user", |user: &&str| Some(user.to_string()));
/// let rules = RedissonClient::in_memory().rules_from(&file)?;
/// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(_)));
/// assert!(matches!(rules.check(&"alice").await?, Verdict::Rejected((), _)));
///
/// std::fs::write(&path, text.replace("limit: 1", "limit: 2"))?;
/// rules.replace_from(&file)?; // what was used still counts
/// assert!(matches!(rules.check(&"alice").await?, Verdict::Granted(_)));
///
/// std::fs::write(&path, text.replace("limit: 1", "limmit: 2"))?;
/// let mistake = rules.replace_from(&file).unwrap_err().to_string(); // the rules in force stay
/// assert!(mistake.contains("line 5") && mistake.contains("unknown field `limmit`"), "{mistake}");
/// # Ok(()) }
/// ```
pub struct RulesFile<R, E = ()> {
    path: PathBuf,
    keys: BTreeMap<String, Key<R>>,
    /// By the names of rules.
    costs: BTreeMap<String, Cost<R>>,
    plans_of: BTreeMap<String, PlanOf<R>>,
    rejection: Arc<Rejection<R, E>>,
}

type Key<R> = Arc<dyn Fn(&R) -> Option<String> + Send + Sync>;
type Cost<R> = Arc<dyn Fn(&R) -> u32 + Send + Sync>;
type PlanOf<R> = Arc<dyn Fn(&R, &str) -> Option<String> + Send + Sync>;

impl<R> RulesFile<R> {
    /// The file at this path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            keys: BTreeMap::new(),
            costs: BTreeMap::new(),
            plans_of: BTreeMap::new(),
            rejection: Arc::new(Box::new(|_, _| ())),
        }
    }
}

impl<R, E> RulesFile<R, E> {
    /// Says what a rule with this `key` counts for, as the target of [`Rule::new`] does.
    #[must_use]
    pub fn key(
        mut self,
        name: impl Into<String>,
        target: impl Fn(&R) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.keys.insert(name.into(), Arc::new(target));
        self
    }

    /// Sets what a request costs the rule of this name, as [`Rule::cost`] does. The default is 1.
    /// The file need not have such a rule.
    ///
    /// ```
    /// use redisson_rate_limiter::{RedissonClient, RulesFile, Verdict};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("rules.yaml");
    /// let rule = "{ name: bytes, key: all, policy: { algorithm: fixed_window, limit: 100, window_ms: 60000 } }";
    /// std::fs::write(&path, format!("rules: [{rule}]"))?;
    /// let file = RulesFile::new(&path)
    ///     .key("all", |_: &Vec<u8>| Some("all".to_owned()))
    ///     .cost("bytes", |body| body.len().try_into().unwrap_or(u32::MAX));
    /// let rules = RedissonClient::in_memory().rules_from(&file)?;
    /// assert!(matches!(rules.check(&vec![0; 70]).await?, Verdict::Granted(_)));
    /// assert!(matches!(rules.check(&vec![0; 70]).await?, Verdict::Rejected((), _)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn cost(
        mut self,
        rule: impl Into<String>,
        cost: impl Fn(&R) -> u32 + Send + Sync + 'static,
    ) -> Self {
        self.costs.insert(rule.into(), Arc::new(cost));
        self
    }

    /// Chooses the plan of each request that the rule of this name applies to, as [`Rule::plan_of`]
    /// does, such as by the account that the application has found. What the file says of a key
    /// counts first. The file need not have such a rule.
    ///
    /// ```
    /// # use redisson_rate_limiter::RulesFile;
    /// struct User { name: String, has_paid: bool }
    ///
    /// let file = RulesFile::new("rules.toml")
    ///     .key("user", |user: &User| Some(user.name.clone()))
    ///     .plan_of("per-user", |user, _| user.has_paid.then(|| "paid".to_owned()));
    /// ```
    #[must_use]
    pub fn plan_of(
        mut self,
        rule: impl Into<String>,
        plan: impl Fn(&R, &str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.plans_of.insert(rule.into(), Arc::new(plan));
        self
    }

    /// Sets what a denied request gets, as the rejection of [`Rule::new`] does. The default is
    /// `()`.
    ///
    /// ```
    /// # use redisson_rate_limiter::RulesFile;
    /// let file = RulesFile::new("rules.toml")
    ///     .key("user", |user: &String| Some(user.clone()))
    ///     .rejection(|user, denied| format!("{user}: retry in {:?}", denied.retry_after()));
    /// ```
    #[must_use]
    pub fn rejection<T>(
        self,
        rejection: impl Fn(&R, &Decision) -> T + Send + Sync + 'static,
    ) -> RulesFile<R, T> {
        RulesFile {
            path: self.path,
            keys: self.keys,
            costs: self.costs,
            plans_of: self.plans_of,
            rejection: Arc::new(Box::new(rejection)),
        }
    }

    /// Reads the rules, and whether all of them are in shadow mode.
    pub(super) fn read(&self, registry: &Arc<Registry>) -> Result<(Vec<Rule<R, E>>, bool)>
    where
        R: 'static,
        E: 'static,
    {
        let text = text_of(&self.path)?;
        let config = parse(&self.path, &text)?;
        let rules = config.rules.iter().enumerate().map(|(place, config)| {
            let key = self.keys.get(&config.key).ok_or_else(|| {
                let known: Vec<_> = self.keys.keys().map(|it| format!("`{it}`")).collect();
                let (name, key, known) = (&config.name, &config.key, known.join(", "));
                let reason =
                    format!("`key` of `{name}`: unknown key `{key}`, expected one of {known}");
                let line = line_of(&self.path, &text, place, "key");
                refused(&self.path, line, reason)
            })?;
            let (key, rejection) = (Arc::clone(key), Arc::clone(&self.rejection));
            let mut rule = config.rule(
                registry,
                move |request| key(request),
                move |request, denied| rejection(request, denied),
            )?;
            if let Some(cost) = self.costs.get(&config.name).cloned() {
                rule = rule.cost(move |request| cost(request));
            }
            if let Some(plan_of) = self.plans_of.get(&config.name).cloned() {
                rule = rule.plan_of(move |request, key| plan_of(request, key));
            }
            Ok(rule)
        });
        Ok((rules.collect::<Result<_>>()?, config.shadow))
    }
}

impl RulesConfig {
    /// Reads a file of rules, in TOML or YAML, as a [`RulesFile`] does: with the feature
    /// `rules-file`. For an application that gives each `key` a meaning of its own; a `RulesFile`
    /// has a list of them.
    ///
    /// ```
    /// # use redisson_rate_limiter::RulesConfig;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("rules.yml");
    /// let rule = "{ name: logins, key: user, policy: { algorithm: fixed_window, limit: 1, window_ms: 1000 } }";
    /// std::fs::write(&path, format!("rules:\n- {rule}\n"))?;
    /// assert_eq!(RulesConfig::from_file(&path)?.rules[0].key, "user");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRulesFile`] if it cannot be read or has a mistake.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_file_with(path, |_| Ok(()))
    }

    /// Reads a file of rules as [`from_file`](Self::from_file) does, and refuses a rule that
    /// `check` refuses: for an application that gives `key` and `keys` a meaning of its own.
    /// `check` returns the field and what is wrong with it; the error has its line.
    ///
    /// ```
    /// # use redisson_rate_limiter::RulesConfig;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("rules.toml");
    /// let text = "
    /// [[rules]]
    /// name = 'logins'
    /// key = 'usr'
    /// policy = { algorithm = 'fixed_window', limit = 1, window_ms = 1000 }
    /// ";
    /// std::fs::write(&path, text)?;
    /// let read = RulesConfig::from_file_with(&path, |rule| match &*rule.key {
    ///     "user" | "address" => Ok(()),
    ///     other => Err(("key", format!("there is no `{other}`"))),
    /// });
    /// let mistake = read.unwrap_err().to_string();
    /// assert!(mistake.ends_with("line 4: `key` of `logins`: there is no `usr`"), "{mistake}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file), and [`Error::InvalidRulesFile`] for the first rule that
    /// `check` refuses.
    pub fn from_file_with(
        path: impl AsRef<Path>,
        check: impl Fn(&RuleConfig) -> Result<(), (&'static str, String)>,
    ) -> Result<Self> {
        let path = path.as_ref();
        let text = text_of(path)?;
        let config = parse(path, &text)?;
        for (place, rule) in config.rules.iter().enumerate() {
            check(rule).map_err(|(field, reason)| {
                let reason = format!("`{field}` of `{}`: {reason}", rule.name);
                refused(path, line_of(path, &text, place, field), reason)
            })?;
        }
        Ok(config)
    }
}

fn text_of(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path);
    text.map_err(|error| refused(path, None, error.to_string()))
}

/// The line is from 1, if the mistake is in one.
fn refused(path: &Path, line: Option<usize>, reason: String) -> Error {
    Error::InvalidRulesFile {
        path: path.to_owned(),
        line,
        reason,
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|it| it == "yaml" || it == "yml")
}

fn line_at(text: &str, place: usize) -> usize {
    1 + text[..place].matches('\n').count()
}

/// The fields of the rules, with their places in the file.
#[derive(Deserialize)]
struct Fields<T> {
    rules: Vec<BTreeMap<String, T>>,
}

/// The line of a field of a rule, from 1, in a file that has been parsed before.
fn line_of(path: &Path, text: &str, rule: usize, field: &str) -> Option<usize> {
    if is_yaml(path) {
        type Field = serde_saphyr::Spanned<IgnoredAny>;
        let fields: Fields<Field> = serde_saphyr::from_str(text).ok()?;
        let at = &fields.rules.get(rule)?.get(field)?.referenced;
        return at.line().try_into().ok();
    }
    let fields: Fields<toml::Spanned<IgnoredAny>> = toml::from_str(text).ok()?;
    Some(line_at(
        text,
        fields.rules.get(rule)?.get(field)?.span().start,
    ))
}

fn parse(path: &Path, text: &str) -> Result<RulesConfig> {
    if is_yaml(path) {
        let options = serde_saphyr::options! {
            strict_booleans: true,
            with_snippet: false,
        };
        return serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let reason = error.to_string();
            let Some(at) = error.location() else {
                return refused(path, None, reason);
            };
            let line = at.line().try_into().ok();
            refused(path, line, without_place(&reason).to_owned())
        });
    }
    toml::from_str(text).map_err(|error| {
        let line = { error.span() }.map(|at| line_at(text, at.start));
        refused(path, line, error.message().to_owned())
    })
}

/// A reason without the places that the parser of YAML writes behind it.
fn without_place(reason: &str) -> &str {
    let (before, place) = reason.rsplit_once(" at line ").unwrap_or((reason, ""));
    let mut numbers = place.split(", column ").map(str::parse::<u64>);
    match numbers.all(|number| number.is_ok()) {
        true => without_place(before),
        false => reason,
    }
}

impl<R, E> fmt::Debug for RulesFile<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulesFile")
            .field("path", &self.path)
            .field("keys", &self.keys.keys())
            .finish_non_exhaustive()
    }
}
