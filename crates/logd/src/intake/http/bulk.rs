//! Elasticsearch's `_bulk`: actions with documents go in, lines come out, and verdicts on lines become items.
//!
//! A document is stored as it came. Its index and its `_id` are only repeated in the answer, and recognise a document
//! that comes again. It stores nothing itself.

use std::io::Write;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    answer::Refusal,
    json::{Object, is_string, write},
};
use crate::intake::recent::{Key, Lately};

/// The most bytes of the name of an index, as Elasticsearch has it.
const INDEX_BYTES_MAX: usize = 255;
/// About what an item takes, with its error and its part of the answer, beside its names.
const ITEM_BYTES: usize = 280;
const UNSUPPORTED: &str = "only index and create are taken: no document can be changed";
const EXISTS: &str = "version conflict, document already exists";

/// The first line of each pair.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action<'a> {
    #[serde(borrow)]
    Index(Target<'a>),
    Create(Target<'a>),
    Update(Target<'a>),
    Delete(Target<'a>),
}

/// What an action names. The text is JSON, as it came.
#[derive(Deserialize)]
struct Target<'a> {
    #[serde(borrow, rename = "_index")]
    index: Option<&'a RawValue>,
    #[serde(borrow, rename = "_id")]
    id: Option<&'a RawValue>,
}

/// What becomes of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its document is the next line.
    Line,
    /// It was stored before: `index`, whose document is the same.
    Same,
    /// It was stored before: `create`, which only makes what is not there.
    Exists,
    /// It has no document where one has to be.
    Empty,
    /// It would change what is stored.
    Unsupported,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Bulk {
    /// Its documents.
    pub(crate) lines: Vec<u8>,
    /// By what those with an `_id` are recognised if they come again, each with the number of its line.
    pub(crate) keys: Vec<(u64, Key)>,
    /// The beginnings of all items in the answer, up to their status.
    heads: Vec<u8>,
    /// Where each of them ends, and what becomes of it.
    items: Vec<(usize, Fate)>,
}

/// Reads a request. `index` is the one that the path names. `room` is asked for the memory of the items.
pub(crate) fn read(
    mut body: Vec<u8>,
    index: Option<&str>,
    lately: Lately<'_>,
    mut room: impl FnMut(usize) -> Result<(), Refusal>,
) -> Result<Bulk, Refusal> {
    if body.is_empty() {
        return Err(Refusal::malformed("request body is required"));
    }
    if body.last() != Some(&b'\n') {
        return Err(Refusal::malformed("The bulk request must be terminated by a newline [\\n]"));
    }
    if index.is_some_and(|index| index.len() > INDEX_BYTES_MAX) {
        return Err(Refusal::malformed("the name of the index is too long"));
    }
    let (mut heads, mut items) = (Vec::new(), Vec::new());
    let mut named = Named::default();
    let (mut from, mut to, mut number) = (0, 0, 0);
    while from < body.len() {
        let action = line(&body, &mut from, &mut number);
        if body[action.clone()].is_empty() {
            continue;
        }
        let head = heads.len();
        let Begun { mut fate, again } = begin(&body[action], index, &mut heads)
            .map_err(|why| Refusal::malformed(format_args!("line {number}: {why}")))?;
        if let Some(own) = &mut fate {
            if from == body.len() {
                let why = "the document of the last action is missing";
                return Err(Refusal::malformed(format_args!("line {number}: {why}")));
            }
            let document = line(&body, &mut from, &mut number);
            // A carriage return alone is an empty line too, and has no number.
            if *own == Fate::Line && matches!(&body[document.clone()], b"" | b"\r") {
                *own = Fate::Empty;
            }
            if *own == Fate::Line {
                *own = named.fate(&heads[head..], &body[document.clone()], again, lately);
            }
            if *own == Fate::Line {
                // In place: there is an action before each document.
                let bytes = document.len();
                body.copy_within(document, to);
                body[to + bytes] = b'\n';
                to += bytes + 1;
            }
        }
        items.push((heads.len(), fate.unwrap_or(Fate::Unsupported)));
        room(2 * heads.len() + items.len() * ITEM_BYTES)?;
    }
    if items.is_empty() {
        return Err(Refusal::malformed("Validation Failed: 1: no requests added;"));
    }
    body.truncate(to);
    Ok(Bulk { lines: body, keys: named.keys, heads, items })
}

/// The documents with an `_id` of a request.
#[derive(Default)]
struct Named {
    lines: u64,
    keys: Vec<(u64, Key)>,
}

impl Named {
    /// What becomes of a document: a line, unless it was stored before. `head` is the beginning of its item, which
    /// names it. `again` is what it is then, if it has an `_id`.
    fn fate(
        &mut self,
        head: &[u8],
        document: &[u8],
        again: Option<Fate>,
        lately: Lately<'_>,
    ) -> Fate {
        if let Some(again) = again {
            // `index` replaces a document by another one.
            let key = lately.key(head, if again == Fate::Same { document } else { head });
            // Not one of the same request, whose document may be rejected.
            if lately.has(key) {
                return again;
            }
            self.keys.push((self.lines + 1, key));
        }
        self.lines += 1;
        Fate::Line
    }
}

/// The place of the next line, without its end.
fn line(body: &[u8], from: &mut usize, number: &mut u64) -> std::ops::Range<usize> {
    let start = *from;
    let end = memchr::memchr(b'\n', &body[start..]).map_or(body.len(), |at| start + at);
    (*from, *number) = (end + 1, *number + 1);
    start..end - usize::from(body[start..end].ends_with(b"\r"))
}

/// An action that was read.
struct Begun {
    /// What becomes of it, or nothing if no document follows.
    fate: Option<Fate>,
    /// What it is if it was stored before, if it has an `_id`.
    again: Option<Fate>,
}

/// Reads an action and begins its item.
fn begin(action: &[u8], default: Option<&str>, heads: &mut Vec<u8>) -> Result<Begun, String> {
    let action = serde_json::from_slice(action).map_err(|error| {
        format!("expected an action (index, create, update or delete): {error}")
    })?;
    let (verb, target, fate) = match action {
        Action::Index(target) => ("index", target, Some(Fate::Line)),
        Action::Create(target) => ("create", target, Some(Fate::Line)),
        Action::Update(target) => ("update", target, Some(Fate::Unsupported)),
        Action::Delete(target) => ("delete", target, None),
    };
    heads.push(b'{');
    write(heads, verb);
    heads.push(b':');
    let mut head = Object::begin(heads);
    match (target.index, default) {
        (Some(index), _) if !is_string(index) => return Err("_index is no string".to_owned()),
        (Some(index), _) if index.get().len() > INDEX_BYTES_MAX + 2 => {
            return Err("the name of the index is too long".to_owned());
        }
        (Some(index), _) => head.name("_index").extend_from_slice(index.get().as_bytes()),
        (None, Some(index)) => write(head.name("_index"), index),
        (None, None) => return Err("Validation Failed: 1: index is missing;".to_owned()),
    }
    let again = target.id.and(Some(if verb == "create" { Fate::Exists } else { Fate::Same }));
    if let Some(id) = target.id {
        match id.get().as_bytes()[0] {
            b'"' => head.name("_id").extend_from_slice(id.get().as_bytes()),
            b'{' | b'[' => return Err("_id is no string".to_owned()),
            _ => write(head.name("_id"), id.get()),
        }
    }
    Ok(Begun { fate, again })
}

impl Bulk {
    /// How many items hold no line, and are not stored.
    pub(crate) fn refused(&self) -> u64 {
        self.count(&[Fate::Empty, Fate::Unsupported])
    }

    /// How many items were stored before.
    pub(crate) fn repeated(&self) -> u64 {
        self.count(&[Fate::Same, Fate::Exists])
    }

    fn count(&self, fates: &[Fate]) -> u64 {
        self.items.iter().filter(|(_, fate)| fates.contains(fate)).count() as u64
    }

    /// The answer: an item for each action. `rejected` are numbers of lines, from 1, in their order, with the reasons.
    pub(crate) fn answer(&self, rejected: &[(u64, &'static str)], took_ms: u128) -> Vec<u8> {
        let is_wrong = |fate: &Fate| !matches!(fate, Fate::Line | Fate::Same);
        let has_errors = !rejected.is_empty() || self.items.iter().any(|(_, fate)| is_wrong(fate));
        let mut rejected = rejected.iter().peekable();
        let mut text = Vec::with_capacity(self.heads.len() + self.items.len() * 40);
        // Writing to memory does not fail.
        let _ = write!(text, "{{\"took\":{took_ms},\"errors\":{has_errors},\"items\":[");
        let (mut start, mut line) = (0, 0);
        for &(end, fate) in &self.items {
            if start > 0 {
                text.push(b',');
            }
            text.extend_from_slice(&self.heads[start..end]);
            start = end;
            let told = match fate {
                Fate::Line => {
                    line += 1;
                    let reason = rejected.next_if(|(number, _)| *number == line);
                    match reason {
                        None => Ok(("created", 201)),
                        Some((_, reason)) => Err((400, "document_parsing_exception", *reason)),
                    }
                }
                Fate::Same => Ok(("updated", 200)),
                Fate::Exists => Err((409, "version_conflict_engine_exception", EXISTS)),
                Fate::Empty => Err((400, "document_parsing_exception", "incomplete")),
                Fate::Unsupported => Err((400, "illegal_argument_exception", UNSUPPORTED)),
            };
            let _ = match told {
                Ok((result, status)) => {
                    write!(text, ",\"result\":\"{result}\",\"status\":{status}}}}}")
                }
                Err((status, kind, reason)) => write!(
                    text,
                    ",\"status\":{status},\"error\":{{\"type\":\"{kind}\",\"reason\":\"{reason}\"}}}}}}"
                ),
            };
        }
        text.extend_from_slice(b"]}\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::intake::Recent;

    fn read_after(body: &str, index: Option<&str>, recent: &Recent) -> Result<Bulk, Refusal> {
        let lately = Lately { recent, tenant: None };
        read(body.as_bytes().to_vec(), index, lately, |_| Ok(()))
    }

    fn read_all(body: &str, index: Option<&str>) -> Result<Bulk, Refusal> {
        read_after(body, index, &Recent::default())
    }

    fn answer(bulk: &Bulk, rejected: &[(u64, &'static str)]) -> Value {
        serde_json::from_slice(&bulk.answer(rejected, 7)).unwrap()
    }

    #[test]
    fn documents_are_lines_as_they_came_and_each_action_has_its_item() {
        let body = "{\"index\":{\"_index\":\"a\\u00e9\",\"_id\":\"1\"}}\r\n{\"x\": 1}\r\n\n\
                    {\"create\":{\"_id\":7,\"routing\":[1]}}\n{\"y\":\"\u{e9}\"}\n\
                    {\"delete\":{\"_id\":\"9\"}}\n{\"update\":{\"_id\":\"9\"}}\n{\"doc\":{}}\n\
                    {\"index\":{\"_id\":null}}\n\r\n{ \"index\" : {} }\nno JSON\n";
        let bulk = read_all(body, Some("logs")).unwrap();
        assert_eq!(bulk.lines, "{\"x\": 1}\n{\"y\":\"\u{e9}\"}\nno JSON\n".as_bytes());
        let told = answer(&bulk, &[(3, "syntax")]);
        assert_eq!((&told["took"], &told["errors"]), (&7.into(), &true.into()));
        let created = |index: &str, id: Value| json!({"_index": index, "_id": id, "result": "created", "status": 201});
        assert_eq!(told["items"][0], json!({"index": created("a\u{e9}", "1".into())}));
        assert_eq!(told["items"][1], json!({"create": created("logs", "7".into())}));
        let changed = json!({"type": "illegal_argument_exception",
            "reason": "only index and create are taken: no document can be changed"});
        for (place, verb) in [(2, "delete"), (3, "update")] {
            let item = json!({"_index": "logs", "_id": "9", "status": 400, "error": changed});
            assert_eq!(told["items"][place], json!({verb: item}));
        }
        for (place, reason) in [(4, "incomplete"), (5, "syntax")] {
            let error = json!({"type": "document_parsing_exception", "reason": reason});
            let item = json!({"_index": "logs", "status": 400, "error": error});
            assert_eq!(told["items"][place], json!({"index": item}));
        }
        assert_eq!((told["items"].as_array().unwrap().len(), bulk.refused()), (6, 3));
        let bulk = read_all("{\"index\":{}}\n\r\r\n{\"index\":{}}\nno\n", Some("a")).unwrap();
        let told = answer(&bulk, &[(1, "syntax")]);
        assert_eq!(bulk.lines, b"no\n", "a line of a carriage return has no number");
        let reason = |place: usize| &told["items"][place]["index"]["error"]["reason"];
        assert_eq!((reason(0), reason(1)), (&"incomplete".into(), &"syntax".into()));
        let bulk = read_all("{\"index\":{}}\n{}\n", Some("\"")).unwrap();
        let told = answer(&bulk, &[]);
        assert_eq!((&told["errors"], bulk.refused()), (&false.into(), 0));
        assert_eq!(told["items"][0]["index"]["_index"], "\"");
    }

    #[test]
    fn a_document_that_comes_again_is_recognised_by_its_id() {
        let recent = Recent::default();
        let body = "{\"create\":{\"_id\":\"1\"}}\n{\"x\":1}\n{\"index\":{\"_id\":\"2\"}}\n{\"x\":2}\n\
                    {\"index\":{}}\n{\"x\":3}\n{\"create\":{\"_id\":\"1\"}}\n{\"x\":4}\n";
        let first = read_after(body, Some("a"), &recent).unwrap();
        assert_eq!(first.lines, b"{\"x\":1}\n{\"x\":2}\n{\"x\":3}\n{\"x\":4}\n");
        let status = |bulk: &Bulk| -> Vec<u64> {
            let told = answer(bulk, &[]);
            let items = told["items"].as_array().unwrap().iter();
            let item = |item: &Value| item.as_object().unwrap().values().next().cloned().unwrap();
            items.map(|told| item(told)["status"].as_u64().unwrap()).collect()
        };
        assert_eq!(status(&first), [201; 4], "the first of the same request may be rejected");
        assert_eq!((first.repeated(), first.refused()), (0, 0));
        assert_eq!(first.keys.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 4]);
        recent.remember(first.keys.iter().map(|(_, key)| *key));
        let again = read_after(body, Some("a"), &recent).unwrap();
        assert_eq!((&again.lines[..], again.repeated()), (&b"{\"x\":3}\n"[..], 3));
        assert_eq!(status(&again), [409, 200, 201, 409]);
        assert_eq!(answer(&again, &[])["errors"], true);
        // Another index has other documents, and another document replaces one.
        assert_eq!(read_after(body, Some("b"), &recent).unwrap().repeated(), 0);
        let other = "{\"index\":{\"_id\":\"2\"}}\n{\"x\":5}\n";
        assert_eq!(read_after(other, Some("a"), &recent).unwrap().repeated(), 0);
    }

    #[test]
    fn what_is_no_list_of_actions_is_refused_as_a_whole() {
        let long = format!("{{\"index\":{{\"_index\":\"{}\"}}}}\n1\n", "x".repeat(256));
        for (body, told) in [
            ("", "body is required"),
            ("\n\r\n", "no requests added"),
            ("{\"index\":{}}\n{}", "terminated by a newline"),
            ("{\"index\":{}}\n", "line 1: the document of the last action is missing"),
            ("{\"index\":{}}\n1\n{\"index\":{}}\n", "line 3: the document"),
            ("[]\n1\n", "line 1: expected an action"),
            ("{\"upsert\":{}}\n1\n", "unknown variant"),
            ("{\"index\":{},\"create\":{}}\n1\n", "line 1"),
            ("{\"index\":{}}\n1\n{\"index\":{\n1\n", "line 3"),
            ("{\"index\":{\"_index\":1}}\n1\n", "_index is no string"),
            ("{\"index\":{\"_id\":{}}}\n1\n", "_id is no string"),
            (&long, "too long"),
        ] {
            let error = format!("{:?}", read_all(body, Some("a")).unwrap_err());
            assert!(error.contains(told), "{body}: {error}");
        }
        let error = format!("{:?}", read_all("{\"index\":{}}\n1\n", None).unwrap_err());
        assert!(error.contains("index is missing"), "{error}");
        let long = "x".repeat(256);
        assert!(read_all("{\"index\":{}}\n1\n", Some(&long)).is_err());
        let (recent, body) = (Recent::default(), b"{\"index\":{}}\n\xff\n".to_vec());
        let lately = Lately { recent: &recent, tenant: None };
        assert!(read(body, Some("a"), lately, |_| Ok(())).is_ok());
    }

    #[test]
    fn the_memory_of_items_is_asked_for() {
        let body = "{\"index\":{}}\n1\n".repeat(1000).into_bytes();
        let mut most = 0;
        let room = |bytes| {
            most = bytes;
            if bytes > 100_000 { Err(Refusal::TooLong) } else { Ok(()) }
        };
        let recent = Recent::default();
        let lately = Lately { recent: &recent, tenant: None };
        assert_eq!(read(body, Some("a"), lately, room).unwrap_err(), Refusal::TooLong);
        assert!((100_000..101_000).contains(&most), "{most}");
    }
}
