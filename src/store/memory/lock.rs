//! Waiting for a lock that is held for some 50 ns at a time.

use std::hint::spin_loop;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// The first pause, about as long as twenty decisions take. Each pause is twice as long as the one
/// before.
const FIRST_PAUSE: u32 = 64;
const PAUSES: u32 = 4;

/// Locks like `Mutex::lock`, but backs off for a while if another thread holds the lock. Meanwhile
/// that thread makes many decisions, and neither are cache lines moved back and forth nor threads
/// put to sleep and woken for each of them. Otherwise two threads on one limiter are slower than
/// one.
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match lock_at_once(mutex) {
        Some(guard) => guard,
        None => lock_after_pauses(mutex),
    }
}

// A step that panicked is a bug; what it left is still the best state there is.
fn lock_at_once<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cold]
fn lock_after_pauses<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for pause in 0..PAUSES {
        for _ in 0..FIRST_PAUSE << pause {
            spin_loop();
        }
        if let Some(guard) = lock_at_once(mutex) {
            return guard;
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_has_what_is_locked() {
        let count = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut count = lock(&count);
                        let before = *count;
                        std::hint::black_box(&mut count);
                        *count = before + 1;
                    }
                });
            }
        });
        assert_eq!(*lock(&count), 40_000);
    }

    #[test]
    fn a_lock_that_is_held_for_long_is_waited_for() {
        let mutex = Mutex::new(());
        let guard = mutex.lock().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| drop(lock(&mutex)));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waiting.is_finished());
            drop(guard);
        });
    }

    #[test]
    fn a_step_that_panicked_locks_nobody_out() {
        let mutex = Mutex::new(1);
        let panicked = std::panic::catch_unwind(|| {
            let _guard = mutex.lock().unwrap();
            panic!("while it is held");
        });
        assert!(panicked.is_err());
        assert_eq!(*lock(&mutex), 1);
    }
}
