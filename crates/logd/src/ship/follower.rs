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
    time::{Duration, Instant},
};

use crate::{
    disk::segment::{
        format::{
            entry::{ENTRY_BYTES, Ends, Entry, Kind},
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

/// How often, and how long at least, durable lines of a segment that is still written are tried to be read. Another
/// thread may write the same block at this moment, which takes much less time.
const TRIES: u32 = 5;
const TRY_TIME: Duration = Duration::from_secs(1);

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
    tries: Option<Tries>,
}

/// How often a line was not there although it is durable.
struct Tries {
    line: u64,
    count: u32,
    since: Instant,
}

/// What it means that nothing follows what was read.
enum End {
    /// There is more to read in this segment.
    GoesOn,
    /// The lines before this one are gone.
    Gone(u64),
    /// It is not known yet.
    Waits,
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
    /// Lines before this one that its batches had cannot be read.
    gone_until: u64,
}

impl Follower {
    /// Begins with a line, or with the first one after it that is there.
    pub(crate) fn new(directory: &Path, stream: Stream, next: u64) -> Follower {
        Follower { directory: directory.to_owned(), stream, next, open: None, tries: None }
    }

    /// Makes another one of the stream, which begins with this line.
    pub(crate) fn at(&self, next: u64) -> Follower {
        Follower::new(&self.directory, self.stream, next)
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
            let next = match &mut self.open {
                Some(open) => open.batch(self.next, durable)?,
                None => Next::End,
            };
            match next {
                Next::Batch(batch, at) if batch.first_line > self.next => {
                    if let Some(open) = &mut self.open {
                        open.at = at;
                    }
                    return Ok(Some(self.miss(batch.first_line)));
                }
                Next::Batch(batch, _) => {
                    if let Some(piece) = self.read(&batch)? {
                        self.next = batch.line_end();
                        return Ok(Some(Found::Lines(piece)));
                    }
                }
                Next::NotDurable(first_line) if first_line.min(durable) > self.next => {
                    return Ok(Some(self.miss(first_line.min(durable))));
                }
                Next::NotDurable(_) => return Ok(None),
                Next::End if self.move_on()? => {}
                Next::End => match self.end(durable) {
                    End::GoesOn => {}
                    End::Gone(until) => return Ok(Some(self.miss(until))),
                    End::Waits => return Ok(None),
                },
            }
        }
        Ok(None)
    }

    /// Returns the CRC-32 of the next line. None means that it is not there, or cannot be read.
    pub(crate) fn checksum(mut self, durable: u64) -> Option<u32> {
        let line = self.next;
        let Ok(Some(Found::Lines(piece))) = self.next(durable) else { return None };
        let place = usize::try_from(line.checked_sub(piece.first_line)?).ok()?;
        piece.bytes.split(|&byte| byte == b'\n').nth(place).map(crc32fast::hash)
    }

    /// Goes on with a line, because those before it are not there.
    fn miss(&mut self, until: u64) -> Found {
        Found::Missing(std::mem::replace(&mut self.next, until)..until)
    }

    /// Decides what it means that nothing follows: no segment, and in this one no entry that can be read.
    fn end(&mut self, durable: u64) -> End {
        let known = match &mut self.open {
            // An entry that is damaged hid the seal.
            Some(open) if open.ends().seal.is_some() && !open.has_ended => {
                open.has_ended = true;
                return End::GoesOn;
            }
            Some(open) => open.known_until().min(durable),
            None => 0,
        };
        if known > self.next {
            return End::Gone(known);
        }
        if !self.is_hopeless() {
            return End::Waits;
        }
        match &mut self.open {
            Some(open) if open.at + ENTRY_BYTES <= open.segment.index.len() => {
                open.at += ENTRY_BYTES;
                End::GoesOn
            }
            // The entries of durable batches were written before.
            _ => End::Gone(durable),
        }
    }

    /// Counts that the next line is not there. True means that it will not come.
    fn is_hopeless(&mut self) -> bool {
        match &mut self.tries {
            Some(tries) if tries.line == self.next => {
                tries.count += 1;
                tries.count >= TRIES && tries.since.elapsed() >= TRY_TIME
            }
            tries => {
                *tries = Some(Tries { line: self.next, count: 1, since: Instant::now() });
                false
            }
        }
    }

    /// Reads a batch. Returns nothing if it is damaged.
    fn read(&mut self, batch: &Entry) -> Result<Option<Piece>, LogdError> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let beside = std::mem::take(&mut open.beside);
        let said = open.records.read(&Entry::records_of(&beside), batch.time_ms);
        let bytes = open.segment.bytes_of(batch, &[]).map(|bytes| bytes.map(<[u8]>::to_vec));
        let read = match bytes {
            Ok(None) => self.give_up(batch).map(|()| None),
            read => read,
        };
        if read.is_err()
            && let Some(open) = &mut self.open
        {
            // The next call reads the same batch, and its records with the same result.
            open.at -= ENTRY_BYTES;
            open.beside = beside;
        }
        let parts = parts_of(batch, said.parts);
        Ok(read?.map(|bytes| Piece { first_line: batch.first_line, parts, bytes }))
    }

    /// Decides about a batch that does not have its checksum. An error means that it is to be read again.
    fn give_up(&mut self, batch: &Entry) -> Result<(), LogdError> {
        let has_lines = self.open.as_ref().is_some_and(|open| open.segment.data.is_some());
        // If the segment failed, the next one has the lines.
        if has_lines && self.has_later()? {
            return Ok(());
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        open.refresh()?;
        let (name, has_ended) = (open.segment.name.clone(), open.ends().seal.is_some());
        if has_lines && !has_ended && !self.is_hopeless() {
            let name = name.display();
            return Err(LogdError::Failed(format!(
                "{name}: a batch does not match its checksum; trying again"
            )));
        }
        if let Some(open) = &mut self.open {
            open.gone_until = open.gone_until.max(batch.line_end());
        }
        Ok(())
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
            && !open.has_ended
        {
            open.refresh()?;
            open.has_ended = true;
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
    /// A batch with lines that are not durable yet, and its first line.
    NotDurable(u64),
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
            gone_until: 0,
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
                        return Ok(Next::NotDurable(batch.first_line));
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
                    self.refresh()?;
                    has_read = true;
                }
                _ => return Ok(Next::End),
            }
        }
    }

    /// The first and the last entry of the index.
    fn ends(&self) -> Ends {
        let index = &self.segment.index;
        let read = |offset| Ok(index[offset as usize..][..ENTRY_BYTES].to_vec());
        let Ok(ends) = Ends::read::<std::convert::Infallible>(index.len() as u64, read);
        ends
    }

    /// Lines before this one are not in a later segment, as far as this one says.
    fn known_until(&self) -> u64 {
        let Ends { head, seal } = self.ends();
        let ends = [head, seal].into_iter().flatten().map(|entry| entry.first_line);
        ends.fold(self.gone_until, u64::max)
    }

    /// Reads the entries again that were not understood, and what was added.
    fn refresh(&mut self) -> Result<(), LogdError> {
        self.segment.index.truncate(self.at);
        self.read_on()
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
