//! The versions of Redisson that the tests run, and what each can do.

use std::fmt;
use std::str::FromStr;

/// A version of Redisson.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u16, u16, u16);

impl Version {
    /// A floating-point number and the permits a member: no later version reads it.
    pub const V3_16_3: Self = Self(3, 16, 3);
    /// A length of eight bytes, 8 random bytes and the permits a member, which later versions
    /// misread.
    pub const V3_16_8: Self = Self(3, 16, 8);
    /// The first whose state today's Redisson can read; 8 random bytes a member.
    pub const V3_17_0: Self = Self(3, 17, 0);
    /// 16 random bytes a member.
    pub const V3_21_3: Self = Self(3, 21, 3);
    /// When what comes back exceeds the rate, counts what is out by permits, no longer by members.
    pub const V3_36_0: Self = Self(3, 36, 0);
    /// The first with `release`; keepAlive.
    pub const V3_52_0: Self = Self(3, 52, 0);
    /// `updateRate` and `setRate(RateLimiterArgs)`.
    pub const V4_7_0: Self = Self(4, 7, 0);

    /// Those whose state today's Redisson cannot read.
    pub const LEGACY: [Self; 2] = [Self::V3_16_3, Self::V3_16_8];

    /// Those that share state with today's, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V3_17_0,
        Self::V3_21_3,
        Self::V3_36_0,
        Self::V3_52_0,
        Self::V4_7_0,
    ];

    /// The last of those that the tests run before this one.
    pub fn before(self) -> Option<Self> {
        Self::ALL.into_iter().rfind(|it| *it < self)
    }

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
        let Self(major, minor, patch) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// From three numbers with points between them.
impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<u16>> = text.split('.').map(|it| it.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[major, minor, patch]) => Ok(Self(major, minor, patch)),
            _ => Err(format!("`{text}` is not a version such as 4.7.0")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_is_written() {
        assert_eq!("3.16.8".parse(), Ok(Version::V3_16_8));
        assert_eq!(Version::V4_7_0.to_string(), "4.7.0");
        for wrong in ["", "4", "4.7", "4.7.x", "4.7.0.1", "4.7.0-rc1"] {
            assert!(wrong.parse::<Version>().is_err(), "{wrong}");
        }
        let before = |text: &str| text.parse::<Version>().unwrap().before();
        assert_eq!(before("4.6.1"), Some(Version::V3_52_0));
        assert_eq!(before("4.8.0"), Some(Version::V4_7_0));
        assert_eq!(before("3.17.0"), None);
    }
}
