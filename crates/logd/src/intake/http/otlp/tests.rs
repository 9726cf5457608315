//! Records in both forms, and what is no request.

use prost::encoding::{bytes, double, fixed32, fixed64, int64, string, uint32};

use super::*;

type Field<'a> = Box<dyn Fn(&mut Vec<u8>) + 'a>;

fn message(fields: &[Field<'_>]) -> Vec<u8> {
    let mut message = Vec::new();
    fields.iter().for_each(|field| field(&mut message));
    message
}

fn text(number: u32, text: &str) -> Field<'_> {
    Box::new(move |out| string::encode(number, &text.to_owned(), out))
}

fn part(number: u32, fields: Vec<Field<'_>>) -> Field<'_> {
    Box::new(move |out| bytes::encode(number, &message(&fields), out))
}

fn attribute<'a>(number: u32, key: &'a str, value: Field<'a>) -> Field<'a> {
    part(number, vec![text(1, key), part(2, vec![value])])
}

fn all(body: &[u8], form: Form) -> Result<String, Refusal> {
    lines(body, form, |_| Ok(())).map(|lines| String::from_utf8(lines).unwrap())
}

const RESOURCE: &str = r#""resource":{"attributes":{"service.name":"shop"},"droppedAttributesCount":3,"schemaUrl":"https://a/b"}"#;
const SCOPE: &str = r#""scope":{"name":"lib","version":"1.2","attributes":{"s":true}}"#;

fn expected() -> String {
    let record = "{\"timeUnixNano\":\"18446744073709551615\",\"observedTimeUnixNano\":\"1544712660300000001\",\
         \"severityNumber\":10,\"severityText\":\"Info\",\"eventName\":\"paid\",\"body\":\"a\\nb \u{e9}\",\
         \"attributes\":{\"int\":-9223372036854775808,\"double\":0.5,\"nan\":\"NaN\",\"bytes\":\"AP8=\",\
         \"array\":[1,null,[]],\"map\":{\"k\":{\"k\":\"v\"}},\"nothing\":null},\"droppedAttributesCount\":2,\
         \"flags\":1,\"traceId\":\"5b8efff798038103d269b633813fc60c\",\"spanId\":\"eee19b7ec3c1b174\",";
    format!("{record}{RESOURCE},{SCOPE}}}\n{{{RESOURCE},{SCOPE}}}\n{{{RESOURCE}}}\n{{}}\n")
}

/// A record with all that one can have.
fn whole_record() -> Field<'static> {
    let trace = b"\x5b\x8e\xff\xf7\x98\x03\x81\x03\xd2\x69\xb6\x33\x81\x3f\xc6\x0c".to_vec();
    let span = b"\xee\xe1\x9b\x7e\xc3\xc1\xb1\x74".to_vec();
    let integer =
        |number: i64| -> Field<'static> { Box::new(move |out| int64::encode(3, &number, out)) };
    let number =
        |number: f64| -> Field<'static> { Box::new(move |out| double::encode(4, &number, out)) };
    let array =
        part(5, vec![part(1, vec![integer(1)]), part(1, vec![]), part(1, vec![part(5, vec![])])]);
    let inner = part(6, vec![attribute(1, "k", text(1, "v"))]);
    part(
        2,
        vec![
            attribute(6, "int", integer(i64::MIN)),
            Box::new(|out| fixed64::encode(1, &u64::MAX, out)),
            Box::new(|out| fixed64::encode(11, &1_544_712_660_300_000_001, out)),
            Box::new(|out| int64::encode(2, &10, out)),
            text(3, "other, and the last one counts"),
            text(3, "Info"),
            text(12, "paid"),
            part(5, vec![text(1, "a\nb \u{e9}")]),
            attribute(6, "double", number(0.5)),
            attribute(6, "nan", number(f64::NAN)),
            attribute(6, "bytes", Box::new(|out| bytes::encode(7, &b"\0\xff".to_vec(), out))),
            attribute(6, "array", array),
            attribute(6, "map", part(6, vec![attribute(1, "k", inner)])),
            part(6, vec![text(1, "nothing")]),
            Box::new(|out| uint32::encode(7, &2, out)),
            Box::new(|out| fixed32::encode(8, &1, out)),
            Box::new(move |out| bytes::encode(9, &trace, out)),
            Box::new(move |out| bytes::encode(10, &span, out)),
            text(99, "unknown"),
            // Another type than it has: unknown too.
            text(1, "no time"),
        ],
    )
}

#[test]
fn a_record_is_a_line_from_protobuf() {
    let scope = part(
        1,
        vec![
            text(1, "lib"),
            text(2, "1.2"),
            attribute(3, "s", Box::new(|out| int64::encode(2, &1, out))),
        ],
    );
    let resource = part(
        1,
        vec![
            attribute(1, "service.name", text(1, "shop")),
            Box::new(|out| uint32::encode(2, &3, out)),
        ],
    );
    // What all records have comes last.
    let logs = part(
        1,
        vec![
            part(2, vec![whole_record(), part(2, vec![]), scope]),
            part(2, vec![part(2, vec![])]),
            text(3, "https://a/b"),
            resource,
        ],
    );
    let body = message(&[logs, part(1, vec![part(2, vec![part(2, vec![])])]), part(1, vec![])]);
    assert_eq!(all(&body, Form::Protobuf).unwrap(), expected());
    for cut in 1..body.len() {
        // Cut anywhere it is a request, or none; nothing else.
        let _ = all(&body[..cut], Form::Protobuf);
    }
    assert_eq!(all(b"", Form::Protobuf).unwrap(), "");
}

const JSON: &str = r#"{"unknown": [[1]], "resourceLogs": [
  {"scopeLogs": [
    {"logRecords": [
      {"timeUnixNano": "18446744073709551615", "observedTimeUnixNano": 1544712660300000001,
       "severityNumber": 10, "severityText": "Info", "eventName": "paid", "unknown": {},
       "body": {"stringValue": "a\nb é"},
       "attributes": [
         {"key": "int", "value": {"intValue": "-9223372036854775808"}},
         {"value": {"doubleValue": 0.5}, "key": "double"},
         {"key": "nan", "value": {"doubleValue": "NaN"}},
         {"key": "bytes", "value": {"bytesValue": "AP8="}},
         {"key": "array", "value": {"arrayValue": {"values": [{"intValue": 1}, {}, {"arrayValue": {}}]}}},
         {"key": "map", "value": {"kvlistValue": {"values": [
           {"key": "k", "value": {"kvlistValue": {"values": [{"key": "k", "value": {"stringValue": "v"}}]}}}]}}},
         {"key": "nothing"}],
       "droppedAttributesCount": 2, "flags": 1,
       "traceId": "5B8EFFF798038103D269B633813FC60C", "spanId": "eee19b7ec3c1b174"},
      {"attributes": [], "traceId": "", "severityText": null}],
     "scope": {"name": "lib", "version": "1.2", "attributes": [{"key": "s", "value": {"boolValue": true}}]}},
    {"logRecords": [{}]}],
   "schemaUrl": "https://a/b",
   "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}], "droppedAttributesCount": 3}},
  {"scopeLogs": [{"logRecords": [{}]}, {"logRecords": null}, {}]}, {}]}"#;

#[test]
fn a_record_is_the_same_line_from_json() {
    assert_eq!(all(JSON.as_bytes(), Form::Json).unwrap(), expected());
    for empty in ["{}", r#"{"resourceLogs":[]}"#, r#"{"resourceLogs":null}"#] {
        assert_eq!(all(empty.as_bytes(), Form::Json).unwrap(), "");
    }
}

/// A request with one record.
fn one(record: &str) -> String {
    format!("{{\"resourceLogs\":[{{\"scopeLogs\":[{{\"logRecords\":[{record}]}}]}}]}}")
}

#[test]
fn what_is_no_request_is_refused() {
    for record in [
        "1",
        r#"{"timeUnixNano":"x"}"#,
        r#"{"timeUnixNano":-1}"#,
        r#"{"timeUnixNano":"18446744073709551616"}"#,
        r#"{"severityText":1}"#,
        r#"{"severityNumber":"INFO"}"#,
        r#"{"body":"text"}"#,
        r#"{"body":{"intValue":1.5}}"#,
        r#"{"body":{"boolValue":"x"}}"#,
        r#"{"body":{"doubleValue":"x"}}"#,
        r#"{"attributes":{}}"#,
        r#"{"attributes":[{"key":1}]}"#,
        r#"{"attributes":[{"key":"a","key":"b"}]}"#,
        "{",
    ] {
        let refused = all(one(record).as_bytes(), Form::Json);
        assert!(matches!(refused, Err(Refusal::Malformed(_))), "{record}: {refused:?}");
    }
    assert!(all(b"\"\xff\"", Form::Json).is_err());
    let broken = message(&[part(
        1,
        vec![part(
            2,
            vec![part(
                2,
                vec![part(
                    5,
                    vec![Box::new(|out: &mut Vec<u8>| bytes::encode(1, &b"\xff".to_vec(), out))],
                )],
            )],
        )],
    )]);
    let error = format!("{:?}", all(&broken, Form::Protobuf).unwrap_err());
    assert!(error.contains("not UTF-8"), "{error}");
}

#[test]
fn values_nest_so_deeply_and_no_deeper() {
    let nested = |levels: usize| {
        let (begin, end) = (r#"{"arrayValue":{"values":["#, "]}}");
        let body = format!("{}{{}}{}", begin.repeat(levels - 1), end.repeat(levels - 1));
        all(one(&format!("{{\"body\":{body}}}")).as_bytes(), Form::Json)
    };
    assert!(nested(32).unwrap().contains(&"[".repeat(31)));
    assert!(format!("{:?}", nested(33).unwrap_err()).contains("nest too deeply"));
    assert!(nested(20_000).is_err());
    let nested = |levels: usize| {
        let mut value = Vec::new();
        for _ in 1..levels {
            let mut array = Vec::new();
            bytes::encode(1, &value, &mut array);
            value.clear();
            bytes::encode(5, &array, &mut value);
        }
        let body: Field<'_> = Box::new(move |out| bytes::encode(5, &value, out));
        all(&message(&[part(1, vec![part(2, vec![part(2, vec![body])])])]), Form::Protobuf)
    };
    assert!(nested(32).unwrap().contains(&"[".repeat(31)));
    assert!(format!("{:?}", nested(33).unwrap_err()).contains("nest too deeply"));
    assert!(nested(20_000).is_err());
}

#[test]
fn the_memory_of_lines_is_asked_for() {
    // A million empty records, of two bytes each, that all have a resource of a thousand.
    let long = "x".repeat(1000);
    let records: Field<'_> = Box::new(|out| out.extend(b"\x12\0".repeat(1_000_000)));
    let resource = part(1, vec![attribute(1, "a", text(1, &long))]);
    let body = message(&[part(1, vec![resource, part(2, vec![records])])]);
    let mut most = 0;
    let refused = lines(&body, Form::Protobuf, |bytes| {
        most = bytes;
        if bytes > 1 << 20 { Err(Refusal::TooLong) } else { Ok(()) }
    });
    assert_eq!(refused, Err(Refusal::TooLong));
    assert!(most < (1 << 20) + 2000, "{most}");
}

#[test]
fn answers_have_the_form_of_the_request() {
    assert_eq!(answer(Form::Json, 0, None), b"{}");
    assert!(answer(Form::Protobuf, 0, None).is_empty());
    let told: serde_json::Value =
        serde_json::from_slice(&answer(Form::Json, 2, Some((7, "depth")))).unwrap();
    assert_eq!(told["partialSuccess"]["rejectedLogRecords"], "2");
    let message = "rejected; the first is record 7: depth";
    assert_eq!(told["partialSuccess"]["errorMessage"], message);
    let mut expected = vec![10, 2 + 2 + message.len() as u8, 8, 2, 18, message.len() as u8];
    expected.extend_from_slice(message.as_bytes());
    assert_eq!(answer(Form::Protobuf, 2, Some((7, "depth"))), expected);
}
