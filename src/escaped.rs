//! Text from outside in logs and messages.

use std::fmt::{self, Debug, Display, Formatter, Write};

/// Displays a text on one line: characters that would begin a line, control a terminal or reorder
/// the text around them are escaped as in a Rust string. Every text of a user or
/// a server that is logged, or is part of an error's message, goes through this.
pub(crate) struct Escaped<T>(pub(crate) T);

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

impl<T: Debug> Debug for Escaped<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{:?}", self.0)
    }
}

struct Escaping<'a, 'b>(&'a mut Formatter<'b>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_escaped) {
            match part.char_indices().next_back() {
                Some((end, last)) if is_escaped(last) => {
                    write!(self.0, "{}{}", &part[..end], last.escape_default())?;
                }
                _ => self.0.write_str(part)?,
            }
        }
        Ok(())
    }
}

fn is_escaped(character: char) -> bool {
    let separates_or_reorders = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character == '\\' || character.is_control() || separates_or_reorders
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn characters_that_break_lines_or_control_or_reorder_text_are_escaped() {
        let text = "a\r\nWARN b\u{1b}[2J\u{2028}\u{202e}c\u{85}\\n";
        let expected = r"a\r\nWARN b\u{1b}[2J\u{2028}\u{202e}c\u{85}\\n";
        assert_eq!(Escaped(text).to_string(), expected);
    }

    #[test]
    fn any_other_text_stays_as_it_is() {
        for text in [
            "",
            "orders:api",
            "user {1} 'x' \"y\"",
            "Zürich 東京 हिन्दी 🦀",
        ] {
            assert_eq!(Escaped(text).to_string(), text);
        }
    }

    fn sources(folder: &Path, texts: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, texts);
            } else {
                texts.push(fs::read_to_string(path).unwrap());
            }
        }
    }

    #[test]
    fn each_text_that_is_logged_goes_through_it() {
        let mut texts = Vec::new();
        sources(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut texts,
        );
        let event = concat!("tracing", "::");
        let events = texts.iter().flat_map(|text| text.split(event).skip(1));
        let mut logged = 0;
        for event in events {
            let fields = event.split(';').next().unwrap_or_default();
            for value in fields.split('%').skip(1) {
                assert!(value.starts_with("Escaped("), "{fields}");
                logged += 1;
            }
        }
        assert!(logged > 10, "{logged}");
    }
}
