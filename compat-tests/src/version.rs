//! The versions of Redisson that the tests run, and what each can do.

use std::fmt;

/// The versions of Redisson that the tests run, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// A floating-point number and the permits a member: no later version reads it.
    V3_16_3,
    /// A length of eight bytes, 8 random bytes and the permits a member, which later versions
    /// misread.
    V3_16_8,
    /// The first whose state today's Redisson can read; 8 random bytes a member.
    V3_17_0,
    /// 16 random bytes a member.
    V3_21_3,
    /// When what comes back exceeds the rate, counts what is out by permits, no longer by members.
    V3_36_0,
    /// The first with `release`; keepAlive.
    V3_52_0,
    /// `updateRate` and `setRate(RateLimiterArgs)`.
    V4_7_0,
}

impl Version {
    /// Those whose state today's Redisson cannot read.
    pub const LEGACY: [Self; 2] = [Self::V3_16_3, Self::V3_16_8];

    /// Those that share state with today's.
    pub const ALL: [Self; 5] = [
        Self::V3_17_0,
        Self::V3_21_3,
        Self::V3_36_0,
        Self::V3_52_0,
        Self::V4_7_0,
    ];

    /// The random bytes of a member of the permits zset.
    pub fn random_len(self) -> usize {
        if self < Self::V3_21_3 { 8 } else { 16 }
    }

    /// `trySetRate` and `setRate` with a keepAlive, and the field `keepAliveTime`.
    pub fn has_keep_alive(self) -> bool {
        self >= Self::V3_52_0
    }

    pub fn has_release(self) -> bool {
        self >= Self::V3_52_0
    }

    /// `updateRate` and `setRate(RateLimiterArgs)`.
    pub fn has_update_rate(self) -> bool {
        self >= Self::V4_7_0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V3_16_3 => "3.16.3",
            Self::V3_16_8 => "3.16.8",
            Self::V3_17_0 => "3.17.0",
            Self::V3_21_3 => "3.21.3",
            Self::V3_36_0 => "3.36.0",
            Self::V3_52_0 => "3.52.0",
            Self::V4_7_0 => "4.7.0",
        })
    }
}
