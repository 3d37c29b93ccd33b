//! A line of MONITOR.

/// The arguments of a command, each in quotes and escaped as Redis does it.
pub fn words(command: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut bytes = command.bytes();
    while let Some(quote) = bytes.next() {
        if quote != b'"' {
            continue;
        }
        let mut word = Vec::new();
        loop {
            match bytes.next().expect("a closing quote") {
                b'"' => break,
                b'\\' => word.push(match bytes.next().expect("an escaped byte") {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    b'x' => {
                        let digits = [bytes.next(), bytes.next()].map(|digit| {
                            char::from(digit.expect("a hex digit"))
                                .to_digit(16)
                                .expect("a hex digit")
                        });
                        (digits[0] * 16 + digits[1]) as u8
                    }
                    itself => itself,
                }),
                byte => word.push(byte),
            }
        }
        words.push(word);
    }
    words
}
