//! `hash-key`: prints a key in the form in which it is counted, for the `keys` of a rules file. A
//! key may be a secret, so it is read from the standard input: an argument would be visible in the
//! list of processes.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use redisson_rate_limiter_tower::key::{bounded, hash};
use serde_json::json;

use crate::failure::Failure;
use crate::report::Report;

pub(super) fn hash_key(secret_file: Option<&Path>) -> Result<Report, Failure> {
    let mut key = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut key);
    read.map_err(|error| Failure::usage(format!("standard input: {error}")))?;
    // Bytes that are not UTF-8 are replaced, as in the keys of requests.
    let key = String::from_utf8_lossy(&key);
    let key = key.trim_end_matches(['\r', '\n']);
    if key.is_empty() {
        return Err(Failure::usage("the standard input has no key"));
    }
    let counted = match secret_file {
        None => bounded(key.into()).into_owned(),
        Some(file) => {
            let secret = fs::read(file);
            let secret =
                secret.map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
            let end = secret.iter().rposition(|it| !b"\r\n".contains(it));
            match end {
                Some(end) => hash(key, &secret[..=end]),
                None => {
                    let text = format!("{}: there is no secret", file.display());
                    return Err(Failure::usage(text));
                }
            }
        }
    };
    let json = json!({ "key": counted });
    Ok(Report::new(counted, json))
}
