//! Loki's push: each entry of each stream becomes a line of JSON, the same from protobuf and from JSON.
//!
//! A line has the entry's time, the labels of its stream, its text, and its structured metadata. It stores nothing.

mod labels;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    answer::Refusal,
    json::{Object, copy_strings, each, is_string, parse, plain, write},
    route::Form,
    wire::{Fields, Value, text},
};

type Raw<'a> = Option<&'a RawValue>;

/// The lines of a request, one for each entry. `room` is asked for the memory of all of them.
pub(crate) fn lines(
    body: &[u8],
    form: Form,
    mut room: impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<Vec<u8>, Refusal> {
    let mut lines = Vec::new();
    match form {
        Form::Json => of_json(body, &mut lines, &mut room)?,
        Form::Protobuf => of_protobuf(body, &mut lines, &mut room)?,
    }
    Ok(lines)
}

/// Appends a line. `labels` and `metadata` are objects; there may be no metadata.
fn entry(
    time_ns: i128,
    labels: &[u8],
    line: impl FnOnce(&mut Vec<u8>),
    metadata: &[u8],
    lines: &mut Vec<u8>,
) {
    let mut object = Object::begin(lines);
    // It has more digits than a double.
    write(object.name("timestamp"), &time_ns.to_string());
    object.name("labels").extend_from_slice(labels);
    line(object.name("line"));
    if metadata.len() > 2 {
        object.name("structuredMetadata").extend_from_slice(metadata);
    }
    object.end();
    lines.push(b'\n');
}

#[derive(Deserialize)]
struct Push<'a> {
    #[serde(borrow)]
    streams: Raw<'a>,
}

#[derive(Deserialize)]
struct Stream<'a> {
    #[serde(borrow)]
    stream: Raw<'a>,
    #[serde(borrow)]
    values: Raw<'a>,
}

fn of_json(
    body: &[u8],
    lines: &mut Vec<u8>,
    room: &mut dyn FnMut(usize) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let body = std::str::from_utf8(body).map_err(|_| Refusal::malformed("it is not UTF-8"))?;
    let (mut labels, mut metadata) = (Vec::new(), Vec::new());
    each(parse::<Push<'_>>(body)?.streams, |stream: Stream<'_>| {
        labels.clear();
        copy_strings(stream.stream, &mut labels)?;
        each(stream.values, |value: &RawValue| {
            let (mut members, mut count) = ([None; 3], 0);
            each(Some(value), |member: &RawValue| {
                *members.get_mut(count).ok_or_else(|| Refusal::malformed(WRONG_ENTRY))? =
                    Some(member);
                count += 1;
                Ok(())
            })?;
            let [Some(time), Some(line), more] = members else {
                return Err(Refusal::malformed(WRONG_ENTRY));
            };
            let time_ns = plain(time).parse::<i64>();
            let time_ns = time_ns.map_err(|_| Refusal::malformed("a time is no nanoseconds"))?;
            if !is_string(line) {
                return Err(Refusal::malformed("a line is no string"));
            }
            metadata.clear();
            copy_strings(more, &mut metadata)?;
            let line = line.get().as_bytes();
            entry(time_ns.into(), &labels, |out| out.extend_from_slice(line), &metadata, lines);
            room(lines.len())
        })
    })
}

const WRONG_ENTRY: &str = "an entry is no [TIME, LINE] or [TIME, LINE, METADATA]";

/// `PushRequest` (Loki's `push.proto`).
fn of_protobuf(
    body: &[u8],
    lines: &mut Vec<u8>,
    room: &mut dyn FnMut(usize) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut labels = Vec::new();
    for field in Fields::of(body) {
        let (1, Value::Bytes(stream)) = field? else { continue };
        let mut own = "{}";
        for field in Fields::of(stream) {
            if let (1, Value::Bytes(bytes)) = field? {
                own = text(bytes)?;
            }
        }
        labels.clear();
        labels::write_object(own, &mut labels)?;
        for field in Fields::of(stream) {
            if let (2, Value::Bytes(message)) = field? {
                entry_of_protobuf(message, &labels, lines)?;
                room(lines.len())?;
            }
        }
    }
    Ok(())
}

fn entry_of_protobuf(message: &[u8], labels: &[u8], lines: &mut Vec<u8>) -> Result<(), Refusal> {
    let (mut time, mut line) = (&[][..], "");
    let mut metadata = Vec::new();
    let mut object = Object::begin(&mut metadata);
    for field in Fields::of(message) {
        match field? {
            (1, Value::Bytes(message)) => time = message,
            (2, Value::Bytes(bytes)) => line = text(bytes)?,
            (3, Value::Bytes(pair)) => {
                let (mut name, mut value) = ("", "");
                for field in Fields::of(pair) {
                    match field? {
                        (1, Value::Bytes(bytes)) => name = text(bytes)?,
                        (2, Value::Bytes(bytes)) => value = text(bytes)?,
                        _ => {}
                    }
                }
                write(object.key(name), value);
            }
            _ => {}
        }
    }
    object.end();
    let (mut seconds, mut nanoseconds) = (0, 0);
    for field in Fields::of(time) {
        match field? {
            (1, Value::Varint(count)) => seconds = i128::from(count.cast_signed()),
            (2, Value::Varint(count)) => nanoseconds = i128::from(count as i32),
            _ => {}
        }
    }
    let time_ns = seconds * 1_000_000_000 + nanoseconds;
    entry(time_ns, labels, |out| write(out, line), &metadata, lines);
    Ok(())
}

#[cfg(test)]
mod tests {
    use prost::encoding::{bytes, int32, int64, string};

    use super::*;

    fn all(body: &[u8], form: Form) -> Result<String, Refusal> {
        lines(body, form, |_| Ok(())).map(|lines| String::from_utf8(lines).unwrap())
    }

    const LINES: &str = "{\"timestamp\":\"1570818238000000001\",\"labels\":{\"a\":\"x\\\"\u{e9}\",\
        \"b\":\"\"},\"line\":\"one\\ntwo\",\"structuredMetadata\":{\"trace\":\"0\"}}\n\
        {\"timestamp\":\"-1\",\"labels\":{\"a\":\"x\\\"\u{e9}\",\"b\":\"\"},\"line\":\"\"}\n";

    #[test]
    fn entries_are_lines_from_json() {
        let body = "{\"streams\": [ {\"stream\": {\n\"a\": \"x\\\"\u{e9}\", \"b\":\"\" }, \"more\": 1,
            \"values\": [[\"1570818238000000001\", \"one\\ntwo\", {\n\"trace\": \"0\"}], [\"-1\",\"\"]]},
            {\"values\": []}, {}], \"unknown\": [[{}]]}";
        assert_eq!(all(body.as_bytes(), Form::Json).unwrap(), LINES);
        for empty in ["{}", "{\"streams\":[]}", "{\"streams\":null}"] {
            assert_eq!(all(empty.as_bytes(), Form::Json).unwrap(), "");
        }
        for (body, told) in [
            ("", "EOF"),
            ("[", "EOF"),
            ("{\"streams\":{}}", "expected an array"),
            ("{\"streams\":[{\"values\":[[\"1\"]]}]}", "an entry is no"),
            ("{\"streams\":[{\"values\":[[\"1\",\"\",{},1]]}]}", "an entry is no"),
            ("{\"streams\":[{\"values\":[[\"1.5\",\"\"]]}]}", "a time is no"),
            ("{\"streams\":[{\"values\":[[\"1\",1]]}]}", "a line is no"),
            ("{\"streams\":[{\"stream\":{\"a\":1},\"values\":[]}]}", "a value is no string"),
            ("{\"streams\":[{\"values\":[[\"1\",\"\",[]]]}]}", "expected an object"),
        ] {
            let error = format!("{:?}", all(body.as_bytes(), Form::Json).unwrap_err());
            assert!(error.contains(told), "{body}: {error}");
        }
        assert!(all(b"{\"streams\":\"\xff\"}", Form::Json).is_err());
    }

    type Field<'a> = &'a dyn Fn(&mut Vec<u8>);

    fn message(fields: &[Field<'_>]) -> Vec<u8> {
        let mut message = Vec::new();
        fields.iter().for_each(|field| field(&mut message));
        message
    }

    #[test]
    fn entries_are_lines_from_protobuf() {
        let text = |number: u32, text: &str| {
            let text = text.to_owned();
            move |out: &mut Vec<u8>| string::encode(number, &text, out)
        };
        let part =
            |number: u32, part: Vec<u8>| move |out: &mut Vec<u8>| bytes::encode(number, &part, out);
        let time = message(&[&|out| int64::encode(1, &1_570_818_238, out), &|out| {
            int32::encode(2, &1, out);
        }]);
        let pair = message(&[&text(1, "trace"), &text(2, "0")]);
        let first = message(&[&part(3, pair), &text(2, "one\ntwo"), &part(1, time)]);
        let second = message(&[&part(1, message(&[&|out| int32::encode(2, &-1, out)]))]);
        // Labels behind the entries, and fields of which nothing is known.
        let unknown = |out: &mut Vec<u8>| int64::encode(3, &7, out);
        let stream = message(&[
            &part(2, first),
            &part(2, second),
            &unknown,
            &text(1, "{a=\"x\\\"\u{e9}\", b=``}"),
        ]);
        let body = message(&[&part(1, stream), &text(9, "unknown")]);
        assert_eq!(all(&body, Form::Protobuf).unwrap(), LINES);
        assert_eq!(all(b"", Form::Protobuf).unwrap(), "");
        let wrong = message(&[&part(1, message(&[&text(1, "{a=")]))]);
        let broken = message(&[&part(1, message(&[&part(1, b"{a=\"\xff\"}".to_vec())]))]);
        for body in [&wrong[..], &broken, &body[..body.len() - 1], b"{}"] {
            assert!(all(body, Form::Protobuf).is_err(), "{body:?}");
        }
    }

    #[test]
    fn the_memory_of_lines_is_asked_for() {
        // A label that all entries have: far more lines than bytes that came.
        let label = "x".repeat(1000);
        let values = ["[\"1\",\"\"]"; 1000].join(",");
        let body =
            format!("{{\"streams\":[{{\"stream\":{{\"a\":\"{label}\"}},\"values\":[{values}]}}]}}");
        let room = |bytes| if bytes > 100_000 { Err(Refusal::TooLong) } else { Ok(()) };
        assert_eq!(lines(body.as_bytes(), Form::Json, room), Err(Refusal::TooLong));
    }
}
