//! Reads streams for `ringwise logd cat`, `tail` and `verify`, also while a daemon writes them.
//!
//! It opens one segment at a time. So a stream may have any number of segments, and the first line is printed as soon
//! as the first batch is read. `view` decides which batches of a segment are whole.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    vec::IntoIter,
};

use super::{
    entry::{ENTRY_BYTES, Entry, Kind},
    name::{Content, Part, Stream, parse},
    record::{Mark, StoredPart},
    scan::{ByTenant, Origins, Scan},
    unpack::Unpacker,
    view::{Judge, Lines, Segment, View},
};
use crate::error::LogdError;

/// The segments of a stream, in order.
pub(crate) trait Segments {
    fn count(&self) -> usize;

    /// Opens a segment.
    fn open(&self, place: usize) -> Result<Segment, LogdError>;

    /// Reads the first entry of a segment, if it exists and is whole.
    fn head(&self, place: usize) -> Result<Option<Entry>, LogdError>;
}

/// Finds the line at which a segment ends because the next segment has the following lines. It is the first line of the
/// nearest later segment for which that is known.
fn until_line(segments: &impl Segments, place: usize) -> Result<u64, LogdError> {
    for later in place + 1..segments.count() {
        if let Some(head) = segments.head(later)? {
            return Ok(head.first_line);
        }
        // The head of this segment is damaged, but it may have batches.
        if let Some(first) = segments.open(later)?.view(0, u64::MAX)?.first_line() {
            return Ok(first);
        }
    }
    Ok(u64::MAX)
}

/// Finds the segment that has a line: the last one that does not begin after the line, or else the first.
pub(crate) fn place_of(segments: &impl Segments, line: u64) -> Result<usize, LogdError> {
    let mut found = 0;
    let (mut low, mut high) = (0, segments.count());
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        // Finds the nearest segment at or before the middle that has a valid head.
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

/// A batch of lines for the caller.
pub(crate) struct Piece {
    /// When the batch began, in milliseconds since 1970.
    pub(crate) time_ms: u64,
    /// The lines that are missing before it.
    pub(crate) missing: Range<u64>,
    /// The senders of its lines, if the reader was asked for them.
    pub(crate) parts: Vec<StoredPart>,
    bytes: Vec<u8>,
    /// The number of lines at its start that the caller does not want.
    before: u64,
}

impl Piece {
    /// Returns its lines, from the first wanted one on.
    pub(crate) fn lines(&self) -> &[u8] {
        after_lines(&self.bytes, self.before)
    }

    /// Returns the lines of each part, from the first wanted one on.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&StoredPart, &[u8])> {
        let (mut rest, mut before) = (&self.bytes[..], self.before);
        self.parts.iter().map(move |part| {
            let (own, after) = rest.split_at(rest.len().min(part.bytes as usize));
            rest = after;
            let skipped = before.min(part.lines);
            before -= skipped;
            (part, after_lines(own, skipped))
        })
    }
}

/// Reads a stream's lines, a batch at a time.
pub(crate) struct Reader<S: Segments> {
    segments: S,
    /// The segment to open next.
    place: usize,
    open: Option<Open>,
    /// The number of the next line.
    next: u64,
    judge: Judge,
    /// If set, the reader also reads the senders of lines, and skips batches that were written before this time, in
    /// milliseconds since 1970.
    origins_since: Option<u64>,
}

/// The segment that is being read.
struct Open {
    segment: Segment,
    until_line: u64,
    /// The next batches.
    batches: IntoIter<Entry>,
    origins: Origins,
    /// Whether the batches were checked. Before the check they are the batches that the index lists.
    are_checked: bool,
}

impl<S: Segments> Reader<S> {
    /// Starts in the segment at `place`, with the line `from`.
    pub(crate) fn new(segments: S, place: usize, from: u64) -> Reader<S> {
        let (judge, origins_since) = (Judge::default(), None);
        Reader { segments, place, open: None, next: from, judge, origins_since }
    }

    /// If a time is given, also reads the senders of lines, and skips batches that were written before that time.
    pub(crate) fn with_origins(self, origins_since: Option<u64>) -> Reader<S> {
        Reader { origins_since, ..self }
    }

    /// Returns the number of the next line.
    pub(crate) fn next_line(&self) -> u64 {
        self.next
    }

    /// Returns the problems of the segments that were read, a line each.
    pub(crate) fn problems(&self) -> &[String] {
        &self.judge.problems
    }

    /// Reads the next batch that has lines.
    pub(crate) fn next(&mut self) -> Result<Option<Piece>, LogdError> {
        let since_ms = self.origins_since.unwrap_or(0);
        loop {
            let Some(open) = &mut self.open else {
                if self.place == self.segments.count() {
                    return Ok(None);
                }
                self.open = Some(Open::new(&self.segments, self.place)?);
                self.place += 1;
                continue;
            };
            if let Some((from, batch, bytes)) = open.next(&mut self.next, since_ms)? {
                let parts = self.origins_since.map_or(Vec::new(), |_| open.origins.of(&batch));
                return Ok(Some(Piece {
                    time_ms: batch.time_ms,
                    missing: from..from.max(batch.first_line),
                    parts,
                    bytes,
                    before: from.saturating_sub(batch.first_line),
                }));
            }
            let is_last = self.place == self.segments.count();
            if open.are_checked {
                self.open = None;
            } else {
                open.check(self.next, &mut self.judge, is_last)?;
            }
        }
    }
}

impl Open {
    fn new(segments: &impl Segments, place: usize) -> Result<Open, LogdError> {
        let until_line = until_line(segments, place)?;
        let segment = segments.open(place)?;
        let mut promised = Scan::promised(&segment.index);
        let batches = std::mem::take(&mut promised.batches).into_iter();
        let origins = promised.into_origins();
        Ok(Open { segment, until_line, batches, origins, are_checked: false })
    }

    /// Reads the next batch, and returns it with the number of the line that was expected. It stops at the first batch
    /// that is not whole. A [check](Self::check) finds the batches after that one.
    fn next(
        &mut self,
        next: &mut u64,
        since_ms: u64,
    ) -> Result<Option<(u64, Entry, Vec<u8>)>, LogdError> {
        let until_line = self.until_line;
        let is_wanted = |batch: &Entry| {
            let is_left = batch.is_before(until_line) && batch.line_end() > *next;
            if is_left && batch.time_ms < since_ms {
                *next = batch.line_end();
                return false;
            }
            is_left
        };
        let Some(batch) = self.batches.find(is_wanted) else { return Ok(None) };
        let Some(bytes) = self.segment.bytes_of(&batch)? else {
            self.batches = Vec::new().into_iter();
            return Ok(None);
        };
        let from = std::mem::replace(next, batch.line_end());
        Ok(Some((from, batch, bytes)))
    }

    /// Checks the remaining batches.
    fn check(&mut self, next: u64, judge: &mut Judge, is_last: bool) -> Result<(), LogdError> {
        let view = self.segment.view(next, self.until_line)?;
        judge.look(&view, is_last);
        self.batches = view.batches().copied().collect::<Vec<_>>().into_iter();
        self.origins = view.into_origins();
        self.are_checked = true;
        Ok(())
    }
}

/// Returns the bytes after the first `count` lines.
fn after_lines(bytes: &[u8], count: u64) -> &[u8] {
    let Some(last) = count.checked_sub(1) else { return bytes };
    let ends = memchr::memchr_iter(b'\n', bytes).nth(last as usize);
    ends.map_or(&[], |end| &bytes[end + 1..])
}

/// Lists the streams of a directory, and the numbers of their segments.
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

/// Adds segments that a listing missed. A listing takes time and may miss names that are created meanwhile
/// (readdir(3)).
fn add_unlisted(directory: &Path, stream: Stream, serials: &mut Vec<u64>) {
    /// Far more segments than are created during a listing. A foreign file can make a gap of any width.
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

/// The segments of a stream in a directory.
pub(crate) struct InDirectory<'a> {
    directory: &'a Path,
    stream: Stream,
    serials: Vec<u64>,
}

impl<'a> InDirectory<'a> {
    pub(crate) fn new(directory: &'a Path, stream: Stream, serials: Vec<u64>) -> InDirectory<'a> {
        InDirectory { directory, stream, serials }
    }

    /// Lists all streams of a directory.
    fn all(directory: &'a Path) -> Result<impl Iterator<Item = InDirectory<'a>>, LogdError> {
        let new = move |(stream, serials)| InDirectory { directory, stream, serials };
        Ok(streams(directory)?.into_iter().map(new))
    }

    /// Returns the number of a segment. Without any segments it is 0.
    pub(crate) fn serial(&self, place: usize) -> u64 {
        self.serials.get(place).copied().unwrap_or(0)
    }

    fn path(&self, place: usize, part: Part) -> PathBuf {
        self.directory.join(self.stream.file(self.serials[place], part))
    }
}

impl Segments for InDirectory<'_> {
    fn count(&self) -> usize {
        self.serials.len()
    }

    fn open(&self, place: usize) -> Result<Segment, LogdError> {
        let failed = |part, error: &io::Error| LogdError::on(&self.path(place, part), error);
        let open = |part| match File::open(self.path(place, part)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(|error| failed(part, &error)),
        };
        // The index is read first: the data of its batches was written before, or the batch was never whole.
        let mut index = Vec::new();
        if let Some(mut file) = open(Part::Index)? {
            io::Read::read_to_end(&mut file, &mut index)
                .map_err(|error| failed(Part::Index, &error))?;
        }
        let (mut part, mut data) = (Part::Data, open(Part::Data)?.map(Lines::Plain));
        // The packed file is opened second, because the plain one is removed only after the packed one has its name.
        if data.is_none()
            && let Some(file) = open(Part::Packed)?
        {
            let unpacker = Unpacker::new(file).map_err(|error| failed(Part::Packed, &error))?;
            (part, data) = (Part::Packed, Some(Lines::Packed(unpacker)));
        }
        let name = self.stream.file(self.serials[place], part);
        Ok(Segment { directory: self.directory.to_owned(), name, index, data })
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
}

/// Whether an index does not exist or is shorter than an entry.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
}

/// Checks one whole segment of a stream.
fn look<S: Segments, T>(
    segments: &S,
    place: usize,
    what: impl FnOnce(View<'_>) -> T,
) -> Result<T, LogdError> {
    let until_line = until_line(segments, place)?;
    Ok(what(segments.open(place)?.view(0, until_line)?))
}

/// Checks a stream. `tell` is called with a line for each segment. Returns the problems, a line each.
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

/// Reads the newest mark of each client's name in each stream. An older mark may have a larger number, because a daemon
/// may forget a name, which then starts again.
pub(crate) fn names(directory: &Path) -> Result<Vec<Mark>, LogdError> {
    let mut names = Vec::new();
    for segments in InDirectory::all(directory)? {
        names.extend(names_of_stream(&segments)?);
    }
    Ok(names)
}

/// Counts the bytes of lines of each tenant, for each segment that has lines.
pub(crate) fn by_tenant(directory: &Path) -> Result<Vec<ByTenant>, LogdError> {
    let mut all = Vec::new();
    for segments in InDirectory::all(directory)? {
        for place in 0..segments.count() {
            let segment = segments.open(place)?;
            if segments.stream.content == Content::Lines && segment.data.is_some() {
                all.push(Scan::by_tenant(&segment.index));
            }
        }
    }
    Ok(all)
}

/// Reads the names of a stream. It goes backwards until a segment has its first batch, which repeats all earlier names.
pub(super) fn names_of_stream(segments: &impl Segments) -> Result<Vec<Mark>, LogdError> {
    let mut newest: HashMap<Arc<str>, Mark> = HashMap::new();
    for place in (0..segments.count()).rev() {
        let (names, are_all) = look(segments, place, |view| view.into_names())?;
        let found: HashMap<_, _> =
            names.into_iter().map(|mark| (mark.name.clone(), mark)).collect();
        for (name, mark) in found {
            newest.entry(name).or_insert(mark);
        }
        if are_all {
            break;
        }
    }
    Ok(newest.into_values().collect())
}

/// Returns the number of the line after the last one of a stream, if it is known.
pub(crate) fn end_of(segments: &impl Segments) -> Result<Option<u64>, LogdError> {
    for place in (0..segments.count()).rev() {
        // No later segment has a line.
        if let Some(end) = look(segments, place, |view| view.line_end())? {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

/// Segments whose files are in memory: the index, and the lines if their file exists.
#[derive(Default)]
pub(crate) struct InMemory(pub(crate) BTreeMap<u64, (Vec<u8>, Option<Vec<u8>>)>);

impl InMemory {
    fn nth(&self, place: usize) -> (&u64, &(Vec<u8>, Option<Vec<u8>>)) {
        self.0.iter().nth(place).expect("the caller passes a place below the count")
    }
}

impl Segments for InMemory {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn open(&self, place: usize) -> Result<Segment, LogdError> {
        let (serial, (index, data)) = self.nth(place);
        let (directory, name) = (PathBuf::new(), PathBuf::from(serial.to_string()));
        Ok(Segment { directory, name, index: index.clone(), data: data.clone().map(Lines::Memory) })
    }

    fn head(&self, place: usize) -> Result<Option<Entry>, LogdError> {
        let (_, (index, _)) = self.nth(place);
        let head = index.get(..ENTRY_BYTES).and_then(Entry::decode);
        Ok(head.filter(|entry| entry.kind == Kind::Head))
    }
}

/// Reads all lines of a stream, and its problems.
pub(crate) fn read_all(segments: impl Segments) -> Result<(Vec<u8>, Vec<String>), LogdError> {
    let mut reader = Reader::new(segments, 0, 0);
    let mut out = Vec::new();
    while let Some(piece) = reader.next()? {
        out.extend_from_slice(piece.lines());
    }
    Ok((out, reader.judge.problems))
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, rc::Rc};

    use super::*;
    use crate::{
        fuzzing::index_of,
        segment::{
            entry::BESIDE_SHIFT,
            tests::{in_memory, lines_of},
        },
    };

    fn segment(batches: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
        let batches: Vec<Vec<u8>> = batches.iter().map(|batch| batch.to_vec()).collect();
        (index_of(&batches, true, false), batches.concat())
    }

    /// Cuts or corrupts the last batch at every byte, in the data and in the index. Whole batches are read, others are
    /// not, and a torn tail is not damage.
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
            assert_eq!(found(&index, &spoilt), whole, "data corrupted at {cut}");
        }
        for cut in 128..index.len() {
            assert_eq!(found(&index[..cut], &data), whole, "index cut at {cut}");
            let mut spoilt = index.clone();
            spoilt[cut] ^= 0x10;
            assert_eq!(found(&spoilt, &data), whole, "index corrupted at {cut}");
        }
    }

    /// Counts the segments that are opened, and the heads that are read.
    struct Counted(InMemory, Rc<Cell<(usize, usize)>>);

    impl Segments for Counted {
        fn count(&self) -> usize {
            self.0.count()
        }

        fn open(&self, place: usize) -> Result<Segment, LogdError> {
            let (opened, heads) = self.1.get();
            self.1.set((opened + 1, heads));
            self.0.open(place)
        }

        fn head(&self, place: usize) -> Result<Option<Entry>, LogdError> {
            let (opened, heads) = self.1.get();
            self.1.set((opened, heads + 1));
            self.0.head(place)
        }
    }

    /// All segments were read before the first line was printed.
    #[test]
    fn the_first_line_needs_the_first_of_two_thousand_segments_only() {
        let (index, data) = segment(&[b"1\n", b"2\n"]);
        let head = Entry { first_line: 2, ..Entry::new(Kind::Head) }.encode().to_vec();
        let first = [(0, Part::Index, index), (0, Part::Data, data)];
        let others = (1..2000).map(|at| (at, Part::Index, head.clone()));
        let looks = Rc::default();
        let files = first.into_iter().chain(others).collect();
        let segments = Counted(in_memory(files), Rc::clone(&looks));
        assert_eq!(Reader::new(segments, 0, 0).next().unwrap().unwrap().lines(), b"1\n");
        // The head of the second says where the lines of the first end.
        assert_eq!(looks.get(), (1, 1));
    }

    #[test]
    fn the_segment_of_a_line_is_found_although_heads_are_missing() {
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
    fn a_corrupted_batch_in_the_middle_is_a_problem_and_hides_no_other() {
        let batches: [&[u8]; 3] = [b"1\n", b"2\n", b"3\n"];
        let (index, mut data) = segment(&batches);
        data[2] = b'9';
        let (lines, problems) = lines_of(vec![(0, Part::Index, index), (0, Part::Data, data)]);
        assert_eq!(lines, ["1", "3"]);
        assert_eq!(problems, ["0: damaged after 1 whole batches, at byte 2"]);
    }

    /// The daemon of this directory forgot a name, which then started again.
    #[test]
    fn the_newest_number_of_a_name_counts_and_not_the_largest() {
        let directory = tempfile::tempdir().unwrap();
        let stream = Stream { content: Content::Lines, number: 0 };
        let batch = |number: u64| Entry {
            number,
            flags: 1 << BESIDE_SHIFT,
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
        let names = names(directory.path()).unwrap();
        assert_eq!(
            names.iter().map(|mark| (&*mark.name, mark.line)).collect::<Vec<_>>(),
            [("web", 5)]
        );
    }

    #[test]
    fn lines_are_skipped_within_a_batch() {
        assert_eq!(after_lines(b"1\n2\n3\n", 0), b"1\n2\n3\n");
        assert_eq!(after_lines(b"1\n2\n3\n", 2), b"3\n");
        assert_eq!(after_lines(b"1\n2\n3\n", 3), b"");
    }
}
