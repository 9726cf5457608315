//! How a line looks that was a log record: its members, in their order, but for those that are not set.

use super::super::json::{Object, write};
use crate::lines::text::quote_hex;

/// How deeply values may nest. Decoders of protobuf take a hundred messages within each other, of which a level of
/// values is up to three.
pub(super) const DEPTH_MAX: u32 = 32;

/// The members of a record that are no values of any kind.
#[derive(Debug, Default)]
pub(super) struct Plain<'a> {
    pub(super) time: u64,
    pub(super) observed_time: u64,
    pub(super) severity_number: i64,
    pub(super) severity_text: Text<'a>,
    pub(super) event_name: Text<'a>,
    pub(super) dropped_attributes: u64,
    pub(super) flags: u64,
    pub(super) trace_id: Text<'a>,
    pub(super) span_id: Text<'a>,
}

/// A string as a request has it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Text<'a> {
    #[default]
    None,
    Plain(&'a str),
    /// With its quotes and escapes.
    Quoted(&'a str),
    /// Bytes of an identity, to be written as hexadecimal digits.
    Hex(&'a [u8]),
}

impl<'a> Text<'a> {
    /// A string with its quotes; nothing if there is none.
    pub(super) fn of_quoted(bytes: &'a [u8]) -> Text<'a> {
        std::str::from_utf8(bytes)
            .ok()
            .filter(|text| !text.is_empty())
            .map_or(Text::None, Text::Quoted)
    }

    /// What stands in its quotes, with them, in text of JSON.
    pub(super) fn quoted(self) -> &'a [u8] {
        match self {
            Text::Quoted(text) => text.as_bytes(),
            _ => b"",
        }
    }

    fn write(self, object: &mut Object<'_>, name: &str) {
        match self {
            Text::None | Text::Plain("") | Text::Quoted("\"\"") | Text::Hex([]) => {}
            Text::Plain(text) => write(object.name(name), text),
            Text::Quoted(text) => object.name(name).extend_from_slice(text.as_bytes()),
            Text::Hex(bytes) => quote_hex(bytes, object.name(name)),
        }
    }
}

/// Writes what stands before body and attributes. A time has more digits than a double: it is a string.
pub(super) fn begin(plain: &Plain<'_>, object: &mut Object<'_>) {
    for (name, time) in
        [("timeUnixNano", plain.time), ("observedTimeUnixNano", plain.observed_time)]
    {
        if time > 0 {
            let out = object.name(name);
            out.push(b'"');
            write(out, &time);
            out.push(b'"');
        }
    }
    if plain.severity_number != 0 {
        write(object.name("severityNumber"), &plain.severity_number);
    }
    plain.severity_text.write(object, "severityText");
    plain.event_name.write(object, "eventName");
}

/// Writes what stands behind them.
pub(super) fn end(plain: &Plain<'_>, source: &[u8], mut object: Object<'_>) {
    for (name, number) in
        [("droppedAttributesCount", plain.dropped_attributes), ("flags", plain.flags)]
    {
        if number > 0 {
            write(object.name(name), &number);
        }
    }
    plain.trace_id.write(&mut object, "traceId");
    plain.span_id.write(&mut object, "spanId");
    if !source.is_empty() {
        object.next().extend_from_slice(source);
    }
    object.end();
}

/// What a resource or a scope is called, and what it has beside its attributes.
#[derive(Debug, Default)]
pub(super) struct Source<'a> {
    pub(super) name: Text<'a>,
    pub(super) version: Text<'a>,
    pub(super) dropped_attributes: u64,
    pub(super) schema_url: Text<'a>,
}

impl Source<'_> {
    /// Writes it, with its attributes, as an object; nothing if it has no member. They are `{}` if there are none.
    pub(super) fn write(&self, attributes: &[u8], out: &mut Vec<u8>) {
        let before = out.len();
        let mut object = Object::begin(out);
        self.name.write(&mut object, "name");
        self.version.write(&mut object, "version");
        if attributes.len() > 2 {
            object.name("attributes").extend_from_slice(attributes);
        }
        if self.dropped_attributes > 0 {
            write(object.name("droppedAttributesCount"), &self.dropped_attributes);
        }
        self.schema_url.write(&mut object, "schemaUrl");
        object.end();
        if out.len() == before + 2 {
            out.truncate(before);
        }
    }
}

/// Joins a resource and a scope, each of which may be nothing, as members of lines.
pub(super) fn source(resource: &[u8], scope: &[u8]) -> Vec<u8> {
    let mut members = Vec::new();
    for (name, own) in [("resource", resource), ("scope", scope)] {
        if !own.is_empty() {
            if !members.is_empty() {
                members.push(b',');
            }
            write(&mut members, name);
            members.push(b':');
            members.extend_from_slice(own);
        }
    }
    members
}
