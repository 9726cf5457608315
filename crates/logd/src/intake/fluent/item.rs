//! Values of MessagePack, one head at a time: what a value is, and where it ends.

use rmp::{Marker, decode};

/// How deep values nest.
const DEPTH_MAX: usize = 128;

/// A value, or the head of one whose bytes or values follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item {
    Nil,
    Bool(bool),
    Int(i128),
    Float32(f32),
    Float64(f64),
    /// Of so many bytes.
    Text(usize),
    Binary(usize),
    /// Of a type, and so many bytes.
    Extension(i8, usize),
    /// Of so many values.
    Array(usize),
    /// Of so many keys, each with a value.
    Map(usize),
}

impl Item {
    /// Bytes that follow.
    fn bytes(self) -> usize {
        match self {
            Item::Text(bytes) | Item::Binary(bytes) | Item::Extension(_, bytes) => bytes,
            _ => 0,
        }
    }

    /// Values that follow.
    fn values(self) -> usize {
        match self {
            Item::Array(values) => values,
            Item::Map(keys) => 2 * keys,
            _ => 0,
        }
    }
}

/// Whether a value that begins so is an array.
pub(super) fn begins_array(byte: u8) -> bool {
    matches!(Marker::from_u8(byte), Marker::FixArray(_) | Marker::Array16 | Marker::Array32)
}

/// Reads the head that bytes begin with; gives its length too. None: the rest of it has not come.
///
/// # Errors
///
/// No value begins so.
pub(super) fn head(bytes: &[u8]) -> Result<Option<(Item, usize)>, &'static str> {
    let Some(first) = bytes.first() else { return Ok(None) };
    let mut rest = bytes;
    let length = |length: u32| length as usize;
    // The marker is right for each function, so an error is that bytes are missing.
    let item = match Marker::from_u8(*first) {
        Marker::Reserved => return Err("a value begins with the byte c1"),
        Marker::Null => decode::read_nil(&mut rest).ok().map(|()| Item::Nil),
        Marker::True | Marker::False => decode::read_bool(&mut rest).ok().map(Item::Bool),
        Marker::F32 => decode::read_f32(&mut rest).ok().map(Item::Float32),
        Marker::F64 => decode::read_f64(&mut rest).ok().map(Item::Float64),
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
            decode::read_str_len(&mut rest).ok().map(length).map(Item::Text)
        }
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => {
            decode::read_bin_len(&mut rest).ok().map(length).map(Item::Binary)
        }
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
            decode::read_array_len(&mut rest).ok().map(length).map(Item::Array)
        }
        Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => {
            decode::read_map_len(&mut rest).ok().map(length).map(Item::Map)
        }
        Marker::FixExt1
        | Marker::FixExt2
        | Marker::FixExt4
        | Marker::FixExt8
        | Marker::FixExt16
        | Marker::Ext8
        | Marker::Ext16
        | Marker::Ext32 => {
            let meta = decode::read_ext_meta(&mut rest).ok();
            meta.map(|meta| Item::Extension(meta.typeid, length(meta.size)))
        }
        _ => decode::read_int(&mut rest).ok().map(Item::Int),
    };
    Ok(item.map(|item| (item, bytes.len() - rest.len())))
}

/// Looks for the end of a value of which more and more bytes come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan {
    at: usize,
    /// Values whose heads were not looked at.
    left: usize,
}

impl Default for Scan {
    fn default() -> Scan {
        Scan { at: 0, left: 1 }
    }
}

impl Scan {
    /// How many bytes the value has, if it has no more than there are; otherwise how many it has at least.
    ///
    /// # Errors
    ///
    /// It is no value.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        while self.left > 0 && self.at <= bytes.len() {
            let Some((item, head_bytes)) = head(&bytes[self.at..])? else { break };
            self.at = self.at.saturating_add(head_bytes).saturating_add(item.bytes());
            self.left = (self.left - 1).saturating_add(item.values());
        }
        let least = self.at.saturating_add(self.left);
        // The head of the next value has more bytes than there are.
        Ok(if self.left > 0 { least.max(bytes.len() + 1) } else { least })
    }
}

/// Checks that bytes begin with a whole value that nests no deeper than it may; gives its length.
pub(super) fn check(bytes: &[u8]) -> Result<usize, &'static str> {
    let mut at = 0;
    // Of each value around this one, how many are still to come in it.
    let mut open = vec![1_usize];
    while let Some(left) = open.last_mut() {
        if *left == 0 {
            open.pop();
            continue;
        }
        *left -= 1;
        let (item, head_bytes) = head(&bytes[at..])?.ok_or(CUT)?;
        at += head_bytes + item.bytes();
        if at > bytes.len() {
            return Err(CUT);
        }
        if item.values() > 0 {
            open.push(item.values());
        }
        if open.len() > DEPTH_MAX {
            return Err("values nest too deeply");
        }
    }
    Ok(at)
}

const CUT: &str = "a value ends before its end";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_value_is_found_in_whatever_pieces_it_comes() {
        // [1, "abc", {"k": [nil, h'0102', 1.5]}, ext]
        let value = b"\x94\x01\xa3abc\x81\xa1k\x93\xc0\xc4\x02\x01\x02\xcb\x3f\xf8\0\0\0\0\0\0\xd7\0\0\0\0\0\0\0\0\0";
        assert_eq!(check(value), Ok(value.len()));
        let mut scan = Scan::default();
        for end in 0..value.len() {
            let least = scan.advance(&value[..end]).unwrap();
            assert!((end + 1..=value.len()).contains(&least), "{end}: {least}");
            assert_eq!(check(&value[..end]), Err(CUT));
        }
        assert_eq!(scan.advance(value), Ok(value.len()));
        assert_eq!(Scan::default().advance(&[value, &b"xyz"[..]].concat()), Ok(value.len()));
        // What is announced counts before it comes.
        assert_eq!(Scan::default().advance(b"\xdd\xff\xff\xff\xff"), Ok(0xffff_ffff + 5));
        assert_eq!(Scan::default().advance(b"\xc6\0\x10\0\0"), Ok((1 << 20) + 5));
        assert!(Scan::default().advance(b"\x92\x01\xc1").is_err());
    }

    #[test]
    fn depth_has_a_bound() {
        let nested = |depth: usize| [vec![0x91; depth], vec![0xc0]].concat();
        assert!(check(&nested(DEPTH_MAX - 1)).is_ok());
        assert_eq!(check(&nested(DEPTH_MAX)), Err("values nest too deeply"));
        assert_eq!(check(&nested(1 << 20)), Err("values nest too deeply"));
    }
}
