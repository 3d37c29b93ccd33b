//! The parsers as the targets in `fuzz/` call them. Only a build with `--cfg fuzzing` has this
//! module.

pub use crate::limiters::fuzzing::name_keys;
use crate::permit;
pub use crate::store::redis::fuzzing::{read_answer, read_url};

/// What reads as a grant is written as the same bytes.
pub fn read_member(member: &[u8]) {
    if let Some((random, permits)) = permit::decode(member) {
        assert_eq!(permit::encode(random, permits), member);
    }
}
