//! The wire form of a grant: one member of the permits zset.
//!
//! A length byte, that many random bytes, then the permits as a little-endian `u32`. We write 16
//! random bytes, as Redisson does since 3.21; older ones wrote 8, and both are read. The grants of
//! leases have 24: they say by how much their score is ahead of the time at which they were made.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

/// The random bytes that name a call, and the grant that it leaves.
pub(crate) type CallId = [u8; 16];

/// Random 128 bits of this process, from which its ids are counted.
static START: LazyLock<u128> = LazyLock::new(|| uuid::Uuid::new_v4().as_u128());

/// The id of a call: bytes that no other call has, even in a process whose memory was cloned from
/// this one's (a fork, a snapshot of a machine that is restored twice).
pub(crate) fn new_call_id() -> CallId {
    static IDS: LazyLock<CallIds> = LazyLock::new(|| CallIds::after(*START as u64));
    IDS.next()
}

/// Makes call ids. Eight bytes are a counter, so that the ids ascend and the grants of one
/// millisecond are in the order of their calls. Eight are random each time, because a clone
/// continues from the same number.
#[derive(Debug)]
struct CallIds {
    next: AtomicU64,
}

impl CallIds {
    fn after(start: u64) -> Self {
        Self {
            next: AtomicU64::new(start),
        }
    }

    fn next(&self) -> CallId {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let mut random = [0; 8];
        if getrandom::fill(&mut random).is_err() {
            // If the system has no random numbers, the time makes the ids of two clones differ.
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            random = (now.unwrap_or_default().as_nanos() as u64).to_be_bytes();
        }
        let mut id = [0; 16];
        id[..8].copy_from_slice(&count.to_be_bytes());
        id[8..].copy_from_slice(&random);
        id
    }
}

/// Makes the ids of calls on one limiter in this process's memory. A clone of the process does not
/// share the limiter, so a counter is enough. Each limiter has its own, because threads that share
/// a counter contend for it.
#[derive(Debug)]
pub(crate) struct Names {
    counter: u64,
    next: u64,
}

impl Names {
    pub(crate) fn new() -> Self {
        static COUNTERS: AtomicU64 = AtomicU64::new(1);
        let counter = COUNTERS.fetch_add(1, Ordering::Relaxed);
        Self {
            counter: ((*START >> 64) as u64).wrapping_add(counter),
            next: *START as u64,
        }
    }

    pub(crate) fn next(&mut self) -> CallId {
        let next = self.next;
        self.next = next.wrapping_add(1);
        let id = u128::from(self.counter) << 64 | u128::from(next);
        id.to_be_bytes()
    }
}

/// Writes the member of a grant.
pub(crate) fn encode(random: &[u8], permits: u32) -> Bytes {
    debug_assert!(random.len() <= usize::from(u8::MAX));
    [&[random.len() as u8][..], random, &permits.to_le_bytes()]
        .concat()
        .into()
}

/// The random bytes of a grant whose score is up to `ahead` ms ahead of the time at which it was
/// made.
pub(crate) fn random_ahead(call_id: &CallId, ahead: i64) -> [u8; 24] {
    let mut random = [0; 24];
    let (id, number) = random.split_at_mut(call_id.len());
    id.copy_from_slice(call_id);
    number.copy_from_slice(&ahead.to_le_bytes());
    random
}

/// The call id and the ms ahead in the random bytes of such a grant.
pub(crate) fn read_ahead(random: &[u8]) -> Option<(&[u8], i64)> {
    let (call_id, number) = random.split_at_checked(size_of::<CallId>())?;
    let ahead = u64::from_le_bytes(number.try_into().ok()?);
    Some((call_id, i64::try_from(ahead).unwrap_or(i64::MAX)))
}

/// Splits a member into its random bytes and its permits, or `None` if it is malformed.
pub(crate) fn decode(member: &[u8]) -> Option<(&[u8], u32)> {
    let length = usize::from(*member.first()?);
    if member.len() != 5 + length {
        return None;
    }
    let (random, permits) = member[1..].split_at(length);
    Some((random, u32::from_le_bytes(permits.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_a_length_byte_the_random_bytes_and_a_little_endian_u32() {
        let member = encode(&[7; 16], 3);
        let mut expected = vec![0x10];
        expected.extend([7; 16]);
        expected.extend([3, 0, 0, 0]);
        assert_eq!(member, expected);
    }

    #[test]
    fn no_two_calls_have_the_same_name() {
        let names: std::collections::HashSet<_> = (0..100_000).map(|_| new_call_id()).collect();
        assert_eq!(names.len(), 100_000);
    }

    #[test]
    fn a_clone_of_a_process_makes_other_ids_and_both_make_ascending_ones() {
        let (original, clone) = (CallIds::after(7), CallIds::after(7));
        let ids = |of: &CallIds| (0..1_000).map(|_| of.next()).collect::<Vec<_>>();
        let (ids, others) = (ids(&original), ids(&clone));
        assert!(ids.is_sorted() && others.is_sorted());
        assert!(ids.iter().all(|id| !others.contains(id)));
    }

    #[test]
    fn each_limiter_in_memory_makes_ascending_ids_that_no_other_call_has() {
        let (mut one, mut other) = (Names::new(), Names::new());
        let names: Vec<_> = (0..1_000).map(|_| one.next()).collect();
        let others: Vec<_> = (0..1_000).map(|_| other.next()).collect();
        let all: std::collections::HashSet<_> = [&names[..], &others[..], &[new_call_id()]]
            .concat()
            .into_iter()
            .collect();
        assert_eq!(all.len(), 2_001);
        assert!(names.is_sorted());
    }

    #[test]
    fn both_generations_of_redisson_are_read() {
        assert_eq!(
            decode(&encode(&[1; 16], u32::MAX)),
            Some((&[1; 16][..], u32::MAX))
        );
        assert_eq!(decode(&encode(&[2; 8], 5)), Some((&[2; 8][..], 5)));
    }

    #[test]
    fn a_member_of_another_length_than_its_first_byte_says_is_no_grant() {
        assert_eq!(decode(b""), None);
        assert_eq!(decode(&[0; 4]), None);
        assert_eq!(decode(&[0; 5]), Some((&[][..], 0)));
        assert_eq!(decode(&[8; 14]), None);
        // Redisson before 3.17 wrote an 8-byte length: its first byte is 8, but 20 bytes follow.
        assert_eq!(decode(&[&8u64.to_le_bytes()[..], &[9; 12]].concat()), None);
    }
}
