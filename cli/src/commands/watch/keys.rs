//! The keys of `watch` and their effects.

use super::history::{History, Order};
use super::screen::Input;
use crate::signals::HANGUP;

/// The keys and what they do, which `?` shows.
pub(super) const KEYS: [(&str, &str); 8] = [
    ("q", "quit"),
    ("up/down", "select"),
    (
        "Enter",
        "settings and health of the selected limiter, or its charts",
    ),
    ("/", "only names with a text; Enter ends it, Esc clears it"),
    ("s", "sort by the next: use, grants, name, health"),
    ("u g n h", "sort by use, grants, name, health"),
    ("p", "pause, or go on"),
    ("?", "these keys"),
];

/// Executes the command of a key. Returns the exit code if it ends the program.
pub(super) fn press(history: &mut History, input: Input) -> Option<u8> {
    match input {
        Input::Quit => return Some(0),
        Input::HungUp => return Some(HANGUP),
        Input::Up => history.select(-1),
        Input::Down => history.select(1),
        Input::Redraw => {}
        _ if history.view.is_filtering => filter(history, input),
        Input::Enter => history.view.has_details = !history.view.has_details,
        Input::Escape if history.view.has_help => history.view.has_help = false,
        Input::Escape if !history.view.filter.is_empty() => history.view.filter.clear(),
        Input::Escape | Input::Key('q') => return Some(0),
        Input::Key('?') => history.view.has_help = !history.view.has_help,
        Input::Key('/') => history.view.is_filtering = true,
        Input::Key('p' | ' ') => history.view.is_paused = !history.view.is_paused,
        Input::Key('k') => history.select(-1),
        Input::Key('j') => history.select(1),
        Input::Key('s') => history.order = history.order.next(),
        Input::Key('u') => history.order = Order::Use,
        Input::Key('g') => history.order = Order::Grants,
        Input::Key('n') => history.order = Order::Name,
        Input::Key('h') => history.order = Order::Health,
        Input::Key(_) | Input::Backspace => {}
    }
    None
}

/// Edits the filter: keys are its text.
fn filter(history: &mut History, input: Input) {
    let view = &mut history.view;
    match input {
        Input::Key(it) => view.filter.push(it),
        Input::Backspace => drop(view.filter.pop()),
        Input::Escape => {
            view.filter.clear();
            view.is_filtering = false;
        }
        _ => view.is_filtering = false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::history::tests::{round, sample};
    use super::*;

    fn pressed(keys: &[Input]) -> (History, Option<u8>) {
        let mut history = History::new(10, Duration::from_secs(1));
        history.note(round([sample("quota", 0, 0, 0), sample("mails", 9, 0, 0)]));
        let mut ended = None;
        for key in keys {
            ended = press(&mut history, *key);
        }
        (history, ended)
    }

    #[test]
    fn letters_are_a_text_while_names_are_filtered() {
        use Input::{Backspace, Enter, Escape, Key};
        let (history, ended) = pressed(&[Key('/'), Key('q'), Key('x'), Backspace]);
        assert_eq!((ended, history.view.filter.as_str()), (None, "q"));
        let names: Vec<_> = history
            .in_order()
            .iter()
            .map(|(name, _)| (*name).clone())
            .collect();
        assert_eq!(names, ["quota"]);
        let (_, ended) = pressed(&[Key('/'), Key('q'), Enter, Key('q')]);
        assert_eq!(ended, Some(0));
        let (history, ended) = pressed(&[Key('/'), Key('q'), Enter, Escape]);
        assert_eq!((ended, history.view.filter.as_str()), (None, ""));
        assert_eq!(pressed(&[Escape]).1, Some(0));
        assert_eq!(pressed(&[Key('?'), Escape]).1, None);
    }

    #[test]
    fn each_order_has_a_key() {
        for (key, order) in [
            ('u', Order::Use),
            ('g', Order::Grants),
            ('n', Order::Name),
            ('h', Order::Health),
        ] {
            let (history, _) = pressed(&[Input::Key(key)]);
            assert_eq!(history.order, order);
        }
    }
}
