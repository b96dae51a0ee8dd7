//! The small part of protobuf that writing needs: numbers, strings and nested messages.

/// A message being written.
#[derive(Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

const VARINT: u64 = 0;
const BYTES: u64 = 2;

impl Message {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends another message's fields.
    pub(super) fn append(&mut self, other: &Message) {
        self.bytes.extend_from_slice(&other.bytes);
    }

    pub(super) fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3 | VARINT);
        self.varint(value);
    }

    pub(super) fn text(&mut self, field: u64, text: &str) {
        self.message(field, |inner| inner.bytes.extend_from_slice(text.as_bytes()));
    }

    pub(super) fn message(&mut self, field: u64, write: impl FnOnce(&mut Message)) {
        self.varint(field << 3 | BYTES);
        let start = self.bytes.len();
        write(self);
        // The length comes first but is known only now. Messages here are short: moving them by a byte
        // is cheaper than a buffer for each.
        let length = self.bytes.len() - start;
        self.varint(length as u64);
        let by = self.bytes.len() - start - length;
        self.bytes[start..].rotate_right(by);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_as_the_encoding_says() {
        let mut message = Message::default();
        message.number(1, 150);
        message.message(3, |inner| {
            inner.text(2, "testing");
            inner.message(4, |_| {});
        });
        let expected = [&[0x08, 0x96, 0x01, 0x1a, 0x0b, 0x12, 0x07][..], b"testing", &[0x22, 0x00]];
        assert_eq!(message.as_bytes(), expected.concat());
    }

    #[test]
    fn a_long_message_has_a_long_length() {
        let mut message = Message::default();
        message.text(1, &"x".repeat(300));
        assert_eq!(message.as_bytes()[..3], [0x0a, 0xac, 0x02]);
        assert_eq!(message.as_bytes().len(), 303);
    }
}
