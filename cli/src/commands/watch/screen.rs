//! The terminal while it shows the picture: entered, and left whatever ends the program.

use std::mem::ManuallyDrop;
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;

use crate::failure::Failure;

/// Restores the terminal when it is dropped. A panic restores it before its message is printed.
pub(super) struct Screen {
    /// Never dropped: it would write to the standard error that it cannot show the cursor, and panic where a terminal that has
    /// hung up takes no message either.
    pub(super) terminal: ManuallyDrop<DefaultTerminal>,
}

impl Screen {
    pub(super) fn enter() -> Result<Self, Failure> {
        let entered = ratatui::try_init();
        let terminal = entered.map_err(|error| Failure::usage(format!("terminal: {error}")))?;
        let terminal = ManuallyDrop::new(terminal);
        Ok(Self { terminal })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// What a person asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Quit,
    Up,
    Down,
    Sort,
    Redraw,
}

/// Reads keys on a thread of its own, as the terminal has no other way. It ends with its receiver, or with the terminal.
pub(super) fn inputs() -> mpsc::UnboundedReceiver<Input> {
    const LOOK_EVERY: Duration = Duration::from_millis(200);
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        while !sender.is_closed() {
            let event = match event::poll(LOOK_EVERY) {
                Ok(true) => event::read(),
                Ok(false) => continue,
                Err(error) => Err(error),
            };
            let input = match event {
                Ok(event) => input_of(&event),
                Err(_) => Some(Input::Quit), // the terminal is gone
            };
            if let Some(input) = input {
                let _ = sender.send(input);
            }
            if input == Some(Input::Quit) {
                return;
            }
        }
    });
    receiver
}

fn input_of(event: &Event) -> Option<Input> {
    let key = match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        Event::Resize(..) => return Some(Input::Redraw),
        _ => return None,
    };
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    Some(match key.code {
        KeyCode::Char('c' | 'd') if is_control => Input::Quit,
        KeyCode::Char('q') | KeyCode::Esc => Input::Quit,
        KeyCode::Up | KeyCode::Char('k') => Input::Up,
        KeyCode::Down | KeyCode::Char('j') => Input::Down,
        KeyCode::Char('s') => Input::Sort,
        KeyCode::Char('r') => Input::Redraw,
        _ => return None,
    })
}
