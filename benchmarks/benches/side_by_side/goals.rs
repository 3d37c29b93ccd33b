//! What this crate set out to reach, and whether it did in this run.

use benchmarks::thousands;
use compat_tests::fairness::waiters::Spacing;

use crate::{
    contender::Contender,
    in_memory::{InMemory, Limiter, Threads},
    memory_use::MemoryUse,
    numbers::{bytes, factor, micros},
    sample::Sampled,
    scripts_alone::ScriptsAlone,
    users::{self, Users},
    waiting::Waiting,
    workload::{MANY, SINGLE, Traffic, Workload},
};

pub struct Results {
    pub sampled: Vec<Sampled>,
    pub scripts_alone: Vec<ScriptsAlone>,
    pub waiting: Vec<Waiting>,
    pub memory: MemoryUse,
    pub in_memory: Vec<InMemory>,
    pub users: Vec<Users>,
}

pub struct Goal {
    pub text: String,
    pub is_met: bool,
    pub measured: String,
    /// The reason where it is not met.
    pub why: String,
}

const CLOCK: &str = "governor keeps one number, and reads the processor's counter, for which its crate for the clock uses unsafe code";
const KEPT_GRANTS: &str = "each grant is kept until it expires, with the clock read by the system's call; governor stores one number";
const SCRIPT: &str = "it also finds a call that was sent again, and what a release left";

impl Results {
    pub fn of(&self, workload: Workload) -> &Sampled {
        let mut all = self.sampled.iter();
        all.find(|sampled| sampled.workload == workload)
            .expect("a workload of the run")
    }

    pub fn nanos(&self, traffic: Traffic, threads: Threads, limiter: Limiter) -> f64 {
        let mut lines = self.in_memory.iter();
        let line = lines.find(|line| {
            line.traffic == traffic && line.threads == threads && line.limiter == limiter
        });
        line.expect("a limiter in memory").nanos
    }

    pub fn goals(&self) -> Vec<Goal> {
        let mut goals = vec![
            self.throughput_of_many_callers(),
            self.p99_of_many_callers(),
            self.p50_of_a_lone_caller(Contender::RedissonAsync, 1.0),
            self.p50_of_a_lone_caller(Contender::OurScript, 1.15),
            self.denials_of_the_script(),
            self.denials(),
            self.many_limiters(Contender::ThisCrate),
            self.many_limiters(Contender::ThisCrateByName),
            self.memory(),
            self.script_calls(Spacing::Bunched),
            self.script_calls(Spacing::Spread),
        ];
        for traffic in [Traffic::Granted, Traffic::Denied] {
            for limiter in [Limiter::ThisCrate, Limiter::ThisCrateKeyed] {
                for threads in [
                    Threads::One,
                    Threads::TwoOnOneLimiter,
                    Threads::TwoOnTheirOwn,
                ] {
                    goals.push(self.compared_with_governor(traffic, threads, limiter));
                }
            }
            goals.push(self.two_threads_compared_with_one(traffic));
        }
        goals
    }

    /// Of a limit for each user in memory.
    pub fn goals_of_users(&self) -> [Goal; 2] {
        [1, 2].map(|threads| {
            let ours = users::nanos(&self.users, threads, users::Contender::Gcra);
            let governors = users::nanos(&self.users, threads, users::Contender::Governor);
            Goal {
                text: format!(
                    "{threads} thread{}: Gcra takes at most 1.5 times the time of governor",
                    if threads == 1 { "" } else { "s" }
                ),
                is_met: ours <= 1.5 * governors,
                measured: nanos(ours, governors),
                why: CLOCK.into(),
            }
        })
    }

    fn throughput_of_many_callers(&self) -> Goal {
        let sampled = self.of(Workload::on_one_limiter(MANY, Traffic::Granted));
        let ratio = sampled.ratio_of_throughput(Contender::ThisCrate, sampled.faster_redisson());
        Goal {
            text: "256 callers on one limiter: at least 10 times the decisions per second of Redisson's faster API"
                .into(),
            is_met: ratio >= 10.0,
            measured: factor(ratio),
            why: "the calls that callers share wait for one another".into(),
        }
    }

    fn p99_of_many_callers(&self) -> Goal {
        let sampled = self.of(Workload::on_one_limiter(MANY, Traffic::Granted));
        let ours = sampled.of(Contender::ThisCrate).p99;
        let theirs = f64::min(
            sampled.of(Contender::Redisson).p99,
            sampled.of(Contender::RedissonAsync).p99,
        );
        Goal {
            text: "256 callers on one limiter: a lower p99 than Redisson's faster API".into(),
            is_met: ours < theirs,
            measured: format!("{} vs {}", micros(ours), micros(theirs)),
            why: "the calls that callers share wait for one another".into(),
        }
    }

    fn p50_of_a_lone_caller(&self, other: Contender, at_most: f64) -> Goal {
        let sampled = self.of(Workload::on_one_limiter(SINGLE, Traffic::Granted));
        let [ours, theirs] = [Contender::ThisCrate, other].map(|it| sampled.of(it));
        let text = match other {
            Contender::OurScript => {
                "1 caller: p50 at most 1.15 times that of EVALSHA with our script"
            }
            _ => "1 caller: p50 at most that of Redisson's asynchronous API",
        };
        Goal {
            text: text.into(),
            is_met: ours.p50 <= at_most * theirs.p50,
            measured: format!(
                "{} vs {}: {}",
                micros(ours.p50),
                micros(theirs.p50),
                factor(ours.p50 / theirs.p50)
            ),
            why: format!(
                "a decision takes the client {:.2} times the CPU time, and the server {:.2} times",
                ours.cpu / theirs.cpu,
                ours.server_cpu / theirs.server_cpu
            ),
        }
    }

    fn denials_of_the_script(&self) -> Goal {
        let mut scripts = self.scripts_alone.iter();
        let denied = scripts.find(|scripts| scripts.traffic == Traffic::Denied);
        let ScriptsAlone {
            ours, redissons, ..
        } = denied.expect("the scripts, mostly denied");
        let ratio = ours / redissons;
        Goal {
            text: "256 calls in flight, mostly denied: our script makes at least 1.25 times the decisions per second of Redisson's"
                .into(),
            is_met: ratio >= 1.25,
            measured: factor(ratio),
            why: SCRIPT.into(),
        }
    }

    fn denials(&self) -> Goal {
        let sampled = self.of(Workload::on_one_limiter(MANY, Traffic::Denied));
        let ratio = sampled.ratio_of_throughput(Contender::ThisCrate, Contender::RedissonScript);
        Goal {
            text: "256 callers, mostly denied: at least 1.25 times the decisions per second of EVALSHA with Redisson's script"
                .into(),
            is_met: ratio >= 1.25,
            measured: factor(ratio),
            why: SCRIPT.into(),
        }
    }

    fn many_limiters(&self, ours: Contender) -> Goal {
        let sampled = self.of(Workload::on_many_limiters());
        let ratio = sampled.ratio_of_throughput(ours, Contender::OurScript);
        let text = match ours {
            Contender::ThisCrateByName => {
                "10,000 limiters, 256 callers: the same with a new handle for each call"
            }
            _ => {
                "10,000 limiters, 256 callers: at least the decisions per second of EVALSHA with our script on one connection"
            }
        };
        Goal {
            text: text.into(),
            is_met: ratio >= 1.0,
            measured: factor(ratio),
            why: "the client shares the two cores with the server, which is the bound".into(),
        }
    }

    fn memory(&self) -> Goal {
        let MemoryUse {
            this_crate,
            redisson,
        } = self.memory;
        Goal {
            text: "256 callers: at most a twentieth of the memory in Redis that Redisson takes"
                .into(),
            is_met: this_crate * 20.0 <= redisson,
            measured: format!(
                "{} vs {}: {}",
                bytes(this_crate),
                bytes(redisson),
                factor(this_crate / redisson),
            ),
            why: "a member for each call is kept until it expires".into(),
        }
    }

    fn script_calls(&self, spacing: Spacing) -> Goal {
        let mut waiting = self.waiting.iter();
        let waiting = waiting.find(|waiting| waiting.spacing == spacing);
        let calls = waiting
            .expect("a spacing of the run")
            .this_crate
            .script_calls;
        let at_most = spacing.most_calls();
        let come_back = match spacing {
            Spacing::Bunched => "together",
            Spacing::Spread => "one by one",
        };
        Goal {
            text: format!(
                "1,000 waiters on 100 permits per window that come back {come_back}: at most {} script calls",
                thousands(at_most)
            ),
            is_met: calls <= at_most,
            measured: thousands(calls),
            why: "permits that come back apart are asked for apart".into(),
        }
    }

    fn compared_with_governor(&self, traffic: Traffic, threads: Threads, limiter: Limiter) -> Goal {
        let (ours, theirs) = (
            self.nanos(traffic, threads, limiter),
            self.nanos(traffic, threads, limiter.governor()),
        );
        Goal {
            text: format!(
                "in memory, {traffic}, {threads}: {limiter} takes at most 3 times the time of {}",
                limiter.governor()
            ),
            is_met: ours <= 3.0 * theirs,
            measured: nanos(ours, theirs),
            why: match limiter == Limiter::ThisCrateKeyed {
                true => KEPT_GRANTS.into(),
                false => CLOCK.into(),
            },
        }
    }

    fn two_threads_compared_with_one(&self, traffic: Traffic) -> Goal {
        let of = |threads| self.nanos(traffic, threads, Limiter::ThisCrate);
        let (two, one) = (of(Threads::TwoOnOneLimiter), of(Threads::One));
        Goal {
            text: format!(
                "in memory, {traffic}, 2 threads on one limiter: not slower than 1 thread"
            ),
            is_met: two <= one,
            measured: nanos(two, one),
            why: "the cache line of the limiter moves between the cores".into(),
        }
    }
}

fn nanos(ours: f64, theirs: f64) -> String {
    format!("{ours:.0} ns vs {theirs:.0} ns: {}", factor(ours / theirs))
}
