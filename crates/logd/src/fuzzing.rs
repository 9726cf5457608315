//! Functions of bytes for fuzzers: framing, what a client or a broker may say, requests, configurations and segments. They are not
//! part of the public interface; `fuzz/fuzz_targets` has the programs.
//!
//! Each function panics if something is not as it has to be.

mod packed;
mod requests;

use std::collections::BTreeMap;

pub use packed::{is_frame_of, packed_lines, packed_of};
pub use requests::{bulk, loki, otlp};

use crate::{
    args,
    clients::{
        names::{Mark, Names},
        tenants::Tenants,
    },
    disk::segment::{
        format::entry::{AFTER_SYNC, Entry, Kind},
        reading::{reader::read_all, source::InMemory},
    },
    guarantee::Guarantee,
    intake,
    lines::{
        framing::{Frame, Framer, Framing, octets::Octets},
        json::Rules,
        wrap::Wrap,
    },
    monitoring::{http::try_request, stats::Stats},
    session::{
        connection::{Batch, Connection, Desk, Limits, LongLines, Senders, Step},
        unfinished::Held,
    },
    ship,
};

/// Lines are the same in whatever pieces they come, and no more than the limit is kept of any.
pub fn framing(bytes: &[u8], piece_bytes: usize, line_max: usize, is_counted: bool) {
    let (piece_bytes, line_max) = (piece_bytes.max(1), line_max.max(1));
    let whole = frames(&mut bytes.chunks(bytes.len().max(1)), line_max, is_counted);
    let pieces = frames(&mut bytes.chunks(piece_bytes), line_max, is_counted);
    assert_eq!(whole, pieces, "in pieces of {piece_bytes} bytes");
}

fn frames(
    pieces: &mut dyn Iterator<Item = &[u8]>,
    line_max: usize,
    is_counted: bool,
) -> Vec<(Vec<u8>, String)> {
    let (mut framer, mut octets) = (Framer::default(), Octets::default());
    let mut found = Vec::new();
    let mut note = |piece: &[u8], frame: Frame<'_>| {
        found.push(match frame {
            Frame::Line { line, place } => {
                assert!(line.len() <= line_max && !line.is_empty() && !line.contains(&b'\n'));
                let placed = place.map(|place| &piece[place]);
                assert!(placed.is_none_or(|placed| placed.strip_suffix(b"\n") == Some(line)));
                (line.to_vec(), "line".to_owned())
            }
            Frame::TooLong { start, bytes } => {
                assert!(start.len() as u64 <= bytes);
                (start.to_vec(), format!("too long: {bytes}"))
            }
            Frame::Broken { line, offset } => (line.to_vec(), format!("broken at {offset}")),
            Frame::Lost { byte } => (vec![byte], "lost".to_owned()),
        });
    };
    for piece in pieces {
        let mut take = |frame: Frame<'_>| note(piece, frame);
        match is_counted {
            true => octets.feed(piece, line_max, &mut take),
            false => framer.feed(piece, line_max, &mut take),
        }
        assert!(framer.held() + octets.held() <= line_max + 2);
    }
    // At the end each gives the rest. A line that is not whole may be longer than the limit by its line end.
    let mut rest = |frame: Frame<'_>| {
        if let Frame::TooLong { start, .. } | Frame::Line { line: start, .. } = frame {
            assert!(start.len() <= line_max + 2);
        }
    };
    framer.finish(&mut rest);
    octets.finish(&mut rest);
    found
}

/// Whatever a client says, each answer is one of the protocol, each acknowledged line is stored or a dead
/// letter, and the connection ends.
pub fn greeting(bytes: &[u8], piece_bytes: usize, is_counted: bool) {
    let limits = limits(piece_bytes, is_counted);
    let names = Names::default();
    let tenants = Tenants::new(&[]);
    names.restore(&Mark { name: "web".into(), line: 5, time_ms: 1, network: None });
    let (mut partials, mut batch) = (Held::default(), Batch::default());
    let mut counts = Stats::default();
    let mut connection = Connection::new(1, None, limits.framing, None, &tenants);
    let (mut said, mut stored) = (Vec::new(), 0);
    let mut pieces = bytes.chunks(piece_bytes.max(1));
    let mut has_ended = false;
    for _ in 0..bytes.len() * 2 + 100 {
        let mut desk = Desk {
            limits: &limits,
            guarantee: Guarantee::Durable,
            partials: &mut partials,
            batch: &mut batch,
            names: &names,
            tenants: &tenants,
            counts: &mut counts,
        };
        match pieces.next() {
            Some(piece) => drop(connection.received(piece, &mut desk)),
            None if !std::mem::replace(&mut has_ended, true) => {
                connection.input_ended(&mut desk);
            }
            None => drop(connection.resume(&mut desk)),
        }
        let full = std::mem::take(&mut batch);
        stored += full.line_count + full.letter_count + full.refused_count;
        connection.batch_began(&mut Vec::new());
        connection.batch_committed();
        let mut is_closed = false;
        while let Some(step) = connection.step(&limits, false) {
            match step {
                Step::Send(answer) => {
                    said.extend(answer);
                    connection.sent(b"");
                }
                Step::StopReceiving => connection.receiving_stopped(),
                Step::Receive | Step::EndWriting => {}
                Step::Close => is_closed = true,
            }
        }
        if is_closed {
            return match counts.misdirected {
                0 => answers(&said, stored),
                _ => assert_eq!(stored, 0, "nothing of another protocol is stored"),
            };
        }
    }
    panic!("the connection does not end");
}

pub(crate) fn limits(piece_bytes: usize, is_counted: bool) -> Limits {
    Limits {
        rules: Rules::new(8, Vec::new()),
        line_max: 200,
        long_lines: if piece_bytes.is_multiple_of(2) {
            LongLines::Refuse
        } else {
            LongLines::DeadLetter
        },
        framing: if is_counted { Framing::OctetCounting } else { Framing::Lines },
        wrap: [Wrap::None, Wrap::Raw, Wrap::Syslog][piece_bytes % 3],
        budget_each: 1000,
        budget_all: 10_000,
        commit_max: usize::MAX,
        turn_max: usize::MAX,
        names: (crate::clients::names::NameRule::Anyone, 10),
        tokens: std::sync::Arc::default(),
        senders: Senders::Anyone,
        address_connections: None,
        idle: None,
    }
}

fn answers(said: &[u8], stored: u64) {
    let text = std::str::from_utf8(said).expect("answers are text");
    let mut told = None;
    for line in text.lines() {
        let mut words = line.split(' ');
        match (words.next(), words.next()) {
            (Some("H"), Some("1")) => {
                let from = words.nth(1).map_or(0, |from| from.parse().expect("a number"));
                assert!(told.replace((from, from)).is_none(), "greeted twice: {text}");
            }
            (Some("A"), Some(number)) => {
                let (from, last) = told.expect("an acknowledgement before a greeting");
                let number: u64 = number.parse().expect("a number");
                assert!(number > last && number - from <= stored, "{stored} stored: {text}");
                told = Some((from, number));
            }
            (Some("N"), Some(_)) => assert!(told.is_some(), "{text}"),
            (Some("E"), Some("1")) => {}
            _ => panic!("{line:?} is no answer"),
        }
    }
}

/// Whatever a line is, wrapped it is JSON from which its bytes can be had back: those of the message, which ends the
/// line, and before them fields.
pub fn wrap(line: &[u8]) {
    for wrap in [Wrap::Raw, Wrap::Syslog] {
        let mut wrapped = Vec::new();
        wrap.write(line, &mut wrapped);
        // An object of elements of lists.
        Rules::new(4, Vec::new()).check(&wrapped).expect("JSON");
        assert!(!wrapped.contains(&b'\n'));
        let value: serde_json::Value = serde_json::from_slice(&wrapped).expect("JSON");
        let text = |name: &str| value[name].as_str();
        let message = match text("message_hex") {
            Some(hex) => (0..hex.len() / 2)
                .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).expect("digits"))
                .collect(),
            None => text("message").expect("a message").as_bytes().to_vec(),
        };
        let mut before = line.strip_suffix(&message[..]).expect("the message ends the line");
        if wrap == Wrap::Raw {
            assert_eq!(before, b"");
        }
        // Without a facility there are no fields, and all is the message.
        assert!(before.is_empty() || text("facility").is_some());
        for name in ["timestamp", "host", "app_name", "procid", "msgid"] {
            let Some(field) = text(name) else { continue };
            let place = memchr::memmem::find(before, field.as_bytes()).expect("a part of the line");
            before = &before[place + field.len()..];
        }
    }
}

/// Whatever comes by RELP, it is the same in whatever pieces, and each answer is one of the protocol. What is stored
/// are counted messages.
pub fn relp(bytes: &[u8], piece_bytes: usize) {
    let limits = limits(1, true);
    let whole = intake::try_relp(bytes.chunks(bytes.len().max(1)), &limits);
    assert_eq!(whole, intake::try_relp(bytes.chunks(piece_bytes.max(1)), &limits));
    let stored = frames(&mut whole.stored.chunks(bytes.len().max(1)), usize::MAX - 2, true);
    assert!(stored.iter().all(|(_, kind)| kind == "line" || kind.starts_with("broken")));
    let said = std::str::from_utf8(&whole.said).expect("answers are text");
    let answers = said.matches(" rsp 6 200 OK\n").count();
    assert!(answers >= stored.len(), "{answers} answers, {} stored", stored.len());
}

/// The same by Fluent Forward. What is stored are lines of JSON, or too long.
pub fn fluent(bytes: &[u8], piece_bytes: usize) {
    let limits = limits(1, false);
    let whole = intake::try_fluent(bytes.chunks(bytes.len().max(1)), &limits);
    let pieces = intake::try_fluent(bytes.chunks(piece_bytes.max(1)), &limits);
    // A message that is wrong for two reasons is refused for the one that is seen first.
    let of =
        |trial: &intake::Trial| (trial.stored.clone(), trial.said.clone(), trial.end.is_some());
    assert_eq!(of(&whole), of(&pieces));
    let stored = whole.stored.split_inclusive(|byte| *byte == b'\n');
    for line in stored {
        let line = line.strip_suffix(b"\n").expect("a whole line");
        let judged = Rules::new(128, Vec::new()).check(line);
        // Values nest in an object, which counts.
        let is_deep = judged.is_err_and(|invalid| invalid.reason.code() == "depth");
        assert!(judged.is_ok() || is_deep || line.len() == limits.line_max + 1, "{judged:?}");
    }
}

/// Whatever a broker of Kafka says, it is an answer or none.
pub fn kafka(bytes: &[u8]) {
    ship::kafka::try_answers(bytes);
}

/// Whatever a request to the status page is, it is answered or refused, and reads no lines that it may not read. What
/// comes after it changes nothing.
pub fn page(bytes: &[u8], more: &[u8]) {
    try_request(bytes, more);
}

/// Whatever a configuration says, it is taken or refused in one line.
pub fn configuration(text: &str) {
    if let Err(error) = args::parse(text) {
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// The lines of a segment's whole batches: what recovery and the tools believe of any bytes at all.
pub fn whole_lines(index: &[u8], data: &[u8]) -> Vec<u8> {
    let segment = (index.to_vec(), Some(data.to_vec()));
    // Reading memory does not fail.
    read_all(InMemory(BTreeMap::from([(0, segment)]))).map_or(Vec::new(), |(lines, _)| lines)
}

/// A segment's index as the daemon writes it, for batches of whole lines.
pub fn index_of(batches: &[Vec<u8>], is_synced: bool, is_sealed: bool) -> Vec<u8> {
    let mut index = Entry::new(Kind::Head).encode().to_vec();
    let (mut offset, mut first_line) = (0, 0);
    for (number, bytes) in batches.iter().enumerate() {
        let batch = Entry {
            flags: if is_synced { AFTER_SYNC } else { 0 },
            number: number as u64,
            offset,
            bytes: bytes.len() as u64,
            lines: memchr::memchr_iter(b'\n', bytes).count() as u64,
            first_line,
            checksum: crc32fast::hash(bytes),
            ..Entry::new(Kind::Batch)
        };
        offset += batch.bytes;
        first_line += batch.lines;
        index.extend_from_slice(&batch.encode());
    }
    if is_sealed {
        let seal = Entry {
            number: batches.len() as u64,
            offset,
            lines: first_line,
            first_line,
            ..Entry::new(Kind::Seal)
        };
        index.extend_from_slice(&seal.encode());
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A minute of a fuzzer finds more; this sees that what it looks at holds at all.
    #[test]
    fn random_bytes_and_nearly_right_ones() {
        let words: [&[u8]; 36] = [
            b"LOGD 1",
            b"\n",
            b"\r\n",
            b" name=web",
            b" name=",
            b" ack=durable",
            b"{}",
            b"x",
            b"5 ",
            b"6 ",
            b"[1]",
            b"\xff",
            b"12 ",
            b" ",
            b"\"",
            b"LOGD 1 name=web\n",
            b"GET ",
            b" HTTP/1.1",
            b"\x16\x03",
            b"1 open 15 commands=syslog\n",
            b"2 syslog 2 {}\n",
            b"3 close 0\n",
            b"<13>Oct 11 22:14:15 h su[1]: ",
            b"<13>1 - h a - - [x a=\"\"]",
            b"\x93\xa1a\x01\x80",
            b"\x93\xa1a\xc4\x06\x92\x01\x80\x92\x01\x80\x81\xa5chunk\x90",
            b"\x92",
            b"\0\0\0\x01\0\0",
            b"\0\x05topic\0\0\0\x02",
            b"r=x,s=AAAA,i=4096",
            b"v=",
            b"GET /search?tenant=web&where=a%3D1&limit=3 HTTP/1.1\r\n",
            b"Host: 127.0.0.1\r\n",
            b"Origin: http://127.0.0.1\r\n",
            b"Authorization: Bearer x\r\n",
            b"\r\n\r\n",
        ];
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..3000 {
            let count = random.usize(..30);
            let bytes: Vec<u8> =
                (0..count).flat_map(|_| words[random.usize(..words.len())].to_vec()).collect();
            let (piece, is_counted) = (random.usize(1..20), random.bool());
            wrap(&bytes);
            framing(&bytes, piece, random.usize(1..20), is_counted);
            greeting(&bytes, piece, is_counted);
            relp(&bytes, piece);
            fluent(&bytes, piece);
            kafka(&bytes);
            page(&bytes, b"more");
            configuration(&String::from_utf8_lossy(&bytes));
        }
    }
}
