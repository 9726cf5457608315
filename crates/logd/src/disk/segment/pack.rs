//! Packs the lines of a sealed segment into one zstd frame. `zstdcat` and the tools here read it.
//!
//! The index does not change. The packed file is written beside the plain one, read back, compared with the checksums
//! of the index, and synced. Then it gets its name, and when the name is durable the plain file is removed. After a
//! crash at any moment one of the two is whole.

use std::{
    io::{self, Write},
    path::Path,
};

use ringwise::{Descriptor, Local, OpenOptions, Operation};

use super::{
    call::{open, read, read_all, run, sync, sync_directory, unlink, write_all},
    scan::{Scan, State},
};
use crate::disk::segment::format::{
    entry::Entry,
    name::{Part, Stream},
};

/// Bytes to pack before the next check whether to stop.
const CHUNK_BYTES: u64 = 1 << 20;

/// The outcome for a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is packed. The sizes are in bytes.
    Packed { from: u64, into: u64 },
    /// It was told to stop. The plain file is unchanged.
    Stopped,
    /// Its lines do not match its index. The plain file is unchanged.
    Refused,
}

/// Packs a sealed segment. It can be called again after an interruption.
///
/// # Errors
///
/// The failure, in a line. The plain file is unchanged.
pub(crate) fn pack(
    local: &mut Local,
    directory: &Path,
    (stream, serial): (Stream, u64),
    level: i32,
    must_stop: &mut dyn FnMut() -> bool,
) -> Result<Outcome, String> {
    let path = |part| directory.join(stream.file(serial, part));
    let plain_path = path(Part::Data);
    let plain = open(local, &plain_path, OpenOptions::new().read(true)).map_err(told)?;
    let index = open(local, &path(Part::Index), OpenOptions::new().read(true)).map_err(told)?;
    let bytes = read_all(local, &index, 0, u64::MAX).map_err(told)?;
    // The bytes are compared with the index while they are packed.
    let scan = Scan::promised(&bytes);
    if scan.state() != State::Sealed {
        return Ok(Outcome::Refused);
    }
    let part = path(Part::Packing);
    let new = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o640);
    let packed = open(local, &part, new).map_err(told)?;
    let mut packer = Packer { local: &mut *local, scan: &scan, level, must_stop };
    let outcome = packer.write(&plain, &packed).and_then(|outcome| {
        let Outcome::Packed { into, .. } = outcome else { return Ok(outcome) };
        sync(packer.local, &packed).map_err(told)?;
        let is_right = packer.is_right(&packed, into)?;
        is_right.then_some(outcome).ok_or_else(|| "the packed file reads back wrong".to_owned())
    });
    let Ok(Outcome::Packed { .. }) = outcome else {
        let removed = unlink(local, &part).map_err(told);
        return outcome.and_then(|outcome| removed.map(|_| outcome));
    };
    let name = path(Part::Packed);
    run(local, || Operation::rename(&part, &name)).map(drop).map_err(told)?;
    sync_directory(local, directory).map_err(told)?;
    unlink(local, &plain_path).map_err(told).and(outcome)
}

/// The state of a packing.
struct Packer<'a> {
    local: &'a mut Local,
    scan: &'a Scan,
    level: i32,
    must_stop: &'a mut dyn FnMut() -> bool,
}

impl Packer<'_> {
    /// Writes the frame.
    fn write(&mut self, plain: &Descriptor, packed: &Descriptor) -> Result<Outcome, String> {
        let mut encoder =
            zstd::stream::write::Encoder::new(Vec::new(), self.level).map_err(failed)?;
        encoder.include_checksum(true).map_err(failed)?;
        encoder.set_pledged_src_size(Some(self.scan.end())).map_err(failed)?;
        let mut sums = Sums::new(&self.scan.batches);
        let (mut at, mut into) = (0, 0);
        while at < self.scan.end() {
            if (self.must_stop)() {
                return Ok(Outcome::Stopped);
            }
            let (mut encoded, end) = (Ok(()), self.scan.end().min(at + CHUNK_BYTES));
            let count = read(self.local, plain, at, end, |bytes| {
                sums.take(bytes);
                if encoded.is_ok() {
                    encoded = encoder.write_all(bytes);
                }
            });
            encoded.map_err(failed)?;
            match count.map_err(told)? {
                0 => return Ok(Outcome::Refused),
                count => at += count,
            }
            let bytes = std::mem::take(encoder.get_mut());
            write_all(self.local, packed, &bytes, into).map_err(told)?;
            into += bytes.len() as u64;
        }
        if !sums.are_right() {
            return Ok(Outcome::Refused);
        }
        let bytes = encoder.finish().map_err(failed)?;
        write_all(self.local, packed, &bytes, into).map_err(told)?;
        Ok(Outcome::Packed { from: at, into: into + bytes.len() as u64 })
    }

    /// Whether a packed file matches the index.
    fn is_right(&mut self, packed: &Descriptor, end: u64) -> Result<bool, String> {
        let sums = Sums::new(&self.scan.batches);
        let mut decoder = zstd::stream::write::Decoder::new(sums).map_err(failed)?;
        let mut decoded = Ok(());
        let count = read(self.local, packed, 0, end, |bytes| {
            if decoded.is_ok() {
                decoded = decoder.write_all(bytes);
            }
        });
        count.map_err(told)?;
        let flushed = decoded.and_then(|()| decoder.flush());
        Ok(flushed.is_ok() && decoder.get_ref().are_right())
    }
}

fn failed(error: io::Error) -> String {
    format!("zstd: {error}")
}

fn told(error: ringwise::Error) -> String {
    error.to_string()
}

/// Compares the checksums of batches with bytes that come in order, in pieces of any size.
struct Sums<'a> {
    batches: &'a [Entry],
    /// Bytes of the current batch so far.
    done: u64,
    sum: crc32fast::Hasher,
    is_wrong: bool,
}

impl<'a> Sums<'a> {
    fn new(batches: &'a [Entry]) -> Sums<'a> {
        Sums { batches, done: 0, sum: crc32fast::Hasher::new(), is_wrong: false }
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some((batch, others)) = self.batches.split_first() else {
                // There are more bytes than the batches have.
                self.is_wrong = true;
                return;
            };
            let left = usize::try_from(batch.bytes - self.done).unwrap_or(usize::MAX);
            let (own, after) = bytes.split_at(left.min(bytes.len()));
            self.sum.update(own);
            self.done += own.len() as u64;
            bytes = after;
            if self.done == batch.bytes {
                let sum = std::mem::take(&mut self.sum).finalize();
                self.is_wrong |= sum != batch.checksum;
                (self.batches, self.done) = (others, 0);
            }
        }
    }

    /// Whether all batches were complete and had the right checksum.
    fn are_right(&self) -> bool {
        self.batches.is_empty() && !self.is_wrong
    }
}

impl Write for Sums<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
