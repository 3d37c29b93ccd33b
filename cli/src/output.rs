//! The output of a command that prints while it works: lines of text, or JSON objects, one a line.

use std::io::{self, BufWriter, Stdout, Write};

use serde_json::Value;

use crate::failure::Failure;
use crate::terminal::Terminal;

pub(crate) struct Output {
    pub(crate) terminal: Terminal,
    pub(crate) is_json: bool,
    lines: BufWriter<Stdout>,
}

impl Output {
    pub(crate) fn new(is_json: bool) -> Self {
        Self {
            terminal: Terminal::of_stdout(),
            is_json,
            lines: BufWriter::new(io::stdout()),
        }
    }

    /// Prints a line, unless the output is JSON.
    pub(crate) fn text(&mut self, line: impl AsRef<str>) -> Result<(), Failure> {
        match self.is_json {
            true => Ok(()),
            false => writeln!(self.lines, "{}", line.as_ref()).map_err(not_written),
        }
    }

    /// Prints an object, if the output is JSON.
    pub(crate) fn json(&mut self, object: impl FnOnce() -> Value) -> Result<(), Failure> {
        match self.is_json {
            true => writeln!(self.lines, "{}", object()).map_err(not_written),
            false => Ok(()),
        }
    }

    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.lines.flush().map_err(not_written)
    }
}

/// The failure of a write. If the reader has closed the pipe, as `head` does, the command ends
/// silently.
fn not_written(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::reader_gone(),
        _ => Failure::usage(format!("standard output: {error}")),
    }
}
