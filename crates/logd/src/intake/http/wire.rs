//! The wire format of protobuf: the fields of a message, one after the other, without copies.
//!
//! Decoders that build values take a hundred times the bytes of a message of empty ones. This one builds nothing, so
//! its memory is what the caller makes of the fields. It knows no schema.

use prost::encoding::{self, DecodeContext, WireType};

use super::answer::Refusal;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    /// A string, bytes, or a message.
    Bytes(&'a [u8]),
}

/// The fields of a message. A caller passes over numbers that it does not know, as the format asks for.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Fields<'a> {
        Fields(message)
    }

    fn next_field(&mut self) -> Result<Option<(u32, Value<'a>)>, prost::DecodeError> {
        let rest = &mut self.0;
        while !rest.is_empty() {
            let (number, wire) = encoding::decode_key(rest)?;
            let value = match wire {
                WireType::Varint => Value::Varint(encoding::decode_varint(rest)?),
                WireType::SixtyFourBit => Value::Fixed64(u64::from_le_bytes(first(rest)?)),
                WireType::ThirtyTwoBit => Value::Fixed32(u32::from_le_bytes(first(rest)?)),
                WireType::LengthDelimited => {
                    let length = usize::try_from(encoding::decode_varint(rest)?);
                    let bytes = length.ok().and_then(|length| rest.split_at_checked(length));
                    let (bytes, behind) = bytes.ok_or_else(short)?;
                    *rest = behind;
                    Value::Bytes(bytes)
                }
                // No field of today is a group.
                WireType::StartGroup | WireType::EndGroup => {
                    encoding::skip_field(wire, number, rest, DecodeContext::default())?;
                    continue;
                }
            };
            return Ok(Some((number, value)));
        }
        Ok(None)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_field() {
            Ok(field) => field.map(Ok),
            Err(error) => {
                self.0 = &[];
                Some(Err(Refusal::malformed(error)))
            }
        }
    }
}

fn first<const BYTES: usize>(rest: &mut &[u8]) -> Result<[u8; BYTES], prost::DecodeError> {
    let (bytes, behind) = rest.split_first_chunk().ok_or_else(short)?;
    *rest = behind;
    Ok(*bytes)
}

/// prost makes its errors itself: here, one of a message that is too short.
fn short() -> prost::DecodeError {
    encoding::decode_varint(&mut &[][..]).expect_err("there is none in no bytes")
}

/// The text of a string, which has to be UTF-8.
pub(super) fn text(bytes: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(bytes).map_err(|_| Refusal::malformed("a string is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_groups_are_passed_over() {
        // 1: varint 150; 2: "ab"; 3: fixed32 1; 4: fixed64 2; a group 5 with a varint; 1 again.
        let mut bytes = b"\x08\x96\x01\x12\x02ab\x1d\x01\0\0\0\x21\x02\0\0\0\0\0\0\0".to_vec();
        bytes.extend_from_slice(b"\x2b\x08\x01\x2c\x08\x01");
        let fields: Vec<_> = Fields::of(&bytes).map(Result::unwrap).collect();
        let expected = [
            (1, Value::Varint(150)),
            (2, Value::Bytes(b"ab")),
            (3, Value::Fixed32(1)),
            (4, Value::Fixed64(2)),
            (1, Value::Varint(1)),
        ];
        assert_eq!(fields, expected);
        for cut in 1..bytes.len() {
            // It ends, in any case, and never reads beyond.
            assert!(Fields::of(&bytes[..cut]).count() <= 6);
        }
    }

    #[test]
    fn what_is_none_ends_with_an_error() {
        let groups = b"\x0b".repeat(100_000);
        for bytes in [
            &b"\x08"[..],
            b"\x12\x05ab",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x0c",
            b"\x0e\x01",
            b"\x00\x01",
            b"\x1d\x01\0\0",
            &groups,
        ] {
            let fields: Vec<_> = Fields::of(bytes).collect();
            assert!(matches!(fields[..], [Err(Refusal::Malformed(_))]), "{bytes:?}: {fields:?}");
        }
    }
}
