//! What is sent: lines of JSON, each with a name that no other has, or those of a file.
//!
//! A made line begins with `{"id":"RUN.CONNECTION.NUMBER"`, so that one that is lost, doubled or
//! changed can be told from all others wherever it is found again. The rest is what log lines
//! look like, cut to the length that is wanted.

use super::args::{LINE_BYTES_MIN, Protocol};

const CONNECTION_DIGITS: usize = 5;
const NUMBER_DIGITS: usize = 10;
const KEY_BYTES: usize = 6;
const START: &[u8] = b"{\"id\":\"";
/// Where in a line the connection and the number are.
const CONNECTION_AT: usize = START.len() + KEY_BYTES + 1;
const NUMBER_AT: usize = CONNECTION_AT + CONNECTION_DIGITS + 1;
const NAME_END: usize = NUMBER_AT + NUMBER_DIGITS;
/// Transaction numbers of RELP wrap here; the first is of the greeting.
const TRANSACTIONS: u64 = 999_999_999;

/// What is sent on all connections.
#[derive(Debug)]
pub(super) struct Lines {
    protocol: Protocol,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// A line without its end, all names zero.
    Made { line: Vec<u8> },
    /// The lines of a file without their ends, one behind the other, and where each ends.
    Given { text: Vec<u8>, ends: Vec<usize> },
}

/// A line's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub connection: u64,
    pub number: u64,
}

impl Lines {
    /// Lines of `bytes` bytes, their end included. `key` tells this run from others.
    pub(super) fn made(protocol: Protocol, bytes: usize, key: u64) -> Lines {
        debug_assert!(bytes >= LINE_BYTES_MIN);
        Lines { protocol, content: Content::Made { line: template(bytes - 1, key) } }
    }

    /// The lines of a file. None where there is none.
    pub(super) fn given(protocol: Protocol, file: &[u8]) -> Option<Lines> {
        let (mut text, mut ends) = (Vec::with_capacity(file.len()), Vec::new());
        for line in file.split(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() {
                text.extend_from_slice(line);
                ends.push(text.len());
            }
        }
        (!ends.is_empty()).then_some(Lines { protocol, content: Content::Given { text, ends } })
    }

    /// The line `number` of any connection without its end and, where it was made, without name.
    fn body(&self, number: u64) -> &[u8] {
        match &self.content {
            Content::Made { line } => line,
            Content::Given { text, ends } => {
                let at = (number % ends.len() as u64) as usize;
                let start = if at == 0 { 0 } else { ends[at - 1] };
                &text[start..ends[at]]
            }
        }
    }

    /// How many lines end in `rest`, the last bytes of what was made. Counted lines of a file cannot
    /// be told apart from their middle on: none is said to.
    pub(super) fn ends_in(&self, rest: &[u8]) -> u64 {
        let ends = match (self.protocol, &self.content) {
            // The end of a line is its only LF.
            (Protocol::Lines | Protocol::Relp, _) => memchr::memchr_iter(b'\n', rest).count(),
            (Protocol::OctetCounting, Content::Made { line }) => {
                let mut frame = Vec::new();
                decimal(line.len() as u64, &mut frame);
                rest.len().div_ceil(frame.len() + 1 + line.len())
            }
            (Protocol::OctetCounting, Content::Given { .. }) => 0,
        };
        ends as u64
    }

    /// Appends the lines from `first` on, as the protocol wants them, until there are `count` or
    /// `room` bytes are full: how many they are, at least one.
    pub(super) fn fill(&self, first: Name, count: u64, room: usize, out: &mut Vec<u8>) -> u64 {
        let mut named = Named::new(first);
        let start = out.len();
        let mut made = 0;
        while made < count && (made == 0 || out.len() - start < room) {
            let body = self.body(first.number + made);
            self.begin(first.number + made, body.len(), out);
            let at = out.len();
            out.extend_from_slice(body);
            if let Content::Made { .. } = self.content {
                out[at + CONNECTION_AT..at + NAME_END].copy_from_slice(&named.text);
                named.advance();
            }
            if self.protocol != Protocol::OctetCounting {
                out.push(b'\n');
            }
            made += 1;
        }
        made
    }

    fn begin(&self, number: u64, bytes: usize, out: &mut Vec<u8>) {
        match self.protocol {
            Protocol::Lines => {}
            Protocol::OctetCounting => {
                decimal(bytes as u64, out);
                out.push(b' ');
            }
            Protocol::Relp => {
                decimal(transaction(number), out);
                out.extend_from_slice(b" syslog ");
                decimal(bytes as u64, out);
                out.push(b' ');
            }
        }
    }

    /// The name of a line of this run, if it is one. A line that has such a name and is not what
    /// was sent is an `Err`.
    pub(super) fn name(&self, line: &[u8]) -> Option<Result<Name, ()>> {
        let Content::Made { line: template } = &self.content else { return None };
        if line.get(..CONNECTION_AT) != Some(&template[..CONNECTION_AT]) {
            return None;
        }
        let is_whole = line.len() == template.len()
            && line[NAME_END..] == template[NAME_END..]
            && line[NUMBER_AT - 1] == b'.';
        let number = |range: std::ops::Range<usize>| {
            std::str::from_utf8(&line[range]).ok()?.parse::<u64>().ok()
        };
        let name = is_whole.then(|| {
            let connection = number(CONNECTION_AT..NUMBER_AT - 1)?;
            Some(Name { connection, number: number(NUMBER_AT..NAME_END)? })
        });
        Some(name.flatten().ok_or(()))
    }

    /// Of a file's lines: each that differs, and how often it was sent by connections of which each
    /// sent so many lines. None where they were made.
    pub(super) fn sent_of_each(&self, sent: &[u64]) -> Option<Vec<(&[u8], u64)>> {
        let Content::Given { ends, .. } = &self.content else { return None };
        let count = ends.len() as u64;
        let of =
            |at: u64| sent.iter().map(|&sent| sent / count + u64::from(at < sent % count)).sum();
        Some((0..count).map(|at| (self.body(at), of(at))).collect())
    }
}

/// The transaction of line `number` of a connection.
pub(super) fn transaction(number: u64) -> u64 {
    (number + 1) % TRANSACTIONS + 1
}

fn decimal(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn template(bytes: usize, key: u64) -> Vec<u8> {
    const FIELDS: [&[u8]; 4] = [
        b",\"ts\":\"2026-01-31T23:59:59.999Z\"",
        b",\"level\":\"info\"",
        b",\"status\":200",
        b",\"ms\":12.5",
    ];
    const MESSAGE: &[u8] = b",\"msg\":\"";
    const WORDS: &[u8] = b"request served to 10.0.0.1 after 3 tries, path /v1/items?page=2 ";
    let digit = |at: usize| b"0123456789abcdefghijklmnopqrstuv"[(key >> (5 * at)) as usize % 32];
    let mut line = START.to_vec();
    line.extend((0..KEY_BYTES).map(digit));
    line.extend_from_slice(b".00000.0000000000\"");
    let message = MESSAGE.len() + 2;
    for field in FIELDS {
        if line.len() + field.len() + message <= bytes {
            line.extend_from_slice(field);
        }
    }
    if line.len() + message <= bytes {
        line.extend_from_slice(MESSAGE);
        let words = WORDS.iter().copied().cycle().take(bytes - line.len() - 2);
        line.extend(words.collect::<Vec<u8>>());
        line.push(b'"');
    }
    // Space is allowed before the end of an object (RFC 8259, section 2).
    line.resize(bytes - 1, b' ');
    line.push(b'}');
    line
}

/// The name of one line after the other, as text.
struct Named {
    text: [u8; NAME_END - CONNECTION_AT],
}

impl Named {
    fn new(first: Name) -> Named {
        let Name { connection, number } = first;
        let mut text = [b'.'; NAME_END - CONNECTION_AT];
        let name = format!("{connection:0CONNECTION_DIGITS$}.{number:0NUMBER_DIGITS$}");
        // A number of more digits loses those in front: 10^10 lines of a connection are days.
        let start = name.len() - text.len();
        text.copy_from_slice(&name.as_bytes()[start..]);
        Named { text }
    }

    #[inline]
    fn advance(&mut self) {
        for digit in self.text[CONNECTION_DIGITS + 1..].iter_mut().rev() {
            if *digit != b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &Lines, connection: u64, number: u64, count: u64) -> String {
        let mut out = Vec::new();
        let first = Name { connection, number };
        assert_eq!(lines.fill(first, count, usize::MAX, &mut out), count);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn made_lines_are_json_of_the_length_that_was_asked_for_and_have_names() {
        for bytes in [40, 41, 45, 60, 100, 150, 4096] {
            let lines = Lines::made(Protocol::Lines, bytes, 0x1234_5678);
            let text = text(&lines, 12, 99_999, 3);
            assert_eq!(text.len(), 3 * bytes, "{text}");
            for (line, number) in text.lines().zip(99_999..) {
                let value: serde_json::Value = serde_json::from_str(line).unwrap();
                assert!(value["id"].as_str().unwrap().ends_with(&format!(".00012.{number:010}")));
                let name = Name { connection: 12, number };
                assert_eq!(lines.name(line.as_bytes()), Some(Ok(name)), "{line}");
            }
        }
    }

    #[test]
    fn what_was_changed_or_is_anothers_is_told() {
        let lines = Lines::made(Protocol::Lines, 150, 7);
        let text = text(&lines, 1, 2, 1);
        let line = text.trim_end();
        assert_eq!(lines.name(line.replace("info", "Info").as_bytes()), Some(Err(())));
        assert_eq!(lines.name(&line.as_bytes()[..100]), Some(Err(())));
        assert_eq!(Lines::made(Protocol::Lines, 150, 8).name(line.as_bytes()), None);
        assert_eq!(lines.name(b""), None);
    }

    #[test]
    fn protocols_frame_them() {
        let counted = Lines::given(Protocol::OctetCounting, b"{}\r\n\n[1,2]\nnull").unwrap();
        assert_eq!(text(&counted, 0, 1, 4), "5 [1,2]4 null2 {}5 [1,2]");
        let relp = Lines::given(Protocol::Relp, b"{}\n").unwrap();
        assert_eq!(text(&relp, 0, 8, 2), "10 syslog 2 {}\n11 syslog 2 {}\n");
        assert!(Lines::given(Protocol::Lines, b"\n\r\n").is_none());
        assert_eq!((transaction(0), transaction(TRANSACTIONS - 1)), (2, 1));
    }

    #[test]
    fn the_lines_that_end_in_a_rest_are_counted() {
        for protocol in [Protocol::Lines, Protocol::Relp, Protocol::OctetCounting] {
            let lines = Lines::made(protocol, 100, 1);
            let mut out = Vec::new();
            lines.fill(Name { connection: 0, number: 0 }, 3, usize::MAX, &mut out);
            let whole = out.len();
            for (from, ends) in [(0, 3), (1, 3), (whole / 2, 2), (whole - 1, 1), (whole, 0)] {
                assert_eq!(lines.ends_in(&out[from..]), ends, "{protocol:?} {from}");
            }
        }
    }

    #[test]
    fn a_room_bounds_what_is_made() {
        let lines = Lines::made(Protocol::Lines, 100, 1);
        let mut out = Vec::new();
        assert_eq!(lines.fill(Name { connection: 0, number: 0 }, 50, 950, &mut out), 10);
        assert_eq!(lines.fill(Name { connection: 0, number: 10 }, 50, 0, &mut out), 1);
        assert_eq!(out.len(), 1100);
    }

    #[test]
    fn a_files_lines_are_counted() {
        let lines = Lines::given(Protocol::Lines, b"a\nb\nc\n").unwrap();
        let each: Vec<u64> =
            lines.sent_of_each(&[4, 2]).unwrap().into_iter().map(|(_, count)| count).collect();
        assert_eq!(each, [3, 2, 1]);
    }
}
