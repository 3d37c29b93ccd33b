//! Writes the few messages of Protocol Buffers that a rejection needs, without generated code or a
//! dependency.

/// A message that is being written.
#[derive(Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    /// Adds an integer. Zero is left out, as in proto3.
    pub(super) fn integer(mut self, field: u32, value: u64) -> Self {
        if value > 0 {
            self.varint(u64::from(field << 3));
            self.varint(value);
        }
        self
    }

    /// Adds a text, bytes or an encoded message.
    pub(super) fn bytes(mut self, field: u32, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        self.varint(u64::from(field << 3 | 2));
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Adds a message of the type `google.rpc.{name}` as a `google.protobuf.Any`.
    pub(super) fn any(self, field: u32, name: &str, message: Message) -> Self {
        let any = Message::default()
            .bytes(1, format!("type.googleapis.com/google.rpc.{name}"))
            .bytes(2, message.0);
        self.bytes(field, any.0)
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Encodes the message in base64 without padding, the form of gRPC's header fields whose names
    /// end in `-bin`.
    pub(super) fn base64(&self) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::with_capacity(self.0.len().div_ceil(3) * 4);
        for chunk in self.0.chunks(3) {
            let mut bytes = [0; 4];
            bytes[1..=chunk.len()].copy_from_slice(chunk);
            let bits = u32::from_be_bytes(bytes);
            for digit in 0..=chunk.len() {
                text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
            }
        }
        text
    }
}
