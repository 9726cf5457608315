//! One segment, looked at: which of its batches are whole, and their bytes.
//!
//! Only whole batches are shown. When a segment failed and its last batch was written again to the next
//! one, the next one's head says from which line on it is the one to read, so nothing is shown twice. Which
//! segments a stream has is not known here (`reader`).

use std::{fs::File, io, os::unix::fs::FileExt, path::PathBuf};

use super::{
    entry::Entry,
    scan::{Scan, State},
    unpack::Unpacker,
};

/// Where the bytes of lines come from.
pub(crate) trait Data {
    fn len(&self) -> io::Result<u64>;
    /// Nothing where they cannot be had, and no call failed.
    fn read(&self, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>>;
}

/// A segment's file of lines.
pub(crate) enum Lines {
    Plain(File),
    Packed(Unpacker),
}

impl Data for Lines {
    fn len(&self) -> io::Result<u64> {
        match self {
            Lines::Plain(file) => Ok(file.metadata()?.len()),
            Lines::Packed(unpacker) => Ok(unpacker.len()),
        }
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
        match self {
            Lines::Plain(file) => {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(Some(bytes))
            }
            Lines::Packed(unpacker) => unpacker.read(offset, len),
        }
    }
}

impl Data for Vec<u8> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
        Ok(Some(self[offset as usize..][..len].to_vec()))
    }
}

/// A segment that is open.
pub(crate) struct Segment<D> {
    pub(crate) name: PathBuf,
    pub(crate) index: Vec<u8>,
    pub(crate) data: Option<D>,
}

impl<D: Data> Segment<D> {
    /// Its batches as far as the index alone tells: none of their bytes is looked at.
    pub(crate) fn promised(&self) -> Vec<Entry> {
        let Ok(scan) = Scan::new(&self.index, |_| Ok::<_, std::convert::Infallible>(true));
        scan.batches
    }

    /// A batch's bytes, if they have its checksum.
    pub(crate) fn bytes_of(&self, batch: &Entry) -> io::Result<Option<Vec<u8>>> {
        self.data.as_ref().map_or(Ok(None), |data| whole(data, data.len()?, batch))
    }

    /// Looks at all of it. Batches whose lines all come before `from` are not checked. Lines from
    /// `until_line` on are the next segment's.
    pub(crate) fn view(&self, from: u64, until_line: u64) -> io::Result<View<'_>> {
        let name = &self.name;
        let is_gone = self.data.is_none();
        if is_gone && let Some(scan) = Scan::removed(&self.index) {
            return Ok(View { name, scan, is_gone, data_bytes: 0, until_line });
        }
        let data_bytes = self.data.as_ref().map_or(Ok(0), Data::len)?;
        let scan = Scan::new(&self.index, |batch| {
            let Some(data) = &self.data else { return Ok(false) };
            if batch.line_end() <= from {
                return Ok(true);
            }
            Ok::<_, io::Error>(whole(data, data_bytes, batch)?.is_some())
        })?;
        Ok(View { name, scan, is_gone, data_bytes, until_line })
    }
}

/// A batch's bytes, if they have its checksum.
fn whole(data: &impl Data, data_bytes: u64, batch: &Entry) -> io::Result<Option<Vec<u8>>> {
    let end = batch.offset.checked_add(batch.bytes);
    let (Some(_), Ok(len)) = (end.filter(|end| *end <= data_bytes), usize::try_from(batch.bytes))
    else {
        return Ok(None);
    };
    let bytes = data.read(batch.offset, len)?;
    Ok(bytes.filter(|bytes| crc32fast::hash(bytes) == batch.checksum))
}

/// What a look at a segment found.
pub(crate) struct View<'a> {
    name: &'a PathBuf,
    scan: Scan,
    /// There are no lines.
    is_gone: bool,
    data_bytes: u64,
    until_line: u64,
}

impl View<'_> {
    /// The batches that are to be read, in order.
    pub(crate) fn batches(&self) -> impl Iterator<Item = &Entry> {
        let all = self.scan.batches.iter().chain(&self.scan.beyond);
        all.filter(|batch| batch.is_before(self.until_line))
    }

    /// The number of its first line, where that is known and it has something to be read.
    pub(crate) fn first_line(&self) -> Option<u64> {
        let is_empty = self.scan.state() == State::Empty;
        self.scan.first_line().filter(|_| !is_empty)
    }

    /// The number of the line that comes after its last, where that is known.
    pub(crate) fn line_end(&self) -> Option<u64> {
        let is_empty = self.scan.state() == State::Empty;
        (!is_empty).then(|| self.scan.next_line().min(self.until_line))
    }

    /// The clients' names that it has, each with the line up to which it is stored. A batch that the next
    /// segment was to have, and that a start cuts, is left out.
    pub(crate) fn into_names(mut self) -> (Vec<(String, u64)>, bool) {
        self.scan.end_at(self.until_line);
        (self.scan.names(), self.scan.has_first_batch())
    }
}

/// What is wrong with a stream, judged segment by segment.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// The line that comes next, once that is known.
    expected: Option<u64>,
    /// Things that are wrong, a line each.
    pub(crate) problems: Vec<String>,
}

impl Judge {
    /// Judges the next segment; gives a line that describes it.
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
        self.follow(view);
        line
    }

    /// Notes lines that are missing between segments.
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
