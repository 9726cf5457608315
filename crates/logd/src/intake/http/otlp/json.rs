//! A request in OTLP's JSON: that of protobuf, but for identities, which are hexadecimal digits.
//!
//! Strings go into lines as they stand in the request, with their escapes.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    super::{
        answer::Refusal,
        json::{Object, each, is_string, parse, plain, write},
    },
    record::{self, DEPTH_MAX, Plain, Source, Text},
};
use crate::lines::text::write_double;

type Raw<'a> = Option<&'a RawValue>;
type Room<'r> = dyn FnMut(usize) -> Result<(), Refusal> + 'r;

/// Names the members that are looked at. Others are passed over, as OTLP asks for.
macro_rules! object {
    ($name:ident { $($member:ident),* $(,)? }) => {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct $name<'a> {
            $(#[serde(borrow)] $member: Raw<'a>,)*
        }
    };
}

object!(Export { resource_logs });
object!(ResourceLogs { resource, scope_logs, schema_url });
object!(ScopeLogs { scope, log_records, schema_url });
// A resource has neither a name nor a version.
object!(SourceText { name, version, attributes, dropped_attributes_count });
object!(LogRecord {
    time_unix_nano,
    observed_time_unix_nano,
    severity_number,
    severity_text,
    event_name,
    body,
    attributes,
    dropped_attributes_count,
    flags,
    trace_id,
    span_id,
});
object!(KeyValue { key, value });
object!(Values { values });
object!(AnyValue {
    string_value,
    bool_value,
    int_value,
    double_value,
    array_value,
    kvlist_value,
    bytes_value,
});

pub(super) fn lines(body: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, Refusal> {
    let body = std::str::from_utf8(body).map_err(|_| Refusal::malformed("it is not UTF-8"))?;
    let mut lines = Vec::new();
    let export: Export<'_> = parse(body)?;
    each(export.resource_logs, |logs: ResourceLogs<'_>| {
        let resource = source(logs.resource, logs.schema_url)?;
        each(logs.scope_logs, |logs: ScopeLogs<'_>| {
            let scope = source(logs.scope, logs.schema_url)?;
            let source = record::source(&resource, &scope);
            each(logs.log_records, |record: LogRecord<'_>| {
                log_record(&record, &source, &mut lines)?;
                room(lines.len())
            })
        })
    })?;
    Ok(lines)
}

/// A resource or a scope.
fn source(text: Raw<'_>, schema_url: Raw<'_>) -> Result<Vec<u8>, Refusal> {
    let (mut own, mut attributes) = (Source::default(), Vec::new());
    own.schema_url = string(schema_url)?;
    if let Some(text) = text {
        let text: SourceText<'_> = parse(text.get())?;
        (own.name, own.version) = (string(text.name)?, string(text.version)?);
        own.dropped_attributes = number(text.dropped_attributes_count)?;
        key_values(text.attributes, DEPTH_MAX, &mut attributes)?;
    }
    let mut written = Vec::new();
    own.write(&attributes, &mut written);
    Ok(written)
}

fn log_record(record: &LogRecord<'_>, source: &[u8], lines: &mut Vec<u8>) -> Result<(), Refusal> {
    let mut ids = [Vec::new(), Vec::new()];
    for (id, text) in ids.iter_mut().zip([record.trace_id, record.span_id]) {
        // As protobuf would have it: without regard to case.
        *id = string(text)?.quoted().to_ascii_lowercase();
    }
    let own = Plain {
        time: number(record.time_unix_nano)?,
        observed_time: number(record.observed_time_unix_nano)?,
        severity_number: number(record.severity_number)?,
        severity_text: string(record.severity_text)?,
        event_name: string(record.event_name)?,
        dropped_attributes: number(record.dropped_attributes_count)?,
        flags: number(record.flags)?,
        trace_id: Text::of_quoted(&ids[0]),
        span_id: Text::of_quoted(&ids[1]),
    };
    let mut object = Object::begin(lines);
    record::begin(&own, &mut object);
    if let Some(body) = record.body {
        any_value(body, DEPTH_MAX, object.name("body"))?;
    }
    if record.attributes.is_some_and(|attributes| attributes.get() != "[]") {
        key_values(record.attributes, DEPTH_MAX, object.name("attributes"))?;
    }
    record::end(&own, source, object);
    lines.push(b'\n');
    Ok(())
}

/// A string, as it stands.
fn string(text: Raw<'_>) -> Result<Text<'_>, Refusal> {
    match text {
        None => Ok(Text::None),
        Some(text) if is_string(text) => Ok(Text::Quoted(text.get())),
        Some(_) => Err(Refusal::malformed("a value is no string")),
    }
}

/// An integer, which may stand in a string.
fn number<N: std::str::FromStr + Default>(text: Raw<'_>) -> Result<N, Refusal> {
    let wrong = |_| Refusal::malformed("a value is no integer, or too large");
    text.map_or(Ok(N::default()), |text| plain(text).parse().map_err(wrong))
}

/// Writes an array of keys with values as an object.
fn key_values(pairs: Raw<'_>, depth: u32, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let mut object = Object::begin(out);
    each(pairs, |pair: KeyValue<'_>| {
        let out = object.next();
        match string(pair.key)? {
            Text::Quoted(key) => out.extend_from_slice(key.as_bytes()),
            _ => out.extend_from_slice(b"\"\""),
        }
        out.push(b':');
        match pair.value {
            Some(value) => any_value(value, depth, out),
            None => null(out),
        }
    })?;
    object.end();
    Ok(())
}

fn null(out: &mut Vec<u8>) -> Result<(), Refusal> {
    out.extend_from_slice(b"null");
    Ok(())
}

/// Writes an `AnyValue` as the value that it is; null if it is none.
fn any_value(value: &RawValue, depth: u32, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let depth = depth.checked_sub(1).ok_or_else(|| Refusal::malformed("values nest too deeply"))?;
    let value: AnyValue<'_> = parse(value.get())?;
    match value {
        AnyValue { string_value: Some(own), .. } | AnyValue { bytes_value: Some(own), .. } => {
            out.extend_from_slice(string(Some(own))?.quoted());
        }
        AnyValue { bool_value: Some(own), .. } => write(out, &parse::<bool>(own.get())?),
        AnyValue { int_value: own @ Some(_), .. } => write(out, &number::<i64>(own)?),
        AnyValue { double_value: Some(own), .. } => double(own, out)?,
        AnyValue { array_value: Some(own), .. } => {
            let mut has_values = false;
            out.push(b'[');
            each(parse::<Values<'_>>(own.get())?.values, |value: &RawValue| {
                if std::mem::replace(&mut has_values, true) {
                    out.push(b',');
                }
                any_value(value, depth, out)
            })?;
            out.push(b']');
        }
        AnyValue { kvlist_value: Some(own), .. } => {
            key_values(parse::<Values<'_>>(own.get())?.values, depth, out)?;
        }
        _ => null(out)?,
    }
    Ok(())
}

/// A number as it stands, or one in a string: that may be none, or infinite.
fn double(text: &RawValue, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let wrong = |_| Refusal::malformed("a value is no number");
    if is_string(text) {
        write_double(plain(text).parse().map_err(wrong)?, out);
        return Ok(());
    }
    parse::<f64>(text.get())?;
    out.extend_from_slice(text.get().as_bytes());
    Ok(())
}
