//! Reads the durable batches of a stream in order, while a thread of the same process writes the stream.
//!
//! `cat` and `tail` read files of which they know nothing, and decide which batches are whole. The follower knows which
//! lines are durable, because the writing thread says so. It reads an open segment's index on from where it was.

use std::{
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{
    disk::segment::{
        format::{
            entry::{ENTRY_BYTES, Entry, Kind},
            name::{Part, Stream},
            record::{Records, StoredPart},
        },
        reading::{
            cursor::until_line,
            reader::place_of,
            source::{InDirectory, Segments, streams},
            view::Segment,
        },
        scan::{Scan, parts_of},
    },
    error::LogdError,
};

/// The lines of a batch.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) first_line: u64,
    /// Their senders, which add up to the lines.
    pub(crate) parts: Vec<StoredPart>,
    pub(crate) bytes: Vec<u8>,
}

/// What comes next in a stream.
#[derive(Debug)]
pub(crate) enum Found {
    Lines(Piece),
    /// These lines are not there: retention removed them, or they are damaged.
    Missing(Range<u64>),
}

/// Reads a stream.
pub(crate) struct Follower {
    directory: PathBuf,
    stream: Stream,
    /// The number of the next line.
    next: u64,
    open: Option<Open>,
}

/// The segment that is being read.
struct Open {
    serial: u64,
    segment: Segment,
    /// Lines from this one on belong to the next segment. A segment that failed may have such lines.
    until_line: u64,
    index_path: PathBuf,
    /// Its index, to read what was added. A new segment has lines before it has an index.
    index: Option<File>,
    /// Up to where the index was looked at.
    at: usize,
    /// Entries of records before the next batch.
    beside: Vec<Entry>,
    records: Records,
    has_ended: bool,
}

impl Follower {
    /// Begins with a line, or with the first one after it that is there.
    pub(crate) fn new(directory: &Path, stream: Stream, next: u64) -> Follower {
        Follower { directory: directory.to_owned(), stream, next, open: None }
    }

    /// Returns the number of the next line.
    pub(crate) fn next_line(&self) -> u64 {
        self.next
    }

    /// Reads the next batch whose lines all come before `durable`. None means that there is none yet.
    ///
    /// # Errors
    ///
    /// A file cannot be read now. The next call tries again.
    pub(crate) fn next(&mut self, durable: u64) -> Result<Option<Found>, LogdError> {
        while self.next < durable {
            if self.open.is_none() && !self.move_on()? {
                return Ok(None);
            }
            let Some(open) = &mut self.open else { return Ok(None) };
            match open.batch(self.next, durable)? {
                Next::Batch(batch, at) if batch.first_line > self.next => {
                    open.at = at;
                    let missing = self.next..batch.first_line;
                    self.next = batch.first_line;
                    return Ok(Some(Found::Missing(missing)));
                }
                Next::Batch(batch, _) => {
                    if let Some(piece) = self.read(&batch)? {
                        self.next = batch.line_end();
                        return Ok(Some(Found::Lines(piece)));
                    }
                }
                Next::NotDurable => return Ok(None),
                Next::End => {
                    if !self.move_on()? {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Reads a batch. Returns nothing if it is damaged.
    fn read(&mut self, batch: &Entry) -> Result<Option<Piece>, LogdError> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let beside = std::mem::take(&mut open.beside);
        let said = open.records.read(&Entry::records_of(&beside), batch.time_ms);
        let Some(bytes) = open.segment.bytes_of(batch, &[])?.map(<[u8]>::to_vec) else {
            // In the last segment it may be that another thread writes the same block at this moment. Elsewhere, and if
            // there is no file of lines, the lines are gone.
            let is_last = open.segment.data.is_some() && !self.has_later()?;
            if is_last && let Some(open) = &mut self.open {
                // The records are read again, with the same result.
                open.at -= ENTRY_BYTES;
                open.beside = beside;
                let name = open.segment.name.display();
                return Err(LogdError::Failed(format!(
                    "{name}: a batch does not have its checksum: trying again"
                )));
            }
            return Ok(None);
        };
        let parts = parts_of(batch, said.parts);
        Ok(Some(Piece { first_line: batch.first_line, parts, bytes }))
    }

    /// The numbers of the stream's segments.
    fn serials(&self) -> Result<Vec<u64>, LogdError> {
        Ok(streams(&self.directory)?.remove(&self.stream).unwrap_or_default())
    }

    /// Whether there is a segment after the one that is open.
    fn has_later(&self) -> Result<bool, LogdError> {
        let open = self.open.as_ref().map(|open| open.serial);
        Ok(self.serials()?.last().copied() > open)
    }

    /// Opens the next segment. False means that there is none yet.
    fn move_on(&mut self) -> Result<bool, LogdError> {
        let serials = self.serials()?;
        let segments = InDirectory::new(&self.directory, self.stream, serials.clone());
        let place = match &self.open {
            Some(open) => serials.iter().position(|serial| *serial > open.serial),
            None if serials.is_empty() => None,
            None => Some(place_of(&segments, self.next)?),
        };
        let Some(place) = place else { return Ok(false) };
        // Whatever was written to the segment before is there now, because another follows it.
        if let Some(open) = &mut self.open
            && !std::mem::replace(&mut open.has_ended, true)
        {
            open.read_on()?;
            return Ok(true);
        }
        self.open = Some(Open::new(&segments, self.stream, place)?);
        Ok(true)
    }

    /// Counts the bytes of lines from the next line up to `durable`, from the indexes alone.
    pub(crate) fn count_bytes(&self, durable: u64) -> Result<u64, LogdError> {
        let serials = self.serials()?;
        if serials.is_empty() {
            return Ok(0);
        }
        let segments = InDirectory::new(&self.directory, self.stream, serials);
        let mut bytes = 0;
        for place in place_of(&segments, self.next)?..segments.count() {
            let segment = segments.open(place)?;
            let batches = Scan::promised(&segment.index).batches.into_iter();
            let waits =
                |batch: &Entry| batch.first_line >= self.next && batch.line_end() <= durable;
            if segment.data.is_some() {
                bytes += batches.filter(waits).map(|batch| batch.bytes).sum::<u64>();
            }
        }
        Ok(bytes)
    }
}

/// What an index has next.
enum Next {
    /// A batch that is not read, and where its records begin in the index.
    Batch(Entry, usize),
    /// A batch with lines that are not durable yet.
    NotDurable,
    /// Nothing more, for now or for ever.
    End,
}

impl Open {
    fn new(segments: &InDirectory<'_>, stream: Stream, place: usize) -> Result<Open, LogdError> {
        let segment = segments.open(place)?;
        let serial = segments.serial(place);
        Ok(Open {
            serial,
            until_line: until_line(segments, place)?,
            index_path: segment.directory.join(stream.file(serial, Part::Index)),
            segment,
            index: None,
            at: 0,
            beside: Vec::new(),
            records: Records::default(),
            has_ended: false,
        })
    }

    /// Finds the next batch with lines from `next` on.
    fn batch(&mut self, next: u64, durable: u64) -> Result<Next, LogdError> {
        let mut has_read = false;
        loop {
            let entry = self.segment.index.get(self.at..self.at + ENTRY_BYTES);
            match entry.map(Entry::decode) {
                Some(Some(batch)) if batch.kind == Kind::Batch => {
                    if !batch.is_before(self.until_line) {
                        return Ok(Next::End);
                    }
                    if batch.line_end() > durable {
                        return Ok(Next::NotDurable);
                    }
                    let start = self.at - self.beside.len() * ENTRY_BYTES;
                    self.at += ENTRY_BYTES;
                    if batch.lines > 0 && batch.line_end() > next {
                        if batch.first_line > next {
                            self.beside.clear();
                        }
                        return Ok(Next::Batch(batch, start));
                    }
                    // What it defines may be used by later ones.
                    let beside = std::mem::take(&mut self.beside);
                    self.records.read(&Entry::records_of(&beside), batch.time_ms);
                }
                Some(Some(entry)) => {
                    self.has_ended |= entry.kind == Kind::Seal;
                    if matches!(entry.kind, Kind::Records | Kind::Name) {
                        self.beside.push(entry);
                    }
                    self.at += ENTRY_BYTES;
                }
                // Behind a segment that has ended there is nothing to wait for: this entry is damaged.
                Some(None) if self.has_ended => self.at += ENTRY_BYTES,
                // It is being written, or not yet.
                _ if !has_read && !self.has_ended => {
                    self.segment.index.truncate(self.at);
                    self.read_on()?;
                    has_read = true;
                }
                _ => return Ok(Next::End),
            }
        }
    }

    /// Reads what was added to the index.
    fn read_on(&mut self) -> Result<(), LogdError> {
        const CHUNK_BYTES: usize = 64 << 10;
        if self.index.is_none() {
            match File::open(&self.index_path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(LogdError::on(&self.index_path, &error)),
                Ok(file) => self.index = Some(file),
            }
        }
        let Some(file) = &self.index else { return Ok(()) };
        loop {
            let from = self.segment.index.len();
            self.segment.index.resize(from + CHUNK_BYTES, 0);
            let read = file.read_at(&mut self.segment.index[from..], from as u64);
            let count = *read.as_ref().unwrap_or(&0);
            self.segment.index.truncate(from + count);
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(LogdError::on(&self.index_path, &error)),
                Ok(count) if count < CHUNK_BYTES => return Ok(()),
                Ok(_) => {}
            }
        }
    }
}
