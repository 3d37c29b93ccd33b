//! Runs the scripts of this program. The header of each script states its purpose, keys, arguments
//! and bounds.

use redisson_rate_limiter::{RedissonClient, Reply};
use sha1_smol::Sha1;

use crate::failure::Failure;

pub(crate) struct Script {
    text: &'static str,
    sha1: String,
}

impl Script {
    pub(crate) fn new(text: &'static str) -> Self {
        Self {
            text,
            sha1: Sha1::from(text).digest().to_string(),
        }
    }

    /// Runs on the server that has the keys.
    pub(crate) async fn run(
        &self,
        client: &RedissonClient,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<Reply, Failure> {
        let number = keys.len().to_string();
        let words = |command: &'static str, script: &'static str| -> Vec<Vec<u8>> {
            let head = [command.as_bytes(), script.as_bytes(), number.as_bytes()];
            let all = head.into_iter().chain(keys.iter().copied());
            let all = all.chain(arguments.iter().copied());
            all.map(<[u8]>::to_vec).collect()
        };
        let mut known = words("EVALSHA", "");
        known[1] = self.sha1.clone().into_bytes();
        match client.command(known).await {
            Err(error) if says_noscript(&error) => {
                Ok(client.command(words("EVAL", self.text)).await?)
            }
            answer => Ok(answer?),
        }
    }
}

fn says_noscript(error: &dyn std::error::Error) -> bool {
    error.to_string().to_uppercase().contains("NOSCRIPT")
        || error.source().is_some_and(says_noscript)
}
