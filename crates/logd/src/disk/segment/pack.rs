//! Packs the lines of a sealed segment into one zstd frame. `zstdcat` and the tools here read it.
//!
//! The index does not change. The packed file is written beside the plain one, read back, compared with the checksums
//! of the index, and synced. Then it gets its name, and when the name is durable the plain file is removed. After a
//! crash at any moment one of the two is whole.

use std::{io, path::Path};

use ringwise::{Descriptor, Local, OpenOptions, Operation};

use super::{
    call::{open, read, read_all, run, sync, sync_directory, unlink, write_all},
    frame::{Checker, Packer},
    scan::{Scan, State},
};
use crate::disk::segment::format::name::{Part, Stream};

/// Bytes to pack before the next check whether to stop: a block of zstd. High levels take long for one, and many times
/// that where others need the processors, while segments wait for their seal.
const CHUNK_BYTES: u64 = 128 << 10;

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
    let mut packing = Packing { local: &mut *local, scan: &scan, level, must_stop };
    let outcome = packing.write(&plain, &packed).and_then(|outcome| {
        let Outcome::Packed { into, .. } = outcome else { return Ok(outcome) };
        sync(packing.local, &packed).map_err(told)?;
        let is_right = packing.is_right(&packed, into)?;
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
struct Packing<'a> {
    local: &'a mut Local,
    scan: &'a Scan,
    level: i32,
    must_stop: &'a mut dyn FnMut() -> bool,
}

impl Packing<'_> {
    /// Writes the frame.
    fn write(&mut self, plain: &Descriptor, packed: &Descriptor) -> Result<Outcome, String> {
        let mut packer = Packer::new(self.scan, self.level).map_err(failed)?;
        let (mut at, mut into) = (0, 0);
        while at < self.scan.end() {
            if (self.must_stop)() {
                return Ok(Outcome::Stopped);
            }
            let (mut taken, end) = (Ok(Vec::new()), self.scan.end().min(at + CHUNK_BYTES));
            let count = read(self.local, plain, at, end, |bytes| {
                if let Ok(frame) = &mut taken {
                    match packer.take(bytes) {
                        Ok(more) => frame.extend(more),
                        Err(error) => taken = Err(error),
                    }
                }
            });
            let frame = taken.map_err(failed)?;
            match count.map_err(told)? {
                0 => return Ok(Outcome::Refused),
                count => at += count,
            }
            write_all(self.local, packed, &frame, into).map_err(told)?;
            into += frame.len() as u64;
        }
        let Some(rest) = packer.finish().map_err(failed)? else { return Ok(Outcome::Refused) };
        write_all(self.local, packed, &rest, into).map_err(told)?;
        Ok(Outcome::Packed { from: at, into: into + rest.len() as u64 })
    }

    /// Whether a packed file matches the index.
    fn is_right(&mut self, packed: &Descriptor, end: u64) -> Result<bool, String> {
        let mut checker = Checker::new(self.scan).map_err(failed)?;
        read(self.local, packed, 0, end, |bytes| checker.take(bytes)).map_err(told)?;
        Ok(checker.is_right())
    }
}

fn failed(error: io::Error) -> String {
    error.to_string()
}

fn told(error: ringwise::Error) -> String {
    error.to_string()
}
