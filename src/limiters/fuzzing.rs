//! The names and keys that are made from a user's text.

use super::target_name::target_name;
use crate::keys::Keys;

/// No two keys after one prefix share a key in Redis.
pub fn name_keys(prefix: &str, one: &str, other: &str) {
    let names = [one, other].map(|key| target_name(prefix, key, None::<fn(&str) -> bool>));
    if one == other || names.iter().any(|name| name.is_empty()) {
        return;
    }
    let keys = names.map(|name| Keys::new(&name, "client"));
    for keys in &keys {
        let _ = keys.validate(true);
    }
    let [ones, others] = &keys;
    for key in ones.in_order() {
        assert!(
            !others.in_order().contains(&key),
            "{one:?} and {other:?} behind {prefix:?} share {key:?}"
        );
    }
}
