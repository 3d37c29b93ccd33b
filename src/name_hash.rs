//! Hashes of names, by which names are looked up and compared.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

/// The hash of a name. Its key is random for each process, so that nobody can choose names that
/// share a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameHash(u64);

static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl NameHash {
    pub(crate) const OF_NOTHING: Self = Self(0);

    #[inline]
    pub(crate) fn of(name: impl AsRef<[u8]>) -> Self {
        let mut hasher = HASHER.build_hasher();
        hasher.write(name.as_ref());
        Self(hasher.finish())
    }

    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}
