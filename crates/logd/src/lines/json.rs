//! Checks that a line is one JSON value, strictly by RFC 8259, without changing or copying a byte.
//!
//! Parsers that skip values fast do not validate them, and parsers that validate build values, which the
//! daemon does not need. This is a validator and nothing else. It decides what the grammar leaves open
//! (docs/reference/logd.md):
//!
//! - An object may have the same name more than once.
//! - `\ud800` without its other half is refused, since most readers refuse it.
//! - A number may have any size and precision.
//! - Values nest at most as deeply as the caller says, at most 128 levels.
//! - A byte order mark, bytes after the value, and bytes that are not UTF-8 are refused.
//!
//! `scan` skips plain bytes of strings, 64 at a time; `parser` has the grammar.

mod fields;
mod invalid;
mod members;
mod parser;
mod scan;

pub use fields::{Field, FieldError, FieldType};
pub use invalid::{Invalid, Reason};
pub(crate) use members::{any_member, text_of};
pub use parser::DEPTH_MAX;

use parser::{Parser, Unseen};
use scan::{ByBlock, ByByte, ByWord};

/// How plain bytes are scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanner {
    /// 64 bytes at a time, by vectors.
    ByBlock,
    /// Eight bytes at a time, by arithmetic.
    ByWord,
    /// A byte at a time.
    ByByte,
}

/// The rules that lines have to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    depth_max: u32,
    fields: Vec<Field>,
}

impl Rules {
    /// Allows values that nest at most `depth_max` deep, and never deeper than [`DEPTH_MAX`]. If fields are
    /// required, a line has to be an object that has them.
    pub fn new(depth_max: u32, fields: Vec<Field>) -> Rules {
        Rules { depth_max: depth_max.min(DEPTH_MAX), fields }
    }

    /// Checks a line without its line end.
    ///
    /// # Errors
    ///
    /// [`Invalid`] says what is wrong first.
    pub fn check(&self, line: &[u8]) -> Result<(), Invalid> {
        self.check_first(line, line.len())
    }

    /// Checks the line in the first `len` bytes. It is faster than [`check`](Self::check) if more bytes follow.
    ///
    /// # Errors
    ///
    /// See [`check`](Self::check).
    ///
    /// # Panics
    ///
    /// If there are fewer than `len` bytes.
    #[inline]
    pub fn check_first(&self, bytes: &[u8], len: usize) -> Result<(), Invalid> {
        if self.fields.is_empty() {
            return self.check_by(Scanner::ByBlock, bytes, len);
        }
        let mut watch = fields::Watch::new(&self.fields);
        Parser::<ByBlock, _>::new(bytes, len, self.depth_max, &mut watch).document()?;
        watch.judge()
    }

    /// Checks as [`check_first`](Self::check_first) does, but by the given scanner and without required fields.
    /// Tests, fuzzers and measurements compare with it.
    ///
    /// # Errors
    ///
    /// See [`check`](Self::check).
    ///
    /// # Panics
    ///
    /// If there are fewer than `len` bytes.
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
