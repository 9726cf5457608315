//! What a start makes of the end of the last run.
//!
//! The last segment of a stream may end in a batch that is not whole. It is cut off there, at the
//! end of the last whole batch, and sealed; what is cut is kept beside it. Nothing is appended to a
//! segment of an earlier run. A segment that lacks something which had been durable is no torn tail
//! but damage: it is left as it is, and told.

use std::{collections::BTreeSet, path::Path};

use ringwise::{Descriptor, ErrorKind, Local, OpenOptions, Operation};

use super::{
    appender::{run, sync, write_all},
    entry::{Entry, Kind},
    name::{Part, Stream, parse},
    scan::{Scan, State},
};

/// How much is read at a time, in bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// Where a stream goes on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Recovered {
    pub(crate) next_serial: u64,
    pub(crate) next_line: u64,
    /// What an operator should know, a line each.
    pub(crate) remarks: Vec<String>,
}

/// Looks at a stream's segments among the `names` in `directory`, and ends the last.
///
/// # Errors
///
/// What a call failed with. Doing it again does no harm.
pub(crate) fn recover(
    local: &mut Local,
    directory: &Path,
    names: &[String],
    stream: Stream,
) -> Result<Recovered, ringwise::Error> {
    let own = names.iter().filter_map(|name| parse(name)).filter(|(of, _, _)| *of == stream);
    let serials: BTreeSet<u64> = own.map(|(_, serial, _)| serial).collect();
    let mut recovered = Recovered {
        next_serial: serials.last().map_or(0, |serial| serial + 1),
        ..Recovered::default()
    };
    for &serial in serials.iter().rev() {
        let files = Files::open(local, directory, stream, serial)?;
        let scan = files.scan(local)?;
        match scan.state() {
            // Its first batch was never whole: the stream ends before it.
            State::Empty => continue,
            State::Sealed => {}
            State::Open => {
                let cut = files.cut(local, &scan, directory, &stream.file(serial, Part::Torn))?;
                if cut > 0 {
                    recovered.remarks.push(format!(
                        "{}: {cut} bytes after the last whole batch were not acknowledged as \
                         durable; they are in {}",
                        stream.file(serial, Part::Data).display(),
                        stream.file(serial, Part::Torn).display(),
                    ));
                }
            }
            State::Damaged => recovered.remarks.push(format!(
                "{}: damaged: something that had been stored is missing; it is left as it is, and \
                 `ringwise logd verify` says what",
                stream.file(serial, Part::Data).display()
            )),
        }
        recovered.next_line = scan.next_line();
        break;
    }
    Ok(recovered)
}

/// A segment's files; one that is missing is as good as empty.
struct Files {
    data: Option<Descriptor>,
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
        Ok(Files { data: open(Part::Data)?, index: open(Part::Index)? })
    }

    fn scan(&self, local: &mut Local) -> Result<Scan, ringwise::Error> {
        let mut index = Vec::new();
        if let Some(file) = &self.index {
            read(local, file, 0, u64::MAX, |bytes| index.extend_from_slice(bytes))?;
        }
        Scan::new(&index, |batch| {
            let Some(data) = &self.data else { return Ok(false) };
            let mut checksum = crc32fast::Hasher::new();
            let end = batch.offset.saturating_add(batch.bytes);
            let count = read(local, data, batch.offset, end, |bytes| checksum.update(bytes))?;
            Ok(count == batch.bytes && checksum.finalize() == batch.checksum)
        })
    }

    /// Cuts what comes after the last whole batch, and seals. Says how many bytes that was.
    fn cut(
        &self,
        local: &mut Local,
        scan: &Scan,
        directory: &Path,
        torn: &Path,
    ) -> Result<u64, ringwise::Error> {
        let (Some(data), Some(index)) = (&self.data, &self.index) else { return Ok(0) };
        let mut rest = Vec::new();
        read(local, data, scan.end(), u64::MAX, |bytes| rest.extend_from_slice(bytes))?;
        if !rest.is_empty() {
            keep(local, &rest, directory, torn)?;
            run(local, || Operation::set_len(data, scan.end())).map(drop)?;
        }
        sync(local, data)?;
        // Entries of what was cut go before the seal comes, so that no old one ever follows it.
        run(local, || Operation::set_len(index, scan.index_end())).map(drop)?;
        sync(local, index)?;
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
        Ok(rest.len() as u64)
    }
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
    let directory = super::appender::open_directory(local, directory)?;
    sync(local, &directory)
}

/// Reads from `start` to `end` or the end of the file; says how many bytes there were.
fn read(
    local: &mut Local,
    file: &Descriptor,
    start: u64,
    end: u64,
    mut take: impl FnMut(&[u8]),
) -> Result<u64, ringwise::Error> {
    let (mut at, mut buffer) = (start, vec![0; CHUNK_BYTES]);
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let mut given = Some(buffer);
        let read = || {
            let bytes = given.take().unwrap_or_else(|| vec![0; CHUNK_BYTES]);
            Operation::read_at(file, ringwise::Buffer::from(bytes).slice(..len), at)
        };
        let done = run(local, read)?;
        let count = done.result()?;
        let Some(Ok(bytes)) = done.into_buffer().map(ringwise::Buffer::into_vec) else { break };
        buffer = bytes;
        if count == 0 {
            break;
        }
        take(&buffer[..count]);
        at += count as u64;
    }
    Ok(at - start)
}
