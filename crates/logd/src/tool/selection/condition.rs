//! A condition on a field: `NAME=VALUE`, as `--where` takes it.
//!
//! Names and values are compared by what they mean: escapes are undone, and numbers are compared by value. If a name
//! occurs more than once in an object, one of its values has to be equal.

use std::{fmt, str::FromStr};

use super::number::Number;
use crate::lines::json::{Rules, any_member, text_of};

/// A field that has to have a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// The names of members, each of the value of the one before. There is at least one.
    path: Vec<String>,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    Number(Number),
    /// `true`, `false` or `null`.
    Word(String),
}

/// The text is no condition.
#[derive(Debug)]
pub(super) struct ConditionError(&'static str);

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ConditionError {}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Condition, ConditionError> {
        let error = ConditionError("expected NAME=VALUE, such as level=error or http.status=500");
        let (mut path, mut name) = (Vec::new(), String::new());
        let mut rest = text.chars();
        loop {
            match rest.next() {
                Some('\\') => name.extend(rest.next()),
                Some('.') if !name.is_empty() => path.push(std::mem::take(&mut name)),
                Some('=') if !name.is_empty() => break,
                Some('.' | '=') | None => return Err(error),
                Some(other) => name.push(other),
            }
        }
        path.push(name);
        Ok(Condition { path, value: rest.as_str().parse()? })
    }
}

impl FromStr for Value {
    type Err = ConditionError;

    /// Reads a value of JSON. Any other text is a string without quotes.
    fn from_str(text: &str) -> Result<Value, ConditionError> {
        if Rules::new(u32::MAX, Vec::new()).check(text.as_bytes()).is_err() {
            return Ok(Value::Text(text.to_owned()));
        }
        let trimmed = text.trim_matches([' ', '\t', '\r', '\n']);
        match trimmed.as_bytes()[0] {
            b'"' => Ok(Value::Text(serde_json::from_str(trimmed).map_err(|_| {
                ConditionError("expected a string of JSON, or a text without quotes")
            })?)),
            b't' | b'f' | b'n' => Ok(Value::Word(trimmed.to_owned())),
            b'[' | b'{' => Err(ConditionError(
                "expected a string, a number, true, false or null: objects and arrays are not compared",
            )),
            _ => Ok(Value::Number(Number::new(trimmed))),
        }
    }
}

impl Condition {
    /// Whether a line fulfils it.
    pub(super) fn holds(&self, line: &[u8]) -> bool {
        self.holds_in(&self.path, line)
    }

    fn holds_in(&self, path: &[String], object: &[u8]) -> bool {
        let Some((name, deeper)) = path.split_first() else { return false };
        any_member(object, |quoted, value| {
            means(quoted, name)
                && match deeper {
                    [] => self.value.begins(value),
                    _ => self.holds_in(deeper, value),
                }
        })
    }

    /// Returns the name of the field itself.
    pub(super) fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// Whether bytes begin with a colon and the value. It also says yes if it is not sure.
    pub(super) fn may_follow(&self, bytes: &[u8]) -> bool {
        let value = without_space(bytes).strip_prefix(b":").map(without_space);
        value.is_some_and(|value| self.value.begins(value))
    }
}

impl Value {
    /// Whether bytes begin with a value that is equal.
    fn begins(&self, bytes: &[u8]) -> bool {
        match self {
            Value::Text(text) => begins_with_text(bytes, text),
            Value::Number(number) => number.begins(bytes),
            Value::Word(word) => bytes.starts_with(word.as_bytes()),
        }
    }
}

/// Whether a string, with its quotes, means a text.
fn means(quoted: &[u8], text: &str) -> bool {
    let is_short = quoted.len() < text.len() + 2;
    !is_short && text_of(quoted).is_some_and(|meant| *meant == *text.as_bytes())
}

/// Whether bytes begin with a string that means a text.
fn begins_with_text(bytes: &[u8], text: &str) -> bool {
    let Some(inner) = bytes.strip_prefix(b"\"") else { return false };
    match memchr::memchr2(b'"', b'\\', inner) {
        // Most strings have no escapes, or differ before the first.
        Some(plain) if inner[plain] == b'"' => inner[..plain] == *text.as_bytes(),
        Some(plain) if text.as_bytes().starts_with(&inner[..plain]) => {
            let len = 1 + end_of_string(inner);
            bytes.get(..=len).is_some_and(|quoted| means(quoted, text))
        }
        _ => false,
    }
}

/// Finds the quote that ends a string, or else the end of the bytes.
fn end_of_string(inner: &[u8]) -> usize {
    let mut at = 0;
    while let Some(found) = inner.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if inner[at] == b'"' {
            return at;
        }
        at += 2;
    }
    inner.len()
}

fn without_space(bytes: &[u8]) -> &[u8] {
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\r');
    &bytes[bytes.iter().take_while(is_space).count()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(condition: &str, line: &str) -> bool {
        condition.parse::<Condition>().unwrap().holds(line.as_bytes())
    }

    #[test]
    fn values_are_compared_by_what_they_mean() {
        for (condition, line) in [
            ("a=error", r#"{"a":"error"}"#),
            ("a=error", r#"{ "a" : "err\u006fr" , "b":1}"#),
            ("a=error", r#"{"\u0061":"error"}"#),
            ("a=error", r#"{"a":1,"a":"error"}"#),
            (r"a=C:\temp", r#"{"a":"C:\\temp"}"#),
            ("a=/x/y", r#"{"a":"\/x/y"}"#),
            ("a=\u{1f600}", r#"{"a":"\ud83d\ude00"}"#),
            ("a=500", r#"{"a":5e2}"#),
            (r#"a="500""#, r#"{"a":"500"}"#),
            ("a=true", r#"{"a":true}"#),
            ("a=null", r#"{"a":null}"#),
            ("a=", r#"{"a":""}"#),
            ("a=b=c", r#"{"a":"b=c"}"#),
            ("a.b.c=1", r#"{"a":{"b":{"c":1}}}"#),
            ("a.b=1", r#"{"a":2,"a":{"b":1}}"#),
            (r"a\.b=1", r#"{"a.b":1}"#),
            (r"a\=b\\=1", r#"{"a=b\\":1}"#),
            ("a=05", r#"{"a":"05"}"#),
        ] {
            assert!(holds(condition, line), "{condition} of {line}");
        }
        for (condition, line) in [
            ("a=error", r#"{"b":"error"}"#),
            ("a=error", r#"{"a":"errors"}"#),
            ("a=error", r#"{"a":"err"}"#),
            ("a=error", r#"{"a":"error\n"}"#),
            ("a=error", r#"{"b":{"a":"error"}}"#),
            ("a=error", r#"[{"a":"error"}]"#),
            ("a=error", r#"{"b":"\"a\":\"error\""}"#),
            ("a=500", r#"{"a":"500"}"#),
            (r#"a="500""#, r#"{"a":500}"#),
            ("a=true", r#"{"a":"true"}"#),
            ("a.b=1", r#"{"a.b":1}"#),
            ("a.b=1", r#"{"a":[{"b":1}]}"#),
            ("a.b=1", r#"{"a":1,"b":1}"#),
            ("a=error", r#"{"a":"error"#),
            ("a=error", r#"{"a":"err\"#),
        ] {
            assert!(!holds(condition, line), "{condition} of {line}");
        }
    }

    #[test]
    fn what_is_no_condition_is_told() {
        for text in ["", "a", "=1", ".a=1", "a.=1", "a..b=1", "a=[1]", "a={}"] {
            let error = text.parse::<Condition>().unwrap_err().to_string();
            assert!(error.starts_with("expected ") && !error.contains('\n'), "{text}: {error}");
        }
    }
}
