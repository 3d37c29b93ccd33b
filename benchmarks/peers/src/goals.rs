//! What this crate set out to reach beside the others, whether it did in this run, and why not.

use crate::contender::Contender;
use crate::speed::{Speed, Workload};
use benchmarks::bars::Kind;

/// A line for each goal of a workload.
pub fn lines(workload: &Workload, speeds: &[Speed]) -> String {
    let of = |contender| speeds.iter().find(|speed| speed.contender == contender);
    let (Some(gcra), Some(bare)) = (of(Contender::Gcra), of(Contender::Bare)) else {
        return String::new();
    };
    let times = gcra.per_second / bare.per_second;
    let peers = speeds
        .iter()
        .filter(|speed| speed.contender.kind() == Kind::Peer);
    let best_peer = peers.map(|speed| speed.per_second).fold(0.0, f64::max);
    let latency = gcra.median / bare.median;
    let both = [gcra.server / bare.server, gcra.client / bare.client];
    let goals = match workload.name {
        "256 callers, 10,000 keys" => vec![
            goal(
                "Gcra makes at least 1.2 times the decisions of the bare script",
                times >= 1.2,
                times,
                &format!(
                    "with other keys in each call the server runs a read and a write with an expiry for each, {:.2} times the CPU time of \
                     the bare script, and the client takes {:.2} times its CPU time",
                    both[0], both[1]
                ),
            ),
            goal(
                "Gcra makes at least 1.5 times the decisions of the best other limiter that asks the server",
                gcra.per_second >= 1.5 * best_peer,
                gcra.per_second / best_peer,
                "the best one sends a script that does little more than the bare one",
            ),
        ],
        "16 callers, 1 key" => vec![goal(
            "Gcra makes at least 1.5 times the decisions of the bare script",
            times >= 1.5,
            times,
            "one call is in flight at a time, and nothing is shared with the next before its answer is there",
        )],
        "one caller" => vec![goal(
            "Gcra's p50 is at most 1.1 times that of the bare script",
            latency <= 1.1,
            latency,
            &format!(
                "a call takes the server {:.2} times the CPU time of the bare script, and the client {:.2} times: it carries a deadline, and \
                 its answer says what is left and until when",
                both[0], both[1]
            ),
        )],
        _ => Vec::new(),
    };
    goals.concat()
}

fn goal(text: &str, is_met: bool, measured: f64, why: &str) -> String {
    match is_met {
        true => format!("\n- Goal, met: {text}: {measured:.2}."),
        false => format!("\n- Goal, **missed**: {text}: {measured:.2}, because {why}."),
    }
}
