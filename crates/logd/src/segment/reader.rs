//! Segments for people: what `ringwise logd cat`, `tail` and `verify` read.
//!
//! Only whole batches are shown. Where a segment failed and its last batch was written again to the
//! next, the next says from which line on it is the one to read, so nothing is shown twice. All of
//! it works beside a daemon that writes.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, Write},
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{
    entry::{ENTRY_BYTES, Entry, Kind},
    name::{Part, Stream, parse},
    scan::{Scan, State},
    unpack::Unpacker,
};
use crate::error::LogdError;

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

/// A segment, looked at.
pub(crate) struct View<D> {
    pub(crate) name: PathBuf,
    scan: Scan,
    data: Option<D>,
    data_bytes: u64,
    /// Lines from here on are the next segment's.
    until_line: u64,
}

impl<D: Data> View<D> {
    /// Looks at a segment. Batches whose lines all come before `from` are not checked.
    fn new(name: PathBuf, index: &[u8], data: Option<D>, from: u64) -> io::Result<View<D>> {
        if data.is_none()
            && let Some(scan) = Scan::removed(index)
        {
            return Ok(View { name, scan, data, data_bytes: 0, until_line: u64::MAX });
        }
        let data_bytes = data.as_ref().map_or(Ok(0), Data::len)?;
        let scan = Scan::new(index, |batch| {
            let Some(data) = &data else { return Ok(false) };
            if batch.line_end() <= from {
                return Ok(true);
            }
            Ok::<_, io::Error>(whole(data, data_bytes, batch)?.is_some())
        })?;
        Ok(View { name, scan, data, data_bytes, until_line: u64::MAX })
    }

    /// The batches that are to be read, in order.
    fn batches(&self) -> impl Iterator<Item = &Entry> {
        let all = self.scan.batches.iter().chain(&self.scan.beyond);
        all.filter(|batch| batch.is_before(self.until_line))
    }

    /// Writes out the lines from `from` on; gives the number of the line after the last. `skip` is
    /// told of lines that are not there.
    fn write(
        &self,
        from: u64,
        skip: &mut dyn FnMut(Range<u64>),
        out: &mut dyn Write,
    ) -> Result<u64, LogdError> {
        let mut next = from;
        for batch in self.batches() {
            let end = batch.line_end();
            if end <= next {
                continue;
            }
            let Some(data) = &self.data else { break };
            let bytes = whole(data, self.data_bytes, batch)
                .map_err(|error| LogdError::on(&self.name, &error))?;
            let Some(bytes) = bytes else { break };
            if next < batch.first_line {
                skip(next..batch.first_line);
            }
            let before = next.saturating_sub(batch.first_line);
            out.write_all(after_lines(&bytes, before)).map_err(|e| LogdError::output(&e))?;
            next = end;
        }
        Ok(next)
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

/// What follows the first `count` lines.
fn after_lines(bytes: &[u8], count: u64) -> &[u8] {
    let Some(last) = count.checked_sub(1) else { return bytes };
    let ends = memchr::memchr_iter(b'\n', bytes).nth(last as usize);
    ends.map_or(&[], |end| &bytes[end + 1..])
}

/// Has each segment end where the next begins.
fn bound<D>(views: &mut [View<D>]) {
    let mut until = u64::MAX;
    for view in views.iter_mut().rev() {
        view.until_line = until;
        if view.scan.state() != State::Empty
            && let Some(first) = view.scan.first_line()
        {
            until = until.min(first);
        }
    }
}

/// The streams of a directory, and the numbers of their segments.
pub(crate) fn streams(directory: &Path) -> Result<BTreeMap<Stream, Vec<u64>>, LogdError> {
    let entries = std::fs::read_dir(directory).map_err(|error| LogdError::on(directory, &error))?;
    let mut streams: BTreeMap<Stream, Vec<u64>> = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(|error| LogdError::on(directory, &error))?;
        let name = entry.file_name();
        if let Some((stream, serial, Part::Data | Part::Index | Part::Packed)) =
            name.to_str().and_then(parse)
        {
            streams.entry(stream).or_default().push(serial);
        }
    }
    for (stream, serials) in &mut streams {
        serials.sort_unstable();
        serials.dedup();
        add_unlisted(directory, *stream, serials);
    }
    Ok(streams)
}

/// Asks by their names for segments between those that were listed. A listing takes time, and has
/// of the names that are made meanwhile some and not others (readdir(3)).
fn add_unlisted(directory: &Path, stream: Stream, serials: &mut Vec<u64>) {
    /// Far more than can be made meanwhile: a gap may be as wide as a strange name has it.
    const GAP_MAX: u64 = 4096;
    let is_there = |serial: &u64| {
        let parts = [Part::Index, Part::Data, Part::Packed];
        parts.iter().any(|part| directory.join(stream.file(*serial, *part)).exists())
    };
    let gaps = serials.windows(2).flat_map(|pair| {
        let first = (pair[0] + 1).max(pair[1].saturating_sub(GAP_MAX));
        first..pair[1]
    });
    let unlisted: Vec<u64> = gaps.filter(is_there).collect();
    serials.extend(unlisted);
    serials.sort_unstable();
}

/// The place among the segments `serials` of the one that has a line: the last that begins with it or
/// before it, else the first.
pub(crate) fn place_of(
    directory: &Path,
    stream: Stream,
    serials: &[u64],
    line: u64,
) -> Result<usize, LogdError> {
    for (place, &serial) in serials.iter().enumerate().rev() {
        let path = directory.join(stream.file(serial, Part::Index));
        let mut head = [0; ENTRY_BYTES];
        let read = File::open(&path).and_then(|file| file.read_exact_at(&mut head, 0));
        match read {
            Err(error) if is_missing(&error) => continue,
            read => read.map_err(|error| LogdError::on(&path, &error))?,
        }
        let head = Entry::decode(&head).filter(|entry| entry.kind == Kind::Head);
        if head.is_some_and(|head| head.first_line <= line) {
            return Ok(place);
        }
    }
    Ok(0)
}

/// Whether an index is not there, or not whole to its first entry.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}

/// Looks at a stream's segments. Batches whose lines all come before `from` are not checked.
pub(crate) fn views(
    directory: &Path,
    stream: Stream,
    serials: &[u64],
    from: u64,
) -> Result<Vec<View<Lines>>, LogdError> {
    let mut views = Vec::new();
    for &serial in serials {
        let mut name = stream.file(serial, Part::Data);
        let open = |part| {
            let path = directory.join(stream.file(serial, part));
            match File::open(&path) {
                Ok(file) => Ok(Some(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(LogdError::on(&path, &error)),
            }
        };
        // The index first: what it speaks of is then in the data, or was never whole.
        let mut index = Vec::new();
        if let Some(mut file) = open(Part::Index)? {
            let path = directory.join(stream.file(serial, Part::Index));
            io::Read::read_to_end(&mut file, &mut index)
                .map_err(|error| LogdError::on(&path, &error))?;
        }
        let mut data = open(Part::Data)?.map(Lines::Plain);
        // In this order: the plain file goes when the packed one has its name.
        if data.is_none()
            && let Some(file) = open(Part::Packed)?
        {
            name = stream.file(serial, Part::Packed);
            let unpacker = Unpacker::new(file);
            let unpacker =
                unpacker.map_err(|error| LogdError::on(&directory.join(&name), &error))?;
            data = Some(Lines::Packed(unpacker));
        }
        let path = directory.join(&name);
        let view = View::new(name, &index, data, from);
        let view = view.map_err(|error| LogdError::on(&path, &error))?;
        views.push(view);
    }
    bound(&mut views);
    Ok(views)
}

/// Writes out a stream's lines from the number `from` on; gives the number after the last. `skip` is
/// told of lines that are not there.
pub(crate) fn write_lines(
    views: &[View<Lines>],
    from: u64,
    mut skip: impl FnMut(Range<u64>),
    out: &mut dyn Write,
) -> Result<u64, LogdError> {
    let mut next = from;
    for view in views {
        next = view.write(next, &mut skip, out)?;
    }
    Ok(next)
}

/// Up to which line the clients' are stored that named themselves, as each stream has it last. It may
/// have had a larger number before: names were once forgotten and began anew.
pub(crate) fn names(directory: &Path) -> Result<Vec<(String, u64)>, LogdError> {
    let mut names = Vec::new();
    for (stream, serials) in streams(directory)? {
        let mut newest = HashMap::new();
        // The first batch of each segment has what those before it knew. A batch that the next
        // segment was to have, and that a start cuts, is none.
        for start in (0..serials.len()).rev() {
            let mut views = views(directory, stream, &serials[start..], 0)?;
            views.iter_mut().for_each(|view| view.scan.end_at(view.until_line));
            let found: HashMap<String, u64> = views[0].scan.names().into_iter().collect();
            for (name, line) in found {
                newest.entry(name).or_insert(line);
            }
            if views[0].scan.has_first_batch() {
                break;
            }
        }
        names.extend(newest);
    }
    Ok(names)
}

/// The number of the line that comes after a stream's last, where that is known.
pub(crate) fn end_of(views: &[View<Lines>]) -> Option<u64> {
    let known = views.iter().filter(|view| view.scan.state() != State::Empty);
    known.map(|view| view.scan.next_line().min(view.until_line)).max()
}

/// What a look at a stream found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// A line for each segment.
    pub(crate) lines: Vec<String>,
    /// Things that are wrong, a line each.
    pub(crate) problems: Vec<String>,
}

/// Judges a stream.
pub(crate) fn verify<D>(views: &[View<D>]) -> Verdict
where
    D: Data,
{
    let mut verdict = Verdict::default();
    let mut expected: Option<u64> = None;
    for (place, view) in views.iter().enumerate() {
        let (scan, name) = (&view.scan, view.name.display());
        let batches = view.batches().count();
        let lines: u64 = view.batches().map(|batch| batch.lines).sum();
        let rest = view.data_bytes.saturating_sub(scan.end());
        let mut line = format!("{name}: {batches} batches, {lines} lines, ");
        match scan.state() {
            State::Sealed => line += "sealed",
            State::Removed => line += "removed, by retention",
            State::Empty => line += "nothing acknowledged",
            State::Open if place + 1 == views.len() => line += "open",
            State::Open => line += "not sealed",
            State::Damaged if view.data.is_none() => line += "its lines are lost",
            State::Damaged => line += "damaged",
        }
        if rest > 0 && scan.state() == State::Open {
            line += &format!(", {rest} bytes after the last whole batch");
        }
        if scan.state() == State::Damaged && view.data.is_none() {
            verdict.problems.push(format!(
                "{name}: the file is gone, and retention did not remove it: it had the lines {} to {}",
                scan.first_line().unwrap_or(0),
                scan.next_line().saturating_sub(1)
            ));
        } else if scan.state() == State::Damaged {
            verdict.problems.push(format!(
                "{name}: damaged after {} whole batches, at byte {}",
                scan.batches.len(),
                scan.end()
            ));
        }
        if scan.state() == State::Sealed && rest > 0 {
            verdict.problems.push(format!("{name}: {rest} bytes after the sealed end"));
        }
        verdict.lines.push(line);
        if scan.state() == State::Empty {
            continue;
        }
        if let (Some(expected), Some(first)) = (expected, scan.first_line())
            && first > expected
        {
            verdict.problems.push(format!("{name}: lines {expected} to {} are missing", first - 1));
        }
        expected = Some(scan.next_line().min(view.until_line));
    }
    verdict
}

impl Data for Vec<u8> {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read(&self, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
        Ok(Some(self[offset as usize..][..len].to_vec()))
    }
}

/// The whole batches of a segment whose files are in memory.
pub(crate) fn whole_lines(index: &[u8], data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    // In memory no call fails.
    if let Ok(view) = View::new(PathBuf::from("memory"), index, Some(data.to_vec()), 0) {
        let _ = view.write(0, &mut |_| {}, &mut out);
        let _ = verify(&[view]);
    }
    out
}

/// The lines of a stream whose files are in memory, and what is wrong with it: for tests.
#[cfg(test)]
pub(crate) fn lines_of(files: Vec<(u64, Part, Vec<u8>)>) -> (Vec<String>, Vec<String>) {
    let views = views_of(files);
    let mut out = Vec::new();
    let mut next = 0;
    for view in &views {
        next = view.write(next, &mut |_| {}, &mut out).unwrap();
    }
    let text = String::from_utf8(out).unwrap();
    (text.lines().map(str::to_owned).collect(), verify(&views).problems)
}

#[cfg(test)]
fn views_of(files: Vec<(u64, Part, Vec<u8>)>) -> Vec<View<Vec<u8>>> {
    let mut pairs: BTreeMap<u64, (Vec<u8>, Option<Vec<u8>>)> = BTreeMap::new();
    for (serial, part, bytes) in files {
        let pair = pairs.entry(serial).or_default();
        if part == Part::Index { pair.0 = bytes } else { pair.1 = Some(bytes) }
    }
    let mut views: Vec<View<Vec<u8>>> = pairs
        .into_iter()
        .map(|(serial, (index, data))| {
            View::new(PathBuf::from(serial.to_string()), &index, data, 0).unwrap()
        })
        .collect();
    bound(&mut views);
    views
}

/// The names in a stream whose files are in memory, as a start finds them: for tests.
#[cfg(test)]
pub(crate) fn names_of(files: Vec<(u64, Part, Vec<u8>)>) -> Vec<(String, u64)> {
    let mut views = views_of(files);
    views.iter_mut().for_each(|view| view.scan.end_at(view.until_line));
    let first = views.iter().rposition(|view| view.scan.has_first_batch()).unwrap_or(0);
    views[first.min(views.len())..].iter().flat_map(|view| view.scan.names()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{
        entry::{NAMES_SHIFT, index_of},
        name::Content,
    };

    fn segment(batches: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
        let batches: Vec<Vec<u8>> = batches.iter().map(|batch| batch.to_vec()).collect();
        (index_of(&batches, true, false), batches.concat())
    }

    /// The last batch cut or spoilt at every byte, in the data and in the index: what is whole is
    /// read, what is not is not, and neither is damage.
    #[test]
    fn a_torn_tail_at_every_byte() {
        let batches: [&[u8]; 2] = [b"{\"a\":1}\n{\"a\":2}\n", b"{\"a\":3}\n{\"a\":44}\n"];
        let (index, data) = segment(&batches);
        let whole = ["{\"a\":1}", "{\"a\":2}"];
        let found = |index: &[u8], data: &[u8]| {
            let files = vec![(0, Part::Index, index.to_vec()), (0, Part::Data, data.to_vec())];
            let (lines, problems) = lines_of(files);
            assert_eq!(problems, Vec::<String>::new());
            lines
        };
        assert_eq!(found(&index, &data).len(), 4);
        for cut in batches[0].len()..data.len() {
            assert_eq!(found(&index, &data[..cut]), whole, "data cut at {cut}");
            let mut spoilt = data.clone();
            spoilt[cut] ^= 0x10;
            assert_eq!(found(&index, &spoilt), whole, "data spoilt at {cut}");
        }
        for cut in 128..index.len() {
            assert_eq!(found(&index[..cut], &data), whole, "index cut at {cut}");
            let mut spoilt = index.clone();
            spoilt[cut] ^= 0x10;
            assert_eq!(found(&spoilt, &data), whole, "index spoilt at {cut}");
        }
    }

    #[test]
    fn a_segment_that_was_not_listed_is_found_between_others() {
        let directory = tempfile::tempdir().unwrap();
        let stream = Stream { content: Content::Lines, number: 3 };
        for (serial, part) in [(2, Part::Index), (5, Part::Data), (6, Part::Torn)] {
            File::create(directory.path().join(stream.file(serial, part))).unwrap();
        }
        let mut serials = vec![1, 4, 7, u64::MAX];
        add_unlisted(directory.path(), stream, &mut serials);
        assert_eq!(serials, [1, 2, 4, 5, 7, u64::MAX]);
    }

    #[test]
    fn a_spoilt_batch_in_the_middle_is_a_problem_and_hides_only_itself() {
        let batches: [&[u8]; 3] = [b"1\n", b"2\n", b"3\n"];
        let (index, mut data) = segment(&batches);
        data[2] = b'9';
        let (lines, problems) = lines_of(vec![(0, Part::Index, index), (0, Part::Data, data)]);
        assert_eq!(lines, ["1", "3"]);
        assert_eq!(problems, ["0: damaged after 1 whole batches, at byte 2"]);
    }

    /// A directory of a daemon that had forgotten a name and taken it anew.
    #[test]
    fn of_a_name_the_newest_number_counts_and_not_the_largest() {
        let directory = tempfile::tempdir().unwrap();
        let stream = Stream { content: Content::Lines, number: 0 };
        let batch = |number: u64| Entry {
            number,
            flags: 1 << NAMES_SHIFT,
            offset: number * 2,
            bytes: 2,
            lines: 1,
            first_line: number,
            checksum: crc32fast::hash(b"1\n"),
            ..Entry::new(Kind::Batch)
        };
        let name = |line| Entry::of_name("web", line).next().unwrap();
        let entries = [Entry::new(Kind::Head), name(1000), batch(0), name(5), batch(1)];
        let index: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
        let path = |part| directory.path().join(stream.file(0, part));
        std::fs::write(path(Part::Index), index).unwrap();
        std::fs::write(path(Part::Data), b"1\n1\n").unwrap();
        assert_eq!(names(directory.path()).unwrap(), [("web".to_owned(), 5)]);
    }

    #[test]
    fn lines_are_skipped_within_a_batch() {
        assert_eq!(after_lines(b"1\n2\n3\n", 0), b"1\n2\n3\n");
        assert_eq!(after_lines(b"1\n2\n3\n", 2), b"3\n");
        assert_eq!(after_lines(b"1\n2\n3\n", 3), b"");
    }
}
