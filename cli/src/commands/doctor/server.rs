//! Finds what is wrong with a server: settings that lose grants or delay other calls. Settings that
//! the server does not tell are reported as unknown.

use std::collections::HashMap;

use redisson_rate_limiter::Server;

use super::finding::{Code, Finding};
use crate::failure::Failure;
use crate::inspect::reply::{list, text};
use crate::inspect::scan::text_reply;
use crate::report::number_of;

/// The oldest version of Redis that the scripts run on.
const OLDEST: (u32, u32) = (5, 0);
/// The oldest version of Redis that still gets fixes.
const MAINTAINED: (u32, u32) = (7, 2);

pub(super) struct Examined {
    pub(super) address: String,
    pub(super) version: String,
    pub(super) findings: Vec<Finding>,
}

pub(super) async fn examine(server: &Server) -> Result<Examined, Failure> {
    let mut findings = Vec::new();
    let info = match text_reply(server, ["INFO"]).await {
        Ok(info) => fields(&info),
        Err(failure) if failure.is_not_permitted() => {
            let text = "INFO is not permitted, so its version, role and replicas are not known";
            findings.push(Finding::new(Code::SettingsHidden, text));
            HashMap::new()
        }
        Err(failure) => return Err(failure),
    };
    let field = |name: &str| info.get(name).map(String::as_str).unwrap_or("");
    let version = field("redis_version").to_owned();
    let mut numbers = version.split('.').map_while(|it| it.parse().ok());
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version.is_empty() {
        // The version is not known.
    } else if number < OLDEST {
        let text = format!("version {version} cannot run the scripts, which need Redis 5");
        findings.push(Finding::new(Code::OldVersion, text));
    } else if number < MAINTAINED {
        let text = format!("version {version} gets no more fixes from its makers");
        findings.push(Finding::new(Code::Unmaintained, text));
    }
    if field("role") == "slave" {
        let text = "it is a replica: nothing can be taken here";
        findings.push(Finding::new(Code::IsReplica, text));
    }
    let config = match server.command(["CONFIG", "GET", "*"]).await {
        Ok(config) => {
            let words: Vec<_> = list(config).iter().map(text).collect();
            let pairs = words.chunks_exact(2);
            pairs.map(|it| (it[0].clone(), it[1].clone())).collect()
        }
        Err(_) => {
            let text = "CONFIG GET is not permitted or not there, so of its settings only what INFO says is known";
            findings.push(Finding::new(Code::SettingsHidden, text));
            settings_by_info(&info)
        }
    };
    settings(&config, &info, &mut findings);
    Ok(Examined {
        address: server.address().to_owned(),
        version,
        findings,
    })
}

/// The settings that INFO has, by their names in CONFIG. Others are missing.
fn settings_by_info(info: &HashMap<String, String>) -> HashMap<String, String> {
    let mut settings = HashMap::new();
    let mut set = |name: &str, text: Option<&str>| {
        if let Some(text) = text {
            settings.insert(name.to_owned(), text.to_owned());
        }
    };
    let field = |name: &str| info.get(name).map(String::as_str);
    set("maxmemory", field("maxmemory"));
    set("maxmemory-policy", field("maxmemory_policy"));
    let log = field("aof_enabled").map(|it| if it == "1" { "yes" } else { "no" });
    set("appendonly", log);
    // INFO has this field only if the setting is not 0.
    let needed = field("min_slaves_good_slaves").map_or("0", |_| "1");
    set("min-replicas-to-write", Some(needed));
    settings
}

fn settings(
    config: &HashMap<String, String>,
    info: &HashMap<String, String>,
    findings: &mut Vec<Finding>,
) {
    let set = |name: &str| config.get(name).map(String::as_str);
    let number = |text: Option<&str>| text.and_then(|it| it.parse::<u64>().ok()).unwrap_or(0);
    let mut note = |code, text: String| findings.push(Finding::new(code, text));
    let memory = number(set("maxmemory"));
    if let Some(policy) = set("maxmemory-policy")
        && memory > 0
        && policy != "noeviction"
    {
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
    let inline: Vec<_> = inline
        .into_iter()
        .filter(|it| set(it) == Some("no"))
        .collect();
    if !inline.is_empty() {
        let text = format!(
            "{} = no: a limiter with many grants is freed at once when it expires",
            inline.join(", ")
        );
        note(Code::FreesInline, text);
    }
    if set("appendonly") == Some("no") {
        let text = match set("save") {
            Some("") => "appendonly is no and save is empty: a restart forgets all limiters",
            Some(_) => "appendonly is no: a restart forgets the grants since the last snapshot",
            None => {
                "appendonly is no: a restart forgets the grants since the last snapshot, if there are snapshots, or all limiters"
            }
        };
        note(Code::NotPersistent, text.to_owned());
    }
    let replicas = number(info.get("connected_slaves").map(String::as_str));
    if replicas > 0 && number(set("min-replicas-to-write")) == 0 {
        let replicas = number_of(replicas, "replica");
        let text = format!(
            "{replicas} and min-replicas-to-write 0: a failover may forget grants that were answered"
        );
        note(Code::ReplicasMayLag, text);
    }
}

/// The fields of INFO and their values.
fn fields(info: &str) -> HashMap<String, String> {
    let lines = info.lines().filter_map(|line| line.trim().split_once(':'));
    lines
        .map(|(field, text)| (field.to_owned(), text.to_owned()))
        .collect()
}
