//! Finds members of an object in a line that was validated when it was stored.
//!
//! It goes through the grammar as the validator does, so it builds no values, and a line that is no JSON has no members
//! after the place where it is wrong.

use std::borrow::Cow;

use super::{
    parser::{DEPTH_MAX, Parser, Witness},
    scan::ByBlock,
};

/// Whether `is_it` holds for any member of an object. It gets the name with its quotes, and the bytes from the value
/// on. A value that is no object has no members.
pub(crate) fn any_member(object: &[u8], is_it: impl FnMut(&[u8], &[u8]) -> bool) -> bool {
    let mut seeker = Seeker { object, is_it, is_found: false };
    // It ends early at the member that was sought.
    let _ = Parser::<ByBlock, _>::new(object, object.len(), DEPTH_MAX, &mut seeker).document();
    seeker.is_found
}

/// Returns what a string means, from its bytes with the quotes. Returns nothing if it is no string.
pub(crate) fn text_of(quoted: &[u8]) -> Option<Cow<'_, [u8]>> {
    let text = quoted.get(1..quoted.len().saturating_sub(1))?;
    if memchr::memchr(b'\\', text).is_none() {
        return Some(Cow::Borrowed(text));
    }
    // Escapes are rare in names and in short values, so this may be slow.
    let text = serde_json::from_slice::<String>(quoted).ok()?;
    Some(Cow::Owned(text.into_bytes()))
}

struct Seeker<'a, F> {
    object: &'a [u8],
    is_it: F,
    is_found: bool,
}

impl<F: FnMut(&[u8], &[u8]) -> bool> Witness for &mut Seeker<'_, F> {
    fn member(&mut self, name: &[u8], _: u8, offset: usize) -> bool {
        self.is_found = (self.is_it)(name, &self.object[offset..]);
        !self.is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(line: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let note = |name: &[u8], rest: &[u8]| {
            let name = String::from_utf8(text_of(name).unwrap().into_owned()).unwrap();
            found.push((name, String::from_utf8(rest.to_vec()).unwrap()));
            false
        };
        assert!(!any_member(line.as_bytes(), note));
        found
    }

    #[test]
    fn only_the_members_of_the_outermost_object_are_seen() {
        let line = r#" {"a" : {"b":1}, "\u0063": ["x",{"d":2}],"a":3}"#;
        let rest = |at| line[at..].to_owned();
        let expected = [("a", 8), ("c", 27), ("a", 45)];
        assert_eq!(members(line), expected.map(|(name, at)| (name.to_owned(), rest(at))));
        for line in ["[{\"a\":1}]", "1", "", "{", "{}", "\"a\""] {
            assert_eq!(members(line), [], "{line}");
        }
    }

    #[test]
    fn a_line_that_is_no_json_has_the_members_before_its_fault() {
        assert_eq!(members(r#"{"a":1 "b":2}"#).len(), 1);
        // What is sought ends the search, so nothing behind it is looked at.
        assert!(any_member(b"{\"a\":1,x", |name, _| name == b"\"a\""));
    }
}
