//! Thrift's compact protocol as far as the footer and the page headers of a Parquet file need it:
//! structs, lists, numbers and strings, written in the order of their fields.

const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

#[derive(Default)]
pub(super) struct Thrift {
    bytes: Vec<u8>,
    /// The last field written of the current struct: field ids are encoded as differences.
    last: i16,
}

/// Signed numbers with a small absolute value as small unsigned ones.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

impl Thrift {
    /// The finished struct.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }

    pub(super) fn i32(&mut self, field: i16, value: i32) {
        self.field(field, I32);
        self.varint(zigzag(i64::from(value)));
    }

    pub(super) fn i64(&mut self, field: i16, value: i64) {
        self.field(field, I64);
        self.varint(zigzag(value));
    }

    pub(super) fn text(&mut self, field: i16, text: &str) {
        self.field(field, BINARY);
        self.raw_text(text);
    }

    pub(super) fn structure(&mut self, field: i16, write: impl FnOnce(&mut Thrift)) {
        self.field(field, STRUCT);
        self.raw_structure(write);
    }

    pub(super) fn structures<T>(
        &mut self,
        field: i16,
        items: &[T],
        mut write: impl FnMut(&mut Thrift, &T),
    ) {
        self.list(field, STRUCT, items.len());
        for item in items {
            self.raw_structure(|inner| write(inner, item));
        }
    }

    pub(super) fn i32s(&mut self, field: i16, values: &[i32]) {
        self.list(field, I32, values.len());
        for &value in values {
            self.varint(zigzag(i64::from(value)));
        }
    }

    pub(super) fn texts(&mut self, field: i16, texts: &[&str]) {
        self.list(field, BINARY, texts.len());
        for text in texts {
            self.raw_text(text);
        }
    }

    fn raw_text(&mut self, text: &str) {
        self.varint(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn raw_structure(&mut self, write: impl FnOnce(&mut Thrift)) {
        let outer = std::mem::take(&mut self.last);
        write(self);
        self.bytes.push(0);
        self.last = outer;
    }

    fn list(&mut self, field: i16, kind: u8, len: usize) {
        self.field(field, LIST);
        match u8::try_from(len) {
            Ok(short) if short < 15 => self.bytes.push(short << 4 | kind),
            _ => {
                self.bytes.push(0xf0 | kind);
                self.varint(len as u64);
            }
        }
    }

    /// Field ids of these structs are close together, so the short form always suffices.
    fn field(&mut self, field: i16, kind: u8) {
        let distance = field - self.last;
        debug_assert!((1..16).contains(&distance), "field {field} after {}", self.last);
        self.bytes.push((distance as u8) << 4 | kind);
        self.last = field;
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}
