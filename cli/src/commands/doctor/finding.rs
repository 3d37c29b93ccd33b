//! What can be wrong: each finding has a code that stays, and says what `--fix` does about it.

use serde_json::{Value, json};

use crate::inspect::grants::{Reading, Seen};

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

    /// What the operator should know, but need not change.
    pub(super) fn is_note(self) -> bool {
        matches!(
            self,
            Self::FreesInline
                | Self::NotPersistent
                | Self::SettingsHidden
                | Self::NotChecked
                | Self::NotProven
                | Self::Stopped
                | Self::Unmaintained
        )
    }

    /// What `--fix` does, or how a person mends it.
    fn remedy(self) -> &'static str {
        match self {
            Self::PermitsLost | Self::ValueMissing | Self::ValueUnreadable => {
                "sets the value to the rate less the permits of the stored grants"
            }
            Self::PermitsTooMany => {
                "takes what was given back out of the oldest live grants, and sets the value to the rate less the rest"
            }
            Self::MalformedMembers | Self::MembersWithoutPermits => "removes them",
            Self::LegacyMembers => {
                "counts them only; with --legacy migrate rewrites them for Redisson 3.17 and later, with --legacy remove removes them"
            }
            Self::KeysLeftBehind | Self::KeysOfOtherType => "removes the keys",
            Self::IdleClient => "removes the keys, unless the client takes permits meanwhile",
            Self::NoTimeToLive => "gives the keys the time to live that they should have",
            Self::SettingsUnreadable => "nothing: `rratelimiter set NAME RATE` gives it a rate",
            Self::Stopped => "nothing: `rratelimiter set NAME RATE` gives it a rate",
            Self::KeepAliveTooShort => {
                "nothing: `rratelimiter update NAME RATE --keep-alive TIME` gives it a longer one"
            }
            Self::NotProven => {
                "nothing: if no program uses it, `rratelimiter doctor NAME --remove-unproven` asks key by key"
            }
            Self::WrongType => {
                "nothing: another program's key has this name; rename the limiter, or delete the key"
            }
            Self::SeveralSlots => "nothing: give it a name whose braces enclose something, or none",
            Self::ClockAhead => {
                "nothing: set the clock of that client; the permits come back an interval after the score"
            }
            Self::NotChecked => {
                "nothing: try again when it is used less, or as a user who may read it"
            }
            Self::NoLimiter => "nothing: `rratelimiter list` shows which there are",
            Self::MayEvict => {
                "nothing: set maxmemory-policy to noeviction, or give the limiters a server of their own"
            }
            Self::FreesInline => {
                "nothing: set them to yes, so that the end of a large limiter does not hold up others"
            }
            Self::NotPersistent => {
                "nothing: set appendonly to yes if limiters must outlive a restart, after which those that have no client with a rate are gone"
            }
            Self::ReplicasMayLag => {
                "nothing: set min-replicas-to-write to 1 if a failover must not forget grants"
            }
            Self::OldVersion | Self::Unmaintained => "nothing: update the server",
            Self::NotPermitted => "nothing: docs/connections.md has the rule for ACL SETUSER",
            Self::IsReplica => "nothing: use the URL of the primary, of Sentinels or of a cluster",
            Self::SettingsHidden => {
                "nothing: ask who runs the server for maxmemory-policy, persistence and replicas"
            }
        }
    }
}

/// What mends it, where it is not clear from the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fix {
    /// The limiter's members, then its value.
    Members,
    Value,
    /// Value and permits, if they and the limiter are still as they were seen.
    Remove(Seen),
    /// The keys without a time to live.
    Expire,
}

#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) code: Code,
    /// What is so.
    pub(super) text: String,
    pub(super) fix: Option<Fix>,
}

impl Finding {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            fix: None,
        }
    }

    pub(super) fn fixed_by(self, fix: Fix) -> Self {
        Self {
            fix: Some(fix),
            ..self
        }
    }

    /// By the removal of keys that were read whole.
    pub(super) fn fixed_by_removal(self, reading: &Reading) -> Self {
        match reading.is_exact {
            true => self.fixed_by(Fix::Remove(reading.seen())),
            false => self,
        }
    }

    pub(super) fn remedy(&self) -> String {
        format!("--fix {}", self.code.remedy()).replace("--fix nothing: ", "by hand: ")
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "code": self.code.as_str(), "text": self.text, "is_note": self.code.is_note(),
            "is_fixable": self.fix.is_some(), "remedy": self.remedy(),
        })
    }
}
