//! Required fields: members of the outermost object, with their types.
//!
//! The first byte of a value tells its type, so nothing is parsed twice. If a name occurs more than once, each
//! of its values has to have the type, because readers differ in which value they take.

use std::{fmt, str::FromStr};

use super::{
    invalid::{Invalid, Reason},
    members::text_of,
    parser::Witness,
};

/// A field that each line has to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    name: String,
    kind: FieldType,
}

/// The type of a required field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// Any value, null among them.
    Any,
    /// A string.
    String,
    /// A number.
    Number,
    /// True or false.
    Bool,
    /// An object.
    Object,
    /// An array.
    Array,
}

impl FieldType {
    const NAMES: [(&'static str, FieldType); 6] = [
        ("any", FieldType::Any),
        ("string", FieldType::String),
        ("number", FieldType::Number),
        ("bool", FieldType::Bool),
        ("object", FieldType::Object),
        ("array", FieldType::Array),
    ];

    /// Whether a value that begins with this byte is of this type.
    fn begins_with(self, first: u8) -> bool {
        match self {
            FieldType::Any => true,
            FieldType::String => first == b'"',
            FieldType::Number => first == b'-' || first.is_ascii_digit(),
            FieldType::Bool => first == b't' || first == b'f',
            FieldType::Object => first == b'{',
            FieldType::Array => first == b'[',
        }
    }
}

/// The text is not a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError(String);

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<&str> = FieldType::NAMES.iter().map(|(name, _)| *name).collect();
        write!(f, "field {:?}: expected NAME or NAME:TYPE with {}", self.0, types.join(", "))
    }
}

impl std::error::Error for FieldError {}

impl FromStr for Field {
    type Err = FieldError;

    /// Reads `NAME` or `NAME:TYPE`. A name with a colon in it needs its type.
    fn from_str(text: &str) -> Result<Field, FieldError> {
        let error = || FieldError(text.to_owned());
        let (name, kind) = match text.rsplit_once(':') {
            Some((name, kind)) => {
                let mut names = FieldType::NAMES.iter();
                let (_, kind) = names.find(|(word, _)| *word == kind).ok_or_else(error)?;
                (name, *kind)
            }
            None => (text, FieldType::Any),
        };
        if name.is_empty() {
            return Err(error());
        }
        Ok(Field { name: name.to_owned(), kind })
    }
}

/// The required fields seen in one line.
pub(super) struct Watch<'a> {
    fields: &'a [Field],
    seen: Vec<bool>,
    wrong_at: Option<usize>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(fields: &'a [Field]) -> Watch<'a> {
        Watch { fields, seen: vec![false; fields.len()], wrong_at: None }
    }

    pub(super) fn judge(self) -> Result<(), Invalid> {
        if let Some(offset) = self.wrong_at {
            return Err(Invalid { offset, reason: Reason::Type });
        }
        match self.seen.iter().all(|seen| *seen) {
            true => Ok(()),
            false => Err(Invalid { offset: 0, reason: Reason::Missing }),
        }
    }

    fn named(&mut self, name: &[u8], first: u8, offset: usize) {
        for (field, seen) in self.fields.iter().zip(&mut self.seen) {
            if field.name.as_bytes() == name {
                *seen = true;
                if !field.kind.begins_with(first) {
                    self.wrong_at = self.wrong_at.or(Some(offset));
                }
            }
        }
    }
}

impl Witness for &mut Watch<'_> {
    fn member(&mut self, quoted: &[u8], first: u8, offset: usize) -> bool {
        if let Some(name) = text_of(quoted) {
            self.named(&name, first, offset);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::json::Rules;

    fn check(fields: &[&str], line: &str) -> Result<(), (usize, &'static str)> {
        let fields = fields.iter().map(|field| field.parse().unwrap()).collect();
        let found = Rules::new(8, fields).check(line.as_bytes());
        found.map_err(|invalid| (invalid.offset, invalid.reason.code()))
    }

    #[test]
    fn fields_are_found_at_the_top_and_nowhere_else() {
        let fields = ["ts:string", "n:number"];
        assert_eq!(check(&fields, r#"{"n": -1, "x": {"ts": 5}, "ts": "now"}"#), Ok(()));
        assert_eq!(check(&fields, r#"{"n":1,"x":{"ts":"now"}}"#), Err((0, "missing-field")));
        assert_eq!(check(&fields, r#"[{"n":1,"ts":"now"}]"#), Err((0, "missing-field")));
        assert_eq!(check(&fields, "{}"), Err((0, "missing-field")));
        assert_eq!(check(&fields, "{"), Err((1, "incomplete")), "syntax first");
    }

    #[test]
    fn types_are_those_of_the_values() {
        let values = [
            ("string", r#""a""#),
            ("number", "0"),
            ("bool", "false"),
            ("object", "{}"),
            ("array", "[]"),
            ("null", "null"),
        ];
        for (kind, _) in &values[..5] {
            for (other, value) in values {
                let found = check(&[&format!("a:{kind}")], &format!(r#"{{"a":{value}}}"#));
                let expected = if *kind == other { Ok(()) } else { Err((5, "field-type")) };
                assert_eq!(found, expected, "{value} as {kind}");
            }
        }
        assert_eq!(check(&["a"], r#"{"a":null}"#), Ok(()));
    }

    #[test]
    fn a_name_is_what_it_means_and_each_of_its_values_counts() {
        assert_eq!(check(&["ts:string"], r#"{"\u0074s":"now"}"#), Ok(()));
        assert_eq!(check(&["a:number"], r#"{"a":1,"a":"b"}"#), Err((11, "field-type")));
        assert_eq!(check(&["a:b:number"], r#"{"a:b":1}"#), Ok(()));
    }

    #[test]
    fn what_is_not_a_field_is_told() {
        for text in ["", ":string", "a:text"] {
            let error = text.parse::<Field>().unwrap_err().to_string();
            assert!(error.contains("NAME:TYPE") && error.contains("number"), "{error}");
        }
    }
}
