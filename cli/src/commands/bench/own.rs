//! Whether a server is the bench's own: on this machine, without other clients and other keys.

use redisson_rate_limiter::{RateLimiter, Reply};

use crate::commands::Context;
use crate::commands::doctor::server::fields;
use crate::failure::Failure;
use crate::inspect::scan::said;

pub(super) async fn check(
    context: &Context,
    limiter: &RateLimiter,
    exists: bool,
) -> Result<(), Failure> {
    let mut reasons = Vec::new();
    if exists {
        reasons.push("the limiter exists, and its users would be denied".to_owned());
    }
    let mut own_keys = 0;
    for key in limiter.keys() {
        if context.client.command(["EXISTS", key]).await? == Reply::Integer(1) {
            own_keys += 1;
        }
    }
    let mut keys = 0;
    for server in context.client.servers()? {
        let address = server.address().escape_debug().to_string();
        if !is_loopback(server.address()) {
            reasons.push(format!("{address} is not on this machine"));
        }
        let info = fields(&said(&server, ["INFO", "clients"]).await?);
        // This program has one connection, or a second one while the first is replaced.
        let clients: u64 = info
            .get("connected_clients")
            .and_then(|it| it.parse().ok())
            .unwrap_or(2);
        if clients > 1 {
            reasons.push(format!("{address} has {} other clients", clients - 1));
        }
        if let Reply::Integer(number) = server.command(["DBSIZE"]).await? {
            keys += number;
        }
    }
    if keys > own_keys {
        reasons.push(format!("there are {} keys of others", keys - own_keys));
    }
    if reasons.is_empty() {
        return Ok(());
    }
    let reasons = reasons.join("; ");
    Err(Failure::usage(format!(
        "this server is not the bench's own: {reasons}. --yes measures all the same"
    )))
}

fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_ip = host
        .parse::<std::net::IpAddr>()
        .is_ok_and(|it| it.is_loopback());
    is_ip || host == "localhost" || address.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn addresses_on_this_machine_are_told_from_others() {
        for address in [
            "127.0.0.1:6379",
            "[::1]:1",
            "localhost:6379",
            "/run/redis.sock",
        ] {
            assert!(is_loopback(address), "{address}");
        }
        for address in [
            "10.0.0.1:6379",
            "redis.example:6379",
            "the primary `a` of Sentinels at 127.0.0.1:1",
        ] {
            assert!(!is_loopback(address), "{address}");
        }
    }
}
