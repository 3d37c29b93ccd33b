//! Redis's protocol, as far as a proxy needs it: where a command and an answer end.

#![allow(dead_code, reason = "each test file uses what it needs")]

/// A command as the client sent it, its name first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command(pub Vec<Vec<u8>>);

impl Command {
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.0[0]).to_uppercase()
    }

    /// Whether it sends a script's text, as where a slow server may not know it.
    pub fn has_text(&self) -> bool {
        self.name() == "EVAL" && self.0.get(1).is_some_and(|text| text.starts_with(b"-- "))
    }

    /// A script's argument, counted from 1 as in the script; empty where it was left out.
    pub fn script_argument(&self, place: usize) -> &[u8] {
        let keys: usize = std::str::from_utf8(&self.0[2]).unwrap().parse().unwrap();
        self.0.get(2 + keys + place).map_or(b"", Vec::as_slice)
    }

    /// Whether this is an acquire of the same call as another one: it has the same keys and the
    /// same member, which has the call's id.
    pub fn repeats(&self, other: &Self) -> bool {
        let is_script = ["EVALSHA", "EVAL"].contains(&self.name().as_str());
        if !is_script || self.0[..3] != other.0[..other.0.len().min(3)] {
            return false;
        }
        let (member, others) = (self.script_argument(2), other.script_argument(2));
        let is_member = member.len() == 21 && member[0] == 16;
        is_member && member == others && self.keys() == other.keys()
    }

    fn keys(&self) -> &[Vec<u8>] {
        let keys: usize = std::str::from_utf8(&self.0[2]).unwrap().parse().unwrap();
        &self.0[3..3 + keys]
    }

    pub fn set_script_argument(&mut self, place: usize, argument: &[u8]) {
        let keys: usize = std::str::from_utf8(&self.0[2]).unwrap().parse().unwrap();
        self.0[2 + keys + place] = argument.to_vec();
    }

    /// Which of this many servers has the first key of a script; the first one if there is none.
    pub fn place_of_key(&self, servers: usize) -> usize {
        let is_script = ["EVALSHA", "EVAL"].contains(&self.name().as_str());
        let key = self.0.get(3).filter(|_| is_script);
        key.map_or(0, |key| Self::place_of(key, servers))
    }

    /// Which of this many servers has this key.
    pub fn place_of(key: &[u8], servers: usize) -> usize {
        let sum = key.iter().fold(0_u32, |sum, &byte| {
            sum.wrapping_mul(31).wrapping_add(byte.into())
        });
        (sum >> 3) as usize % servers
    }

    pub fn wire_form(&self) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", self.0.len()).into_bytes();
        for part in &self.0 {
            bytes.extend(format!("${}\r\n", part.len()).into_bytes());
            bytes.extend(part);
            bytes.extend(b"\r\n");
        }
        bytes
    }
}

/// The first command in `bytes` and its length, once all of it is there.
pub fn parse(bytes: &[u8]) -> Option<(Command, usize)> {
    let mut at = 0;
    let count = number_line(bytes, &mut at, b'*')?;
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let length = number_line(bytes, &mut at, b'$')?;
        parts.push(bytes.get(at..at + length)?.to_vec());
        at += length + 2;
    }
    (at <= bytes.len()).then_some((Command(parts), at))
}

/// Where the answer that starts at `at` ends, once all of it is there.
pub fn answer_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let line = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let after_line = at + line + 2;
    let number = || -> i64 {
        std::str::from_utf8(&rest[1..line])
            .unwrap()
            .parse()
            .unwrap()
    };
    match rest[0] {
        b'$' => {
            let end =
                usize::try_from(number()).map_or(after_line, |length| after_line + length + 2);
            (end <= bytes.len()).then_some(end)
        }
        b'*' => (0..number()).try_fold(after_line, |at, _| answer_end(bytes, at)),
        _ => Some(after_line),
    }
}

fn number_line(bytes: &[u8], at: &mut usize, kind: u8) -> Option<usize> {
    let rest = bytes.get(*at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(rest[0], kind, "the client sends arrays of bulk strings");
    *at += end + 2;
    Some(std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap())
}
