//! The arguments of a script.

use smallvec::SmallVec;

/// Room for the arguments of most calls.
const USUAL_BYTES: usize = 96;

/// The arguments of a script, in its order. Their bytes are in one buffer, so that they need no
/// allocation each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Args {
    bytes: Vec<u8>,
    /// Where each argument ends in `bytes`.
    ends: SmallVec<[usize; 16]>,
}

impl Args {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(USUAL_BYTES),
            ends: SmallVec::new(),
        }
    }

    #[must_use]
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self
    }

    #[must_use]
    pub(crate) fn number(self, number: impl Into<i64>) -> Self {
        self.bytes(itoa::Buffer::new().format(number.into()).as_bytes())
    }

    /// A number, or the empty string for none.
    #[must_use]
    pub(crate) fn optional(self, number: Option<i64>) -> Self {
        match number {
            Some(number) => self.number(number),
            None => self.bytes(b""),
        }
    }

    #[must_use]
    pub(crate) fn flag(self, flag: bool) -> Self {
        self.bytes(if flag { b"1" } else { b"0" })
    }

    /// One argument of numbers, as the little-endian doubles that the scripts take; NaN for `None`.
    #[must_use]
    pub(crate) fn doubles(self, numbers: impl IntoIterator<Item = Option<i64>>) -> Self {
        self.doubles_and(numbers, &[])
    }

    /// One argument of numbers as little-endian doubles, NaN for `None`, and bytes behind them.
    #[must_use]
    pub(crate) fn doubles_and(
        mut self,
        numbers: impl IntoIterator<Item = Option<i64>>,
        bytes: &[u8],
    ) -> Self {
        for number in numbers {
            // Every number is exact as a double: larger ones are refused earlier.
            let double = number.map_or(f64::NAN, |number| number as f64);
            self.bytes.extend_from_slice(&double.to_le_bytes());
        }
        self.bytes(bytes)
    }

    /// Appends all of the other arguments.
    #[must_use]
    pub(crate) fn all(mut self, others: &Self) -> Self {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&others.bytes);
        self.ends.extend(others.ends.iter().map(|end| start + end));
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The length of all arguments together.
    pub(super) fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// `1` for `true`, the empty string for `false`.
    #[must_use]
    pub(crate) fn mark(self, mark: bool) -> Self {
        self.bytes(if mark { b"1" } else { b"" })
    }

    /// Leaves out the empty arguments at the end, for a script that reads a missing argument as an
    /// empty one.
    #[must_use]
    pub(crate) fn without_empty_end(mut self) -> Self {
        let last = self.bytes.len();
        let filled = self.ends.iter().take_while(|&&end| end < last).count();
        self.ends.truncate(filled + 1);
        self
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let arg = &self.bytes[start..end];
            start = end;
            arg
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_stand_in_their_order_and_empty_ones_at_the_end_are_left_out() {
        let args = Args::new()
            .number(-12)
            .optional(None)
            .flag(true)
            .bytes(b"x");
        let args = args.mark(false).optional(None);
        assert_eq!(args.iter().count(), 6);
        let args = args.without_empty_end();
        assert_eq!(
            args.iter().collect::<Vec<_>>(),
            [&b"-12"[..], b"", b"1", b"x"]
        );
        let none = Args::new().mark(false).without_empty_end();
        assert_eq!(none.iter().collect::<Vec<_>>(), [b""]);
    }
}
