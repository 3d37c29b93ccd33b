//! The text of rules, in TOML and YAML: what is in it, and on which line.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::raw::RawRules;
use crate::error::{Error, Result};

/// The text that a configuration was read from, so that the error names the line if the
/// configuration is refused later. All sources are equal: they are no part of what is configured.
#[derive(Clone, Default)]
pub(super) struct Source(Option<Arc<Text>>);

struct Text {
    format: Format,
    text: String,
    path: Option<PathBuf>,
}

impl Source {
    pub(super) fn new(format: Format, text: &str, path: Option<&Path>) -> Self {
        Self(Some(Arc::new(Text {
            format,
            text: text.to_owned(),
            path: path.map(Path::to_owned),
        })))
    }

    /// The error of a mistake in this field of the rule at this place, or in none.
    pub(super) fn refused(&self, field: Option<(usize, &str)>, reason: String) -> Error {
        let text = self.0.as_deref();
        let line = text
            .zip(field)
            .and_then(|(it, (rule, field))| it.format.line_of(&it.text, rule, field));
        let path = text.and_then(|it| it.path.as_deref());
        invalid_rules(path, line, reason)
    }
}

pub(super) fn invalid_rules(path: Option<&Path>, line: Option<usize>, reason: String) -> Error {
    Error::InvalidRules {
        path: path.map(Path::to_owned),
        line,
        reason,
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
pub(super) enum Format {
    #[cfg(feature = "toml")]
    Toml,
    #[cfg(feature = "yaml")]
    Yaml,
}

/// The fields of the rules, with their places in the text.
#[derive(Deserialize)]
struct Fields<T> {
    rules: Vec<BTreeMap<String, T>>,
}

impl Format {
    pub(super) fn of(path: &Path) -> Result<Self> {
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
                Err(invalid_rules(Some(path), None, reason))
            }
        }
    }

    /// Fails with the line of the mistake, from 1, if it is on one, and the reason.
    pub(super) fn parse(self, text: &str) -> Result<RawRules, (Option<usize>, String)> {
        match self {
            #[cfg(feature = "toml")]
            Self::Toml => toml::from_str(text).map_err(|error| {
                let line = error.span().map(|at| line_at(text, at.start));
                (line, error.message().to_owned())
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
                    (line, without_place(&error.to_string()).to_owned())
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
