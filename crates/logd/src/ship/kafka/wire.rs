//! The parts that Kafka's messages are made of: numbers, big-endian, and strings and lists with their lengths.

/// Adds parts to a message.
pub(super) trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn i8(&mut self, number: i8) {
        self.put(&number.to_be_bytes());
    }

    fn i16(&mut self, number: i16) {
        self.put(&number.to_be_bytes());
    }

    fn i32(&mut self, number: i32) {
        self.put(&number.to_be_bytes());
    }

    fn i64(&mut self, number: i64) {
        self.put(&number.to_be_bytes());
    }

    /// A string of at most 32,767 bytes.
    fn string(&mut self, text: &str) {
        self.i16(text.len() as i16);
        self.put(text.as_bytes());
    }

    /// Bytes.
    fn bytes(&mut self, bytes: &[u8]) {
        self.i32(bytes.len() as i32);
        self.put(bytes);
    }

    /// A string that is not there.
    fn no_string(&mut self) {
        self.i16(-1);
    }

    /// A number in as few bytes as it needs, seven bits in each, with the sign in the lowest bit.
    fn varint(&mut self, number: i64) {
        let mut rest = zigzag(number);
        while rest > 0x7f {
            self.put(&[rest as u8 | 0x80]);
            rest >>= 7;
        }
        self.put(&[rest as u8]);
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// Returns how many bytes [`Put::varint`] adds.
pub(super) fn varint_len(number: i64) -> usize {
    let bits = 64 - zigzag(number).leading_zeros() as usize;
    bits.max(1).div_ceil(7)
}

/// Takes parts from a message. Each is nothing if the message is too short.
pub(super) struct Get<'a>(pub(super) &'a [u8]);

impl<'a> Get<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (own, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(own)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(super) fn i8(&mut self) -> Option<i8> {
        self.array().map(i8::from_be_bytes)
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// A string. One that is not there is empty.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        match self.i16()? {
            -1 => Some(""),
            len => std::str::from_utf8(self.take(usize::try_from(len).ok()?)?).ok(),
        }
    }

    /// Bytes. Those that are not there are empty.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        match self.i32()? {
            -1 => Some(&[]),
            len => self.take(usize::try_from(len).ok()?),
        }
    }

    /// A number as [`Put::varint`] adds it.
    pub(super) fn varint(&mut self) -> Option<i64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.i8()? as u8;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some((number >> 1) as i64 ^ -((number & 1) as i64));
            }
        }
        None
    }

    /// Bytes with such a number as their length. Those that are not there are nothing too.
    pub(super) fn sized(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.take(len)
    }

    /// A list. One that is not there is empty.
    pub(super) fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = self.i32()?;
        // The list grows with what is there, not with what its length says.
        (0..count.max(0)).map(|_| one(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_kafka_has_them() {
        for (number, bytes) in [
            (0, &[0][..]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[126]),
            (64, &[128, 1]),
            (-64, &[127]),
            (-65, &[129, 1]),
            (300, &[216, 4]),
        ] {
            let mut out = Vec::new();
            out.varint(number);
            assert_eq!(out, bytes, "{number}");
        }
        for number in [0, 1, -1, 63, 64, 8191, 8192, -8193, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            out.varint(number);
            assert_eq!(varint_len(number), out.len(), "{number}");
            assert_eq!(Get(&out).varint(), Some(number));
            assert_eq!(Get(&out[1..]).varint().filter(|_| out.len() == 1), None);
        }
    }

    #[test]
    fn a_message_that_is_too_short_has_nothing() {
        let mut out = Vec::new();
        out.i32(2);
        out.string("a");
        out.no_string();
        let read = |bytes| Get(bytes).list(|get| get.string().map(str::to_owned));
        assert_eq!(read(&out), Some(vec!["a".to_owned(), String::new()]));
        for len in 0..out.len() {
            assert_eq!(read(&out[..len]), None, "{len}");
        }
        assert_eq!(read(&[0x7f, 0xff, 0xff, 0xff]), None);
        assert_eq!(read(&[0xff; 4]), Some(Vec::new()));
    }
}
