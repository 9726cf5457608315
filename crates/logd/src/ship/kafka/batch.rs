//! A shipment as Kafka's batch of records, format 2.
//!
//! <https://kafka.apache.org/documentation/#recordbatch> has the format. A record has no key, because the stream
//! chooses the partition. The headers are texts: `origin` (the name of the directory), `stream`, `line`, and `tenant`
//! if the line has one.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{
    packer::Packer,
    wire::{Put, varint_len},
};
use crate::ship::shipment::{Part, Shipment};

/// A producer as Kafka knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Producer {
    pub(super) id: i64,
    pub(super) epoch: i16,
}

/// Returns the sequence number that so many records later has.
pub(super) fn sequence(number: i32, records: u64) -> i32 {
    ((number as u64 + records) & 0x7fff_ffff) as i32
}

/// The headers that all lines of a stream have.
#[derive(Debug)]
pub(super) struct Labels {
    /// Their number is written before them.
    bytes: Vec<u8>,
}

impl Labels {
    pub(super) fn new(origin: &str, stream: u32) -> Labels {
        let mut bytes = Vec::new();
        header(&mut bytes, "origin", origin.as_bytes());
        header(&mut bytes, "stream", stream.to_string().as_bytes());
        Labels { bytes }
    }

    /// Makes the headers of the lines of a part, up to the number of the line.
    fn of(&self, part: &Part) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len() + 32);
        out.varint(if part.tenant.is_some() { 4 } else { 3 });
        out.put(&self.bytes);
        if let Some(tenant) = &part.tenant {
            header(&mut out, "tenant", tenant.as_bytes());
        }
        text(&mut out, b"line");
        out
    }
}

fn header(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    text(out, key.as_bytes());
    text(out, value);
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    out.varint(bytes.len() as i64);
    out.put(bytes);
}

/// Bytes of a batch before what its length counts, and before what its checksum covers.
const LENGTH_AT: usize = 8;
const AFTER_LENGTH: usize = 12;
const CHECKSUM_AT: usize = 17;
const AFTER_CHECKSUM: usize = 21;
/// Bytes of a batch before its attributes, and what those may say.
const ATTRIBUTES_AT: usize = 21;
const TRANSACTIONAL: i16 = 1 << 4;

/// What a batch says of its producer.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) producer: Producer,
    /// That of the first record.
    pub(super) sequence: i32,
    pub(super) is_transactional: bool,
}

/// Adds a batch with the lines of a shipment.
pub(super) fn encode(
    out: &mut Vec<u8>,
    shipment: &Shipment,
    labels: &Labels,
    head: Head,
    packer: &mut Packer,
) {
    let times = || shipment.parts.iter().map(|part| part.time_ms as i64);
    let (first_ms, last_ms) = (times().min().unwrap_or(0), times().max().unwrap_or(0));
    let start = begin(out, (first_ms, last_ms), shipment.lines, head);
    packer.pack(out, start + ATTRIBUTES_AT, |out| records(out, shipment, labels, first_ms));
    end(out, start);
}

/// Adds a transactional batch with one record, which has a key.
pub(super) fn encode_progress(
    out: &mut Vec<u8>,
    (key, value): (&[u8], &[u8]),
    (producer, sequence): (Producer, i32),
) {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let time_ms = time.map_or(0, |time| time.as_millis() as i64);
    let head = Head { producer, sequence, is_transactional: true };
    let start = begin(out, (time_ms, time_ms), 1, head);
    // Attributes, the time and the number of the record, which is the only one; and no headers.
    let mut record = vec![0; 3];
    text(&mut record, key);
    text(&mut record, value);
    record.varint(0);
    text(out, &record);
    end(out, start);
}

/// Adds what comes before the records. Returns where the batch begins.
fn begin(out: &mut Vec<u8>, (first_ms, last_ms): (i64, i64), records: u64, head: Head) -> usize {
    let start = out.len();
    out.i64(0);
    // Its length, which is known at the end.
    out.i32(0);
    // The epoch of the leader, which the broker sets.
    out.i32(-1);
    out.i8(2);
    // Its checksum.
    out.i32(0);
    // No compression, and the time is the producer's.
    out.i16(if head.is_transactional { TRANSACTIONAL } else { 0 });
    out.i32(records as i32 - 1);
    out.i64(first_ms);
    out.i64(last_ms);
    out.i64(head.producer.id);
    out.i16(head.producer.epoch);
    out.i32(head.sequence);
    out.i32(records as i32);
    start
}

/// Sets what is known at the end.
fn end(out: &mut [u8], start: usize) {
    let length = (out.len() - start - AFTER_LENGTH) as i32;
    out[start + LENGTH_AT..][..4].copy_from_slice(&length.to_be_bytes());
    let checksum = crc32c::crc32c(&out[start + AFTER_CHECKSUM..]);
    out[start + CHECKSUM_AT..][..4].copy_from_slice(&checksum.to_be_bytes());
}

fn records(out: &mut Vec<u8>, shipment: &Shipment, labels: &Labels, first_ms: i64) {
    let mut digits = itoa::Buffer::new();
    let mut rest = &shipment.bytes[..];
    let (mut number, mut line_number) = (0, shipment.first_line);
    for part in &shipment.parts {
        let headers = labels.of(part);
        let time = part.time_ms as i64 - first_ms;
        // Attributes, the time, no key, and the length of the line's number, which is one byte.
        let fixed = 1 + varint_len(time) + 1 + headers.len() + 1;
        for _ in 0..part.lines {
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            let digits = digits.format(line_number).as_bytes();
            let value_len = line.len() as i64;
            let own = varint_len(number) + varint_len(value_len) + line.len() + digits.len();
            out.varint((fixed + own) as i64);
            out.i8(0);
            out.varint(time);
            out.varint(number);
            out.varint(-1);
            out.varint(value_len);
            out.put(line);
            out.put(&headers);
            text(out, digits);
            number += 1;
            line_number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::kafka::{
        mock::{Stored, decode},
        packer::Compression,
    };

    fn shipment() -> Shipment {
        let part = |tenant: Option<&str>, time_ms, lines| Part {
            tenant: tenant.map(Into::into),
            time_ms,
            lines,
        };
        let parts = vec![part(Some("web"), 5000, 2), part(None, 4000, 1), part(None, 99_000, 1)];
        let bytes = [&b"{\"a\":1}\n\n"[..], &[b'x'; 300], b"\n1\n"].concat();
        Shipment { first_line: 98, lines: 4, parts, bytes }
    }

    #[test]
    fn a_batch_has_each_line_with_its_time_and_headers() {
        for (compression, is_transactional) in
            [(Compression::None, false), (Compression::Zstd, false), (Compression::Zstd, true)]
        {
            check(Packer::new(compression), is_transactional);
        }
    }

    fn check(mut packer: Packer, is_transactional: bool) {
        let mut out = b"before".to_vec();
        let producer = Producer { id: 1 << 40, epoch: 3 };
        let head = Head { producer, sequence: 41, is_transactional };
        encode(&mut out, &shipment(), &Labels::new("00ff", 7), head, &mut packer);
        let batch = decode(&out[6..]).unwrap();
        assert_eq!((batch.producer, batch.sequence), (producer, 41));
        assert_eq!(batch.is_transactional, is_transactional);
        let lines: Vec<&Stored> = batch.records.iter().collect();
        let expect = |value: &[u8], time_ms, line: &str, tenant: Option<&str>| {
            let mut headers = vec![("origin", "00ff"), ("stream", "7")];
            headers.extend(tenant.map(|tenant| ("tenant", tenant)));
            headers.push(("line", line));
            let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
            let headers = headers.into_iter().map(own).collect();
            Stored { key: None, value: value.to_vec(), time_ms, headers }
        };
        let expected = [
            expect(b"{\"a\":1}", 5000, "98", Some("web")),
            expect(b"", 5000, "99", Some("web")),
            expect(&[b'x'; 300], 4000, "100", None),
            expect(b"1", 99_000, "101", None),
        ];
        assert_eq!(lines, expected.iter().collect::<Vec<_>>());
        // The broker checks the checksum, and so does this.
        for place in 6..out.len() {
            let mut spoilt = out[6..].to_vec();
            spoilt[place - 6] ^= 1;
            let is_covered = place - 6 >= CHECKSUM_AT;
            assert!(!is_covered || decode(&spoilt).is_none(), "flipped at {place}");
        }
    }

    #[test]
    fn progress_is_a_record_with_a_key() {
        let mut out = Vec::new();
        let producer = Producer { id: 7, epoch: 1 };
        encode_progress(&mut out, (b"00ff/7", b"12345"), (producer, 9));
        let batch = decode(&out).unwrap();
        assert_eq!((batch.producer, batch.sequence), (producer, 9));
        assert!(batch.is_transactional);
        let [record] = &batch.records[..] else { panic!("{:?}", batch.records) };
        assert_eq!((record.key.as_deref(), &*record.value), (Some(&b"00ff/7"[..]), &b"12345"[..]));
        assert!(record.time_ms > 1_700_000_000_000 && record.headers.is_empty());
    }

    #[test]
    fn sequence_numbers_begin_again_after_the_last() {
        assert_eq!(sequence(0, 5), 5);
        assert_eq!(sequence(i32::MAX, 1), 0);
        assert_eq!(sequence(i32::MAX - 1, 4), 2);
    }
}
