//! The findings of `doctor`. Each has a code that does not change between versions, and a remedy:
//! what `--fix` does about it, or what a person can do.

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::inspect::grants::{Expected, Reading};

/// The options that decide what is a finding, and whether it is fixed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) legacy: Legacy,
    /// How long a client must have taken nothing before its keys are removed, in ms.
    pub(super) idle: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Legacy {
    /// They are counted, and stay
    Count,
    /// They get the form that Redisson from 3.17 on reads
    Migrate,
    /// They are removed
    Remove,
}

/// The severity of a finding, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// More is granted than the rate, or calls fail, now or when something expires.
    Broken,
    /// Less is granted than the rate, or keys are stored that nobody uses.
    Wasted,
    /// Only a person can mend it.
    ByHand,
    /// The keys may be another program's.
    NotProven,
    /// The operator should know it, but need not change anything.
    Note,
}

impl Severity {
    pub(super) const ALL: [Self; 5] = [
        Self::Broken,
        Self::Wasted,
        Self::ByHand,
        Self::NotProven,
        Self::Note,
    ];

    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Broken => "The limit does not hold",
            Self::Wasted => "Permits are lost, or keys are kept for nobody",
            Self::ByHand => "To be mended by hand",
            Self::NotProven => "Not touched, as it may be another program's",
            Self::Note => "Notes",
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Wasted => "wasted",
            Self::ByHand => "by_hand",
            Self::NotProven => "not_proven",
            Self::Note => "note",
        }
    }

    pub(super) fn is_note(self) -> bool {
        self >= Self::NotProven
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    PermitsLost,
    PermitsTooMany,
    ValueMissing,
    ValueUnreadable,
    MalformedMembers,
    LegacyMembers,
    MembersWithoutPermits,
    SettingsUnreadable,
    Stopped,
    KeepAliveTooShort,
    WrongType,
    NotProven,
    KeysLeftBehind,
    KeysOfOtherType,
    IdleClient,
    NoTimeToLive,
    SeveralSlots,
    ClockAhead,
    NotChecked,
    NoLimiter,
    MayEvict,
    FreesInline,
    NotPersistent,
    ReplicasMayLag,
    OldVersion,
    Unmaintained,
    NotPermitted,
    IsReplica,
    SettingsHidden,
}

impl Code {
    const ALL: [Self; 29] = [
        Self::PermitsLost,
        Self::PermitsTooMany,
        Self::ValueMissing,
        Self::ValueUnreadable,
        Self::MalformedMembers,
        Self::LegacyMembers,
        Self::MembersWithoutPermits,
        Self::SettingsUnreadable,
        Self::Stopped,
        Self::KeepAliveTooShort,
        Self::WrongType,
        Self::NotProven,
        Self::KeysLeftBehind,
        Self::KeysOfOtherType,
        Self::IdleClient,
        Self::NoTimeToLive,
        Self::SeveralSlots,
        Self::ClockAhead,
        Self::NotChecked,
        Self::NoLimiter,
        Self::MayEvict,
        Self::FreesInline,
        Self::NotPersistent,
        Self::ReplicasMayLag,
        Self::OldVersion,
        Self::Unmaintained,
        Self::NotPermitted,
        Self::IsReplica,
        Self::SettingsHidden,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::PermitsLost => "permits-lost",
            Self::PermitsTooMany => "permits-too-many",
            Self::ValueMissing => "value-missing",
            Self::ValueUnreadable => "value-unreadable",
            Self::MalformedMembers => "malformed-members",
            Self::LegacyMembers => "legacy-members",
            Self::MembersWithoutPermits => "members-without-permits",
            Self::SettingsUnreadable => "settings-unreadable",
            Self::Stopped => "stopped",
            Self::KeepAliveTooShort => "keep-alive-too-short",
            Self::WrongType => "wrong-type",
            Self::NotProven => "not-proven",
            Self::KeysLeftBehind => "keys-left-behind",
            Self::KeysOfOtherType => "keys-of-other-type",
            Self::IdleClient => "idle-client",
            Self::NoTimeToLive => "no-time-to-live",
            Self::SeveralSlots => "several-slots",
            Self::ClockAhead => "clock-ahead",
            Self::NotChecked => "not-checked",
            Self::NoLimiter => "no-limiter",
            Self::MayEvict => "server-may-evict",
            Self::FreesInline => "server-frees-inline",
            Self::NotPersistent => "server-not-persistent",
            Self::ReplicasMayLag => "server-replicas-may-lag",
            Self::OldVersion => "server-old-version",
            Self::Unmaintained => "server-unmaintained",
            Self::NotPermitted => "server-not-permitted",
            Self::IsReplica => "server-is-replica",
            Self::SettingsHidden => "server-settings-hidden",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == text)
    }

    fn severity(self) -> Severity {
        match self {
            Self::PermitsTooMany
            | Self::ValueMissing
            | Self::ValueUnreadable
            | Self::MalformedMembers
            | Self::MembersWithoutPermits
            | Self::LegacyMembers => Severity::Broken,
            Self::PermitsLost
            | Self::KeysLeftBehind
            | Self::KeysOfOtherType
            | Self::IdleClient
            | Self::NoTimeToLive => Severity::Wasted,
            Self::NotProven => Severity::NotProven,
            Self::FreesInline
            | Self::NotPersistent
            | Self::SettingsHidden
            | Self::NotChecked
            | Self::Unmaintained
            | Self::Stopped => Severity::Note,
            _ => Severity::ByHand,
        }
    }

    /// What `--fix` does about it, or what a person can do.
    fn remedy(self) -> &'static str {
        match self {
            Self::PermitsLost | Self::ValueMissing | Self::ValueUnreadable => {
                "--fix sets the value to the rate less the permits of the stored grants"
            }
            Self::PermitsTooMany => {
                "--fix takes what was given back out of the oldest live grants, and sets the \
                 value to the rate less the rest"
            }
            Self::MalformedMembers | Self::MembersWithoutPermits => "--fix removes them",
            Self::LegacyMembers => "--fix rewrites or removes them, as --legacy says",
            Self::KeysLeftBehind | Self::KeysOfOtherType => "--fix removes the keys",
            Self::IdleClient => "--fix removes the keys, unless the client takes permits meanwhile",
            Self::NoTimeToLive => "--fix gives the keys the time to live that they should have",
            Self::SettingsUnreadable => "by hand: `rratelimiter set NAME RATE` gives it a rate",
            Self::Stopped => "by hand: `rratelimiter set NAME RATE` gives it a rate",
            Self::KeepAliveTooShort => {
                "by hand: `rratelimiter update NAME RATE --keep-alive TIME` gives it a longer one"
            }
            Self::NotProven => {
                "by hand: if no program uses it, `rratelimiter doctor NAME --remove-unproven` \
                 asks key by key"
            }
            Self::WrongType => {
                "by hand: another program's key has this name; rename the limiter, or delete the \
                 key"
            }
            Self::SeveralSlots => "by hand: give it a name whose braces enclose something, or none",
            Self::ClockAhead => {
                "by hand: set the clock of that client; the permits come back an interval after \
                 the score"
            }
            Self::NotChecked => {
                "by hand: try again when it is used less, or as a user who may read it"
            }
            Self::NoLimiter => "by hand: `rratelimiter list` shows which there are",
            Self::MayEvict => {
                "by hand: set maxmemory-policy to noeviction, or give the limiters a server of \
                 their own"
            }
            Self::FreesInline => {
                "by hand: set them to yes, so that the end of a large limiter does not hold up \
                 others"
            }
            Self::NotPersistent => {
                "by hand: set appendonly to yes if limiters must outlive a restart, after which \
                 those that have no client with a rate are gone"
            }
            Self::ReplicasMayLag => {
                "by hand: set min-replicas-to-write to 1 if a failover must not forget grants"
            }
            Self::OldVersion | Self::Unmaintained => "by hand: update the server",
            Self::NotPermitted => "by hand: docs/connections.md has the rule for ACL SETUSER",
            Self::IsReplica => "by hand: use the URL of the primary, of Sentinels or of a cluster",
            Self::SettingsHidden => {
                "by hand: ask who runs the server for maxmemory-policy, persistence and replicas"
            }
        }
    }
}

/// What `--fix` changes to mend a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fix {
    /// Removes or rewrites members of the grants, and then corrects the value.
    Members,
    /// Corrects the value.
    Value,
    /// Removes the keys with the value and the grants, if the limiter has not changed since.
    Remove(Expected),
    /// Gives the keys without a time to live the one that they should have.
    Expire,
}

#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) code: Code,
    /// What was found, in a sentence.
    pub(super) text: String,
    pub(super) fix: Option<Fix>,
    pub(super) severity: Severity,
    /// What `--fix` changes, such as `the value: 7 -> 10`.
    pub(super) change: Option<String>,
    /// A remedy that replaces the code's own, if `--fix` mends other findings of this code but not
    /// this one.
    remedy: Option<&'static str>,
}

impl Finding {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            fix: None,
            severity: code.severity(),
            change: None,
            remedy: None,
        }
    }

    pub(super) fn fixed_by(self, fix: Fix) -> Self {
        Self {
            fix: Some(fix),
            ..self
        }
    }

    /// Makes the removal of the keys the fix, if they did not change while they were read.
    pub(super) fn fixed_by_removal(self, reading: &Reading) -> Self {
        match reading.is_exact {
            true => self.fixed_by(Fix::Remove(reading.expected())),
            false => self.not_fixed("by hand: try again, as the keys changed while they were read"),
        }
    }

    /// Makes it a finding that `--fix` does not mend, although it mends others of its code.
    pub(super) fn not_fixed(self, remedy: &'static str) -> Self {
        Self {
            fix: None,
            remedy: Some(remedy),
            ..self
        }
    }

    /// Lowers the severity to a note.
    pub(super) fn only_noted(self) -> Self {
        Self {
            severity: Severity::Note,
            ..self
        }
    }

    pub(super) fn changing(self, change: String) -> Self {
        Self {
            change: Some(change),
            ..self
        }
    }

    /// What `--fix` does to the limiter of this name, or what a person can do.
    pub(super) fn remedy(&self, name: &str) -> String {
        if let Some(change) = self.fix.as_ref().and(self.change.as_ref()) {
            return format!("--fix sets {change}");
        }
        let remedy = self.remedy.unwrap_or_else(|| self.code.remedy());
        remedy.replace("NAME", &in_shell(name))
    }

    pub(super) fn to_json(&self, name: &str) -> Value {
        json!({
            "code": self.code.as_str(), "text": self.text, "is_note": self.severity.is_note(),
            "severity": self.severity.as_str(), "change": self.change,
            "is_fixable": self.fix.is_some(), "remedy": self.remedy(name),
        })
    }
}

/// Quotes a name as a word for a shell, if necessary.
fn in_shell(name: &str) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || ":._-/@".contains(it);
    let escaped = name.escape_debug().to_string();
    match !name.is_empty() && name.chars().all(is_plain) {
        true => escaped,
        false => format!("'{}'", escaped.replace("\\'", "'").replace('\'', "'\\''")),
    }
}
