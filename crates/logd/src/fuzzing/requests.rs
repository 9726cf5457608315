//! Requests of other protocols: whatever comes, each line is a line, and an answer has what its protocol asks for.

use crate::{
    intake::{
        Lately, Recent,
        http::{Form, Refusal, bulk as elastic, loki as push, otlp as logs},
    },
    lines::json::{DEPTH_MAX, Reason, Rules},
};

const ROOM_BYTES: usize = 1 << 20;

fn room(bytes: usize) -> Result<(), Refusal> {
    if bytes > ROOM_BYTES { Err(Refusal::TooLong) } else { Ok(()) }
}

/// Each document is a line, and each action has its item.
pub fn bulk(body: &[u8]) {
    let recent = Recent::default();
    let lately = Lately { recent: &recent, tenant: None };
    let Ok(bulk) = elastic::read(body.to_vec(), Some("index"), lately, room) else { return };
    assert!(bulk.lines.is_empty() || bulk.lines.ends_with(b"\n"));
    let lines: Vec<&[u8]> = bulk.lines.split_inclusive(|byte| *byte == b'\n').collect();
    assert!(lines.iter().all(|line| *line != b"\n" && *line != b"\r\n"), "a line is empty");
    let rejected: Vec<_> =
        (1..=lines.len() as u64).step_by(2).map(|line| (line, "syntax")).collect();
    let answer: serde_json::Value =
        serde_json::from_slice(&bulk.answer(&rejected, 1)).expect("an answer is JSON");
    let items = answer["items"].as_array().expect("an answer has items");
    assert_eq!(items.len() as u64, lines.len() as u64 + bulk.refused() + bulk.repeated());
    let statuses = items.iter().flat_map(|item| item.as_object().into_iter().flatten());
    let stored = statuses.filter(|(_, item)| item["status"] == 201).count();
    assert_eq!(stored, lines.len() - rejected.len());
    let same = items.iter().flat_map(|item| item.as_object().into_iter().flatten());
    let same = same.filter(|(_, item)| item["status"] == 200).count();
    assert_eq!(answer["errors"], stored + same < items.len());
    // All that has an `_id` is recognised when it comes again.
    recent.remember(bulk.keys.iter().map(|(_, key)| *key));
    let again = elastic::read(body.to_vec(), Some("index"), lately, room).expect("as before");
    assert_eq!(again.repeated(), bulk.repeated() + bulk.keys.len() as u64);
}

/// Each record is a line.
pub fn otlp(body: &[u8], is_json: bool) {
    let form = if is_json { Form::Json } else { Form::Protobuf };
    if let Ok(lines) = logs::lines(body, form, room) {
        are_lines(&lines, is_json);
    }
}

/// Each entry is a line.
pub fn loki(body: &[u8], is_json: bool) {
    let form = if is_json { Form::Json } else { Form::Protobuf };
    if let Ok(lines) = push::lines(body, form, room) {
        are_lines(&lines, is_json);
    }
}

/// Checks that lines are objects. Strings of JSON go through as they stand, so they may have half of a pair.
fn are_lines(lines: &[u8], is_json: bool) {
    assert!(lines.len() <= ROOM_BYTES);
    let rules = Rules::new(DEPTH_MAX, Vec::new());
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").expect("a line ends");
        assert!(line.starts_with(b"{"));
        if let Err(invalid) = rules.check(line) {
            let line = String::from_utf8_lossy(line);
            assert!(is_json && invalid.reason == Reason::Surrogate, "{invalid:?}: {line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minute of a fuzzer finds more; this sees that what it looks at holds at all.
    #[test]
    fn random_requests_and_nearly_right_ones() {
        let words: [&[u8]; 24] = [
            b"{\"index\":{}}\n",
            b"{\"delete\":{\"_id\":\"1\"}}\n",
            b"{}",
            b"\n",
            b"\r\n",
            b"[",
            b"]",
            b"{",
            b"}",
            b",",
            b"\"1\"",
            b"\"\\ud800\"",
            b"{\"streams\":[{\"stream\":{\"a\":\"b\"},\"values\":[",
            b"[\"1\",\"x\"]",
            b"]}]}",
            b"{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[",
            b"{\"body\":{\"arrayValue\":{\"values\":[{}]}}}",
            b"]}]}]}",
            b"\x0a\x06\x12\x04\x12\x02\x1a\0",
            b"\x0a\x0a",
            b"\x12\x08",
            b"{a=\"b\"}",
            b"\xff",
            b"\0",
        ];
        let mut random = fastrand::Rng::with_seed(4);
        for _ in 0..20_000 {
            let count = random.usize(..12);
            let bytes: Vec<u8> =
                (0..count).flat_map(|_| words[random.usize(..words.len())].to_vec()).collect();
            bulk(&bytes);
            for is_json in [false, true] {
                otlp(&bytes, is_json);
                loki(&bytes, is_json);
            }
        }
    }
}
