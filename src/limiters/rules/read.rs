//! Rules from text and files, in TOML and YAML: with the features `toml` and `yaml`.

use std::fs;
use std::path::Path;

use super::RulesConfig;
use super::source::{Format, Source, invalid_rules};
use crate::error::Result;

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
    /// [`Error::InvalidRules`](crate::Error::InvalidRules) if it has a mistake.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Self> {
        Self::read(Format::Toml, text, None)
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
    /// [`Error::InvalidRules`](crate::Error::InvalidRules) if it has a mistake.
    #[cfg(feature = "yaml")]
    pub fn from_yaml(text: &str) -> Result<Self> {
        Self::read(Format::Yaml, text, None)
    }

    /// Reads a file of rules: with the feature `toml` or `yaml`. A file whose name ends in `.yaml`
    /// or `.yml` is YAML, any other one TOML.
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
    /// [`Error::InvalidRules`](crate::Error::InvalidRules) if it cannot be read or has a mistake.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = fs::read_to_string(path);
        let text = text.map_err(|error| invalid_rules(Some(path), None, error.to_string()))?;
        Self::read(Format::of(path)?, &text, Some(path))
    }

    fn read(format: Format, text: &str, path: Option<&Path>) -> Result<Self> {
        let raw = format.parse(text);
        let raw = raw.map_err(|(line, reason)| invalid_rules(path, line, reason))?;
        let source = Source::new(format, text, path);
        match Self::try_from(raw) {
            Ok(config) => Ok(Self { source, ..config }),
            Err(mistake) => Err(mistake.error(&source)),
        }
    }
}
