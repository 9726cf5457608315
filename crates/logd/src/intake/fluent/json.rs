//! Values of MessagePack as JSON.
//!
//! What JSON does not have is told apart from what it has: bytes that are no text become `{"hex":"..."}`, other types
//! `{"ext":TYPE,"hex":"..."}`, and numbers that are none strings. Text in binary is text, since many clients send it
//! so. A key that is no text becomes the text of its JSON, or if it is an array or a map, the digits of its bytes: keys
//! within keys would be quoted again and again.

use std::io::Write as _;

use super::item::{Item, check, head};
use crate::lines::text::{quote, quote_hex, write_double};

/// The type of a time with nanoseconds: two numbers of four bytes.
const EVENT_TIME: i8 = 0;

/// Where JSON is written, up to a place: a line beyond it is too long, however much longer it is.
pub(super) struct Writer<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) end: usize,
}

impl Writer<'_> {
    pub(super) fn is_over(&self) -> bool {
        self.out.len() > self.end
    }

    /// Appends the value that checked bytes begin with; gives its length, unless the line is too long.
    pub(super) fn value(&mut self, bytes: &[u8]) -> usize {
        let Ok(Some((item, head_bytes))) = head(bytes) else { return bytes.len() };
        let mut at = head_bytes;
        // Writing to memory does not fail, here and below.
        match item {
            Item::Nil => self.out.extend_from_slice(b"null"),
            Item::Bool(value) => drop(write!(self.out, "{value}")),
            Item::Int(value) => drop(write!(self.out, "{value}")),
            Item::Float32(value) if value.is_finite() => {
                drop(serde_json::to_writer(&mut *self.out, &value))
            }
            Item::Float32(value) => write_double(value.into(), self.out),
            Item::Float64(value) => write_double(value, self.out),
            Item::Text(count) | Item::Binary(count) => {
                self.text(&bytes[at..at + count]);
                at += count;
            }
            Item::Extension(kind, count) => {
                self.extension(kind, &bytes[at..at + count]);
                at += count;
            }
            Item::Array(count) => {
                self.out.push(b'[');
                for index in 0..count {
                    self.comma(index);
                    at += self.value(&bytes[at..]);
                    if self.is_over() {
                        return bytes.len();
                    }
                }
                self.out.push(b']');
            }
            Item::Map(count) => {
                self.out.push(b'{');
                for index in 0..count {
                    self.comma(index);
                    at += self.key(&bytes[at..]);
                    self.out.push(b':');
                    at += self.value(&bytes[at.min(bytes.len())..]);
                    if self.is_over() {
                        return bytes.len();
                    }
                }
                self.out.push(b'}');
            }
        }
        at
    }

    fn comma(&mut self, index: usize) {
        if index > 0 {
            self.out.push(b',');
        }
    }

    fn key(&mut self, bytes: &[u8]) -> usize {
        if let Ok(Some((Item::Array(_) | Item::Map(_), _))) = head(bytes) {
            let used = check(bytes).unwrap_or(bytes.len());
            let room = self.end.saturating_sub(self.out.len()) + 1;
            quote_hex(&bytes[..used.min(room)], self.out);
            return used;
        }
        let start = self.out.len();
        let used = self.value(bytes);
        if self.out.get(start) != Some(&b'"') {
            let json = self.out.split_off(start);
            self.text(&json);
        }
        used
    }

    fn text(&mut self, bytes: &[u8]) {
        // Of a line that is too long only so much is stored.
        let room = self.end.saturating_sub(self.out.len()) + 1;
        let bytes = &bytes[..bytes.len().min(room)];
        match std::str::from_utf8(bytes) {
            Ok(text) => quote(text, self.out),
            Err(_) => {
                self.out.extend_from_slice(b"{\"hex\":");
                quote_hex(bytes, self.out);
                self.out.push(b'}');
            }
        }
    }

    fn extension(&mut self, kind: i8, bytes: &[u8]) {
        if let (EVENT_TIME, Some((seconds, nanoseconds))) = (kind, event_time(bytes)) {
            let _ = write!(self.out, "{seconds}.{nanoseconds:09}");
            return;
        }
        let _ = write!(self.out, "{{\"ext\":{kind},\"hex\":");
        let room = self.end.saturating_sub(self.out.len()) + 1;
        quote_hex(&bytes[..bytes.len().min(room)], self.out);
        self.out.push(b'}');
    }
}

/// Seconds and nanoseconds, if these are less than a second.
fn event_time(bytes: &[u8]) -> Option<(u32, u32)> {
    let bytes: [u8; 8] = bytes.try_into().ok()?;
    let both = u64::from_be_bytes(bytes);
    let (seconds, nanoseconds) = ((both >> 32) as u32, both as u32);
    (nanoseconds < 1_000_000_000).then_some((seconds, nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        let used = Writer { out: &mut out, end: 1000 }.value(bytes);
        assert_eq!(used, bytes.len());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_type_has_its_form() {
        for (bytes, expected) in [
            (&b"\xc0"[..], "null"),
            (b"\xc3", "true"),
            (b"\x7f", "127"),
            (b"\xff", "-1"),
            (b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"),
            (b"\xd3\x80\0\0\0\0\0\0\0", "-9223372036854775808"),
            (b"\xca\x3d\xcc\xcc\xcd", "0.1"),
            (b"\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a", "0.1"),
            (b"\xcb\x7f\xf8\0\0\0\0\0\0", "\"NaN\""),
            (b"\xca\xff\x80\0\0", "\"-Infinity\""),
            (b"\xa3a\"b", "\"a\\\"b\""),
            (b"\xc4\x02\xc3\xa9", "\"\u{e9}\""),
            (b"\xa2\xff\0", "{\"hex\":\"ff00\"}"),
            (b"\xc4\x01\xff", "{\"hex\":\"ff\"}"),
            (b"\xd4\x05\xab", "{\"ext\":5,\"hex\":\"ab\"}"),
            (b"\xd7\0\x5a\0\0\x01\x3b\x9a\xc9\xff", "1509949441.999999999"),
            (b"\xc7\x08\0\x5a\0\0\x01\0\0\0\x07", "1509949441.000000007"),
            (b"\xd7\0\x5a\0\0\x01\x3b\x9a\xca\0", "{\"ext\":0,\"hex\":\"5a0000013b9aca00\"}"),
            (b"\x92\x01\x90", "[1,[]]"),
            (b"\x82\xa1a\x80\x01\xc2", "{\"a\":{},\"1\":false}"),
            (b"\x81\x91\xa1a\x01", "{\"91a161\":1}"),
            (b"\x81\xa1\xff\x01", "{\"{\\\"hex\\\":\\\"ff\\\"}\":1}"),
        ] {
            assert_eq!(json(bytes), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_takes_no_more_than_somewhat_more() {
        let long = [&b"\xdb\0\x01\0\0"[..], &[1; 65536]].concat();
        let list = [&b"\xdc\x01\0"[..], &long.repeat(256)].concat();
        for bytes in [long, list] {
            let mut out = Vec::new();
            let mut writer = Writer { out: &mut out, end: 100 };
            writer.value(&bytes);
            assert!(writer.is_over() && out.len() < 1000);
        }
    }
}
