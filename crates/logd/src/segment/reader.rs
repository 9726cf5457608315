//! Streams for people: what `ringwise logd cat`, `tail` and `verify` read.
//!
//! Segments are opened when their turn comes and closed after it, so that a stream may have any number of
//! them, and the first line is there when the first batch is read. All of it works beside a daemon that
//! writes. What of one segment is whole is `view`'s to say.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    vec::IntoIter,
};

use super::{
    entry::{ENTRY_BYTES, Entry, Kind},
    name::{Part, Stream, parse},
    unpack::Unpacker,
    view::{Data, Judge, Lines, Segment, View},
};
use crate::error::LogdError;

/// The segments of a stream, in order.
pub(crate) trait Segments {
    type Data: Data;

    fn count(&self) -> usize;

    /// Opens one.
    fn open(&self, place: usize) -> Result<Segment<Self::Data>, LogdError>;

    /// Its first entry, if that is there and whole.
    fn head(&self, place: usize) -> Result<Option<Entry>, LogdError>;

    fn failed(&self, segment: &Segment<Self::Data>, error: &io::Error) -> LogdError {
        LogdError::on(&segment.name, error)
    }
}

/// The line at which a segment's lines end, since the next one has the rest: where the first segment
/// behind it begins of which that is known.
fn until_line(segments: &impl Segments, place: usize) -> Result<u64, LogdError> {
    for later in place + 1..segments.count() {
        if let Some(head) = segments.head(later)? {
            return Ok(head.first_line);
        }
        // Its head is spoilt, and batches may be there all the same.
        let segment = segments.open(later)?;
        let view = segment.view(0, u64::MAX);
        if let Some(first) = view.map_err(|error| segments.failed(&segment, &error))?.first_line() {
            return Ok(first);
        }
    }
    Ok(u64::MAX)
}

/// The place of the segment that has a line: the last that begins with it or before it, else the first.
pub(crate) fn place_of(segments: &impl Segments, line: u64) -> Result<usize, LogdError> {
    let mut found = 0;
    let (mut low, mut high) = (0, segments.count());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        // The nearest at or before the middle of which it is known.
        let mut place = middle;
        let mut head = segments.head(place)?;
        while head.is_none() && place > low + 1 {
            place -= 1;
            head = segments.head(place)?;
        }
        match head {
            Some(head) if head.first_line > line => high = place,
            head => {
                found = if head.is_some() { place } else { found };
                low = middle;
            }
        }
    }
    Ok(found)
}

/// A batch of lines that is to be shown.
pub(crate) struct Piece {
    /// When the batch began, in milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// Lines before it that are not there.
    pub(crate) missing: Range<u64>,
    bytes: Vec<u8>,
    /// So many of its lines are not wanted.
    before: u64,
}

impl Piece {
    /// Its lines, from the first that is wanted on.
    pub(crate) fn lines(&self) -> &[u8] {
        after_lines(&self.bytes, self.before)
    }
}

/// Reads a stream's lines, a batch at a time.
pub(crate) struct Reader<S: Segments> {
    segments: S,
    /// The segment that is opened next.
    place: usize,
    open: Option<Open<S::Data>>,
    /// The line that comes next.
    next: u64,
    judge: Judge,
}

/// The segment that is read.
struct Open<D> {
    segment: Segment<D>,
    until_line: u64,
    /// Batches that may be next.
    batches: IntoIter<Entry>,
    /// Whether these were checked; before that they are what the index alone promises.
    are_checked: bool,
}

impl<S: Segments> Reader<S> {
    /// Begins in the segment at `place`, with the line `from`.
    pub(crate) fn new(segments: S, place: usize, from: u64) -> Reader<S> {
        Reader { segments, place, open: None, next: from, judge: Judge::default() }
    }

    /// The number of the line that comes next.
    pub(crate) fn next_line(&self) -> u64 {
        self.next
    }

    /// What is wrong with the segments that were read.
    pub(crate) fn problems(&self) -> &[String] {
        &self.judge.problems
    }

    /// The next batch that has lines.
    pub(crate) fn next(&mut self) -> Result<Option<Piece>, LogdError> {
        loop {
            let Some(open) = &mut self.open else {
                if self.place == self.segments.count() {
                    return Ok(None);
                }
                self.open = Some(Open::new(&self.segments, self.place)?);
                self.place += 1;
                continue;
            };
            if let Some(piece) = open.next(&self.segments, &mut self.next)? {
                return Ok(Some(piece));
            }
            let is_last = self.place == self.segments.count();
            if open.are_checked {
                self.open = None;
            } else {
                open.check(&self.segments, self.next, &mut self.judge, is_last)?;
            }
        }
    }
}

impl<D: Data> Open<D> {
    fn new<S: Segments<Data = D>>(segments: &S, place: usize) -> Result<Open<D>, LogdError> {
        let until_line = until_line(segments, place)?;
        let segment = segments.open(place)?;
        let batches = segment.promised().into_iter();
        Ok(Open { segment, until_line, batches, are_checked: false })
    }

    /// The next batch up to the first that is not whole. That one ends it: what is to become of those
    /// behind it only a look at all of the segment says.
    fn next<S: Segments<Data = D>>(
        &mut self,
        segments: &S,
        next: &mut u64,
    ) -> Result<Option<Piece>, LogdError> {
        let until_line = self.until_line;
        let is_wanted = |batch: &Entry| batch.is_before(until_line) && batch.line_end() > *next;
        let Some(batch) = self.batches.find(is_wanted) else { return Ok(None) };
        let bytes = self.segment.bytes_of(&batch);
        let Some(bytes) = bytes.map_err(|error| segments.failed(&self.segment, &error))? else {
            self.batches = Vec::new().into_iter();
            return Ok(None);
        };
        let from = std::mem::replace(next, batch.line_end());
        Ok(Some(Piece {
            time_ms: batch.time_ms,
            missing: from..from.max(batch.first_line),
            bytes,
            before: from.saturating_sub(batch.first_line),
        }))
    }

    /// Looks at all that was not read yet.
    fn check<S: Segments<Data = D>>(
        &mut self,
        segments: &S,
        next: u64,
        judge: &mut Judge,
        is_last: bool,
    ) -> Result<(), LogdError> {
        let view = self.segment.view(next, self.until_line);
        let view = view.map_err(|error| segments.failed(&self.segment, &error))?;
        judge.look(&view, is_last);
        self.batches = view.batches().copied().collect::<Vec<_>>().into_iter();
        self.are_checked = true;
        Ok(())
    }
}

/// What follows the first `count` lines.
fn after_lines(bytes: &[u8], count: u64) -> &[u8] {
    let Some(last) = count.checked_sub(1) else { return bytes };
    let ends = memchr::memchr_iter(b'\n', bytes).nth(last as usize);
    ends.map_or(&[], |end| &bytes[end + 1..])
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

/// A stream's segments in a directory.
pub(crate) struct InDirectory<'a> {
    directory: &'a Path,
    stream: Stream,
    serials: Vec<u64>,
}

impl<'a> InDirectory<'a> {
    pub(crate) fn new(directory: &'a Path, stream: Stream, serials: Vec<u64>) -> InDirectory<'a> {
        InDirectory { directory, stream, serials }
    }

    /// The number of a segment; of the first, if there are none, 0.
    pub(crate) fn serial(&self, place: usize) -> u64 {
        self.serials.get(place).copied().unwrap_or(0)
    }

    fn path(&self, place: usize, part: Part) -> PathBuf {
        self.directory.join(self.stream.file(self.serials[place], part))
    }
}

impl Segments for InDirectory<'_> {
    type Data = Lines;

    fn count(&self) -> usize {
        self.serials.len()
    }

    fn open(&self, place: usize) -> Result<Segment<Lines>, LogdError> {
        let open = |part| {
            let path = self.path(place, part);
            match File::open(&path) {
                Ok(file) => Ok(Some(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(LogdError::on(&path, &error)),
            }
        };
        let named = |part| self.stream.file(self.serials[place], part);
        // The index first: what it speaks of is then in the data, or was never whole.
        let mut index = Vec::new();
        if let Some(mut file) = open(Part::Index)? {
            io::Read::read_to_end(&mut file, &mut index)
                .map_err(|error| LogdError::on(&self.path(place, Part::Index), &error))?;
        }
        if let Some(data) = open(Part::Data)?.map(Lines::Plain) {
            return Ok(Segment { name: named(Part::Data), index, data: Some(data) });
        }
        // In this order: the plain file goes when the packed one has its name.
        let Some(file) = open(Part::Packed)? else {
            return Ok(Segment { name: named(Part::Data), index, data: None });
        };
        let unpacker = Unpacker::new(file);
        let unpacker =
            unpacker.map_err(|error| LogdError::on(&self.path(place, Part::Packed), &error))?;
        let data = Some(Lines::Packed(unpacker));
        Ok(Segment { name: named(Part::Packed), index, data })
    }

    fn head(&self, place: usize) -> Result<Option<Entry>, LogdError> {
        let path = self.path(place, Part::Index);
        let mut head = [0; ENTRY_BYTES];
        match File::open(&path).and_then(|file| file.read_exact_at(&mut head, 0)) {
            Ok(()) => Ok(Entry::decode(&head).filter(|entry| entry.kind == Kind::Head)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(LogdError::on(&path, &error)),
        }
    }

    fn failed(&self, segment: &Segment<Lines>, error: &io::Error) -> LogdError {
        LogdError::on(&self.directory.join(&segment.name), error)
    }
}

/// Whether an index is not there, or not whole to its first entry.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}

/// Looks at one segment of a stream, all of it.
fn look<S: Segments, T>(
    segments: &S,
    place: usize,
    what: impl FnOnce(View<'_>) -> T,
) -> Result<T, LogdError> {
    let until_line = until_line(segments, place)?;
    let segment = segments.open(place)?;
    let view = segment.view(0, until_line);
    Ok(what(view.map_err(|error| segments.failed(&segment, &error))?))
}

/// Judges a stream: `tell` gets a line for each segment. Gives what is wrong, a line each.
pub(crate) fn verify(
    segments: &impl Segments,
    mut tell: impl FnMut(&str) -> Result<(), LogdError>,
) -> Result<Vec<String>, LogdError> {
    let mut judge = Judge::default();
    for place in 0..segments.count() {
        let is_last = place + 1 == segments.count();
        tell(&look(segments, place, |view| judge.look(&view, is_last))?)?;
    }
    Ok(judge.problems)
}

/// Up to which line the clients' are stored that named themselves, as each stream has it last. It may
/// have had a larger number before: names were once forgotten and began anew.
pub(crate) fn names(directory: &Path) -> Result<Vec<(String, u64)>, LogdError> {
    let mut names = Vec::new();
    for (stream, serials) in streams(directory)? {
        names.extend(names_of_stream(&InDirectory::new(directory, stream, serials))?);
    }
    Ok(names)
}

/// The first batch of each segment has what those before it knew.
fn names_of_stream(segments: &impl Segments) -> Result<HashMap<String, u64>, LogdError> {
    let mut newest = HashMap::new();
    for place in (0..segments.count()).rev() {
        let (names, are_all) = look(segments, place, |view| view.into_names())?;
        let found: HashMap<String, u64> = names.into_iter().collect();
        for (name, line) in found {
            newest.entry(name).or_insert(line);
        }
        if are_all {
            break;
        }
    }
    Ok(newest)
}

/// The number of the line that comes after a stream's last, where that is known.
pub(crate) fn end_of(segments: &impl Segments) -> Result<Option<u64>, LogdError> {
    for place in (0..segments.count()).rev() {
        // None of those behind it has a line that would bound it.
        if let Some(end) = look(segments, place, |view| view.line_end())? {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

/// Segments whose files are in memory.
#[derive(Default)]
pub(crate) struct InMemory(BTreeMap<u64, (Vec<u8>, Option<Vec<u8>>)>);

impl InMemory {
    fn nth(&self, place: usize) -> (&u64, &(Vec<u8>, Option<Vec<u8>>)) {
        self.0.iter().nth(place).expect("it was counted")
    }
}

impl Segments for InMemory {
    type Data = Vec<u8>;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn open(&self, place: usize) -> Result<Segment<Vec<u8>>, LogdError> {
        let (serial, (index, data)) = self.nth(place);
        let name = PathBuf::from(serial.to_string());
        Ok(Segment { name, index: index.clone(), data: data.clone() })
    }

    fn head(&self, place: usize) -> Result<Option<Entry>, LogdError> {
        let (_, (index, _)) = self.nth(place);
        let head = index.get(..ENTRY_BYTES).and_then(Entry::decode);
        Ok(head.filter(|entry| entry.kind == Kind::Head))
    }
}

/// All lines of a stream, and what is wrong with it.
fn read_all<S: Segments>(segments: S) -> Result<(Vec<u8>, Vec<String>), LogdError> {
    let mut reader = Reader::new(segments, 0, 0);
    let mut out = Vec::new();
    while let Some(piece) = reader.next()? {
        out.extend_from_slice(piece.lines());
    }
    Ok((out, reader.judge.problems))
}

/// The whole batches of a segment whose files are in memory.
pub(crate) fn whole_lines(index: &[u8], data: &[u8]) -> Vec<u8> {
    let segment = (index.to_vec(), Some(data.to_vec()));
    // In memory no call fails.
    read_all(InMemory(BTreeMap::from([(0, segment)]))).map_or(Vec::new(), |(lines, _)| lines)
}

#[cfg(test)]
fn in_memory(files: Vec<(u64, Part, Vec<u8>)>) -> InMemory {
    let mut segments = InMemory::default();
    for (serial, part, bytes) in files {
        let segment = segments.0.entry(serial).or_default();
        if part == Part::Index { segment.0 = bytes } else { segment.1 = Some(bytes) }
    }
    segments
}

/// The lines of a stream whose files are in memory, and what is wrong with it: for tests.
#[cfg(test)]
pub(crate) fn lines_of(files: Vec<(u64, Part, Vec<u8>)>) -> (Vec<String>, Vec<String>) {
    let segments = in_memory(files);
    let judged = verify(&segments, |_| Ok(())).unwrap();
    let (out, problems) = read_all(segments).unwrap();
    assert_eq!(problems, judged, "read and verified");
    let text = String::from_utf8(out).unwrap();
    (text.lines().map(str::to_owned).collect(), problems)
}

/// The names in a stream whose files are in memory, as a start finds them: for tests.
#[cfg(test)]
pub(crate) fn names_of(files: Vec<(u64, Part, Vec<u8>)>) -> Vec<(String, u64)> {
    names_of_stream(&in_memory(files)).unwrap().into_iter().collect()
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

    /// Counts what is opened.
    struct Counted(InMemory, std::rc::Rc<std::cell::Cell<usize>>);

    impl Segments for Counted {
        type Data = Vec<u8>;

        fn count(&self) -> usize {
            self.0.count()
        }

        fn open(&self, place: usize) -> Result<Segment<Vec<u8>>, LogdError> {
            self.1.set(self.1.get() + 1);
            self.0.open(place)
        }

        fn head(&self, place: usize) -> Result<Option<Entry>, LogdError> {
            self.0.head(place)
        }
    }

    #[test]
    fn the_first_line_needs_the_first_segment_only() {
        let (index, data) = segment(&[b"1\n", b"2\n"]);
        let head = Entry { first_line: 2, ..Entry::new(Kind::Head) }.encode().to_vec();
        let first = [(0, Part::Index, index), (0, Part::Data, data)];
        let files = first.into_iter().chain((1..50).map(|at| (at, Part::Index, head.clone())));
        let opened = std::rc::Rc::default();
        let segments = Counted(in_memory(files.collect()), std::rc::Rc::clone(&opened));
        assert_eq!(Reader::new(segments, 0, 0).next().unwrap().unwrap().lines(), b"1\n");
        assert_eq!(opened.get(), 1);
    }

    #[test]
    fn the_segment_of_a_line_is_found_where_heads_are_spoilt() {
        let head = |first_line| Entry { first_line, ..Entry::new(Kind::Head) }.encode().to_vec();
        let mut random = fastrand::Rng::with_seed(1);
        for count in 0..20_u64 {
            let files: Vec<_> = (0..count)
                .filter(|_| random.u8(..3) > 0)
                .map(|serial| (serial, Part::Index, head(serial * 10)))
                .chain((0..count).map(|serial| (serial, Part::Data, Vec::new())))
                .collect();
            let known = |line: u64| {
                let heads = files.iter().filter(|(_, part, _)| *part == Part::Index);
                heads.map(|(serial, ..)| *serial).filter(|serial| serial * 10 <= line).max()
            };
            for line in 0..count * 10 + 5 {
                let place = place_of(&in_memory(files.clone()), line).unwrap() as u64;
                assert_eq!(place, known(line).unwrap_or(0), "line {line} of {count} segments");
            }
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
