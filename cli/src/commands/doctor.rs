//! `doctor`: finds what is wrong with limiters and their servers, and mends what it can.

mod finding;
mod limiter;
pub(crate) mod mend;
mod permissions;
pub(crate) mod places;
mod plan;
mod server;
mod unproven;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use finding::{Code, Finding, Fix, Legacy, Options, Severity};
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::scan::is_pattern;
use crate::inspect::tally::Place;
use crate::output::Output;
use crate::progress::Progress;
use crate::question::{ask, can_ask, is_yes};
use crate::rate::duration;
use crate::report::{Report, millis, number_of};
use crate::terminal::{Color, shown};

pub(crate) use places::as_pattern;
use places::{Found, Places};
use plan::Plan;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rratelimiter doctor orders:api                  what is wrong; changes nothing
  rratelimiter doctor 'orders:*' > ticket.txt
  rratelimiter doctor orders:api --plan plan.txt  what --fix would do, and how to undo it
  rratelimiter doctor orders:api --fix            asks before each limiter
  rratelimiter doctor '*' --fix --yes --legacy migrate
  rratelimiter doctor --ignore server-old-version  for cron
  rratelimiter doctor --json | jq -r '.findings[]?.code' | sort | uniq -c

Each finding has a code that does not change. The exit code is 4 if a limit does not hold, 1 if anything else is left that is more \
than a note, and else 0. Every step is a script of \
bounded work that changes nothing if the limiter has changed since it was read. To learn whether the user has the permissions it uses \
ACL DRYRUN, or else makes a limiter of its own beside the first, `NAME:doctor:…`, which it removes.")]
pub(crate) struct DoctorArguments {
    /// A limiter, or several with `*`, `?` and `[abc]` as in the shell
    #[arg(default_value = "*")]
    name: String,
    /// Mend what can be, after asking
    #[arg(long)]
    fix: bool,
    /// Do not ask for confirmation
    #[arg(long, short, requires = "fix")]
    yes: bool,
    /// Write to a new file what --fix would do, and the commands that undo it
    #[arg(long, value_name = "FILE", conflicts_with = "fix")]
    plan: Option<PathBuf>,
    /// Ask for each key that may be a limiter's, and may be another program's, whether to remove it
    #[arg(long)]
    remove_unproven: bool,
    /// What becomes of grants by Redisson before 3.17
    #[arg(long, value_name = "WHAT", default_value = "count")]
    legacy: Legacy,
    /// For how long a client must have taken nothing before its keys are removed
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1d")]
    idle: Duration,
    /// Print the notes too
    #[arg(long)]
    notes: bool,
    /// Say and fix nothing of this code; may be given several times
    #[arg(long, value_name = "CODE", value_delimiter = ',', value_parser = code)]
    ignore: Vec<Code>,
}

fn code(text: &str) -> Result<Code, String> {
    Code::parse(text).ok_or_else(|| "no finding has this code".to_owned())
}

/// A finding that is to be reported.
struct Reported {
    /// What the finding is about, such as `orders` or `orders, client a`.
    subject: String,
    /// The name of the limiter, or the address of the server.
    name: String,
    finding: Finding,
    is_fixed: bool,
}

/// A run of `doctor`.
struct Doctor<'a> {
    context: &'a Context,
    arguments: &'a DoctorArguments,
    output: Output,
    progress: Progress,
    plan: Option<Plan>,
    /// Whether to fix without a question: by `--yes`, or by the answer "all".
    may_fix_all: bool,
    /// The number of limiters that were examined.
    limiters: u64,
    /// The number of findings.
    findings: u64,
    /// The number of findings that were fixed.
    fixed: u64,
    /// The number of findings that were not fixed and are more than notes.
    problems: u64,
    /// The worst severity of a finding that was not fixed.
    worst: Severity,
    /// The findings in the order in which they were found. Empty if the output is JSON.
    reported: Vec<Reported>,
    /// The number of keys that the user of the connection may not read.
    unread: u64,
}

pub(super) async fn doctor(
    context: &Context,
    arguments: &DoctorArguments,
) -> Result<Report, Failure> {
    if arguments.fix && !arguments.yes && !can_ask() {
        let message = "without a terminal to ask on, `doctor --fix` needs --yes";
        return Err(Failure::usage(message));
    }
    if arguments.remove_unproven && !can_ask() {
        let message = "`doctor --remove-unproven` asks for each key, and there is no terminal";
        return Err(Failure::usage(message));
    }
    let doctor = Doctor {
        context,
        arguments,
        output: Output::new(context.is_json),
        progress: Progress::new(),
        plan: arguments.plan.as_deref().map(Plan::create).transpose()?,
        may_fix_all: arguments.yes,
        limiters: 0,
        findings: 0,
        fixed: 0,
        problems: 0,
        worst: Severity::Note,
        reported: Vec::new(),
        unread: 0,
    };
    doctor.run().await
}

impl Doctor<'_> {
    async fn run(mut self) -> Result<Report, Failure> {
        if let Err(failure) = self.look().await {
            self.progress.clear();
            self.report()?; // the findings until the failure
            return Err(failure);
        }
        if let Some(plan) = self.plan.take() {
            plan.finish()?;
        }
        self.summary()
    }

    async fn look(&mut self) -> Result<(), Failure> {
        let name = self.context.store.full_name(&self.arguments.name);
        let version = env!("CARGO_PKG_VERSION");
        let mode = if self.arguments.fix {
            "with --fix"
        } else {
            "dry run"
        };
        let shown_name = shown(&name, 100);
        self.output.text(format!(
            "rratelimiter {version} doctor {shown_name}, {mode}"
        ))?;
        self.servers().await?;
        let walked = self.walk(&as_pattern(&name)).await;
        self.progress.clear();
        let first = match walked {
            Ok(first) => first,
            Err(failure) if failure.is_not_permitted() => {
                let text =
                    format!("the user of this connection may not look for limiters: {failure}");
                self.print_permissions(&name, Finding::new(Code::NotPermitted, text))?;
                None
            }
            Err(failure) => return Err(failure),
        };
        if self.unread > 0 {
            let keys = number_of(self.unread, "other key");
            let text = format!("{keys} may not be read by the user of this connection");
            self.print_permissions(&name, Finding::new(Code::NotChecked, text))?;
        }
        let is_one_name = !is_pattern(&name);
        if is_one_name && first.is_none() && self.unread == 0 {
            self.one(&name).await?;
        }
        let name = first.unwrap_or_else(|| name.replace(['*', '?', '[', ']'], ""));
        if !name.is_empty()
            && let Some(finding) = permissions::examine(self.context, &name).await?
        {
            self.print_permissions(&name, finding)?;
        }
        Ok(())
    }

    /// Examines each limiter that the pattern matches, and returns the name of the first.
    async fn walk(&mut self, pattern: &str) -> Result<Option<String>, Failure> {
        let mut first = None;
        let mut places = Places::new(self.context, pattern)?;
        while let Some(found) = places.next(self.context).await? {
            let (places, are_limiters) = match found {
                Found::Limiters(places) => (places, true),
                Found::Siblings(places) => (places, false),
            };
            for place in places {
                if are_limiters && !self.is_limiter(&place).await? {
                    continue;
                }
                first.get_or_insert_with(|| place.name.clone());
                self.limiter(&place).await?;
            }
        }
        Ok(first)
    }

    /// Examines the key of this name if the walk has found no limiter there: either the user may
    /// not walk over the keys, or the key is missing or of another type.
    async fn one(&mut self, name: &str) -> Result<(), Failure> {
        let kind = match self.context.kind_of(name).await {
            // Missing permissions are reported later.
            Err(failure) if failure.is_not_permitted() => return Ok(()),
            kind => kind?,
        };
        let place = Place {
            name: name.to_owned(),
            client: None,
        };
        if kind.as_deref() == Some("hash") && self.is_limiter(&place).await? {
            return self.limiter(&place).await;
        }
        if self.unread > 0 {
            return Ok(());
        }
        let finding = match kind {
            None => Finding::new(Code::NoLimiter, "there is no limiter of this name"),
            Some(kind) => Finding::new(Code::WrongType, format!("it is a {kind}, and no limiter")),
        };
        self.print("limiter", name, None, &[(finding, false)])
    }

    async fn servers(&mut self) -> Result<(), Failure> {
        for server in self.context.client.servers()? {
            let examined = server::examine(&server).await?;
            let address = shown(&examined.address, 100);
            let line = format!("server {address}, version {}", shown(&examined.version, 20));
            self.output
                .text(self.output.terminal.paint(Color::Bold, &line))?;
            let findings: Vec<_> = examined
                .findings
                .into_iter()
                .map(|it| (it, false))
                .collect();
            self.print("server", &examined.address, None, &findings)?;
        }
        Ok(())
    }

    /// Whether a hash is a limiter's. A hash that may not be read is counted in `unread`.
    async fn is_limiter(&mut self, place: &Place) -> Result<bool, Failure> {
        match self.context.is_limiter(&place.name).await {
            Err(failure) if failure.is_not_permitted() => {
                self.unread += 1;
                Ok(false)
            }
            answer => answer,
        }
    }

    fn print_permissions(&mut self, name: &str, finding: Finding) -> Result<(), Failure> {
        self.print("permissions", name, None, &[(finding, false)])
    }

    async fn limiter(&mut self, place: &Place) -> Result<(), Failure> {
        self.limiters += u64::from(place.client.is_none());
        let legacy = self.arguments.legacy;
        let options = Options {
            legacy,
            idle: i64::try_from(millis(self.arguments.idle)).unwrap_or(i64::MAX),
        };
        let mut findings = limiter::examine(self.context, place, options).await?;
        findings.retain(|it| !self.arguments.ignore.contains(&it.code));
        let (limiters, found) = (self.limiters, self.findings);
        self.progress
            .show(|| format!("{limiters} limiters, {found} findings"));
        if findings.is_empty() {
            return Ok(());
        }
        if let Some(plan) = &mut self.plan {
            plan.add(self.context, place, &findings).await?;
        }
        let fixes: Vec<_> = findings.iter().filter_map(|it| it.fix.clone()).collect();
        let (mut are_fixed, mut not_done) = (false, Vec::new());
        if !fixes.is_empty() && self.arguments.fix && self.may_fix(place, &findings)? {
            for fix in &fixes {
                if !mend::mend(self.context, place, fix, legacy).await? {
                    not_done.push(fix);
                }
            }
            let is_removed = |fix: &Fix| matches!(fix, Fix::Remove(_)) && !not_done.contains(&fix);
            // The value comes last: it has to match the members that were removed or rewritten.
            if !fixes.iter().any(is_removed)
                && !mend::mend_value(self.context, place, &fixes, legacy).await?
            {
                not_done.extend(fixes.iter().filter(|fix| **fix == Fix::Value));
            }
            are_fixed = true;
        }
        let is_unproven = findings.iter().any(|it| it.code == Code::NotProven);
        let is_unproven_removed = is_unproven && self.arguments.remove_unproven && {
            self.progress.clear();
            self.output.flush()?;
            unproven::ask_and_remove(self.context, place).await?
        };
        let found_again = match are_fixed {
            true => limiter::examine(self.context, place, options).await?,
            false => Vec::new(),
        };
        let remains = |it: &Finding| found_again.iter().any(|other| other.code == it.code);
        let shown: Vec<_> = findings
            .drain(..)
            .map(|it| {
                let is_done = it.fix.as_ref().is_some_and(|fix| !not_done.contains(&fix));
                let is_fixed = match it.code {
                    Code::NotProven => is_unproven_removed,
                    _ => are_fixed && is_done && !remains(&it),
                };
                (it, is_fixed)
            })
            .collect();
        self.progress.clear();
        self.print("limiter", &place.name, place.client.as_deref(), &shown)
    }

    fn may_fix(&mut self, place: &Place, findings: &[Finding]) -> Result<bool, Failure> {
        if self.may_fix_all {
            return Ok(true);
        }
        self.progress.clear();
        self.output.flush()?;
        for finding in findings.iter().filter(|it| it.fix.is_some()) {
            eprintln!("{}: {}", finding.code.as_str(), finding.text);
            eprintln!("  {}", finding.remedy(&place.name));
        }
        let question = format!("Fix {}? [y/N/a for all]", shown(&place.name, 100));
        let answer = ask(&question)?;
        self.may_fix_all = matches!(answer.as_str(), "a" | "A" | "all");
        Ok(self.may_fix_all || is_yes(&answer))
    }

    fn print(
        &mut self,
        kind: &'static str,
        name: &str,
        client: Option<&str>,
        findings: &[(Finding, bool)],
    ) -> Result<(), Failure> {
        let findings: Vec<_> = findings
            .iter()
            .filter(|(it, _)| !self.arguments.ignore.contains(&it.code))
            .collect();
        if findings.is_empty() {
            return Ok(());
        }
        let client_of = client.map_or_else(String::new, |id| format!(", client {}", shown(id, 60)));
        for (finding, is_fixed) in &findings {
            self.findings += 1;
            self.fixed += u64::from(*is_fixed);
            self.problems += u64::from(!is_fixed && !finding.severity.is_note());
            if !is_fixed {
                self.worst = self.worst.min(finding.severity);
            }
            if !self.output.is_json {
                self.reported.push(Reported {
                    subject: format!("{}{client_of}", shown(name, 100)),
                    name: name.to_owned(),
                    finding: finding.clone(),
                    is_fixed: *is_fixed,
                });
            }
        }
        self.output.json(|| {
            let findings: Vec<_> = findings
                .iter()
                .map(|(finding, is_fixed)| {
                    let mut json = finding.to_json(name);
                    json["is_fixed"] = (*is_fixed).into();
                    json
                })
                .collect();
            json!({ "kind": kind, "name": name, "client": client, "findings": findings })
        })?;
        self.output.flush()
    }

    /// Prints the findings, the worst first.
    fn report(&mut self) -> Result<(), Failure> {
        let reported = std::mem::take(&mut self.reported);
        for severity in Severity::ALL {
            let of_severity: Vec<_> = reported
                .iter()
                .filter(|it| it.finding.severity == severity)
                .collect();
            if of_severity.is_empty() {
                continue;
            }
            if severity == Severity::Note && !self.arguments.notes {
                let notes = number_of(of_severity.len() as u64, "note");
                self.output
                    .text(format!("\n{notes}: --notes prints them"))?;
                continue;
            }
            let heading = format!("\n{}: {}", severity.heading(), of_severity.len());
            let heading = self.output.terminal.paint(Color::Bold, &heading);
            self.output.text(heading)?;
            for reported in of_severity {
                self.print_finding(reported)?;
            }
        }
        self.output.flush()
    }

    fn print_finding(&mut self, reported: &Reported) -> Result<(), Failure> {
        let terminal = self.output.terminal;
        let finding = &reported.finding;
        let (color, mark) = match (reported.is_fixed, finding.severity.is_note()) {
            (true, _) => (Color::Good, "fixed"),
            (_, true) => (Color::Dim, "note"),
            _ => (Color::Bad, "found"),
        };
        let text = format!(
            "  {mark} {}: {}: {}",
            finding.code.as_str(),
            reported.subject,
            finding.text
        );
        let mut lines = terminal.lines(&text, 8);
        lines[0] = lines[0].replacen(mark, &terminal.paint(color, mark), 1);
        let remedy = match (reported.is_fixed, &finding.change) {
            (true, Some(change)) => format!("        set {change}"),
            (true, None) => String::new(),
            (false, _) => format!("        {}", finding.remedy(&reported.name)),
        };
        if !remedy.is_empty() {
            let of_remedy = terminal.lines(&remedy, 8).into_iter();
            lines.extend(of_remedy.map(|it| terminal.paint(Color::Dim, &it)));
        }
        lines
            .into_iter()
            .try_for_each(|line| self.output.text(line))
    }

    fn summary(mut self) -> Result<Report, Failure> {
        /// The exit code if a limit does not hold.
        const BROKEN: u8 = 4;
        self.report()?;
        let worst = self.worst;
        let Self {
            limiters,
            findings,
            fixed,
            problems,
            ..
        } = self;
        let (limiters_text, findings_text) = (
            number_of(limiters, "limiter"),
            number_of(findings, "finding"),
        );
        let are = if problems == 1 {
            "is no note"
        } else {
            "are no notes"
        };
        self.output.text(format!(
            "{limiters_text} looked at, {findings_text}, {fixed} fixed, {problems} left that {are}"
        ))?;
        self.output.json(|| {
            json!({ "kind": "summary", "limiters": limiters, "found": findings, "fixed": fixed, "left": problems })
        })?;
        self.output.flush()?;
        let report = Report::printed(problems == 0);
        Ok(match worst {
            Severity::Broken => report.with_exit_code(BROKEN),
            _ => report,
        })
    }
}
