//! Shows the picture on the terminal, and restores the terminal whatever ends the program.
//!
//! Output blocks while nobody reads the terminal. So a thread of its own draws the newest picture
//! whenever the terminal accepts output, and nothing else waits for it.

use std::io;
use std::panic;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};

use super::tty::{Leaving, Tty};
use crate::failure::Failure;

/// Restores the terminal when it is dropped. A panic restores it before its message is printed.
pub(super) struct Screen {
    /// Requests a picture, unless one is requested already. When it is dropped, the thread restores
    /// the terminal and ends.
    wanted: Option<SyncSender<()>>,
    leaving: Leaving,
    /// The thread that draws.
    drawing: Option<JoinHandle<()>>,
    /// Receives the error if nothing can be drawn any more.
    failed: oneshot::Receiver<io::Error>,
}

impl Screen {
    /// Starts the thread that takes over the terminal, and calls `picture` for each requested
    /// picture.
    pub(super) fn enter(picture: impl Fn(&mut Frame<'_>) + Send + 'static) -> Self {
        restore_at_a_panic();
        let (wanted, pictures) = sync_channel(1);
        let (failing, failed) = oneshot::channel();
        let leaving = Leaving::default();
        let is_leaving = leaving.clone();
        let drawing = thread::spawn(move || {
            if let Err(error) = draw(&pictures, picture, is_leaving) {
                let _ = failing.send(error);
            }
        });
        Self {
            wanted: Some(wanted),
            leaving,
            drawing: Some(drawing),
            failed,
        }
    }

    /// Requests a picture. Its content is that of the moment at which it is drawn.
    pub(super) fn redraw(&self) {
        if let Some(wanted) = &self.wanted {
            let _ = wanted.try_send(()); // fails if one is requested already, or none can be drawn
        }
    }

    /// Returns when nothing can be drawn any more.
    pub(super) async fn failed(&mut self) -> Ended {
        let failure = match (&mut self.failed).await {
            Ok(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => {
                return Ended::HungUp;
            }
            Ok(error) => Failure::usage(format!("terminal: {error}")),
            Err(_) => Failure::panicked("the picture could not be drawn"),
        };
        Ended::Failed(failure)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.wanted = None;
        self.leaving.set();
        if let Some(drawing) = self.drawing.take() {
            let _ = drawing.join(); // takes a second at most
        }
    }
}

/// Draws each picture that is requested, and restores the terminal at the end.
fn draw(
    pictures: &Receiver<()>,
    picture: impl Fn(&mut Frame<'_>),
    leaving: Leaving,
) -> io::Result<()> {
    let mut tty = Tty::open(leaving)?;
    let mut terminal = tty.enter()?;
    let drawn = pictures
        .iter()
        .try_for_each(|()| terminal.draw(&picture).map(drop));
    tty.leave();
    drawn
}

fn restore_at_a_panic() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if let Ok(mut tty) = Tty::open(Leaving::default()) {
            tty.leave();
        }
        hook(panic);
    }));
}

/// Why nothing can be drawn any more. When a terminal hangs up, reads and writes fail, often before
/// the signal comes.
#[derive(Debug)]
pub(super) enum Ended {
    HungUp,
    Failed(Failure),
}

/// An input of a person, or of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    Quit,
    HungUp,
    Up,
    Down,
    Enter,
    Escape,
    Backspace,
    Key(char),
    Redraw,
}

/// Reads keys on a thread of its own, because reading a terminal blocks. The thread ends when the
/// receiver is dropped or the terminal hangs up.
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
                Err(_) => Some(Input::HungUp),
            };
            if let Some(input) = input {
                let _ = sender.send(input);
            }
            if matches!(input, Some(Input::Quit | Input::HungUp)) {
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
        KeyCode::Esc => Input::Escape,
        KeyCode::Up => Input::Up,
        KeyCode::Down => Input::Down,
        KeyCode::Enter => Input::Enter,
        KeyCode::Backspace => Input::Backspace,
        KeyCode::Char(it) => Input::Key(it),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;

    use super::super::pseudo_terminal::PseudoTerminal;
    use super::*;

    const PANICS: &str = "RRATELIMITER_TEST_PANICS";

    /// Runs itself again as a process in a pseudo-terminal, where the picture panics.
    #[tokio::test]
    async fn a_picture_that_panics_leaves_the_terminal_as_it_was() {
        if env::var_os(PANICS).is_some() {
            let mut screen = Screen::enter(|_| panic!("it cannot be drawn"));
            screen.redraw();
            let Ended::Failed(failure) = screen.failed().await else {
                panic!("the terminal is there");
            };
            drop(screen);
            eprintln!("{failure}; restored");
            return;
        }
        let mut command = Command::new(env::current_exe().unwrap());
        let name =
            "commands::watch::screen::tests::a_picture_that_panics_leaves_the_terminal_as_it_was";
        command
            .args(["--exact", name, "--nocapture"])
            .env(PANICS, "1");
        let mut terminal = PseudoTerminal::start(&command, 80, 24);
        terminal.until("it cannot be drawn"); // the message of the panic
        let until_then = terminal.output.clone();
        assert!(
            until_then.contains("\x1b[?1049h"),
            "it was entered: {until_then:?}"
        );
        assert!(
            until_then.contains("\x1b[?1049l"),
            "it is left before: {until_then:?}"
        );
        terminal.until("the picture could not be drawn; restored");
        assert_eq!(terminal.ended(), Some(0));
    }
}
