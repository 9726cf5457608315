//! What a start makes of the end of the last run.
//!
//! The last segment of a stream may end in a batch that is not whole. It is cut off there, at the
//! end of the last whole batch, and sealed; what is cut is kept beside it. Nothing is appended to a
//! segment of an earlier run. A segment that lacks something which had been durable is no torn tail
//! but damage: it is left as it is, and told.

use std::{collections::BTreeSet, path::Path};

use ringwise::{Descriptor, ErrorKind, Local, OpenOptions, Operation};

use super::{
    call::{is_space, open_directory, read, run, sync, write_all},
    entry::{Entry, Kind},
    name::{Part, Stream, parse},
    scan::{Scan, State},
    staging::FILLER,
};
use crate::error::LogdError;

/// Where a stream goes on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) next_serial: u64,
    pub(crate) next_line: u64,
    /// What an operator should know, a line each.
    pub(crate) remarks: Vec<String>,
}

/// Looks at a stream's segments among the `names` in `directory`, and ends the last, and those before
/// it that were not ended.
///
/// # Errors
///
/// What a call failed with, and on which segment. Doing it again does no harm.
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
    let mut until_line = None;
    for &serial in serials.iter().rev() {
        let name = stream.file(serial, Part::Data);
        let failed = |error| failed(&directory.join(&name), &error);
        let files = Files::open(local, directory, stream, serial).map_err(failed)?;
        let mut scan = files.scan(local).map_err(failed)?;
        match scan.state() {
            // Its first batch was never whole: the stream ends before it.
            State::Empty => continue,
            State::Sealed | State::Removed => {}
            State::Open => {
                // What it had on its way when it failed was written to the next.
                scan.end_at(until_line.unwrap_or(u64::MAX));
                let torn = stream.file(serial, Part::Torn);
                let (cut, is_kept) = files.cut(local, &scan, directory, &torn).map_err(failed)?;
                if cut > 0 && until_line.is_none() {
                    let place = match is_kept {
                        true => format!("they are in {}", torn.display()),
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
                "{}: damaged: something that had been stored is missing; it is left as it is, and \
                 `ringwise logd verify` says what",
                name.display()
            )),
        }
        if until_line.is_none() {
            recovered.next_line = scan.next_line();
        }
        until_line = scan.first_line();
        if scan.state() != State::Open {
            break;
        }
    }
    Ok(recovered)
}

fn failed(path: &Path, error: &ringwise::Error) -> LogdError {
    let remedy = if is_space(error) { ": free some space, and start again" } else { "" };
    let path = path.display();
    LogdError::Failed(format!("{path}: ending it after the last run: {error}{remedy}"))
}

/// A segment's files; one that is missing is as good as empty.
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
        let mut open = |part| {
            let path = directory.join(stream.file(serial, part));
            let options = OpenOptions::new().read(true).write(true);
            match run(local, || Operation::open(&path, options)) {
                Ok(done) => done.into_descriptor().map(Some),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        Ok(Files {
            data: open(Part::Data)?,
            packed: open(Part::Packed)?,
            index: open(Part::Index)?,
        })
    }

    fn scan(&self, local: &mut Local) -> Result<Scan, ringwise::Error> {
        let mut index = Vec::new();
        if let Some(file) = &self.index {
            read(local, file, 0, u64::MAX, |bytes| index.extend_from_slice(bytes))?;
        }
        if self.data.is_none()
            && self.packed.is_none()
            && let Some(removed) = Scan::removed(&index)
        {
            return Ok(removed);
        }
        Scan::new(&index, |batch| {
            // What is packed was read back before it got its name.
            let Some(data) = &self.data else { return Ok(self.packed.is_some()) };
            let mut checksum = crc32fast::Hasher::new();
            let end = batch.offset.saturating_add(batch.bytes);
            let count = read(local, data, batch.offset, end, |bytes| checksum.update(bytes))?;
            Ok(count == batch.bytes && checksum.finalize() == batch.checksum)
        })
    }

    /// Cuts what comes after the last whole batch, and seals. Says how many bytes that was, and
    /// whether they are kept: without space they are not, since to cut them makes some.
    fn cut(
        &self,
        local: &mut Local,
        scan: &Scan,
        directory: &Path,
        torn: &Path,
    ) -> Result<(u64, bool), ringwise::Error> {
        let (Some(data), Some(index)) = (&self.data, &self.index) else { return Ok((0, true)) };
        let mut rest = Vec::new();
        let len = scan.end()
            + read(local, data, scan.end(), u64::MAX, |bytes| rest.extend_from_slice(bytes))?;
        // What fills up the last block is no line.
        while rest.last() == Some(&FILLER) {
            rest.pop();
        }
        let mut is_kept = true;
        if !rest.is_empty() {
            match keep(local, &rest, directory, torn) {
                Err(error) if is_space(&error) => {
                    is_kept = false;
                    // What was written of it takes space that the seal needs.
                    let path = directory.join(torn);
                    let _ = run(local, || Operation::unlink(&path));
                }
                kept => kept?,
            }
        }
        if len > scan.end() {
            run(local, || Operation::set_len(data, scan.end())).map(drop)?;
        }
        write_last_again(local, scan, data, index)?;
        sync(local, data)?;
        // Entries of what was cut go before the seal comes, so that no old one ever follows it.
        run(local, || Operation::set_len(index, scan.index_end())).map(drop)?;
        sync(local, index)?;
        // The names too: what failed may have been their sync.
        let names = open_directory(local, directory)?;
        sync(local, &names)?;
        let first = scan.head.map_or(0, |head| head.first_line);
        let seal = Entry {
            number: scan.batches.len() as u64,
            offset: scan.end(),
            lines: scan.next_line() - first,
            first_line: scan.next_line(),
            ..Entry::new(Kind::Seal)
        };
        write_all(local, index, &seal.encode(), scan.index_end())?;
        sync(local, index)?;
        Ok((rest.len() as u64, is_kept))
    }
}

/// Writes the last whole batch and its entries over themselves. The last run may have ended because
/// their sync failed: they are then in memory and not on the disk, and no later sync tells (fsync(2):
/// an error is reported once). Those before it were synced, or no durability was promised.
fn write_last_again(
    local: &mut Local,
    scan: &Scan,
    data: &Descriptor,
    index: &Descriptor,
) -> Result<(), ringwise::Error> {
    let Some(last) = scan.batches.last() else { return Ok(()) };
    let mut bytes = Vec::new();
    read(local, data, last.offset, scan.end(), |piece| bytes.extend_from_slice(piece))?;
    write_all(local, data, &bytes, last.offset)?;
    let (start, mut entries) = (scan.last_start(), Vec::new());
    read(local, index, start, scan.index_end(), |piece| entries.extend_from_slice(piece))?;
    write_all(local, index, &entries, start)
}

/// Stores what is to be cut off, durably, before it is.
fn keep(
    local: &mut Local,
    bytes: &[u8],
    directory: &Path,
    name: &Path,
) -> Result<(), ringwise::Error> {
    let path = directory.join(name);
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o640);
    let file = run(local, || Operation::open(&path, options))?.into_descriptor()?;
    write_all(local, &file, bytes, 0)?;
    sync(local, &file)?;
    let directory = open_directory(local, directory)?;
    sync(local, &directory)
}
