//! Reads one segment: which of its batches are whole, and their bytes.
//!
//! If a segment failed, its last batch was written again to the next segment. The head of the next segment has the line
//! from which on that segment is valid, so no line is read twice. `reader` finds the segments of a stream.

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf};

use crate::{
    disk::segment::{
        format::{entry::Entry, record::Mark},
        reading::{
            unpack::Unpacker,
            window::{ReadAt, Window},
        },
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
}

impl ReadAt for Lines {
    fn read_at(&mut self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Lines::Plain(file) => FileExt::read_at(file, bytes, offset),
            Lines::Packed(unpacker) => unpacker.read_at(bytes, offset),
            Lines::Memory(all) => {
                let start = usize::try_from(offset).map_or(all.len(), |start| start.min(all.len()));
                let count = bytes.len().min(all.len() - start);
                bytes[..count].copy_from_slice(&all[start..start + count]);
                Ok(count)
            }
        }
    }
}

/// An open segment.
pub(crate) struct Segment {
    pub(crate) directory: PathBuf,
    pub(crate) name: PathBuf,
    pub(crate) index: Vec<u8>,
    pub(crate) data: Option<Lines>,
    window: Window,
}

impl Segment {
    pub(crate) fn new(
        (directory, name): (PathBuf, PathBuf),
        index: Vec<u8>,
        data: Option<Lines>,
    ) -> Segment {
        Segment { directory, name, index, data, window: Window::default() }
    }

    /// Whether no file of it was found.
    pub(crate) fn is_absent(&self) -> bool {
        self.index.is_empty() && self.data.is_none()
    }

    /// Returns how many bytes of lines were read, or unpacked, so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        let passed = match &self.data {
            Some(Lines::Packed(unpacker)) => unpacker.passed_bytes,
            _ => 0,
        };
        self.window.read_bytes + passed
    }

    /// Returns a batch's bytes, if they have its checksum. `after` are the batches that the caller will want next.
    pub(crate) fn bytes_of(
        &mut self,
        batch: &Entry,
        after: &[Entry],
    ) -> Result<Option<&[u8]>, LogdError> {
        let Segment { directory, name, data, window, .. } = self;
        let Some(data) = data else { return Ok(None) };
        whole(data, window, batch, |most| in_a_row(batch, after, most))
            .map_err(|error| LogdError::on(&directory.join(name), &error))
    }

    fn failed(&self, error: &io::Error) -> LogdError {
        LogdError::on(&self.directory.join(&self.name), error)
    }

    /// Checks the whole segment, except batches whose lines all come before `from`. Lines from `until_line` on belong
    /// to the next segment.
    pub(crate) fn view(&mut self, from: u64, until_line: u64) -> Result<View, LogdError> {
        let is_gone = self.data.is_none();
        if is_gone && let Some(scan) = Scan::removed(&self.index) {
            return Ok(View { name: self.name.clone(), scan, is_gone, data_bytes: 0, until_line });
        }
        let data_bytes = self.data.as_ref().map_or(Ok(0), Lines::len);
        let data_bytes = data_bytes.map_err(|error| self.failed(&error))?;
        let Segment { index, data, window, .. } = self;
        let scan = Scan::new(index, |batch| {
            let Some(data) = data else { return Ok(false) };
            if batch.line_end() <= from {
                return Ok(true);
            }
            whole(data, window, batch, |most| most).map(|bytes| bytes.is_some())
        });
        let scan = scan.map_err(|error| self.failed(&error))?;
        Ok(View { name: self.name.clone(), scan, is_gone, data_bytes, until_line })
    }
}

/// Returns a batch's bytes, if they have its checksum.
fn whole<'a>(
    data: &mut Lines,
    window: &'a mut Window,
    batch: &Entry,
    following: impl FnOnce(u64) -> u64,
) -> io::Result<Option<&'a [u8]>> {
    let Ok(len) = usize::try_from(batch.bytes) else { return Ok(None) };
    let is_whole = match window.read(data, (batch.offset, len), following) {
        Ok(bytes) => bytes.is_some_and(|bytes| crc32fast::hash(bytes) == batch.checksum),
        // Errors of the kernel have an errno; those of a damaged file have none.
        Err(error) if error.raw_os_error().is_none() => false,
        Err(error) => return Err(error),
    };
    if !is_whole {
        // Who tries again wants what is in the file then.
        window.forget();
        return Ok(None);
    }
    window.read(data, (batch.offset, len), |_| 0)
}

/// Counts the bytes of a batch and of those that directly follow it, as long as there are at most so many.
fn in_a_row(batch: &Entry, after: &[Entry], most: u64) -> u64 {
    let mut bytes = batch.bytes;
    for next in after {
        let with_it = bytes.saturating_add(next.bytes);
        if with_it > most || batch.offset.checked_add(bytes) != Some(next.offset) {
            break;
        }
        bytes = with_it;
    }
    bytes
}

/// A segment after its check.
pub(crate) struct View {
    name: PathBuf,
    scan: Scan,
    /// The file of lines does not exist.
    is_gone: bool,
    data_bytes: u64,
    until_line: u64,
}

impl View {
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

/// What was found out about a segment.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// A line that describes it.
    pub(crate) line: String,
    name: PathBuf,
    first_line: Option<u64>,
    line_end: Option<u64>,
    problems: Vec<String>,
}

impl Report {
    /// Reports a segment that was not read, but whose first and last entry are known.
    pub(crate) fn passed(name: PathBuf, head: &Entry, seal: &Entry) -> Report {
        let (first_line, line_end) = (Some(head.first_line), Some(seal.first_line));
        Report { name, first_line, line_end, ..Report::default() }
    }

    pub(crate) fn new(view: &View, is_last: bool) -> Report {
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
        let mut problems = Vec::new();
        if scan.state() == State::Damaged && view.is_gone {
            problems.push(format!(
                "{name}: the file is gone, and retention did not remove it: it had the lines {} to {}",
                scan.first_line().unwrap_or(0),
                scan.next_line().saturating_sub(1)
            ));
        } else if scan.state() == State::Damaged {
            problems.push(format!(
                "{name}: damaged after {} whole batches, at byte {}",
                scan.batches.len(),
                scan.end()
            ));
        }
        if scan.state() == State::Sealed && rest > 0 {
            problems.push(format!("{name}: {rest} bytes after the sealed end"));
        }
        problems.extend(wrong_origins(view));
        let (first_line, line_end) = (view.first_line(), view.line_end());
        Report { line, name: view.name.clone(), first_line, line_end, problems }
    }
}

/// Lists batches whose parts do not add up to their lines. Damage is reported elsewhere.
fn wrong_origins(view: &View) -> Vec<String> {
    let mut problems = Vec::new();
    if view.scan.state() == State::Damaged {
        return problems;
    }
    for (batch, said) in view.scan.records() {
        let is_known = said.parts.iter().all(|part| part.origin.is_some());
        let is_right = said.parts.is_empty() || is_known && adds_up(batch, &said.parts);
        if said.is_spoilt || !is_right {
            let (name, number) = (view.name.display(), batch.number);
            problems.push(format!("{name}: the senders of batch {number} do not match its lines"));
        }
    }
    problems
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

    /// Takes the report of the next segment, and finds lines that are missing before it.
    pub(crate) fn take(&mut self, report: Report) {
        self.problems.extend(report.problems);
        let Some(end) = report.line_end else { return };
        if let (Some(expected), Some(first)) = (self.expected, report.first_line)
            && first > expected
        {
            let name = report.name.display();
            self.problems.push(format!("{name}: lines {expected} to {} are missing", first - 1));
        }
        self.expected = Some(end);
    }
}
