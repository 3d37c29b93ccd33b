//! The members of grants, in the form of each client that writes them.

use std::fmt;

/// The form of a member, named by the versions of the clients that write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Generation {
    /// Redisson from 3.21 on, and the Rust crate.
    Current,
    /// Redisson 3.17 to 3.20.
    Older,
    /// The rest of a grant after a refund or a release gave back a part of it. Its id is longer, so
    /// that it differs from another grant with the same id.
    Shrunk,
    /// The Rust crate: leased permits, which may be used later. The score is the time of their last
    /// possible use.
    Lease,
    /// Redisson 3.16.4 to 3.16: a length of eight bytes.
    LongLength,
    /// Redisson 3.13.3 to 3.16.3: a floating-point number.
    Float,
    Malformed,
}

impl Generation {
    /// Whether Redisson from 3.17 on misreads it.
    pub(crate) fn is_legacy(self) -> bool {
        matches!(self, Self::LongLength | Self::Float)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Older => "redisson_3_17",
            Self::Shrunk => "shrunk",
            Self::Lease => "lease",
            Self::LongLength => "redisson_3_16_4",
            Self::Float => "redisson_3_13_3",
            Self::Malformed => "malformed",
        }
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Current => "Redisson 3.21 or later, or the Rust crate",
            Self::Older => "Redisson 3.17 to 3.20",
            Self::Shrunk => "given back in part",
            Self::Lease => "a lease of the Rust crate",
            Self::LongLength => "Redisson 3.16.4 to 3.16.8, which later ones misread",
            Self::Float => "Redisson 3.13.3 to 3.16.3, which later ones misread",
            Self::Malformed => "malformed",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) generation: Generation,
    /// The random bytes, or in the Rust crate the id of the call.
    pub(crate) id: Vec<u8>,
    /// The number of permits; 0 for a malformed member.
    pub(crate) permits: u32,
}

impl Member {
    pub(crate) fn read(member: &[u8]) -> Self {
        let member_of = |generation, id: &[u8], permits: [u8; 4]| Self {
            generation,
            id: id.to_vec(),
            permits: u32::from_le_bytes(permits),
        };
        match member {
            [length, id @ .., a, b, c, d] if usize::from(*length) == id.len() => {
                let generation = match id.len() {
                    16 => Generation::Current,
                    8 => Generation::Older,
                    24 => Generation::Lease,
                    _ => Generation::Shrunk,
                };
                member_of(generation, id, [*a, *b, *c, *d])
            }
            [8, 0, 0, 0, 0, 0, 0, 0, id @ .., a, b, c, d] if id.len() == 8 => {
                member_of(Generation::LongLength, id, [*a, *b, *c, *d])
            }
            [float @ .., a, b, c, d] if float.len() == 4 => {
                member_of(Generation::Float, float, [*a, *b, *c, *d])
            }
            _ => member_of(Generation::Malformed, member, [0; 4]),
        }
    }

    /// Corrects the member by the rate of its limiter. Members of old versions have no mark, so one
    /// that would hold no permits or more than the rate is malformed. A negative number of permits,
    /// which Redisson does not refuse, reads as billions and becomes 0.
    pub(crate) fn within(mut self, rate: i64) -> Self {
        let is_negative = self.permits.cast_signed() < 0 && !self.is_hold();
        if is_negative && i64::from(self.permits) > rate {
            self.permits = 0;
        }
        let is_possible = (1..=rate).contains(&self.permits.into());
        if self.generation.is_legacy() && !is_possible {
            (self.generation, self.permits) = (Generation::Malformed, 0);
        }
        self
    }

    /// How many ms the score is later than the time at which the grant was made. A lease states it
    /// after the id of its call; for other grants it is 0.
    pub(crate) fn ahead(&self) -> i64 {
        match (self.generation, self.id.last_chunk()) {
            (Generation::Lease, Some(ahead)) => {
                i64::try_from(u64::from_le_bytes(*ahead)).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Whether it is the fence of a lease, which is stored beside the grants and holds nothing.
    pub(crate) fn is_fence(&self) -> bool {
        self.generation == Generation::Lease && self.permits == 0
    }

    /// Whether it takes all permits until its end, as `hold` of the Rust crate does.
    pub(crate) fn is_hold(&self) -> bool {
        self.generation == Generation::Lease && self.permits == u32::MAX
    }

    /// The permits that the library's scripts count: none for members that they cannot read.
    pub(crate) fn counted(&self) -> u64 {
        match self.generation {
            Generation::Current | Generation::Older | Generation::Shrunk | Generation::Lease => {
                self.permits.into()
            }
            _ => 0,
        }
    }

    /// The member of this grant in the form that all versions of Redisson from 3.17 on read.
    pub(crate) fn migrated(&self) -> Vec<u8> {
        let mut id = self.id.clone();
        id.resize(8, 0);
        [&[8], &id[..], &self.permits.to_le_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_generation_of_redisson_is_told_from_the_others() {
        let permits = [3, 0, 0, 0];
        for (member, generation, counted) in [
            (
                [&[16][..], &[7; 16], &permits].concat(),
                Generation::Current,
                3,
            ),
            ([&[8][..], &[7; 8], &permits].concat(), Generation::Older, 3),
            (
                [&[20][..], &[7; 20], &permits].concat(),
                Generation::Shrunk,
                3,
            ),
            (
                [&8u64.to_le_bytes()[..], &[7; 8], &permits].concat(),
                Generation::LongLength,
                0,
            ),
            (
                [&0.25f32.to_le_bytes()[..], &permits].concat(),
                Generation::Float,
                0,
            ),
            (b"junk member".to_vec(), Generation::Malformed, 0),
            (Vec::new(), Generation::Malformed, 0),
        ] {
            let read = Member::read(&member);
            assert_eq!((read.generation, read.counted()), (generation, counted));
        }
    }

    #[test]
    fn eight_bytes_that_are_no_grant_of_the_rate_are_malformed() {
        for (rate, generation) in [(2, Generation::Malformed), (3, Generation::Float)] {
            let member = [&0.25f32.to_le_bytes()[..], &[3, 0, 0, 0]].concat();
            assert_eq!(Member::read(&member).within(rate).generation, generation);
        }
        let junk = Member::read(b"junk 100").within(1_000_000);
        assert_eq!(junk.generation, Generation::Malformed);
    }

    #[test]
    fn a_negative_number_of_permits_holds_none() {
        let member = [&[16][..], &[7; 16], &(-1i32).to_le_bytes()].concat();
        assert_eq!(Member::read(&member).within(10).counted(), 0);
        assert_eq!(
            Member::read(&member).within(1 << 40).counted(),
            u64::from(u32::MAX)
        );
    }

    #[test]
    fn a_migrated_member_holds_the_same_permits() {
        let old = [&8u64.to_le_bytes()[..], &[7; 8], &[3, 0, 0, 0]].concat();
        let migrated = Member::read(&Member::read(&old).migrated());
        assert_eq!(
            (migrated.generation, migrated.counted()),
            (Generation::Older, 3)
        );
    }
}
