//! Dead letters: lines that were rejected, as records that say why, and bring the lines back whole.
//!
//! Lines of a connection that follow each other and were rejected for the same reason share a record, so that
//! lines of one byte do not take a hundred times their length.

use std::io::Write;

/// A record takes no more lines when it has so many bytes.
const SHARED_BYTES_MAX: usize = 16 << 10;

/// The record at the end of a batch, if another line may join it.
#[derive(Debug)]
pub(crate) struct Open {
    connection: u64,
    /// Of the last line in it.
    sequence: u64,
    reason: &'static str,
    offset: u64,
    /// Where the record begins, and where its key `line` ends.
    start: usize,
    key_end: usize,
    is_shared: bool,
}

/// What is wrong with a line.
pub(crate) struct Fault {
    pub(crate) reason: &'static str,
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
    pub(crate) reason: &'static str,
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
        let text = std::str::from_utf8(self.line).ok();
        if let Some(text) = text
            && let Some(open) = open.as_mut().filter(|open| self.may_join(open, batch.len()))
        {
            open.take(self.sequence, text, batch);
            return false;
        }
        let start = batch.len();
        self.begin(batch);
        *open = None;
        match text {
            Some(text) => {
                batch.extend_from_slice(b"\"line");
                let key_end = batch.len();
                batch.extend_from_slice(b"\":");
                quote(text, batch);
                let (connection, sequence, reason) = (self.connection, self.sequence, self.reason);
                let is_shared = false;
                let new = Open {
                    connection,
                    sequence,
                    reason,
                    offset: self.offset,
                    start,
                    key_end,
                    is_shared,
                };
                *open = self.is_plain().then_some(new);
            }
            None => {
                batch.extend_from_slice(b"\"line_hex\":\"");
                for byte in self.line {
                    let _ = write!(batch, "{byte:02x}");
                }
                batch.push(b'"');
            }
        }
        batch.extend_from_slice(b"}\n");
        true
    }

    /// Whether all of the line is there, and no line end is in it.
    fn is_plain(&self) -> bool {
        self.bytes == self.line.len() as u64 && !self.line.contains(&b'\n')
    }

    fn may_join(&self, open: &Open, end: usize) -> bool {
        self.is_plain()
            && open.connection == self.connection
            && open.sequence + 1 == self.sequence
            && open.reason == self.reason
            && open.offset == self.offset
            && end - open.start + self.line.len() <= SHARED_BYTES_MAX
    }

    /// All of the record before the line. Writing to a vector never fails.
    fn begin(&self, batch: &mut Vec<u8>) {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let time_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let _ = write!(batch, "{{\"time_ms\":{time_ms},\"peer\":");
        quote(self.peer, batch);
        let (connection, sequence, reason) = (self.connection, self.sequence, self.reason);
        let _ = write!(
            batch,
            ",\"connection\":{connection},\"sequence\":{sequence},\"reason\":\"{reason}\","
        );
        if self.offset > 0 {
            let _ = write!(batch, "\"offset\":{},", self.offset);
        }
        if self.bytes != self.line.len() as u64 {
            let _ = write!(batch, "\"bytes\":{},", self.bytes);
        }
        if let Some(tenant) = self.tenant {
            batch.extend_from_slice(b"\"tenant\":");
            quote(tenant, batch);
            batch.push(b',');
        }
    }
}

impl Open {
    /// Lets a line join the record, which is the last one of the batch: `"line":"a"` becomes `"lines":"a\nb"`.
    fn take(&mut self, sequence: u64, text: &str, batch: &mut Vec<u8>) {
        if !self.is_shared {
            batch.insert(self.key_end, b's');
            self.is_shared = true;
        }
        batch.truncate(batch.len() - b"\"}\n".len());
        batch.extend_from_slice(b"\\n");
        let quoted = batch.len();
        quote(text, batch);
        batch.remove(quoted);
        batch.extend_from_slice(b"}\n");
        self.sequence = sequence;
    }
}

/// Appends a string of JSON.
fn quote(text: &str, batch: &mut Vec<u8>) {
    serde_json::to_writer(batch, text).expect("strings are JSON, and a vector takes all of it");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Rules;

    #[test]
    fn a_letter_is_a_line_of_json_and_brings_the_line_back() {
        for line in [&b"{\"a\":\n"[..], b"\xff\x00", "\u{1}\"\\\u{e9}".as_bytes(), b""] {
            let mut batch = Vec::new();
            let letter = Letter {
                peer: "127.0.0.1:1",
                tenant: None,
                connection: 1,
                sequence: 2,
                reason: "syntax",
                offset: 3,
                bytes: 4,
                line,
            };
            assert!(letter.write(&mut batch, &mut None));
            let record = batch.strip_suffix(b"\n").unwrap();
            Rules::new(2, Vec::new()).check(record).unwrap();
            assert!(!record.contains(&b'\n'));
            let value: serde_json::Value = serde_json::from_slice(record).unwrap();
            assert_eq!(value["reason"], "syntax");
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

    fn letter<'a>(sequence: u64, reason: &'static str, line: &'a [u8]) -> Letter<'a> {
        let bytes = line.len() as u64;
        let (peer, tenant) = ("127.0.0.1:1", Some("a \"tenant\""));
        Letter { peer, tenant, connection: 7, sequence, reason, offset: 0, bytes, line }
    }

    #[test]
    fn lines_that_follow_each_other_share_a_record() {
        let (mut batch, mut open) = (Vec::new(), None);
        let lines: [(u64, &'static str, &[u8]); 7] = [
            (1, "syntax", b"x"),
            (2, "syntax", b"\"\\"),
            (3, "syntax", b""),
            (4, "depth", b"["),
            (6, "depth", b"["),
            (7, "depth", b"\xff"),
            (8, "depth", b"a\nb"),
        ];
        let own = lines.map(|(sequence, reason, line)| {
            letter(sequence, reason, line).write(&mut batch, &mut open)
        });
        assert_eq!(own, [true, false, false, true, true, true, true]);
        let text = String::from_utf8(batch).unwrap();
        let records: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records.len(), 5);
        assert_eq!(
            (&records[0]["lines"], &records[0]["sequence"]),
            (&"x\n\"\\\n".into(), &1.into())
        );
        assert!(records[0].get("line").is_none());
        assert_eq!(records[0]["tenant"], "a \"tenant\"");
        assert_eq!((&records[1]["line"], &records[2]["line"]), (&"[".into(), &"[".into()));
        assert_eq!((&records[3]["line_hex"], &records[4]["line"]), (&"ff".into(), &"a\nb".into()));
    }

    #[test]
    fn a_thousand_lines_of_a_byte_take_three_times_their_length() {
        let (mut batch, mut open) = (Vec::new(), None);
        for sequence in 1..=1000 {
            letter(sequence, "syntax", b"x").write(&mut batch, &mut open);
        }
        // Each was two bytes with its end, and is three: the end is written as `\\n`.
        assert!(batch.len() < 3 * 1000 + 200, "{}", batch.len());
    }
}
