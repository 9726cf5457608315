//! Recovers the segments of the last run at a start.
//!
//! The last segment of a stream may end in a batch that is not whole. Recovery cuts the segment after the last whole
//! batch, keeps the cut bytes in a file beside it, and seals the segment. It appends no lines to a segment of an
//! earlier run. A segment that lacks durable data is damaged: recovery reports it and leaves it unchanged.
//!
//! Earlier segments may also lack their seal, because the disk was full then. Of each it reads the first and the last
//! entry, and ends those that have none.

use std::{collections::BTreeSet, path::Path};

use ringwise::{Descriptor, ErrorKind, Local, OpenOptions, Operation};

use super::{
    call::{is_space, open, read, read_all, run, sync, sync_directory, unlink, write_all},
    scan::{Scan, State},
};
use crate::{
    disk::segment::{
        format::{
            entry::{ENTRY_BYTES, Ends},
            name::{Part, Stream, parse},
        },
        writing::{staging::FILLER, unsealed::Unsealed},
    },
    error::LogdError,
};

/// The point at which a stream continues.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) next_serial: u64,
    pub(crate) next_line: u64,
    /// Messages for the operator.
    pub(crate) remarks: Vec<String>,
}

/// Ends the segments of a stream that the last run did not end. `names` are all names in `directory`.
///
/// # Errors
///
/// The segment on which a syscall failed, and its error. It can be called again.
pub(crate) fn recover(
    local: &mut Local,
    directory: &Path,
    names: &[String],
    stream: Stream,
) -> Result<Recovered, LogdError> {
    let own = names.iter().filter_map(|name| parse(name)).filter(|(of, _, _)| *of == stream);
    let serials: BTreeSet<u64> = own.map(|(_, serial, _)| serial).collect();
    let mut recovered = Recovered {
        next_serial: serials.last().map_or(0, |serial| serial + 1),
        ..Recovered::default()
    };
    let (mut until_line, mut is_end) = (None, true);
    for &serial in serials.iter().rev() {
        let name = stream.file(serial, Part::Data);
        let failed = |error| failed(&directory.join(&name), &error);
        let files = Files::open(local, directory, stream, serial).map_err(failed)?;
        if !is_end && let Some(first_line) = files.ended(local).map_err(failed)? {
            until_line = Some(first_line);
            continue;
        }
        let mut scan = files.scan(local).map_err(failed)?;
        match scan.state() {
            // The first batch of this segment was never whole.
            State::Empty => continue,
            State::Sealed | State::Removed => {}
            State::Open => {
                // The segment failed, and its last batch was written again to the next segment.
                scan.end_at(until_line.unwrap_or(u64::MAX));
                let torn = stream.file(serial, Part::Torn);
                let (cut, is_kept) =
                    files.cut(local, &scan, directory, (&name, &torn)).map_err(failed)?;
                if cut > 0 && until_line.is_none() {
                    let place = match is_kept {
                        true => format!("they are kept in {}", torn.display()),
                        false => "there was no space to keep them".to_owned(),
                    };
                    recovered.remarks.push(format!(
                        "{}: {cut} bytes after the last whole batch were not acknowledged as \
                         durable; {place}",
                        name.display(),
                    ));
                }
            }
            State::Damaged => recovered.remarks.push(format!(
                "{}: damaged: stored data is missing; the segment is left unchanged, and \
                 `ringwise logd verify` says what is missing",
                name.display()
            )),
        }
        if until_line.is_none() {
            recovered.next_line = scan.next_line();
        }
        until_line = scan.first_line();
        is_end &= scan.state() == State::Open;
    }
    Ok(recovered)
}

fn failed(path: &Path, error: &ringwise::Error) -> LogdError {
    let remedy = if is_space(error) { "; free some space, and start again" } else { "" };
    let path = path.display();
    LogdError::Failed(format!("{path}: recovering the segment: {error}{remedy}"))
}

/// The files of a segment. A missing file counts as empty.
struct Files {
    data: Option<Descriptor>,
    packed: Option<Descriptor>,
    index: Option<Descriptor>,
}

impl Files {
    fn open(
        local: &mut Local,
        directory: &Path,
        stream: Stream,
        serial: u64,
    ) -> Result<Files, ringwise::Error> {
        let mut open_part = |part| {
            let path = directory.join(stream.file(serial, part));
            let options = OpenOptions::new().read(true).write(true);
            match open(local, &path, options) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                opened => opened.map(Some),
            }
        };
        Ok(Files {
            data: open_part(Part::Data)?,
            packed: open_part(Part::Packed)?,
            index: open_part(Part::Index)?,
        })
    }

    /// The number of the first line, if the index says that the segment has ended.
    fn ended(&self, local: &mut Local) -> Result<Option<u64>, ringwise::Error> {
        let Some(index) = &self.index else { return Ok(None) };
        let len = run(local, || Operation::statx_descriptor(index))?.metadata()?.len();
        let ends =
            Ends::read(len, |start| read_all(local, index, start, start + ENTRY_BYTES as u64))?;
        let has_ended = ends.seal.is_some() || ends.is_marked();
        Ok(ends.head.filter(|_| has_ended).map(|head| head.first_line))
    }

    fn scan(&self, local: &mut Local) -> Result<Scan, ringwise::Error> {
        let index = match &self.index {
            Some(file) => read_all(local, file, 0, u64::MAX)?,
            None => Vec::new(),
        };
        if self.data.is_none()
            && self.packed.is_none()
            && let Some(removed) = Scan::removed(&index)
        {
            return Ok(removed);
        }
        Scan::new(&index, |batch| {
            // A packed file was verified before it got its name.
            let Some(data) = &self.data else { return Ok(self.packed.is_some()) };
            let mut checksum = crc32fast::Hasher::new();
            let end = batch.offset.saturating_add(batch.bytes);
            let count = read(local, data, batch.offset, end, |bytes| checksum.update(bytes))?;
            Ok(count == batch.bytes && checksum.finalize() == batch.checksum)
        })
    }

    /// Cuts off the bytes after the last whole batch, and seals the segment. Returns the number of cut bytes, and
    /// whether they are kept. Without free space they are not kept, because cutting them off frees space.
    fn cut(
        self,
        local: &mut Local,
        scan: &Scan,
        directory: &Path,
        (name, torn): (&Path, &Path),
    ) -> Result<(u64, bool), ringwise::Error> {
        let (Some(data), Some(index)) = (self.data, self.index) else { return Ok((0, true)) };
        let mut rest = read_all(local, &data, scan.end(), u64::MAX)?;
        // Direct writes fill the last block with spaces.
        while rest.last() == Some(&FILLER) {
            rest.pop();
        }
        let mut is_kept = true;
        if !rest.is_empty() {
            match keep(local, &rest, directory, torn) {
                Err(error) if is_space(&error) => {
                    is_kept = false;
                    // The seal needs this space.
                    let _ = unlink(local, &directory.join(torn));
                }
                kept => kept?,
            }
        }
        write_last_again(local, scan, &data, &index)?;
        // The last run may have failed to sync the names.
        sync_directory(local, directory)?;
        let unsealed = Unsealed {
            name: name.to_owned(),
            data,
            index,
            is_synced: false,
            index_bytes: scan.index_end(),
            is_filled: false,
            // Old entries are cut off first, so that the seal is the last entry.
            is_torn: true,
            batches: scan.batches.len() as u64,
            bytes: scan.end(),
            lines: scan.next_line() - scan.head.map_or(0, |head| head.first_line),
            next_line: scan.next_line(),
        };
        unsealed.seal(local)?;
        Ok((rest.len() as u64, is_kept))
    }
}

/// Writes the last whole batch and its entries again in place. Their sync may have failed in the last run. Then they
/// are in the page cache but not on the disk, and no later sync reports that (fsync(2) reports an error once). Earlier
/// batches were synced, or no durability was promised.
fn write_last_again(
    local: &mut Local,
    scan: &Scan,
    data: &Descriptor,
    index: &Descriptor,
) -> Result<(), ringwise::Error> {
    let Some(last) = scan.batches.last() else { return Ok(()) };
    let bytes = read_all(local, data, last.offset, scan.end())?;
    write_all(local, data, &bytes, last.offset)?;
    let start = scan.last_start();
    let entries = read_all(local, index, start, scan.index_end())?;
    write_all(local, index, &entries, start)
}

/// Stores bytes durably before they are cut off.
fn keep(
    local: &mut Local,
    bytes: &[u8],
    directory: &Path,
    name: &Path,
) -> Result<(), ringwise::Error> {
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o640);
    let file = open(local, &directory.join(name), options)?;
    write_all(local, &file, bytes, 0)?;
    sync(local, &file)?;
    sync_directory(local, directory)
}
