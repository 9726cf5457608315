//! Whether a line is one JSON value, strictly by RFC 8259, without changing or copying a byte.
//!
//! The parsers that are fast at skipping do not validate what they skip, and those that validate
//! build values that nobody here wants; so this is a validator and nothing else. What the grammar
//! leaves open is decided so (docs/logd.md):
//!
//! - a name may stand in an object more than once;
//! - `\ud800` without its other half is refused, since most readers refuse it;
//! - a number may have any size and precision;
//! - values nest at most as deeply as the caller says, 128 at most;
//! - a byte order mark, bytes after the value, and bytes that are no UTF-8 are refused.
//!
//! Strings and white space are scanned a word at a time (`scan`), which is where the bytes of a log
//! are. Wider steps need instructions that only unsafe code reaches; their seam is that module.

mod fields;
mod scan;

use std::fmt;

pub use fields::{Field, FieldError, FieldType};

use scan::{ByWord, Scan};

/// The deepest nesting that can be asked for: a bit for each level in one register.
pub const DEPTH_MAX: u32 = 128;

/// Why a line is refused, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Bytes before what is wrong.
    pub offset: usize,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong with a line. The words are those of `N` answers and of dead letters.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It ends before the value does.
    Incomplete,
    /// A byte that cannot stand there.
    Syntax,
    /// Bytes after the value.
    Trailing,
    /// A control character in a string.
    Control,
    /// An escape that is none.
    Escape,
    /// An escaped half of a surrogate pair.
    Surrogate,
    /// Bytes that are no UTF-8.
    Utf8,
    /// A number that is none.
    Number,
    /// Nested more deeply than is allowed.
    Depth,
    /// A field that is required is missing.
    Missing,
    /// A field that is required has another type.
    Type,
}

impl Reason {
    /// The word for it.
    pub fn code(self) -> &'static str {
        match self {
            Reason::Incomplete => "incomplete",
            Reason::Syntax => "syntax",
            Reason::Trailing => "trailing",
            Reason::Control => "control",
            Reason::Escape => "escape",
            Reason::Surrogate => "surrogate",
            Reason::Utf8 => "utf8",
            Reason::Number => "number",
            Reason::Depth => "depth",
            Reason::Missing => "missing-field",
            Reason::Type => "field-type",
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason.code(), self.offset)
    }
}

/// What lines have to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    depth_max: u32,
    fields: Vec<Field>,
}

impl Rules {
    /// Values that nest at most `depth_max` deep (cut at [`DEPTH_MAX`]); where fields are required,
    /// objects that have them.
    pub fn new(depth_max: u32, fields: Vec<Field>) -> Rules {
        Rules { depth_max: depth_max.min(DEPTH_MAX), fields }
    }

    /// Looks at a line, which is not to have its line end any more.
    ///
    /// # Errors
    ///
    /// [`Invalid`], with the first thing that is wrong.
    pub fn check(&self, line: &[u8]) -> Result<(), Invalid> {
        if self.fields.is_empty() {
            return Parser::<ByWord, _>::new(line, self.depth_max, Unseen).document();
        }
        let mut watch = fields::Watch::new(&self.fields);
        Parser::<ByWord, _>::new(line, self.depth_max, &mut watch).document()?;
        watch.judge()
    }

    /// As [`check`](Self::check) without the required fields, by the plain twin of the scanner:
    /// what tests and fuzzers compare with.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn check_plainly(&self, line: &[u8]) -> Result<(), Invalid> {
        Parser::<scan::ByByte, _>::new(line, self.depth_max, Unseen).document()
    }
}

/// Who hears of the members of the outermost object.
trait Witness {
    /// A name with its quotes, and the first byte of its value at `offset`.
    fn member(&mut self, name: &[u8], first: u8, offset: usize);
}

/// Nobody.
struct Unseen;

impl Witness for Unseen {
    #[inline]
    fn member(&mut self, _: &[u8], _: u8, _: usize) {}
}

struct Parser<'a, S, W> {
    line: &'a [u8],
    at: usize,
    depth: u32,
    depth_max: u32,
    /// A bit for each level, the innermost lowest: 1 is an object, 0 an array.
    levels: u128,
    witness: W,
    _scan: std::marker::PhantomData<S>,
}

/// What comes next.
enum Next {
    Value,
    Name,
    End,
}

impl<'a, S: Scan, W: Witness> Parser<'a, S, W> {
    fn new(line: &'a [u8], depth_max: u32, witness: W) -> Self {
        let _scan = std::marker::PhantomData;
        Parser { line, at: 0, depth: 0, depth_max, levels: 0, witness, _scan }
    }

    fn document(&mut self) -> Result<(), Invalid> {
        self.skip_space();
        let mut next = self.value()?;
        loop {
            next = match next {
                Next::Value => self.value()?,
                Next::Name => self.name()?,
                Next::End if self.depth == 0 => break,
                Next::End => self.after_value()?,
            };
        }
        self.skip_space();
        if self.at < self.line.len() { self.refuse(Reason::Trailing) } else { Ok(()) }
    }

    /// A value, or the beginning of one that holds others. At its first byte.
    #[inline]
    fn value(&mut self) -> Result<Next, Invalid> {
        match self.peek() {
            Some(b'"') => self.string()?,
            Some(b'{') => return self.open(true),
            Some(b'[') => return self.open(false),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal(b"true")?,
            Some(b'f') => self.literal(b"false")?,
            Some(b'n') => self.literal(b"null")?,
            _ => return self.refuse_here(),
        }
        Ok(Next::End)
    }

    fn open(&mut self, is_object: bool) -> Result<Next, Invalid> {
        if self.depth == self.depth_max {
            return self.refuse(Reason::Depth);
        }
        self.at += 1;
        self.depth += 1;
        self.levels = self.levels << 1 | u128::from(is_object);
        self.skip_space();
        match (self.peek(), is_object) {
            (Some(b'}'), true) | (Some(b']'), false) => self.close(),
            (_, true) => return Ok(Next::Name),
            (_, false) => return Ok(Next::Value),
        }
        Ok(Next::End)
    }

    fn close(&mut self) {
        self.at += 1;
        self.depth -= 1;
        self.levels >>= 1;
    }

    /// A member's name and its colon.
    #[inline]
    fn name(&mut self) -> Result<Next, Invalid> {
        if self.peek() != Some(b'"') {
            return self.refuse_here();
        }
        let start = self.at;
        self.string()?;
        let end = self.at;
        self.skip_space();
        if self.peek() != Some(b':') {
            return self.refuse_here();
        }
        self.at += 1;
        self.skip_space();
        if self.depth == 1
            && let Some(first) = self.peek()
        {
            self.witness.member(&self.line[start..end], first, self.at);
        }
        Ok(Next::Value)
    }

    /// A comma or an end, within an object or an array.
    #[inline]
    fn after_value(&mut self) -> Result<Next, Invalid> {
        self.skip_space();
        let is_object = self.levels & 1 == 1;
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.skip_space();
                Ok(if is_object { Next::Name } else { Next::Value })
            }
            Some(b'}') if is_object => {
                self.close();
                Ok(Next::End)
            }
            Some(b']') if !is_object => {
                self.close();
                Ok(Next::End)
            }
            _ => self.refuse_here(),
        }
    }

    /// A string, at its first quote.
    #[inline]
    fn string(&mut self) -> Result<(), Invalid> {
        self.at += 1;
        loop {
            self.at = S::string(self.line, self.at);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(0x80..) => self.at += self.sequence()?,
                Some(_) => return self.refuse(Reason::Control),
                None => return self.refuse(Reason::Incomplete),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Invalid> {
        match self.line.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => self.unicode_escape(),
            Some(_) => self.refuse(Reason::Escape),
            None => self.refuse_at(self.line.len(), Reason::Incomplete),
        }
    }

    fn unicode_escape(&mut self) -> Result<(), Invalid> {
        let unit = self.code_unit(self.at + 2)?;
        match unit {
            0xdc00..=0xdfff => return self.refuse(Reason::Surrogate),
            0xd800..=0xdbff => {
                let rest = self.line.get(self.at + 6..).unwrap_or_default();
                if !rest.starts_with(b"\\u") {
                    return self.refuse(Reason::Surrogate);
                }
                if !(0xdc00..=0xdfff).contains(&self.code_unit(self.at + 8)?) {
                    return self.refuse(Reason::Surrogate);
                }
                self.at += 12;
            }
            _ => self.at += 6,
        }
        Ok(())
    }

    /// Four hexadecimal digits.
    fn code_unit(&self, at: usize) -> Result<u32, Invalid> {
        let mut unit = 0;
        for place in at..at + 4 {
            let Some(&byte) = self.line.get(place) else {
                return self.refuse_at(self.line.len(), Reason::Incomplete);
            };
            match char::from(byte).to_digit(16) {
                Some(digit) => unit = unit << 4 | digit,
                None => return self.refuse_at(place, Reason::Escape),
            }
        }
        Ok(unit)
    }

    /// The length of the UTF-8 sequence of several bytes that begins here: table 3-7 of the Unicode
    /// Standard, which excludes what is overlong, a surrogate or beyond U+10FFFF.
    fn sequence(&self) -> Result<usize, Invalid> {
        let bytes = &self.line[self.at..];
        let tail = |from: usize, to: usize| {
            bytes.len() >= to && bytes[from..to].iter().all(|byte| byte & 0xc0 == 0x80)
        };
        let second = bytes.get(1).copied().unwrap_or_default();
        let len = match (bytes[0], second) {
            (0xc2..=0xdf, 0x80..=0xbf) => 2,
            (0xe0, 0xa0..=0xbf) | (0xed, 0x80..=0x9f) if tail(2, 3) => 3,
            (0xe1..=0xec | 0xee..=0xef, 0x80..=0xbf) if tail(2, 3) => 3,
            (0xf0, 0x90..=0xbf) | (0xf4, 0x80..=0x8f) if tail(2, 4) => 4,
            (0xf1..=0xf3, 0x80..=0xbf) if tail(2, 4) => 4,
            _ => return self.refuse_at(self.at, Reason::Utf8),
        };
        Ok(len)
    }

    #[inline]
    fn number(&mut self) -> Result<(), Invalid> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
            if let Some(b'0'..=b'9') = self.peek() {
                return self.refuse(Reason::Number);
            }
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// One digit or more.
    #[inline]
    fn digits(&mut self) -> Result<(), Invalid> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        match self.peek() {
            _ if self.at > start => Ok(()),
            None => self.refuse(Reason::Incomplete),
            Some(_) => self.refuse(Reason::Number),
        }
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Invalid> {
        let rest = &self.line[self.at..];
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(());
        }
        let same = rest.iter().zip(word).take_while(|(a, b)| a == b).count();
        self.at += same;
        self.refuse_here()
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        // Mostly there is none.
        if let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at = S::space(self.line, self.at);
        }
    }

    /// For a byte that cannot stand here, or none where one has to.
    #[cold]
    fn refuse_here<T>(&self) -> Result<T, Invalid> {
        let is_end = self.at >= self.line.len();
        self.refuse(if is_end { Reason::Incomplete } else { Reason::Syntax })
    }

    #[cold]
    fn refuse<T>(&self, reason: Reason) -> Result<T, Invalid> {
        self.refuse_at(self.at, reason)
    }

    #[cold]
    fn refuse_at<T>(&self, offset: usize, reason: Reason) -> Result<T, Invalid> {
        Err(Invalid { offset, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: impl AsRef<[u8]>) -> Result<(), (usize, &'static str)> {
        let rules = Rules::new(4, Vec::new());
        let found = rules.check(line.as_ref());
        assert_eq!(found, rules.check_plainly(line.as_ref()), "the scanners differ");
        found.map_err(|invalid| (invalid.offset, invalid.reason.code()))
    }

    #[test]
    fn what_the_grammar_allows() {
        for line in [
            "{}",
            "[]",
            " \t\r\n{ \"a\" : [ 1 , -0 , 1.5e+10 , 0.0E-9 ] }  ",
            "\"\"",
            "null",
            "true",
            "false",
            "-12",
            r#""\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00""#,
            "\"\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}\"",
            r#"{"a":1,"a":2}"#,
            "123456789012345678901234567890.5e999",
            "[[[[]]]]",
            r#"["a string that is longer than a word, and then some", 1]"#,
        ] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
    }

    #[test]
    fn what_it_does_not() {
        for (line, offset, code) in [
            ("", 0, "incomplete"),
            ("  ", 2, "incomplete"),
            ("{", 1, "incomplete"),
            ("[1,", 3, "incomplete"),
            ("[1,]", 3, "syntax"),
            ("{\"a\":1,}", 7, "syntax"),
            ("{\"a\" 1}", 5, "syntax"),
            ("{a:1}", 1, "syntax"),
            ("[1}", 2, "syntax"),
            ("{\"a\":1]", 6, "syntax"),
            ("{\"a\":", 5, "incomplete"),
            ("{} {}", 3, "trailing"),
            ("1 2", 2, "trailing"),
            ("\u{feff}{}", 0, "syntax"),
            ("'a'", 0, "syntax"),
            ("tru", 3, "incomplete"),
            ("trux", 3, "syntax"),
            ("NaN", 0, "syntax"),
            ("01", 1, "number"),
            ("-", 1, "incomplete"),
            ("-a", 1, "number"),
            ("1.", 2, "incomplete"),
            ("1.e1", 2, "number"),
            ("1e+", 3, "incomplete"),
            (".5", 0, "syntax"),
            ("+1", 0, "syntax"),
            ("\"abc", 4, "incomplete"),
            ("\"a\tb\"", 2, "control"),
            ("\"a\0b\"", 2, "control"),
            (r#""\x""#, 1, "escape"),
            (r#""\u12g4""#, 5, "escape"),
            (r#""\u12"#, 5, "incomplete"),
            (r#""\"#, 2, "incomplete"),
            (r#""\ud800""#, 1, "surrogate"),
            (r#""\udc00\ud800""#, 1, "surrogate"),
            (r#""\ud800\u0041""#, 1, "surrogate"),
            ("[[[[[]]]]]", 4, "depth"),
        ] {
            assert_eq!(check(line), Err((offset, code)), "{line}");
        }
    }

    #[test]
    fn bytes_that_are_no_utf8() {
        let sequences: [&[u8]; 14] = [
            b"\x80",
            b"\xbf",
            b"\xc0\x80",
            b"\xc1\xbf",
            b"\xc2",
            b"\xe0\x9f\xbf",
            b"\xe1\x80",
            b"\xed\xa0\x80",
            b"\xf0\x8f\xbf\xbf",
            b"\xf1\x80\x80",
            b"\xf4\x90\x80\x80",
            b"\xf5",
            b"\xff",
            b"\xc2\x41",
        ];
        for sequence in sequences {
            let line = [b"\"ab", sequence, b"\""].concat();
            assert_eq!(check(&line), Err((3, "utf8")), "{sequence:x?}");
        }
    }

    /// What is wrong is found wherever it stands in a word, and nothing beyond the end is read.
    #[test]
    fn every_place_in_a_word() {
        for len in 0..40 {
            let clean = "x".repeat(len);
            assert_eq!(check(format!("\"{clean}\"")), Ok(()));
            assert_eq!(check(format!("\"{clean}")), Err((len + 1, "incomplete")));
            assert_eq!(check(format!("\"{clean}\u{1f}\"")), Err((len + 1, "control")));
            assert_eq!(check(format!("\"{clean}\\q\"")), Err((len + 1, "escape")));
            assert_eq!(check(format!("\"{clean}\u{e9}{clean}\"")), Ok(()));
            assert_eq!(check(format!("{}1", " ".repeat(len))), Ok(()));
            assert_eq!(check(format!("{}x", " ".repeat(len))), Err((len, "syntax")));
        }
    }

    #[test]
    fn the_deepest_nesting_is_the_registers() {
        let rules = Rules::new(u32::MAX, Vec::new());
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(rules.check(nested(128).as_bytes()), Ok(()));
        let invalid = rules.check(nested(129).as_bytes()).unwrap_err();
        assert_eq!((invalid.offset, invalid.reason), (128, Reason::Depth));
        let mixed = "{\"a\":[".repeat(64) + &"]}".repeat(64);
        assert_eq!(rules.check(mixed.as_bytes()), Ok(()));
    }
}
