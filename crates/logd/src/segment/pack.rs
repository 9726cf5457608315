//! Packing: a sealed segment's lines as one zstd frame, for `zstdcat`, `zstdgrep` and the tools here.
//!
//! The index stays as it is, and speaks of the lines as they were. The packed file is made beside the
//! plain one, read back and compared with the index's checksums, synced, and only then given its
//! name; the plain one goes after that name is durable. So whenever it ends, one of them is whole.

use std::{
    io::{self, Write},
    path::Path,
};

use ringwise::{Descriptor, Local, OpenOptions, Operation};

use super::{
    call::{open_directory, read, run, sync, write_all},
    entry::Entry,
    name::{Part, Stream},
    scan::{Scan, State},
};

/// How much is packed between two looks at whether to stop, in bytes.
const CHUNK_BYTES: u64 = 1 << 20;

/// What became of a segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is packed, from so many bytes into so many.
    Packed { from: u64, into: u64 },
    /// It was told to stop, and left the plain file.
    Stopped,
    /// It is not to be packed, since its lines are not what its index says.
    Refused,
}

/// Packs a sealed segment. Doing it again does no harm, wherever it was cut short.
///
/// # Errors
///
/// What failed, in a line. The plain file is as it was.
pub(crate) fn pack(
    local: &mut Local,
    directory: &Path,
    (stream, serial): (Stream, u64),
    level: i32,
    must_stop: &mut dyn FnMut() -> bool,
) -> Result<Outcome, String> {
    let path = |part| directory.join(stream.file(serial, part));
    let told = |error: ringwise::Error| error.to_string();
    let plain_path = path(Part::Data);
    let plain = open(local, &plain_path, OpenOptions::new().read(true)).map_err(told)?;
    let index = open(local, &path(Part::Index), OpenOptions::new().read(true)).map_err(told)?;
    let mut bytes = Vec::new();
    read(local, &index, 0, u64::MAX, |more| bytes.extend_from_slice(more)).map_err(told)?;
    // What the bytes are worth is looked at while they are packed, once.
    let Ok(scan) = Scan::new(&bytes, |_| Ok::<_, std::convert::Infallible>(true));
    if scan.state() != State::Sealed {
        return Ok(Outcome::Refused);
    }
    let part = path(Part::Packing);
    let new = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o640);
    let packed = open(local, &part, new).map_err(told)?;
    let outcome = write(local, &plain, &packed, &scan, level, must_stop).and_then(|outcome| {
        let Outcome::Packed { into, .. } = outcome else { return Ok(outcome) };
        sync(local, &packed).map_err(told)?;
        let is_right = is_right(local, &packed, &scan, into)?;
        is_right.then_some(outcome).ok_or_else(|| "packed, it reads back otherwise".to_owned())
    });
    let Ok(Outcome::Packed { .. }) = outcome else {
        let removed = run(local, || Operation::unlink(&part)).map_err(told);
        return outcome.and_then(|outcome| removed.map(|_| outcome));
    };
    let name = path(Part::Packed);
    run(local, || Operation::rename(&part, &name)).map(drop).map_err(told)?;
    let handle = open_directory(local, directory).map_err(told)?;
    sync(local, &handle).map_err(told)?;
    run(local, || Operation::unlink(&plain_path)).map_err(told).and(outcome)
}

/// Writes the frame.
fn write(
    local: &mut Local,
    plain: &Descriptor,
    packed: &Descriptor,
    scan: &Scan,
    level: i32,
    must_stop: &mut dyn FnMut() -> bool,
) -> Result<Outcome, String> {
    let failed = |error: io::Error| format!("zstd: {error}");
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level).map_err(failed)?;
    encoder.include_checksum(true).map_err(failed)?;
    encoder.set_pledged_src_size(Some(scan.end())).map_err(failed)?;
    let mut sums = Sums::new(&scan.batches);
    let (mut at, mut into) = (0, 0);
    while at < scan.end() {
        if must_stop() {
            return Ok(Outcome::Stopped);
        }
        let (mut encoded, end) = (Ok(()), scan.end().min(at + CHUNK_BYTES));
        let count = read(local, plain, at, end, |bytes| {
            sums.take(bytes);
            if encoded.is_ok() {
                encoded = encoder.write_all(bytes);
            }
        });
        encoded.map_err(failed)?;
        match count.map_err(|error| error.to_string())? {
            0 => return Ok(Outcome::Refused),
            count => at += count,
        }
        let bytes = std::mem::take(encoder.get_mut());
        write_all(local, packed, &bytes, into).map_err(|error| error.to_string())?;
        into += bytes.len() as u64;
    }
    if !sums.are_right() {
        return Ok(Outcome::Refused);
    }
    let bytes = encoder.finish().map_err(failed)?;
    write_all(local, packed, &bytes, into).map_err(|error| error.to_string())?;
    Ok(Outcome::Packed { from: at, into: into + bytes.len() as u64 })
}

/// Whether a packed file gives the lines that the index speaks of.
fn is_right(local: &mut Local, packed: &Descriptor, scan: &Scan, end: u64) -> Result<bool, String> {
    let failed = |error: io::Error| format!("zstd: {error}");
    let sums = Sums::new(&scan.batches);
    let mut decoder = zstd::stream::write::Decoder::new(sums).map_err(failed)?;
    let mut decoded = Ok(());
    let count = read(local, packed, 0, end, |bytes| {
        if decoded.is_ok() {
            decoded = decoder.write_all(bytes);
        }
    });
    count.map_err(|error| error.to_string())?;
    let flushed = decoded.and_then(|()| decoder.flush());
    Ok(flushed.is_ok() && decoder.get_ref().are_right())
}

fn open(
    local: &mut Local,
    path: &Path,
    options: OpenOptions,
) -> Result<Descriptor, ringwise::Error> {
    run(local, || Operation::open(path, options))?.into_descriptor()
}

/// The checksums of batches that come one after the other, in pieces of any size.
struct Sums<'a> {
    batches: &'a [Entry],
    /// Bytes of the first of them that came.
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
                // More than there were.
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

    /// Whether all came, and as they were.
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
