//! The requests of a transactional producer, and those that read its progress topic.
//!
//! The versions are those before brokers add partitions to transactions by themselves (KIP-890), so Kafka 2.4 to 4.x
//! take the same requests. A producer that gets a new epoch after each error needs nothing of the newer ones.

use super::{Kind, Refused, begin, one_partition};
use crate::ship::kafka::{
    batch::Producer,
    messages::Code,
    wire::{Get, Put},
};

pub(super) const FETCH: Kind = Kind { key: 1, version: 4, name: "Fetch" };
pub(super) const LIST_OFFSETS: Kind = Kind { key: 2, version: 2, name: "ListOffsets" };
pub(super) const FIND_COORDINATOR: Kind = Kind { key: 10, version: 1, name: "FindCoordinator" };
pub(super) const ADD_PARTITIONS: Kind = Kind { key: 24, version: 1, name: "AddPartitionsToTxn" };
pub(super) const END: Kind = Kind { key: 26, version: 1, name: "EndTxn" };

/// The most bytes of records in an answer, but for one batch that is larger.
const FETCH_BYTES: i32 = 1 << 20;
/// How long a broker waits for records.
const FETCH_WAIT_MS: i32 = 250;

/// Asks for the broker that keeps the transactions of an id.
pub(crate) fn find_coordinator(id: &str) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, FIND_COORDINATOR);
    out.string(id);
    // Not that of a group of consumers.
    out.i8(1);
    out
}

/// Reads the answer to [`find_coordinator`]: an address.
pub(crate) fn coordinator(answer: &[u8]) -> Result<String, Refused> {
    let mut get = Get(answer);
    let mut read = || {
        get.i32()?;
        let code = Code(get.i16()?);
        get.string()?;
        get.i32()?;
        Some((code, super::address(get.string()?, get.i32()?)))
    };
    let (code, address) = read().ok_or(Refused::Unreadable)?;
    Refused::check(code)?;
    Ok(address)
}

/// Adds partitions to a transaction, which begins with the first of them.
pub(crate) fn add_partitions(
    (id, producer): (&str, Producer),
    partitions: &[(&str, i32)],
) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, ADD_PARTITIONS);
    out.string(id);
    out.i64(producer.id);
    out.i16(producer.epoch);
    out.i32(partitions.len() as i32);
    for (topic, partition) in partitions {
        out.string(topic);
        out.i32(1);
        out.i32(*partition);
    }
    out
}

/// Reads the answer to [`add_partitions`].
pub(crate) fn added(answer: &[u8]) -> Result<(), Refused> {
    let mut get = Get(answer);
    let codes = get.i32().and_then(|_| {
        get.list(|get| {
            get.string()?;
            get.list(|get| {
                get.i32()?;
                get.i16().map(Code)
            })
        })
    });
    let codes = codes.ok_or(Refused::Unreadable)?;
    // Where one is refused, the others were not tried.
    let mut codes = codes.into_iter().flatten();
    let told = codes.find(|code| !matches!(*code, Code::NONE | Code::OPERATION_NOT_ATTEMPTED));
    Refused::check(told.unwrap_or(Code::NONE))
}

/// Commits a transaction.
pub(crate) fn commit(id: &str, producer: Producer) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, END);
    out.string(id);
    out.i64(producer.id);
    out.i16(producer.epoch);
    out.i8(1);
    out
}

/// Reads the answer to [`commit`].
pub(crate) fn committed(answer: &[u8]) -> Result<(), Refused> {
    let mut get = Get(answer);
    let code = get.i32().and_then(|_| get.i16());
    Refused::check(Code(code.ok_or(Refused::Unreadable)?))
}

/// An end of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edge {
    First,
    /// The one after the last record, whether it is committed or not.
    End,
}

/// Asks for the offset of an end of a partition.
pub(crate) fn list_offsets((topic, partition): (&str, i32), edge: Edge) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, LIST_OFFSETS);
    out.i32(-1);
    out.i8(0);
    out.i32(1);
    out.string(topic);
    out.i32(1);
    out.i32(partition);
    out.i64(match edge {
        Edge::First => -2,
        Edge::End => -1,
    });
    out
}

/// Reads the answer to [`list_offsets`].
pub(crate) fn offset(answer: &[u8]) -> Result<i64, Refused> {
    let read = one_partition(answer, |get| {
        get.i32()?;
        let code = Code(get.i16()?);
        get.i64()?;
        Some((code, get.i64()?))
    });
    let (code, offset) = read.ok_or(Refused::Unreadable)?;
    Refused::check(code)?;
    Ok(offset)
}

/// Asks for committed records.
pub(crate) fn fetch((topic, partition): (&str, i32), offset: i64) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, FETCH);
    out.i32(-1);
    out.i32(FETCH_WAIT_MS);
    out.i32(1);
    out.i32(FETCH_BYTES);
    // Committed ones only.
    out.i8(1);
    out.i32(1);
    out.string(topic);
    out.i32(1);
    out.i32(partition);
    out.i64(offset);
    out.i32(FETCH_BYTES);
    out
}

/// Records of a partition, as brokers send them: those of aborted transactions are still among them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// The producers of aborted transactions, and the offset where each begins.
    pub(crate) aborted: Vec<(i64, i64)>,
    pub(crate) batches: Vec<u8>,
}

/// Reads the answer to [`fetch`].
pub(crate) fn fetched(answer: &[u8]) -> Result<Fetched, Refused> {
    let read = one_partition(answer, |get| {
        get.i32()?;
        let code = Code(get.i16()?);
        get.i64()?;
        get.i64()?;
        let aborted = get.list(|get| Some((get.i64()?, get.i64()?)))?;
        Some((code, Fetched { aborted, batches: get.bytes()?.to_vec() }))
    });
    let (code, fetched) = read.ok_or(Refused::Unreadable)?;
    Refused::check(code)?;
    Ok(fetched)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that an answer that is cut anywhere is not understood.
    fn cut<T: std::fmt::Debug>(whole: &[u8], read: impl Fn(&[u8]) -> Result<T, Refused>) -> T {
        for len in 0..whole.len() {
            assert_eq!(read(&whole[..len]).unwrap_err(), Refused::Unreadable, "{len}");
        }
        read(whole).unwrap()
    }

    #[test]
    fn answers_are_read_as_the_protocol_lays_them_out() {
        let mut out = Vec::new();
        out.i32(0);
        out.i16(0);
        out.no_string();
        out.i32(7);
        out.string("::1");
        out.i32(9092);
        assert_eq!(cut(&out, coordinator), "[::1]:9092");
        out[5] = 15;
        assert_eq!(coordinator(&out), Err(Refused::NotYet(Code(15))));
        out[5] = 16;
        assert_eq!(coordinator(&out), Err(Refused::For(Code(16))));

        let answer = |codes: [i16; 2]| {
            let mut out = Vec::new();
            out.i32(0);
            out.i32(2);
            for (code, topic) in codes.into_iter().zip(["logs", "logs-progress"]) {
                out.string(topic);
                out.i32(1);
                out.i32(0);
                out.i16(code);
            }
            out
        };
        cut(&answer([0, 0]), added);
        assert_eq!(added(&answer([55, 3])), Err(Refused::For(Code(3))));
        assert_eq!(added(&answer([0, 51])), Err(Refused::NotYet(Code(51))));

        let mut out = Vec::new();
        out.i32(0);
        out.i16(0);
        cut(&out, committed);

        let begin = |out: &mut Vec<u8>| {
            out.i32(0);
            out.i32(1);
            out.string("logs-progress");
            out.i32(1);
            out.i32(0);
            out.i16(0);
        };
        let mut out = Vec::new();
        begin(&mut out);
        out.i64(-1);
        out.i64(42);
        assert_eq!(cut(&out, offset), 42);

        let mut out = Vec::new();
        begin(&mut out);
        out.i64(9);
        out.i64(8);
        out.i32(1);
        out.i64(7);
        out.i64(3);
        out.bytes(b"records");
        let expected = Fetched { aborted: vec![(7, 3)], batches: b"records".to_vec() };
        assert_eq!(cut(&out, fetched), expected);
    }
}
