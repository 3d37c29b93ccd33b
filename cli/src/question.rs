//! Questions to the person at the terminal.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;

/// Asks whether to execute a command. Fails if there is no terminal to ask on.
pub(crate) fn is_confirmed(command: &str, question: &str) -> Result<bool, Failure> {
    if !can_ask() {
        let message = format!("without a terminal to ask on, `{command}` needs --yes");
        return Err(Failure::usage(message));
    }
    Ok(is_yes(&ask(&format!("{question} [y/N]"))?))
}

/// Whether a question can be shown and answered on a terminal.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

pub(crate) fn ask(question: &str) -> Result<String, Failure> {
    let failed = |error: io::Error| Failure::usage(format!("terminal: {error}"));
    let mut terminal = io::stderr();
    write!(terminal, "{question} ").map_err(failed)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(failed)?;
    if !answer.ends_with('\n') {
        writeln!(terminal).map_err(failed)?; // the input has ended without an answer
    }
    Ok(answer.trim().to_owned())
}

pub(crate) fn is_yes(answer: &str) -> bool {
    matches!(answer, "y" | "Y" | "yes")
}
