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
//! Strings are scanned by vectors of 64 bytes where the processor has some, and else a word at a
//! time (`scan`); the grammar is `parser`.

mod fields;
mod parser;
mod scan;

use std::fmt;

pub use fields::{Field, FieldError, FieldType};

use parser::{Parser, Unseen};
use scan::{ByBlock, ByByte, ByWord};

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

/// How runs of plain bytes are scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanner {
    /// 64 bytes at a time, by vectors.
    ByBlock,
    /// Eight bytes at a time, by arithmetic.
    ByWord,
    /// A byte at a time.
    ByByte,
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
        self.check_first(line, line.len())
    }

    /// As [`check`](Self::check), of the line that is the first `len` bytes of these: sooner done
    /// where others lie behind it.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    ///
    /// # Panics
    ///
    /// When there are less than `len` bytes.
    #[inline]
    pub fn check_first(&self, bytes: &[u8], len: usize) -> Result<(), Invalid> {
        if self.fields.is_empty() {
            return self.check_by(Scanner::ByBlock, bytes, len);
        }
        let mut watch = fields::Watch::new(&self.fields);
        Parser::<ByBlock, _>::new(bytes, len, self.depth_max, &mut watch).document()?;
        watch.judge()
    }

    /// As [`check_first`](Self::check_first) without the required fields, by a scanner of choice:
    /// what tests, fuzzers and measurements compare with.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    ///
    /// # Panics
    ///
    /// When there are less than `len` bytes.
    #[inline]
    pub fn check_by(&self, scanner: Scanner, bytes: &[u8], len: usize) -> Result<(), Invalid> {
        let depth = self.depth_max;
        match scanner {
            Scanner::ByBlock => Parser::<ByBlock, _>::new(bytes, len, depth, Unseen).document(),
            Scanner::ByWord => Parser::<ByWord, _>::new(bytes, len, depth, Unseen).document(),
            Scanner::ByByte => Parser::<ByByte, _>::new(bytes, len, depth, Unseen).document(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: impl AsRef<[u8]>) -> Result<(), (usize, &'static str)> {
        let rules = Rules::new(4, Vec::new());
        let line = line.as_ref();
        let found = rules.check(line);
        for scanner in [Scanner::ByWord, Scanner::ByByte] {
            assert_eq!(found, rules.check_by(scanner, line, line.len()), "{scanner:?}");
        }
        // What lies behind it changes nothing.
        for behind in ["\n\"}", "\n  {\"a\":\"b\"}\n[1,2,3]\n\"a string that goes on behind\"\n"] {
            let bytes = [line, behind.as_bytes(), &[b'x'; 64]].concat();
            assert_eq!(found, rules.check_first(&bytes, line.len()), "{behind:?}");
        }
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
