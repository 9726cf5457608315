//! How far a stream is committed, as its progress topic says.
//!
//! Each transaction has one record in partition 0 of that topic, beside its lines: the key is the stream's name, the
//! value is the next line, and the CRC-32 of the one before it: `1000 3f09c2d4`. The topic is compacted, so the last
//! record of each key stays. Only committed records count: the broker says which transactions were aborted, and this
//! leaves their records out.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use super::{
    link::Connection,
    messages::{Code, Edge, Fetched, Refused, fetch, fetched, list_offsets, offset},
    wire::Get,
};
use crate::ship::destination::{Reached, Trouble};

/// The partition of the progress topic that has all records.
pub(super) const PARTITION: i32 = 0;
/// How long other producers' transactions are waited for, of which some may be open.
const WAIT_TIME: Duration = Duration::from_secs(5);

/// Bits of a batch's attributes.
const COMPRESSION: i16 = 7;
const TRANSACTIONAL: i16 = 1 << 4;
const CONTROL: i16 = 1 << 5;

/// How far a stream is committed, as far as it was read.
#[derive(Debug, Default)]
pub(super) struct Position {
    /// What the last record says, if there is one.
    pub(super) reached: Option<Reached>,
    /// The offset up to which the topic was read. What comes later is newer.
    read: Option<i64>,
}

impl Position {
    /// Reads what was added to the topic. The stream's own transactions have all ended.
    pub(super) fn read(
        &mut self,
        connection: &mut Connection,
        (topic, key): (&str, &[u8]),
    ) -> Result<(), Trouble> {
        let place = (topic, PARTITION);
        let ask = |connection: &mut Connection, edge| {
            let answer = connection.call(&list_offsets(place, edge))?;
            offset(&answer).map_err(|why| refused(connection, topic, &why))
        };
        let end = ask(connection, Edge::End)?;
        let mut at = match self.read.filter(|read| *read <= end) {
            Some(read) => read,
            // The first time, or the topic is another one.
            None => ask(connection, Edge::First)?,
        };
        let mut since = Instant::now();
        while at < end {
            let answer = connection.call(&fetch(place, at))?;
            let fetched = match fetched(&answer) {
                Ok(fetched) => fetched,
                // Old records were removed meanwhile.
                Err(Refused::For(Code::OFFSET_OUT_OF_RANGE)) if since.elapsed() < WAIT_TIME => {
                    at = ask(connection, Edge::First)?;
                    continue;
                }
                Err(why) => return Err(refused(connection, topic, &why)),
            };
            let (next, found) = scan(&fetched, key, at)
                .map_err(|why| connection.trouble(&format!("topic {topic}: {why}")))?;
            // Lines only grow. A leader that was cut off may have older records.
            self.reached = [self.reached, found].into_iter().flatten().max_by_key(|it| it.line);
            if next > at {
                since = Instant::now();
            } else if since.elapsed() > WAIT_TIME {
                let why = "a transaction of another stream is open: it should end within a minute (if not: \
                           kafka-transactions.sh abort)";
                return Err(connection.trouble(&format!("topic {topic}: {why}")));
            }
            at = next;
            // The next connection goes on from here, if this one ends.
            self.read = Some(at);
        }
        self.read = Some(at);
        Ok(())
    }
}

fn refused(connection: &Connection, topic: &str, why: &Refused) -> Trouble {
    connection.trouble(&format!("topic {topic} cannot be read: {why}"))
}

/// The value of a record.
pub(super) fn value(Reached { line, checksum }: Reached) -> String {
    match checksum {
        Some(checksum) => format!("{line} {checksum:08x}"),
        None => line.to_string(),
    }
}

/// Reads a value. Older ones are a line only.
fn parse(value: &[u8]) -> Option<Reached> {
    let text = std::str::from_utf8(value).ok()?;
    let (line, checksum) = match text.split_once(' ') {
        Some((line, checksum)) => (line, Some(u32::from_str_radix(checksum, 16).ok()?)),
        None => (text, None),
    };
    Some(Reached { line: line.parse().ok()?, checksum })
}

/// Reads batches. Returns the offset after the last one, and what the last committed record of the key says.
pub(super) fn scan(
    fetched: &Fetched,
    key: &[u8],
    from: i64,
) -> Result<(i64, Option<Reached>), String> {
    let mut begins = fetched.aborted.clone();
    begins.sort_by_key(|(_, offset)| std::cmp::Reverse(*offset));
    let mut aborted = HashSet::new();
    let (mut next, mut reached) = (from, None);
    let mut rest = &fetched.batches[..];
    // The last batch may be there in part.
    while let Some(batch) = Batch::take(&mut rest)? {
        while let Some((producer, _)) = begins.pop_if(|(_, offset)| *offset <= batch.last) {
            aborted.insert(producer);
        }
        next = batch.last + 1;
        if batch.attributes & CONTROL != 0 {
            // Whichever marker it is, it ends a transaction of the producer.
            aborted.remove(&batch.producer);
        } else if batch.attributes & TRANSACTIONAL == 0 || !aborted.contains(&batch.producer) {
            let found = batch.find(key).ok_or("a record is not understood")?;
            reached = found.or(reached);
        }
    }
    Ok((next, reached))
}

/// A batch as a broker sends it.
struct Batch<'a> {
    /// The offset of the last record, which may be gone.
    last: i64,
    attributes: i16,
    producer: i64,
    records: Get<'a>,
    count: i32,
}

impl<'a> Batch<'a> {
    /// Takes a batch off the bytes. Nothing means that the rest is none.
    fn take(rest: &mut &'a [u8]) -> Result<Option<Batch<'a>>, String> {
        let mut get = Get(rest);
        let head = get.i64().zip(get.i32());
        let Some((first_offset, length)) = head else { return Ok(None) };
        let length = usize::try_from(length).map_err(|_| "a batch is not understood")?;
        let Some((own, after)) = get.0.split_at_checked(length) else { return Ok(None) };
        *rest = after;
        let batch = Batch::read(own, first_offset).ok_or("a batch is not understood")?;
        match batch.attributes & COMPRESSION {
            0 => Ok(Some(batch)),
            _ => Err("its records are compressed: set compression.type=producer".to_owned()),
        }
    }

    fn read(own: &'a [u8], first_offset: i64) -> Option<Batch<'a>> {
        let mut get = Get(own);
        get.i32()?;
        (get.i8()? == 2).then_some(())?;
        let checksum = get.i32()? as u32;
        (checksum == crc32c::crc32c(get.0)).then_some(())?;
        let (attributes, last) = (get.i16()?, first_offset + i64::from(get.i32()?));
        get.i64()?;
        get.i64()?;
        let producer = get.i64()?;
        get.i16()?;
        get.i32()?;
        let count = get.i32()?;
        Some(Batch { last, attributes, producer, records: get, count })
    }

    /// Finds the last record of a key. Nothing means that a record is not understood.
    fn find(mut self, key: &[u8]) -> Option<Option<Reached>> {
        let mut reached = None;
        for _ in 0..self.count {
            let mut record = Get(self.records.sized()?);
            record.i8()?;
            record.varint()?;
            record.varint()?;
            let own = record.sized()?;
            let value = record.sized()?;
            if own == key {
                reached = Some(parse(value)?);
            }
        }
        Some(reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::{
        kafka::{
            batch::{Head, Labels, Producer, encode, encode_progress},
            packer::{Compression, Packer},
        },
        shipment::{Part, Shipment},
    };

    const PRODUCER: Producer = Producer { id: 7, epoch: 1 };

    fn fetched(batches: &[u8]) -> Fetched {
        Fetched { aborted: Vec::new(), batches: batches.to_vec() }
    }

    #[test]
    fn what_is_cut_is_left_and_what_is_damaged_is_told() {
        let (mut whole, mut ends) = (Vec::new(), Vec::new());
        // A checksum came later to the values.
        for (number, key, value) in [(0, "a/1", "5"), (1, "b/1", "7 60"), (2, "a/1", "9 70")] {
            let start = whole.len();
            encode_progress(&mut whole, (key.as_bytes(), value.as_bytes()), (PRODUCER, number));
            whole[start..start + 8].copy_from_slice(&i64::from(number).to_be_bytes());
            ends.push(whole.len());
        }
        for len in 0..=whole.len() {
            let expected = match ends.iter().filter(|end| **end <= len).count() {
                0 => (0, None),
                1 => (1, Some(Reached { line: 5, checksum: None })),
                2 => (2, Some(Reached { line: 5, checksum: None })),
                _ => (3, Some(Reached { line: 9, checksum: Some(0x70) })),
            };
            assert_eq!(scan(&fetched(&whole[..len]), b"a/1", 0), Ok(expected), "{len}");
        }
        // Behind the length and the epoch of the leader a checksum covers everything.
        for place in 16..ends[0] {
            let mut spoilt = whole.clone();
            spoilt[place] ^= 1;
            let told = scan(&fetched(&spoilt), b"a/1", 0).unwrap_err();
            assert_eq!(told, "a batch is not understood", "{place}");
        }
    }

    #[test]
    fn records_that_a_broker_compressed_are_told() {
        let parts = vec![Part { tenant: None, time_ms: 1, lines: 1 }];
        let shipment = Shipment { first_line: 0, lines: 1, parts, bytes: vec![b'x'; 1000] };
        let head = Head { producer: PRODUCER, sequence: 0, is_transactional: true };
        let (mut out, mut packer) = (Vec::new(), Packer::new(Compression::Zstd));
        encode(&mut out, &shipment, &Labels::new("00ff", 1), head, &mut packer);
        let told = scan(&fetched(&out), b"a/1", 0).unwrap_err();
        assert!(told.contains("set compression.type=producer"), "{told}");
    }
}
