//! Rules from text and files, in TOML and YAML: with the features `toml` and `yaml`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::RulesConfig;
use super::config::Mistake;
use super::raw::RawRules;
use crate::error::{Error, Result};

impl RulesConfig {
    /// Reads rules in TOML: with the feature `toml`.
    ///
    /// ```
    /// # use redisson_rate_limiter::RulesConfig;
    /// # fn main() -> redisson_rate_limiter::Result<()> {
    /// let text = "
    /// [[rules]]
    /// name = 'logins'
    /// by = ['user']
    /// limit = { algorithm = 'fixed_window', rate = '5/1m' }
    /// ";
    /// assert_eq!(RulesConfig::from_toml(text)?.rules[0].by, ["user"]);
    /// let mistake = RulesConfig::from_toml(&text.replace("rate", "rat")).unwrap_err().to_string();
    /// assert!(mistake.starts_with("invalid rules, line 5: `limit` of `logins`: unknown field `rat`"), "{mistake}");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRules`] if it has a mistake.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Self> {
        Format::Toml.read(text, None)
    }

    /// Reads rules in YAML: with the feature `yaml`.
    ///
    /// ```
    /// # use redisson_rate_limiter::RulesConfig;
    /// # fn main() -> redisson_rate_limiter::Result<()> {
    /// let text = "
    /// rules:
    ///   - name: logins
    ///     by: [user]
    ///     limit: { algorithm: fixed_window, rate: 5/1m }
    /// ";
    /// assert_eq!(RulesConfig::from_yaml(text)?.rules[0].by, ["user"]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRules`] if it has a mistake.
    #[cfg(feature = "yaml")]
    pub fn from_yaml(text: &str) -> Result<Self> {
        Format::Yaml.read(text, None)
    }

    /// Reads a file of rules: with the feature `toml` or `yaml`. One whose name ends in `.yaml` or
    /// `.yml` is YAML, any other one TOML.
    ///
    /// ```
    /// # use redisson_rate_limiter::RulesConfig;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("rules.toml");
    /// std::fs::write(&path, "[[rules]]\nname = 'maintenance'\nlimit = 'block'\n")?;
    /// assert_eq!(RulesConfig::from_file(&path)?.rules[0].name, "maintenance");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRules`] if it cannot be read or has a mistake.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = fs::read_to_string(path).map_err(|error| Wrong {
            line: None,
            reason: error.to_string(),
        });
        let text = text.map_err(|wrong| wrong.error(Some(path)))?;
        Format::of(path)?.read(&text, Some(path))
    }
}

/// What a configuration was read from, so that the error of one that is refused later names the
/// line as well. All are equal: it is no part of what is configured.
#[derive(Clone, Default)]
pub(super) struct Source(Option<Arc<Text>>);

struct Text {
    format: Format,
    text: String,
    path: Option<PathBuf>,
}

impl Source {
    pub(super) fn refused(&self, mistake: Option<&Mistake>, reason: String) -> Error {
        let text = self.0.as_deref();
        let line = text
            .zip(mistake)
            .and_then(|(it, mistake)| it.format.line_of(&it.text, mistake.rule, mistake.field));
        let path = text.and_then(|it| it.path.as_deref());
        Wrong { line, reason }.error(path)
    }
}

impl PartialEq for Source {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Source {}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
enum Format {
    #[cfg(feature = "toml")]
    Toml,
    #[cfg(feature = "yaml")]
    Yaml,
}

/// Why a text is refused.
struct Wrong {
    /// From 1, if the mistake is in one.
    line: Option<usize>,
    reason: String,
}

impl Wrong {
    fn error(self, path: Option<&Path>) -> Error {
        Error::InvalidRules {
            path: path.map(Path::to_owned),
            line: self.line,
            reason: self.reason,
        }
    }
}

/// The fields of the rules, with their places in the text.
#[derive(Deserialize)]
struct Fields<T> {
    rules: Vec<BTreeMap<String, T>>,
}

impl Format {
    fn of(path: &Path) -> Result<Self> {
        let extension = path.extension().unwrap_or_default();
        let is_yaml = extension == "yaml" || extension == "yml";
        match is_yaml {
            #[cfg(feature = "yaml")]
            true => Ok(Self::Yaml),
            #[cfg(feature = "toml")]
            false => Ok(Self::Toml),
            #[cfg(not(all(feature = "toml", feature = "yaml")))]
            _ => {
                let feature = if is_yaml { "yaml" } else { "toml" };
                let reason = format!("it needs the feature `{feature}` of the library");
                Err(Wrong { line: None, reason }.error(Some(path)))
            }
        }
    }

    fn read(self, text: &str, path: Option<&Path>) -> Result<RulesConfig> {
        let raw = self.parse(text).map_err(|wrong| wrong.error(path))?;
        let source = Source(Some(Arc::new(Text {
            format: self,
            text: text.to_owned(),
            path: path.map(Path::to_owned),
        })));
        match RulesConfig::try_from(raw) {
            Ok(config) => Ok(RulesConfig { source, ..config }),
            Err(mistake) => Err(source.refused(Some(&mistake), mistake.to_string())),
        }
    }

    fn parse(self, text: &str) -> Result<RawRules, Wrong> {
        match self {
            #[cfg(feature = "toml")]
            Self::Toml => toml::from_str(text).map_err(|error| Wrong {
                line: error.span().map(|at| line_at(text, at.start)),
                reason: error.message().to_owned(),
            }),
            #[cfg(feature = "yaml")]
            Self::Yaml => {
                let options = serde_saphyr::options! {
                    strict_booleans: true,
                    with_snippet: false,
                };
                let read = serde_saphyr::from_str_with_options(text, options);
                read.map_err(|error| {
                    let line = error.location().and_then(|at| at.line().try_into().ok());
                    let reason = without_place(&error.to_string()).to_owned();
                    Wrong { line, reason }
                })
            }
        }
    }

    /// The line of a field of a rule, from 1, in a text that has been parsed before.
    fn line_of(self, text: &str, rule: usize, field: &str) -> Option<usize> {
        match self {
            #[cfg(feature = "toml")]
            Self::Toml => {
                let fields: Fields<toml::Spanned<IgnoredAny>> = toml::from_str(text).ok()?;
                let at = fields.rules.get(rule)?.get(field)?.span().start;
                Some(line_at(text, at))
            }
            #[cfg(feature = "yaml")]
            Self::Yaml => {
                type Field = serde_saphyr::Spanned<IgnoredAny>;
                let fields: Fields<Field> = serde_saphyr::from_str(text).ok()?;
                let at = &fields.rules.get(rule)?.get(field)?.referenced;
                at.line().try_into().ok()
            }
        }
    }
}

#[cfg(feature = "toml")]
fn line_at(text: &str, place: usize) -> usize {
    1 + text[..place].matches('\n').count()
}

/// A reason without the places that the parser of YAML writes behind it.
#[cfg(feature = "yaml")]
fn without_place(reason: &str) -> &str {
    let (before, place) = reason.rsplit_once(" at line ").unwrap_or((reason, ""));
    let mut numbers = place.split(", column ").map(str::parse::<u64>);
    match numbers.all(|number| number.is_ok()) {
        true => without_place(before),
        false => reason,
    }
}
