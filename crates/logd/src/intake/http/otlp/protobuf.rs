//! A request in protobuf (opentelemetry-proto 1.x, `logs.proto`, `common.proto`, `resource.proto`).
//!
//! Numbers of fields are theirs. A field that occurs twice counts as it occurs last.

use base64::prelude::{BASE64_STANDARD, Engine};

use super::{
    super::{
        answer::Refusal,
        json::{Object, write},
        wire::{Fields, Value, text},
    },
    record::{self, DEPTH_MAX, Plain, Source, Text},
};
use crate::lines::text::write_double;

type Room<'r> = dyn FnMut(usize) -> Result<(), Refusal> + 'r;

pub(super) fn lines(body: &[u8], room: &mut Room<'_>) -> Result<Vec<u8>, Refusal> {
    let mut lines = Vec::new();
    for field in Fields::of(body) {
        if let (1, Value::Bytes(logs)) = field? {
            resource_logs(logs, &mut lines, room)?;
        }
    }
    Ok(lines)
}

/// Fields may come in any order, so those that all records of it have are looked for first.
fn resource_logs(logs: &[u8], lines: &mut Vec<u8>, room: &mut Room<'_>) -> Result<(), Refusal> {
    let (mut resource, mut source) = (&[][..], Source::default());
    for field in Fields::of(logs) {
        match field? {
            (1, Value::Bytes(message)) => resource = message,
            (3, Value::Bytes(url)) => source.schema_url = Text::Plain(text(url)?),
            _ => {}
        }
    }
    for field in Fields::of(resource) {
        if let (2, Value::Varint(count)) = field? {
            source.dropped_attributes = count;
        }
    }
    let mut written = Vec::new();
    source.write(&attributes(resource, 1)?, &mut written);
    for field in Fields::of(logs) {
        if let (2, Value::Bytes(logs)) = field? {
            scope_logs(logs, &written, lines, room)?;
        }
    }
    Ok(())
}

fn scope_logs(
    logs: &[u8],
    resource: &[u8],
    lines: &mut Vec<u8>,
    room: &mut Room<'_>,
) -> Result<(), Refusal> {
    let (mut scope, mut source) = (&[][..], Source::default());
    for field in Fields::of(logs) {
        match field? {
            (1, Value::Bytes(message)) => scope = message,
            (3, Value::Bytes(url)) => source.schema_url = Text::Plain(text(url)?),
            _ => {}
        }
    }
    for field in Fields::of(scope) {
        match field? {
            (1, Value::Bytes(name)) => source.name = Text::Plain(text(name)?),
            (2, Value::Bytes(version)) => source.version = Text::Plain(text(version)?),
            (4, Value::Varint(count)) => source.dropped_attributes = count,
            _ => {}
        }
    }
    let mut written = Vec::new();
    source.write(&attributes(scope, 3)?, &mut written);
    let source = record::source(resource, &written);
    for field in Fields::of(logs) {
        if let (2, Value::Bytes(message)) = field? {
            log_record(message, &source, lines)?;
            room(lines.len())?;
        }
    }
    Ok(())
}

fn log_record(message: &[u8], source: &[u8], lines: &mut Vec<u8>) -> Result<(), Refusal> {
    let (mut plain, mut body, mut has_attributes) = (Plain::default(), None, false);
    for field in Fields::of(message) {
        match field? {
            (1, Value::Fixed64(time)) => plain.time = time,
            // An int32 is sent as the 64 bits of its sign and value.
            (2, Value::Varint(number)) => plain.severity_number = i64::from(number as i32),
            (3, Value::Bytes(own)) => plain.severity_text = Text::Plain(text(own)?),
            (5, Value::Bytes(value)) => body = Some(value),
            (6, Value::Bytes(_)) => has_attributes = true,
            (7, Value::Varint(count)) => plain.dropped_attributes = count,
            (8, Value::Fixed32(flags)) => plain.flags = flags.into(),
            (9, Value::Bytes(id)) => plain.trace_id = Text::Hex(id),
            (10, Value::Bytes(id)) => plain.span_id = Text::Hex(id),
            (11, Value::Fixed64(time)) => plain.observed_time = time,
            (12, Value::Bytes(name)) => plain.event_name = Text::Plain(text(name)?),
            _ => {}
        }
    }
    let mut object = Object::begin(lines);
    record::begin(&plain, &mut object);
    if let Some(body) = body {
        any_value(body, DEPTH_MAX, object.name("body"))?;
    }
    if has_attributes {
        key_values(message, 6, DEPTH_MAX, object.name("attributes"))?;
    }
    record::end(&plain, source, object);
    lines.push(b'\n');
    Ok(())
}

fn attributes(message: &[u8], number: u32) -> Result<Vec<u8>, Refusal> {
    let mut written = Vec::new();
    key_values(message, number, DEPTH_MAX, &mut written)?;
    Ok(written)
}

/// Writes the fields of this number, each a key with its value, as an object.
fn key_values(message: &[u8], number: u32, depth: u32, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let mut object = Object::begin(out);
    for field in Fields::of(message) {
        let (own, Value::Bytes(pair)) = field? else { continue };
        if own != number {
            continue;
        }
        let (mut key, mut value) = ("", &[][..]);
        for field in Fields::of(pair) {
            match field? {
                (1, Value::Bytes(bytes)) => key = text(bytes)?,
                (2, Value::Bytes(message)) => value = message,
                _ => {}
            }
        }
        any_value(value, depth, object.key(key))?;
    }
    object.end();
    Ok(())
}

/// Writes an `AnyValue` as the value that it is; null if it is none.
fn any_value(message: &[u8], depth: u32, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let depth = depth.checked_sub(1).ok_or_else(|| Refusal::malformed("values nest too deeply"))?;
    let mut value = None;
    for field in Fields::of(message) {
        let field = field?;
        if let (1..=7, _) = field {
            value = Some(field);
        }
    }
    match value {
        Some((1, Value::Bytes(own))) => write(out, text(own)?),
        Some((2, Value::Varint(own))) => write(out, &(own != 0)),
        Some((3, Value::Varint(own))) => write(out, &own.cast_signed()),
        Some((4, Value::Fixed64(own))) => write_double(f64::from_bits(own), out),
        Some((5, Value::Bytes(own))) => array(own, depth, out)?,
        Some((6, Value::Bytes(own))) => key_values(own, 1, depth, out)?,
        Some((7, Value::Bytes(own))) => write(out, &BASE64_STANDARD.encode(own)),
        _ => out.extend_from_slice(b"null"),
    }
    Ok(())
}

fn array(message: &[u8], depth: u32, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let mut has_values = false;
    out.push(b'[');
    for field in Fields::of(message) {
        if let (1, Value::Bytes(value)) = field? {
            if std::mem::replace(&mut has_values, true) {
                out.push(b',');
            }
            any_value(value, depth, out)?;
        }
    }
    out.push(b']');
    Ok(())
}
