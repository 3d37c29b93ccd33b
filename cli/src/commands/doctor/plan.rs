//! `--plan FILE`: what `--fix` would do, and the commands that undo it.
//!
//! A fix changes the value and the grants of a limiter, or of one of its clients. The commands that
//! undo it write both as they are now.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::finding::{Finding, Fix};
use crate::context::Context;
use crate::failure::Failure;
use crate::inspect::grants::{Grant, Stored, read};
use crate::inspect::tally::Place;
use crate::terminal::shown;

/// The most members in one command.
const MEMBERS: usize = 100;

pub(super) struct Plan {
    file: BufWriter<File>,
    path: String,
}

impl Plan {
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let path_text = path.display().to_string();
        // An existing plan is not overwritten: somebody may still need it to undo a fix.
        let file = File::create_new(path).map_err(|error| not_written(&path_text, &error))?;
        let mut plan = Self {
            file: BufWriter::new(file),
            path: path_text,
        };
        plan.lines(&[
            "What `rratelimiter doctor --fix` would do to each limiter, and below it what undoes that:",
            "  sed -n 's/^undo: //p' THIS_FILE | redis-cli -u URL",
            "Both change what the services see. What is granted after this was written is forgotten by the undoing.",
        ])?;
        Ok(plan)
    }

    /// Adds what `--fix` would do about these findings, and the commands that undo it.
    pub(super) async fn add(
        &mut self,
        context: &Context,
        place: &Place,
        findings: &[Finding],
    ) -> Result<(), Failure> {
        let fixable: Vec<_> = findings.iter().filter(|it| it.fix.is_some()).collect();
        if fixable.is_empty() {
            return Ok(());
        }
        let client = place.client.as_deref();
        let of_client = client.map_or_else(String::new, |id| format!(", client {}", shown(id, 60)));
        self.lines(&["", &format!("{}{of_client}", shown(&place.name, 200))])?;
        for finding in &fixable {
            let (code, text) = (finding.code.as_str(), &finding.text);
            self.lines(&[
                &format!("  {code}: {text}"),
                &format!("    {}", finding.remedy(&place.name)),
            ])?;
        }
        let start = |_: &Stored, _| Vec::new();
        let note = |found: &mut Vec<(i64, Vec<u8>)>, grant: Grant| {
            found.push((grant.score, grant.raw));
        };
        let (reading, members) = read(&context.client, &place.name, client, start, note).await?;
        let Stored {
            keys,
            types,
            value,
            lives,
            ..
        } = &reading.stored;
        if fixable.iter().any(|it| it.fix != Some(Fix::Expire)) {
            match &*types[1] {
                "string" => {
                    self.undo(&[b"SET", keys[1].as_bytes(), value.as_bytes()])?;
                    self.undo_life(&keys[1], lives[1])?;
                }
                "none" => self.undo(&[b"DEL", keys[1].as_bytes()])?,
                _ => {}
            }
            if types[2] == "zset" {
                self.undo(&[b"DEL", keys[2].as_bytes()])?;
                for chunk in members.chunks(MEMBERS) {
                    let scores: Vec<_> = chunk.iter().map(|(score, _)| score.to_string()).collect();
                    let pairs = scores.iter().zip(chunk);
                    let pairs = pairs.flat_map(|(score, (_, member))| [score.as_bytes(), member]);
                    let words: Vec<_> = [&b"ZADD"[..], keys[2].as_bytes()]
                        .into_iter()
                        .chain(pairs)
                        .collect();
                    self.undo(&words)?;
                }
                self.undo_life(&keys[2], lives[2])?;
            }
        }
        if fixable.iter().any(|it| it.fix == Some(Fix::Expire)) {
            for (key, _) in keys.iter().zip(lives).filter(|(_, lives)| **lives == -1) {
                self.undo(&[b"PERSIST", key.as_bytes()])?;
            }
        }
        Ok(())
    }

    fn undo_life(&mut self, key: &str, lives: i64) -> Result<(), Failure> {
        match lives {
            1.. => self.undo(&[b"PEXPIRE", key.as_bytes(), lives.to_string().as_bytes()]),
            _ => Ok(()),
        }
    }

    /// Adds a command that undoes a change, in the form that `redis-cli` reads.
    fn undo(&mut self, words: &[&[u8]]) -> Result<(), Failure> {
        let words: Vec<_> = words.iter().map(|it| quoted(it)).collect();
        self.lines(&[&format!("undo: {}", words.join(" "))])
    }

    fn lines(&mut self, lines: &[&str]) -> Result<(), Failure> {
        for line in lines {
            let written = writeln!(self.file, "{line}");
            written.map_err(|error| not_written(&self.path, &error))?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let flushed = self.file.flush();
        flushed.map_err(|error| not_written(&self.path, &error))
    }
}

fn not_written(path: &str, error: &std::io::Error) -> Failure {
    Failure::usage(format!("the plan {path} cannot be written: {error}"))
}

fn quoted(word: &[u8]) -> String {
    let is_plain = |it: &u8| it.is_ascii_alphanumeric() || b"{}:._-/@".contains(it);
    if !word.is_empty() && word.iter().all(is_plain) {
        return String::from_utf8_lossy(word).into_owned();
    }
    let escaped = word.iter().map(|byte| match byte {
        b'"' | b'\\' => format!("\\{}", char::from(*byte)),
        b' '..=b'~' => char::from(*byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    });
    format!("\"{}\"", escaped.collect::<String>())
}
