//! JSON of other protocols: arrays and objects read element by element, and objects written.
//!
//! A request can have a million empty elements, each of which would take a hundred times its length as a value of its
//! own. So elements are taken one at a time, and what is not looked at stays text. It does not check lines: the
//! validator does.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::answer::Refusal;

/// Writes an object.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    has_members: bool,
}

impl<'a> Object<'a> {
    pub(super) fn begin(out: &'a mut Vec<u8>) -> Object<'a> {
        out.push(b'{');
        Object { out, has_members: false }
    }

    /// Begins a member whose name needs no escapes. Its value is to be appended.
    pub(super) fn name(&mut self, name: &str) -> &mut Vec<u8> {
        self.next();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Begins a member with any name.
    pub(super) fn key(&mut self, name: &str) -> &mut Vec<u8> {
        self.next();
        write(self.out, name);
        self.out.push(b':');
        self.out
    }

    pub(super) fn next(&mut self) -> &mut Vec<u8> {
        if std::mem::replace(&mut self.has_members, true) {
            self.out.push(b',');
        }
        self.out
    }

    pub(super) fn end(self) {
        self.out.push(b'}');
    }
}

/// Appends a value as JSON.
pub(super) fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    // Writing to memory does not fail, and keys are strings.
    let _ = serde_json::to_writer(out, value);
}

/// Whether a text of JSON is a string.
pub(super) fn is_string(text: &RawValue) -> bool {
    text.get().starts_with('"')
}

/// What is within the quotes of a string without escapes, or the text of a number.
pub(super) fn plain(text: &RawValue) -> &str {
    let text = text.get();
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// Reads a text.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Refusal> {
    serde_json::from_str(text).map_err(Refusal::malformed)
}

/// Takes each element of an array. Nothing and null are arrays without elements.
pub(super) fn each<'a, T: Deserialize<'a>>(
    array: Option<&'a RawValue>,
    mut take: impl FnMut(T) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut refused = None;
    let seen = array.map_or(Ok(()), |array| {
        let visitor = Each {
            take: |element| take(element).map_err(|refusal| refused = Some(refusal)),
            element: PhantomData,
        };
        serde_json::Deserializer::from_str(array.get()).deserialize_seq(visitor)
    });
    refused.map_or_else(|| seen.map_err(Refusal::malformed), Err)
}

struct Each<T, F> {
    take: F,
    element: PhantomData<T>,
}

impl<'a, T: Deserialize<'a>, F: FnMut(T) -> Result<(), ()>> Visitor<'a> for Each<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut array: A) -> Result<(), A::Error> {
        while let Some(element) = array.next_element()? {
            (self.take)(element).map_err(|()| A::Error::custom("refused"))?;
        }
        Ok(())
    }
}

/// Writes an object whose values have to be strings, without what stands between its members. Nothing and null are
/// objects without members.
pub(super) fn copy_strings(object: Option<&RawValue>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let Some(object) = object else {
        out.extend_from_slice(b"{}");
        return Ok(());
    };
    let copied = serde_json::Deserializer::from_str(object.get()).deserialize_map(Strings(out));
    copied.map_err(Refusal::malformed)
}

struct Strings<'o>(&'o mut Vec<u8>);

impl<'a> Visitor<'a> for Strings<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let mut object = Object::begin(self.0);
        while let Some(name) = map.next_key::<String>()? {
            let value: &RawValue = map.next_value()?;
            if !is_string(value) {
                return Err(A::Error::custom("a value is no string"));
            }
            object.key(&name).extend_from_slice(value.get().as_bytes());
        }
        object.end();
        Ok(())
    }
}
