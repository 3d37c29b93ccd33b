//! What is wrong with a server: settings that lose grants or hold up others. It is asked, not guessed, and says so if it does not tell.

use std::collections::HashMap;

use redisson_rate_limiter::Server;

use super::finding::{Code, Finding};
use crate::failure::Failure;
use crate::inspect::reply::{list, text};
use crate::inspect::scan::said;

/// The oldest version that the scripts run on, and the oldest that is still looked after.
const OLDEST: (u32, u32) = (5, 0);
const LOOKED_AFTER: (u32, u32) = (7, 2);

pub(super) struct Examined {
    pub(super) address: String,
    pub(super) version: String,
    pub(super) findings: Vec<Finding>,
}

pub(super) async fn examine(server: &Server) -> Result<Examined, Failure> {
    let mut findings = Vec::new();
    let info = match said(server, ["INFO"]).await {
        Ok(info) => fields(&info),
        Err(failure) if failure.is_not_permitted() => {
            let text = "INFO is not permitted, so its version, role and replicas are not known";
            findings.push(Finding::new(Code::SettingsHidden, text));
            HashMap::new()
        }
        Err(failure) => return Err(failure),
    };
    let of = |field: &str| info.get(field).map(String::as_str).unwrap_or("");
    let version = of("redis_version").to_owned();
    let mut numbers = version.split('.').map_while(|it| it.parse().ok());
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version.is_empty() {
        // The server does not say.
    } else if number < OLDEST {
        let text = format!("version {version} cannot run the scripts, which need Redis 5");
        findings.push(Finding::new(Code::OldVersion, text));
    } else if number < LOOKED_AFTER {
        let text = format!("version {version} gets no more fixes from its makers");
        findings.push(Finding::new(Code::Unmaintained, text));
    }
    if of("role") == "slave" {
        let text = "it is a replica: nothing can be taken here";
        findings.push(Finding::new(Code::IsReplica, text));
    }
    let hidden = |findings: &mut Vec<Finding>| {
        let text = "CONFIG GET is not permitted or not there, so its settings are not known";
        findings.push(Finding::new(Code::SettingsHidden, text));
    };
    let Ok(config) = server.command(["CONFIG", "GET", "*"]).await else {
        hidden(&mut findings);
        return Ok(Examined {
            address: server.address().to_owned(),
            version,
            findings,
        });
    };
    let words: Vec<_> = list(config).iter().map(text).collect();
    let pairs = words
        .chunks_exact(2)
        .map(|it| (it[0].clone(), it[1].clone()));
    let config: HashMap<_, _> = pairs.collect();
    let set = |name: &str| config.get(name).map(String::as_str).unwrap_or_default();
    settings(&set, &of, &mut findings);
    Ok(Examined {
        address: server.address().to_owned(),
        version,
        findings,
    })
}

fn settings<'a>(
    set: &dyn Fn(&str) -> &'a str,
    info: &dyn Fn(&str) -> &'a str,
    findings: &mut Vec<Finding>,
) {
    let mut note = |code, text: String| findings.push(Finding::new(code, text));
    let policy = set("maxmemory-policy");
    let memory: u64 = set("maxmemory").parse().unwrap_or(0);
    if memory > 0 && policy != "noeviction" && !policy.is_empty() {
        note(
            Code::MayEvict,
            format!(
                "maxmemory-policy is {policy} with maxmemory {memory}: under pressure keys of limiters go, and with them what is in use"
            ),
        );
    }
    let inline = [
        "lazyfree-lazy-expire",
        "lazyfree-lazy-eviction",
        "lazyfree-lazy-server-del",
    ];
    let inline: Vec<_> = inline.into_iter().filter(|it| set(it) == "no").collect();
    if !inline.is_empty() {
        let text = format!(
            "{} = no: a limiter with many grants is freed at once when it expires",
            inline.join(", ")
        );
        note(Code::FreesInline, text);
    }
    let has_snapshots = !set("save").is_empty();
    let has_log = set("appendonly") == "yes";
    if !has_log {
        let text = match has_snapshots {
            true => {
                "appendonly is no: a restart forgets the grants since the last snapshot".to_owned()
            }
            false => {
                "appendonly is no and save is empty: a restart forgets all limiters".to_owned()
            }
        };
        note(Code::NotPersistent, text);
    }
    let replicas: u32 = info("connected_slaves").parse().unwrap_or(0);
    let needed: u32 = set("min-replicas-to-write").parse().unwrap_or(0);
    if replicas > 0 && needed == 0 {
        let text = format!(
            "{replicas} replicas and min-replicas-to-write 0: a failover may forget grants that were answered"
        );
        note(Code::ReplicasMayLag, text);
    }
}

/// The lines of INFO.
pub(crate) fn fields(info: &str) -> HashMap<String, String> {
    let lines = info.lines().filter_map(|line| line.trim().split_once(':'));
    lines
        .map(|(field, text)| (field.to_owned(), text.to_owned()))
        .collect()
}
