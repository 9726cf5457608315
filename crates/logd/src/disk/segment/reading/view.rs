//! Reads one segment: which of its batches are whole, and their bytes.
//!
//! If a segment failed, its last batch was written again to the next segment. The head of the next segment has the line
//! from which on that segment is valid, so no line is read twice. `reader` finds the segments of a stream.

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf};

use crate::{
    disk::segment::{
        format::{entry::Entry, record::Mark},
        reading::unpack::Unpacker,
        scan::{Origins, Scan, State, adds_up},
    },
    error::LogdError,
};

/// The lines of a segment.
pub(crate) enum Lines {
    Plain(File),
    Packed(Unpacker),
    Memory(Vec<u8>),
}

impl Lines {
    fn len(&self) -> io::Result<u64> {
        match self {
            Lines::Plain(file) => Ok(file.metadata()?.len()),
            Lines::Packed(unpacker) => Ok(unpacker.len()),
            Lines::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Reads bytes that are within the length. Returns nothing if the file is damaged.
    fn read(&self, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
        match self {
            Lines::Plain(file) => {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(Some(bytes))
            }
            Lines::Packed(unpacker) => unpacker.read(offset, len),
            Lines::Memory(bytes) => Ok(Some(bytes[offset as usize..][..len].to_vec())),
        }
    }
}

/// An open segment.
pub(crate) struct Segment {
    pub(crate) directory: PathBuf,
    pub(crate) name: PathBuf,
    pub(crate) index: Vec<u8>,
    pub(crate) data: Option<Lines>,
}

impl Segment {
    /// Whether no file of it was found.
    pub(crate) fn is_absent(&self) -> bool {
        self.index.is_empty() && self.data.is_none()
    }

    /// Returns a batch's bytes, if they have its checksum.
    pub(crate) fn bytes_of(&self, batch: &Entry) -> Result<Option<Vec<u8>>, LogdError> {
        let Some(data) = &self.data else { return Ok(None) };
        let bytes = data.len().and_then(|data_bytes| whole(data, data_bytes, batch));
        bytes.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> LogdError {
        LogdError::on(&self.directory.join(&self.name), error)
    }

    /// Checks the whole segment, except batches whose lines all come before `from`. Lines from `until_line` on belong
    /// to the next segment.
    pub(crate) fn view(&self, from: u64, until_line: u64) -> Result<View<'_>, LogdError> {
        let name = &self.name;
        let is_gone = self.data.is_none();
        if is_gone && let Some(scan) = Scan::removed(&self.index) {
            return Ok(View { name, scan, is_gone, data_bytes: 0, until_line });
        }
        let data_bytes = self.data.as_ref().map_or(Ok(0), Lines::len);
        let data_bytes = data_bytes.map_err(|error| self.failed(&error))?;
        let scan = Scan::new(&self.index, |batch| {
            let Some(data) = &self.data else { return Ok(false) };
            if batch.line_end() <= from {
                return Ok(true);
            }
            whole(data, data_bytes, batch).map(|bytes| bytes.is_some())
        });
        let scan = scan.map_err(|error| self.failed(&error))?;
        Ok(View { name, scan, is_gone, data_bytes, until_line })
    }
}

/// Returns a batch's bytes, if they have its checksum.
fn whole(data: &Lines, data_bytes: u64, batch: &Entry) -> io::Result<Option<Vec<u8>>> {
    let end = batch.offset.checked_add(batch.bytes);
    let (Some(_), Ok(len)) = (end.filter(|end| *end <= data_bytes), usize::try_from(batch.bytes))
    else {
        return Ok(None);
    };
    let bytes = data.read(batch.offset, len)?;
    Ok(bytes.filter(|bytes| crc32fast::hash(bytes) == batch.checksum))
}

/// A segment after its check.
pub(crate) struct View<'a> {
    name: &'a PathBuf,
    scan: Scan,
    /// The file of lines does not exist.
    is_gone: bool,
    data_bytes: u64,
    until_line: u64,
}

impl View<'_> {
    /// Lists the batches to read, in order.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &Entry> {
        let all = self.scan.batches.iter().chain(&self.scan.beyond);
        all.filter(|batch| batch.is_before(self.until_line))
    }

    /// Returns the number of the first line, if it is known and the segment is not empty.
    pub(crate) fn first_line(&self) -> Option<u64> {
        let is_empty = self.scan.state() == State::Empty;
        self.scan.first_line().filter(|_| !is_empty)
    }

    /// Returns the number of the line after the last one, if it is known.
    pub(crate) fn line_end(&self) -> Option<u64> {
        let is_empty = self.scan.state() == State::Empty;
        (!is_empty).then(|| self.scan.next_line().min(self.until_line))
    }

    /// Returns the origins of the lines of its batches.
    pub(crate) fn into_origins(self) -> Origins {
        self.scan.into_origins()
    }

    /// Returns the names of clients in the segment, and whether these are all names. A batch that was written again to
    /// the next segment is left out.
    pub(crate) fn into_names(mut self) -> (Vec<Mark>, bool) {
        self.scan.end_at(self.until_line);
        (self.scan.names(), self.scan.has_first_batch())
    }
}

/// Finds the problems of a stream, segment by segment.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// The number of the next line, once it is known.
    expected: Option<u64>,
    /// The problems, a line each.
    pub(crate) problems: Vec<String>,
}

impl Judge {
    /// Forgets the segments before, because retention has removed them meanwhile.
    pub(crate) fn begin_again(&mut self) {
        self.expected = None;
    }

    /// Checks the next segment and returns a line that describes it.
    pub(crate) fn look(&mut self, view: &View<'_>, is_last: bool) -> String {
        let (scan, name) = (&view.scan, view.name.display());
        let batches = view.batches().count();
        let lines: u64 = view.batches().map(|batch| batch.lines).sum();
        let rest = view.data_bytes.saturating_sub(scan.end());
        let mut line = format!("{name}: {batches} batches, {lines} lines, ");
        match scan.state() {
            State::Sealed => line += "sealed",
            State::Removed => line += "removed, by retention",
            State::Empty => line += "nothing acknowledged",
            State::Open if is_last => line += "open",
            State::Open => line += "not sealed",
            State::Damaged if view.is_gone => line += "its lines are lost",
            State::Damaged => line += "damaged",
        }
        if rest > 0 && scan.state() == State::Open {
            line += &format!(", {rest} bytes after the last whole batch");
        }
        if scan.state() == State::Damaged && view.is_gone {
            self.problems.push(format!(
                "{name}: the file is gone, and retention did not remove it: it had the lines {} to {}",
                scan.first_line().unwrap_or(0),
                scan.next_line().saturating_sub(1)
            ));
        } else if scan.state() == State::Damaged {
            self.problems.push(format!(
                "{name}: damaged after {} whole batches, at byte {}",
                scan.batches.len(),
                scan.end()
            ));
        }
        if scan.state() == State::Sealed && rest > 0 {
            self.problems.push(format!("{name}: {rest} bytes after the sealed end"));
        }
        self.look_at_origins(view);
        self.follow(view);
        line
    }

    /// Reports batches whose parts do not add up to their lines. Damage is reported elsewhere.
    fn look_at_origins(&mut self, view: &View<'_>) {
        if view.scan.state() == State::Damaged {
            return;
        }
        for (batch, said) in view.scan.records() {
            let is_known = said.parts.iter().all(|part| part.origin.is_some());
            let is_right = said.parts.is_empty() || is_known && adds_up(batch, &said.parts);
            if said.is_spoilt || !is_right {
                let (name, number) = (view.name.display(), batch.number);
                self.problems
                    .push(format!("{name}: the senders of batch {number} do not match its lines"));
            }
        }
    }

    /// Reports missing lines between segments.
    fn follow(&mut self, view: &View<'_>) {
        let Some(end) = view.line_end() else { return };
        if let (Some(expected), Some(first)) = (self.expected, view.first_line())
            && first > expected
        {
            let name = view.name.display();
            self.problems.push(format!("{name}: lines {expected} to {} are missing", first - 1));
        }
        self.expected = Some(end);
    }
}
