//! Dead letters: lines that were rejected, as records that say why, and bring the lines back whole.
//!
//! Rejected lines of a connection share a record as long as no other connection's come between, so lines of one
//! byte do not take a hundred times their length. `docs/reference/logd-files.md` describes the records. It does
//! not decide what is rejected.

use std::io::Write;

use crate::lines::{
    json::Reason,
    text::{quote, quote_hex},
};

/// A record takes no more lines when it has so many bytes.
const SHARED_BYTES_MAX: usize = 16 << 10;
/// How a record ends that has one line, and how one that is shared.
const END: &[u8] = b"}\n";
const SHARED_END: &[u8] = b"]]}\n";

/// Why a line was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Invalid(Reason),
    TooLong,
    /// The client's end came before the line's.
    Unterminated,
    /// A counted message has a line end in it.
    LineEnd,
    /// There is no count where one should be.
    Count,
}

impl Cause {
    /// The word for it, in answers and records.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Cause::Invalid(reason) => reason.code(),
            Cause::TooLong => "too-long",
            Cause::Unterminated => "unterminated",
            Cause::LineEnd => "line-end",
            Cause::Count => "count",
        }
    }
}

/// The record at the end of a batch, if another line may join it.
#[derive(Debug)]
pub(crate) struct Open {
    connection: u64,
    /// Of the last line in it.
    sequence: u64,
    cause: Cause,
    offset: u64,
    /// Where the record begins, what is said of its first line, and that line.
    start: usize,
    fault_start: usize,
    line_start: usize,
    /// Whether the first line is no UTF-8.
    is_hex: bool,
    is_shared: bool,
}

/// What is wrong with a line.
pub(crate) struct Fault {
    pub(crate) cause: Cause,
    /// Bytes of the line before it.
    pub(crate) offset: u64,
    /// All bytes of the line, of which fewer may have been kept.
    pub(crate) bytes: u64,
}

/// A rejected line.
pub(crate) struct Letter<'a> {
    pub(crate) peer: &'a str,
    /// Whose certificate the client showed.
    pub(crate) tenant: Option<&'a str>,
    /// The connection's number, since the daemon started.
    pub(crate) connection: u64,
    /// The line's number in its connection.
    pub(crate) sequence: u64,
    pub(crate) cause: Cause,
    /// Bytes of the line before what is wrong.
    pub(crate) offset: u64,
    /// All bytes of the line; more than there are in `line` where it was too long to be kept.
    pub(crate) bytes: u64,
    pub(crate) line: &'a [u8],
}

impl Letter<'_> {
    /// Appends it to a batch, as a line of JSON or within the last one. What is no UTF-8 goes by hexadecimal
    /// digits. Returns whether it is a line of its own.
    pub(crate) fn write(&self, batch: &mut Vec<u8>, open: &mut Option<Open>) -> bool {
        match open.as_mut().filter(|open| self.may_join(open, batch.len())) {
            Some(open) => {
                open.take(self, batch);
                false
            }
            None => {
                *open = self.begin(batch);
                true
            }
        }
    }

    /// Whether all of the line is there.
    fn is_whole(&self) -> bool {
        self.bytes == self.line.len() as u64
    }

    fn may_join(&self, open: &Open, end: usize) -> bool {
        self.is_whole()
            && open.connection == self.connection
            && end - open.start + self.line.len() <= SHARED_BYTES_MAX
    }

    /// Appends a record of its own, which others may join if the line is whole.
    fn begin(&self, batch: &mut Vec<u8>) -> Option<Open> {
        let start = batch.len();
        self.write_origin(batch);
        let fault_start = batch.len();
        batch.extend_from_slice(b"\"reason\":\"");
        batch.extend_from_slice(self.cause.word().as_bytes());
        batch.extend_from_slice(b"\",");
        if self.offset > 0 {
            batch.extend_from_slice(b"\"offset\":");
            number(self.offset, batch);
            batch.push(b',');
        }
        if !self.is_whole() {
            batch.extend_from_slice(b"\"bytes\":");
            number(self.bytes, batch);
            batch.push(b',');
        }
        let text = std::str::from_utf8(self.line).ok();
        batch.extend_from_slice(if text.is_some() { b"\"line\":" } else { b"\"line_hex\":" });
        let line_start = batch.len();
        match text {
            Some(text) => quote(text, batch),
            None => quote_hex(self.line, batch),
        }
        batch.extend_from_slice(END);
        self.is_whole().then_some(Open {
            connection: self.connection,
            sequence: self.sequence,
            cause: self.cause,
            offset: self.offset,
            start,
            fault_start,
            line_start,
            is_hex: text.is_none(),
            is_shared: false,
        })
    }

    /// The beginning of the record, which says who sent the line. Writing to a vector never fails.
    fn write_origin(&self, batch: &mut Vec<u8>) {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let time_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let _ = write!(batch, "{{\"time_ms\":{time_ms},\"peer\":");
        quote(self.peer, batch);
        if let Some(tenant) = self.tenant {
            batch.extend_from_slice(b",\"tenant\":");
            quote(tenant, batch);
        }
        let (connection, sequence) = (self.connection, self.sequence);
        let _ = write!(batch, ",\"connection\":{connection},\"sequence\":{sequence},");
    }
}

impl Open {
    /// Lets a line join the record, which is the last one of the batch.
    fn take(&mut self, letter: &Letter<'_>, batch: &mut Vec<u8>) {
        if !self.is_shared {
            self.share(batch);
        }
        let is_next = letter.sequence == self.sequence + 1;
        batch.truncate(batch.len() - SHARED_END.len());
        if !is_next || letter.cause != self.cause || letter.offset != self.offset {
            batch.push(b']');
            if !is_next {
                batch.push(b',');
                number(letter.sequence, batch);
            }
            batch.push(b',');
            (self.cause, self.offset) = (letter.cause, letter.offset);
            self.begin_group(batch);
        }
        batch.push(b',');
        match std::str::from_utf8(letter.line) {
            Ok(text) => quote(text, batch),
            Err(_) => {
                batch.push(b'[');
                quote_hex(letter.line, batch);
                batch.push(b']');
            }
        }
        batch.extend_from_slice(SHARED_END);
        self.sequence = letter.sequence;
    }

    /// Gives the record of one line the form of those that have several.
    fn share(&mut self, batch: &mut Vec<u8>) {
        let mut head = b"\"letters\":[".to_vec();
        self.begin_group(&mut head);
        head.push(b',');
        if self.is_hex {
            head.push(b'[');
        }
        batch.truncate(batch.len() - END.len());
        batch.splice(self.fault_start..self.line_start, head);
        if self.is_hex {
            batch.push(b']');
        }
        batch.extend_from_slice(SHARED_END);
        self.is_shared = true;
    }

    /// Says what is wrong with the lines that follow.
    fn begin_group(&self, batch: &mut Vec<u8>) {
        batch.extend_from_slice(b"[\"");
        batch.extend_from_slice(self.cause.word().as_bytes());
        batch.extend_from_slice(b"\",");
        number(self.offset, batch);
    }
}

/// Appends a number of JSON.
fn number(number: u64, batch: &mut Vec<u8>) {
    serde_json::to_writer(batch, &number).expect("numbers are JSON, and a vector takes all of it");
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::lines::json::Rules;

    #[test]
    fn a_letter_is_a_line_of_json_and_brings_the_line_back() {
        for line in [&b"{\"a\":\n"[..], b"\xff\x00", "\u{1}\"\\\u{e9}".as_bytes(), b""] {
            let mut batch = Vec::new();
            let letter = Letter {
                peer: "127.0.0.1:1",
                tenant: None,
                connection: 1,
                sequence: 2,
                cause: SYNTAX,
                offset: 3,
                bytes: 4,
                line,
            };
            assert!(letter.write(&mut batch, &mut None));
            let record = batch.strip_suffix(b"\n").unwrap();
            Rules::new(2, Vec::new()).check(record).unwrap();
            assert!(!record.contains(&b'\n'));
            let value: Value = serde_json::from_slice(record).unwrap();
            assert_eq!((&value["reason"], &value["offset"]), (&"syntax".into(), &3.into()));
            assert_eq!(
                value.get("bytes").is_none(),
                line.len() == 4,
                "only where it is not the line's"
            );
            match std::str::from_utf8(line) {
                Ok(text) => assert_eq!(value["line"], text),
                Err(_) => assert_eq!(value["line_hex"], "ff00"),
            }
        }
    }

    const SYNTAX: Cause = Cause::Invalid(Reason::Syntax);
    const DEPTH: Cause = Cause::Invalid(Reason::Depth);
    const UTF8: Cause = Cause::Invalid(Reason::Utf8);

    fn letter(sequence: u64, cause: Cause, offset: u64, line: &[u8]) -> Letter<'_> {
        let bytes = line.len() as u64;
        let (peer, tenant) = ("127.0.0.1:1", Some("a \"tenant\""));
        Letter { peer, tenant, connection: 7, sequence, cause, offset, bytes, line }
    }

    /// The records of these lines, without time and sender, and whether each line began one.
    fn records(letters: &[Letter<'_>]) -> (Vec<Value>, Vec<bool>) {
        let (mut batch, mut open) = (Vec::new(), None);
        let own = letters.iter().map(|letter| letter.write(&mut batch, &mut open)).collect();
        let text = String::from_utf8(batch).unwrap();
        let record = |line: &str| {
            let mut record: Value = serde_json::from_str(line).unwrap();
            let fields = record.as_object_mut().unwrap();
            assert!(fields.remove("time_ms").is_some_and(|time| time.is_u64()));
            assert_eq!(fields.remove("peer"), Some("127.0.0.1:1".into()));
            assert_eq!(fields.remove("tenant"), Some("a \"tenant\"".into()));
            fields.remove("connection");
            record
        };
        (text.lines().map(record).collect(), own)
    }

    #[test]
    fn lines_of_a_connection_share_a_record_whatever_is_wrong_with_them() {
        let mut letters = vec![
            letter(1, SYNTAX, 0, b"x"),
            letter(2, SYNTAX, 0, b"\"\\"),
            letter(3, SYNTAX, 12, b""),
            letter(4, DEPTH, 12, b"["),
            letter(6, DEPTH, 12, b"a\nb"),
            letter(7, UTF8, 0, b"\xff"),
            letter(8, UTF8, 0, b"\xfe\xff"),
        ];
        let (found, own) = records(&letters);
        let expected = json!({"sequence": 1, "letters": [
            ["syntax", 0, "x", "\"\\"],
            ["syntax", 12, ""],
            ["depth", 12, "["],
            6,
            ["depth", 12, "a\nb"],
            ["utf8", 0, ["ff"], ["feff"]],
        ]});
        assert_eq!(found, [expected]);
        assert_eq!(own.iter().filter(|own| **own).count(), 1);

        // What another connection sends begins anew, and so does what is not there whole.
        letters[2].connection = 8;
        letters[5].bytes = 100;
        let (found, own) = records(&letters);
        let expected = [
            json!({"sequence": 1, "letters": [["syntax", 0, "x", "\"\\"]]}),
            json!({"sequence": 3, "reason": "syntax", "offset": 12, "line": ""}),
            json!({"sequence": 4, "letters": [["depth", 12, "["], 6, ["depth", 12, "a\nb"]]}),
            json!({"sequence": 7, "reason": "utf8", "bytes": 100, "line_hex": "ff"}),
            json!({"sequence": 8, "reason": "utf8", "line_hex": "feff"}),
        ];
        assert_eq!(found, expected);
        assert_eq!(own, [true, false, true, true, false, true, true]);
    }

    #[test]
    fn a_first_line_of_any_kind_may_be_joined() {
        for (first, line) in [(&b"\xff"[..], json!(["ff"])), (b"", json!("")), (b"\"", json!("\""))]
        {
            let (found, _) = records(&[letter(5, UTF8, 1234, first), letter(6, UTF8, 1234, b"y")]);
            assert_eq!(found, [json!({"sequence": 5, "letters": [["utf8", 1234, line, "y"]]})]);
        }
    }

    #[test]
    fn a_record_takes_so_many_lines_and_no_more() {
        let line = [b'x'; 1000];
        let (mut batch, mut open) = (Vec::new(), None);
        for sequence in 1..=100 {
            letter(sequence, SYNTAX, 0, &line).write(&mut batch, &mut open);
        }
        let lengths: Vec<usize> = batch.split(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        assert!(lengths.iter().all(|length| *length <= SHARED_BYTES_MAX), "{lengths:?}");
        assert_eq!(lengths.len(), 100_usize.div_ceil(16) + 1, "{lengths:?}");
    }
}
