//! The mock's coordinator of transactions, and its answers to who reads.

use std::collections::BTreeSet;

use super::{Place, State};
use crate::ship::kafka::{
    batch::Producer,
    wire::{Get, Put},
};

/// A transactional id.
#[derive(Default)]
pub(super) struct Transactional {
    id: i64,
    epoch: i16,
    /// The partitions of the open transaction.
    pub(super) open: BTreeSet<Place>,
    /// Markers of the last transaction are still written.
    is_ending: bool,
}

const INVALID_PRODUCER_EPOCH: i16 = 47;
const INVALID_TXN_STATE: i16 = 48;
const CONCURRENT_TRANSACTIONS: i16 = 51;

impl State {
    /// Gives the producer of a transactional id a new epoch, once its transaction has ended.
    pub(super) fn renew(&mut self, id: &str) -> (i16, Producer) {
        let given = self.given;
        let own = self.transactional.entry(id.to_owned()).or_default();
        if own.id == 0 {
            own.id = given;
        }
        own.epoch += 1;
        own.is_ending = false;
        let producer = Producer { id: own.id, epoch: own.epoch };
        let is_open = !own.open.is_empty();
        self.producers
            .insert(producer.id, super::Known { epoch: producer.epoch, ..Default::default() });
        if is_open {
            self.finish(id, false);
            return (CONCURRENT_TRANSACTIONS, producer);
        }
        (0, producer)
    }

    fn finish(&mut self, id: &str, is_committed: bool) {
        let Some(own) = self.transactional.get_mut(id) else { return };
        let producer = Producer { id: own.id, epoch: own.epoch };
        for place in std::mem::take(&mut own.open) {
            self.logs.entry(place).or_default().finish(producer, is_committed);
        }
    }

    /// Whether a request is of the newest producer of its id.
    fn check(&mut self, get: &mut Get<'_>) -> Option<(String, i16)> {
        let (id, producer) = (get.string()?, Producer { id: get.i64()?, epoch: get.i16()? });
        let own = self.transactional.get(id)?;
        let is_own = (own.id, own.epoch) == (producer.id, producer.epoch);
        Some((id.to_owned(), if is_own { 0 } else { INVALID_PRODUCER_EPOCH }))
    }

    pub(super) fn add_partitions(
        &mut self,
        get: &mut Get<'_>,
        out: &mut Vec<u8>,
        refused: Option<i16>,
    ) -> Option<()> {
        let (id, code) = self.check(get)?;
        let topics = get.list(|get| Some((get.string()?.to_owned(), get.list(Get::i32)?)))?;
        let own = self.transactional.get_mut(&id)?;
        let is_ending = std::mem::take(&mut own.is_ending);
        let late = is_ending.then_some(CONCURRENT_TRANSACTIONS);
        let code = refused.or(late).unwrap_or(code);
        out.i32(0);
        out.i32(topics.len() as i32);
        for (topic, partitions) in topics {
            out.string(&topic);
            out.i32(partitions.len() as i32);
            for partition in partitions {
                out.i32(partition);
                out.i16(code);
                if code == 0 {
                    own.open.insert((topic.clone(), partition));
                }
            }
        }
        Some(())
    }

    pub(super) fn end(
        &mut self,
        get: &mut Get<'_>,
        out: &mut Vec<u8>,
        refused: Option<i16>,
    ) -> Option<()> {
        let (id, mut code) = self.check(get)?;
        let is_committed = get.i8()? == 1;
        let own = self.transactional.get_mut(&id)?;
        if code == 0 && own.open.is_empty() {
            code = INVALID_TXN_STATE;
        }
        let code = refused.unwrap_or(code);
        if code == 0 {
            own.is_ending = true;
            self.finish(&id, is_committed);
        }
        out.i32(0);
        out.i16(code);
        Some(())
    }

    pub(super) fn list_offsets(
        &mut self,
        get: &mut Get<'_>,
        out: &mut Vec<u8>,
        code: i16,
    ) -> Option<()> {
        assert_eq!((get.i32()?, get.i8()?, get.i32()?), (-1, 0, 1));
        let topic = get.string()?;
        assert_eq!(get.i32()?, 1);
        let (partition, time) = (get.i32()?, get.i64()?);
        let log = self.logs.entry((topic.to_owned(), partition)).or_default();
        begin(out, (topic, partition), code);
        out.i64(-1);
        out.i64(if time == -2 { log.first } else { log.end });
        Some(())
    }

    pub(super) fn fetch(&mut self, get: &mut Get<'_>, out: &mut Vec<u8>, code: i16) -> Option<()> {
        assert_eq!(get.i32()?, -1);
        // How long it waits, and for how many bytes.
        for _ in 0..3 {
            get.i32()?;
        }
        assert_eq!((get.i8()?, get.i32()?), (1, 1), "committed records of one topic");
        let topic = get.string()?;
        assert_eq!(get.i32()?, 1);
        let (partition, from) = (get.i32()?, get.i64()?);
        let log = self.logs.entry((topic.to_owned(), partition)).or_default();
        // OFFSET_OUT_OF_RANGE
        let is_there = (log.first..=log.end).contains(&from);
        begin(out, (topic, partition), if is_there { code } else { 1 });
        out.i64(log.end);
        out.i64(log.end);
        let aborted = log.aborted(from);
        out.i32(aborted.len() as i32);
        for (producer, first) in aborted {
            out.i64(producer);
            out.i64(first);
        }
        out.bytes(&if is_there && code == 0 { log.fetch(from) } else { Vec::new() });
        Some(())
    }
}

/// Begins an answer about one partition.
fn begin(out: &mut Vec<u8>, (topic, partition): (&str, i32), code: i16) {
    out.i32(0);
    out.i32(1);
    out.string(topic);
    out.i32(1);
    out.i32(partition);
    out.i16(code);
}
