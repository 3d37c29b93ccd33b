//! The parts of a page that one program leaves to another: each between two comments of its name.

fn comments(name: &str) -> [String; 2] {
    [format!("<!-- {name} -->\n"), format!("<!-- /{name} -->\n")]
}

/// A block without text.
pub fn empty(name: &str) -> String {
    comments(name).concat()
}

/// The text before, in and behind a block; its comments end the first and begin the last.
/// `None` if the page has no such block.
fn parts<'a>(page: &'a str, name: &str) -> Option<[&'a str; 3]> {
    let [begin, end] = comments(name);
    let begins = page.find(&begin)? + begin.len();
    let ends = begins + page[begins..].find(&end)?;
    Some([&page[..begins], &page[begins..ends], &page[ends..]])
}

/// The text of a block; `None` if the page has no such block.
pub fn text<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    parts(page, name).map(|[_, text, _]| text)
}

/// The page with this text in a block; `None` if it has no such block.
pub fn with_text(page: &str, name: &str, text: &str) -> Option<String> {
    parts(page, name).map(|[before, _, behind]| [before, text, behind].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_block_is_read_and_replaced_and_all_else_stays() {
        let page = format!("a\n{}b\n", empty("one"));
        let filled = with_text(&page, "one", "c\n").unwrap();
        assert_eq!(filled, "a\n<!-- one -->\nc\n<!-- /one -->\nb\n");
        assert_eq!(text(&filled, "one"), Some("c\n"));
        assert_eq!(with_text(&filled, "one", ""), Some(page));
        assert_eq!(text(&filled, "two"), None);
    }
}
