//! The grammar of JSON: what may come next in a line, and what is wrong with it.
//!
//! The scanner (`scan`) skips plain bytes; the parser looks at the bytes between them, and never looks back.
//! The reason for a refusal is kept in the parser, so that each step returns one small value. No values are
//! built.

use super::{
    invalid::{Invalid, Reason},
    scan::Scan,
};

/// The largest limit of nesting: one bit for each level, in one register.
pub const DEPTH_MAX: u32 = 128;

/// Gets the members of the outermost object.
pub(super) trait Witness {
    /// Takes a name with its quotes, and the first byte of its value, which is at `offset`. Returns whether to go on.
    fn member(&mut self, name: &[u8], first: u8, offset: usize) -> bool;
}

/// Ignores the members.
pub(super) struct Unseen;

impl Witness for Unseen {
    #[inline]
    fn member(&mut self, _: &[u8], _: u8, _: usize) -> bool {
        true
    }
}

pub(super) struct Parser<'a, S, W> {
    line: &'a [u8],
    /// The line and the bytes behind it, so that a scanner can read whole blocks.
    bytes: &'a [u8],
    depth: u32,
    depth_max: u32,
    /// A bit for each level, the innermost lowest: 1 is an object, 0 an array.
    levels: u128,
    witness: W,
    scan: S,
    /// What is wrong, if anything was refused.
    invalid: Invalid,
}

/// The line is refused; the parser has the reason.
struct Refused;

/// The place of the next byte. Steps return it, because a field would make each step wait for the memory that
/// the step before wrote.
type Place = Result<usize, Refused>;

impl<'a, S: Scan, W: Witness> Parser<'a, S, W> {
    /// Parses the line in the first `len` bytes.
    pub(super) fn new(bytes: &'a [u8], len: usize, depth_max: u32, witness: W) -> Self {
        let invalid = Invalid { offset: 0, reason: Reason::Incomplete };
        let (line, scan) = (&bytes[..len], S::default());
        Parser { line, bytes, depth: 0, depth_max, levels: 0, witness, scan, invalid }
    }

    /// Checks that the line is one document.
    #[inline]
    pub(super) fn document(mut self) -> Result<(), Invalid> {
        match self.values() {
            Ok(end) if end == self.line.len() => Ok(()),
            Ok(end) => Err(Invalid { offset: end, reason: Reason::Trailing }),
            Err(Refused) => Err(self.invalid),
        }
    }

    /// Takes the outermost value, all values in it, and the white space around it.
    #[inline(always)]
    fn values(&mut self) -> Place {
        let mut at = self.skip_space(0);
        loop {
            at = match self.byte(at) {
                b'"' => self.string(at)?,
                bracket @ (b'{' | b'[') => {
                    at = self.open(at)?;
                    // In ASCII, the closing bracket is two after the opening one.
                    if self.byte(at) != bracket + 2 {
                        at = if bracket == b'{' { self.name(at)? } else { at };
                        continue;
                    }
                    self.close(at)
                }
                b'-' | b'0'..=b'9' => self.number(at)?,
                b't' => self.literal(at, b"true")?,
                b'f' => self.literal(at, b"false")?,
                b'n' => self.literal(at, b"null")?,
                _ => return self.refuse_here(at),
            };
            at = match self.next(at)? {
                Next::Value(at) => at,
                Next::End(at) => return Ok(at),
            };
        }
    }

    /// After a value: finds the start of the next one.
    #[inline(always)]
    fn next(&mut self, mut at: usize) -> Result<Next, Refused> {
        loop {
            at = self.skip_space(at);
            if self.depth == 0 {
                return Ok(Next::End(at));
            }
            match (self.byte(at), self.levels & 1) {
                (b',', 1) => {
                    let name = self.skip_space(at + 1);
                    return self.name(name).map(Next::Value);
                }
                (b',', _) => return Ok(Next::Value(self.skip_space(at + 1))),
                (b'}', 1) | (b']', 0) => at = self.close(at),
                _ => return self.refuse_here(at),
            }
        }
    }

    /// Takes the opening bracket of an object or an array, and the white space after it.
    #[inline]
    fn open(&mut self, at: usize) -> Place {
        if self.depth == self.depth_max {
            return self.refuse(at, Reason::Depth);
        }
        self.depth += 1;
        self.levels = self.levels << 1 | u128::from(self.byte(at) == b'{');
        Ok(self.skip_space(at + 1))
    }

    #[inline]
    fn close(&mut self, at: usize) -> usize {
        self.depth -= 1;
        self.levels >>= 1;
        at + 1
    }

    /// Takes a member's name and its colon, up to its value.
    #[inline(always)]
    fn name(&mut self, start: usize) -> Place {
        if self.byte(start) != b'"' {
            return self.refuse_here(start);
        }
        let end = self.string(start)?;
        let colon = self.skip_space(end);
        if self.byte(colon) != b':' {
            return self.refuse_here(colon);
        }
        let value = self.skip_space(colon + 1);
        if self.depth == 1
            && value < self.line.len()
            && !self.witness.member(&self.line[start..end], self.line[value], value)
        {
            // The witness has what it sought. Nobody asks for a reason then.
            return Err(Refused);
        }
        Ok(value)
    }

    /// Takes a string, from its first quote.
    #[inline(always)]
    fn string(&mut self, start: usize) -> Place {
        let mut at = start + 1;
        loop {
            at = self.scan.string(self.bytes, at);
            at = match self.line.get(at) {
                Some(b'"') => return Ok(at + 1),
                Some(b'\\') => self.escape(at)?,
                Some(0x80..) => self.sequence(at)?,
                Some(_) => return self.refuse(at, Reason::Control),
                None => return self.refuse(self.line.len(), Reason::Incomplete),
            };
        }
    }

    fn escape(&mut self, at: usize) -> Place {
        match self.line.get(at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
            Some(b'u') => self.unicode_escape(at),
            Some(_) => self.refuse(at, Reason::Escape),
            None => self.refuse(self.line.len(), Reason::Incomplete),
        }
    }

    fn unicode_escape(&mut self, at: usize) -> Place {
        match self.code_unit(at + 2)? {
            0xdc00..=0xdfff => self.refuse(at, Reason::Surrogate),
            0xd800..=0xdbff => {
                let rest = self.line.get(at + 6..).unwrap_or_default();
                if !rest.starts_with(b"\\u")
                    || !(0xdc00..=0xdfff).contains(&self.code_unit(at + 8)?)
                {
                    return self.refuse(at, Reason::Surrogate);
                }
                Ok(at + 12)
            }
            _ => Ok(at + 6),
        }
    }

    /// Takes four hexadecimal digits.
    fn code_unit(&mut self, at: usize) -> Result<u32, Refused> {
        let mut unit = 0;
        for place in at..at + 4 {
            let Some(&byte) = self.line.get(place) else {
                return self.refuse(self.line.len(), Reason::Incomplete);
            };
            match char::from(byte).to_digit(16) {
                Some(digit) => unit = unit << 4 | digit,
                None => return self.refuse(place, Reason::Escape),
            }
        }
        Ok(unit)
    }

    /// Takes a UTF-8 sequence of several bytes, by table 3-7 of the Unicode Standard. The table excludes
    /// overlong sequences, surrogates, and code points above U+10FFFF.
    fn sequence(&mut self, at: usize) -> Place {
        let bytes = &self.line[at..];
        let tail = |from: usize, to: usize| {
            bytes.len() >= to && bytes[from..to].iter().all(|byte| byte & 0xc0 == 0x80)
        };
        let second = bytes.get(1).copied().unwrap_or_default();
        match (bytes[0], second) {
            (0xc2..=0xdf, 0x80..=0xbf) => Ok(at + 2),
            (0xe0, 0xa0..=0xbf) | (0xed, 0x80..=0x9f) if tail(2, 3) => Ok(at + 3),
            (0xe1..=0xec | 0xee..=0xef, 0x80..=0xbf) if tail(2, 3) => Ok(at + 3),
            (0xf0, 0x90..=0xbf) | (0xf4, 0x80..=0x8f) if tail(2, 4) => Ok(at + 4),
            (0xf1..=0xf3, 0x80..=0xbf) if tail(2, 4) => Ok(at + 4),
            _ => self.refuse(at, Reason::Utf8),
        }
    }

    #[inline]
    fn number(&mut self, start: usize) -> Place {
        let mut at = start + usize::from(self.byte(start) == b'-');
        if self.byte(at) == b'0' {
            at += 1;
            if self.byte(at).is_ascii_digit() {
                return self.refuse(at, Reason::Number);
            }
        } else {
            at = self.digits(at)?;
        }
        if self.byte(at) == b'.' {
            at = self.digits(at + 1)?;
        }
        if let b'e' | b'E' = self.byte(at) {
            let is_signed = matches!(self.byte(at + 1), b'+' | b'-');
            at = self.digits(at + 1 + usize::from(is_signed))?;
        }
        Ok(at)
    }

    /// Takes one digit or more.
    #[inline]
    fn digits(&mut self, start: usize) -> Place {
        let mut at = start;
        while self.byte(at).is_ascii_digit() {
            at += 1;
        }
        match at {
            _ if at > start => Ok(at),
            _ if at >= self.line.len() => self.refuse(at, Reason::Incomplete),
            _ => self.refuse(at, Reason::Number),
        }
    }

    #[inline]
    fn literal(&mut self, at: usize, word: &[u8]) -> Place {
        let rest = &self.line[at..];
        if rest.starts_with(word) {
            return Ok(at + word.len());
        }
        let same = rest.iter().zip(word).take_while(|(a, b)| a == b).count();
        self.refuse_here(at + same)
    }

    /// A byte of the line; after its end a zero, which no rule accepts.
    #[inline(always)]
    fn byte(&self, at: usize) -> u8 {
        self.line.get(at).copied().unwrap_or_default()
    }

    #[inline(always)]
    fn skip_space(&self, at: usize) -> usize {
        // Most often there is no white space.
        if self.byte(at) > b' ' { at } else { S::space(self.line, at) }
    }

    /// Refuses a byte that is not allowed here, or the end of the line.
    #[cold]
    fn refuse_here<T>(&mut self, at: usize) -> Result<T, Refused> {
        let is_end = at >= self.line.len();
        self.refuse(at, if is_end { Reason::Incomplete } else { Reason::Syntax })
    }

    #[cold]
    fn refuse<T>(&mut self, offset: usize, reason: Reason) -> Result<T, Refused> {
        self.invalid = Invalid { offset, reason };
        Err(Refused)
    }
}

/// What comes after a value.
enum Next {
    Value(usize),
    /// No value: the document ends.
    End(usize),
}
