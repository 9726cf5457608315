//! Batches as the mock reads them from a producer, and as it gives them to a consumer.

use crate::ship::kafka::{
    batch::Producer,
    wire::{Get, Put},
};

/// A record as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Vec<u8>,
    pub(crate) time_ms: i64,
    pub(crate) headers: Vec<(String, String)>,
}

/// A batch.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) producer: Producer,
    pub(crate) sequence: i32,
    pub(crate) is_transactional: bool,
    pub(crate) records: Vec<Stored>,
}

/// Reads a batch. Returns nothing if it is not whole and right to the last bit that its checksum covers.
pub(crate) fn decode(batch: &[u8]) -> Option<Batch> {
    let mut get = Get(batch);
    get.i64()?;
    let length = get.i32()?;
    (length as usize == get.0.len()).then_some(())?;
    get.i32()?;
    (get.i8()? == 2).then_some(())?;
    let checksum = get.i32()?;
    (checksum as u32 == crc32c::crc32c(get.0)).then_some(())?;
    let attributes = get.i16()?;
    // zstd or nothing, and a transaction or none.
    matches!(attributes & !16, 0 | 4).then_some(())?;
    let last = get.i32()?;
    let (first_ms, last_ms) = (get.i64()?, get.i64()?);
    let producer = Producer { id: get.i64()?, epoch: get.i16()? };
    let sequence = get.i32()?;
    let count = get.i32()?;
    (count == last + 1).then_some(())?;
    let plain = match attributes & 4 {
        0 => get.0.to_vec(),
        _ => zstd::decode_all(get.0).ok()?,
    };
    let mut get = Get(&plain);
    let records = (0..count).map(|number| record(&mut get, first_ms, number)).collect();
    let records: Vec<Stored> = Option::from_iter::<Vec<Option<Stored>>>(records)?;
    let is_last = records.iter().map(|record| record.time_ms).max() == Some(last_ms);
    (get.0.is_empty() && is_last).then_some(())?;
    Some(Batch { producer, sequence, is_transactional: attributes & 16 != 0, records })
}

fn record(get: &mut Get<'_>, first_ms: i64, number: i32) -> Option<Stored> {
    let mut own = Get(get.sized()?);
    (own.i8()? == 0).then_some(())?;
    let time_ms = first_ms + own.varint()?;
    (own.varint()? == i64::from(number)).then_some(())?;
    let mut ahead = Get(own.0);
    let key = match ahead.varint()? {
        -1 => {
            own = ahead;
            None
        }
        _ => Some(own.sized()?.to_vec()),
    };
    let value = own.sized()?.to_vec();
    let text = |own: &mut Get<'_>| String::from_utf8(own.sized()?.to_vec()).ok();
    let count = own.varint()?;
    let headers = (0..count).map(|_| Some((text(&mut own)?, text(&mut own)?))).collect();
    let headers = Option::from_iter::<Vec<Option<_>>>(headers)?;
    own.0.is_empty().then_some(Stored { key, value, time_ms, headers })
}

/// Sets the offset of a batch.
pub(super) fn place(batch: &[u8], offset: i64) -> Vec<u8> {
    [&offset.to_be_bytes(), &batch[8..]].concat()
}

/// Makes the marker at the end of a transaction.
pub(super) fn marker(offset: i64, producer: Producer, is_committed: bool) -> Vec<u8> {
    let mut rest = Vec::new();
    // Of a transaction, and for consumers alone.
    rest.i16(16 | 32);
    rest.i32(0);
    rest.i64(0);
    rest.i64(0);
    rest.i64(producer.id);
    rest.i16(producer.epoch);
    rest.i32(-1);
    rest.i32(1);
    let mut record = vec![0; 3];
    record.varint(4);
    record.i16(0);
    record.i16(i16::from(is_committed));
    record.varint(6);
    record.i16(0);
    record.i32(0);
    record.varint(0);
    rest.varint(record.len() as i64);
    rest.put(&record);
    let mut out = Vec::new();
    out.i64(offset);
    out.i32(rest.len() as i32 + 9);
    out.i32(-1);
    out.i8(2);
    out.i32(crc32c::crc32c(&rest) as i32);
    out.put(&rest);
    out
}
