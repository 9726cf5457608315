//! Reads streams for `ringwise logd cat`, `tail`, `query` and `verify`, also while a daemon writes them.
//!
//! It opens one segment at a time. So a stream may have any number of segments, and the first line is printed as soon
//! as the first batch is read. `source` finds segments, `cursor` reads one of them, and `view` decides which of its
//! batches are whole.
//!
//! Retention may remove a segment between its listing and its opening. The reader then goes on as if it had begun after
//! that. Retention removes the oldest segments of a stream first, so a segment that is gone while an older one is there
//! is a loss.

use std::{collections::HashMap, path::Path, sync::Arc};

use crate::{
    disk::segment::{
        format::{name::Content, record::Mark},
        reading::{
            cursor::{Choice, Cursor, Opened, Piece, until_line},
            source::{InDirectory, Segments},
            view::{Judge, Report, View},
        },
        scan::{ByTenant, Scan},
    },
    error::LogdError,
};

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

/// The segments at the start of a stream that retention removed after they were listed.
#[derive(Default)]
pub(crate) struct Retired {
    /// How many.
    count: usize,
}

impl Retired {
    /// Whether a segment is one of them. Segments must be asked for in their order.
    pub(crate) fn contains(&mut self, segments: &impl Segments, place: usize) -> bool {
        while self.count <= place && !segments.exists(self.count) {
            self.count += 1;
        }
        place < self.count
    }
}

/// Reads a stream's lines, a batch at a time.
pub(crate) struct Reader<'a, S: Segments> {
    segments: S,
    /// The segment to open next.
    place: usize,
    cursor: Option<Box<Cursor>>,
    /// The number of the next line.
    next: u64,
    judge: Judge,
    retired: Retired,
    /// The lines that the caller wants, if not all.
    choice: Option<&'a dyn Choice>,
    /// A buffer of a piece that the caller has done with.
    spare: Vec<u8>,
}

impl<'a, S: Segments> Reader<'a, S> {
    /// Starts in the segment at `place`, with the line `from`.
    pub(crate) fn new(segments: S, place: usize, from: u64) -> Reader<'a, S> {
        let (judge, retired, spare) = (Judge::default(), Retired::default(), Vec::new());
        Reader { segments, place, cursor: None, next: from, judge, retired, choice: None, spare }
    }

    /// If there is a choice, also reads the senders of lines, and skips batches of which no line is wanted.
    pub(crate) fn with_choice(self, choice: Option<&'a dyn Choice>) -> Reader<'a, S> {
        Reader { choice, ..self }
    }

    /// Returns the number of the next line.
    pub(crate) fn next_line(&self) -> u64 {
        self.next
    }

    /// Returns the problems of the segments that were read, a line each.
    pub(crate) fn problems(&self) -> &[String] {
        &self.judge.problems
    }

    /// Takes a piece back that the caller has done with, for its memory.
    pub(crate) fn recycle(&mut self, piece: Piece<'static>) {
        self.spare = piece.into_buffer();
    }

    /// Reads the next batch that has lines.
    pub(crate) fn next(&mut self) -> Result<Option<Piece<'static>>, LogdError> {
        loop {
            let Some(cursor) = &mut self.cursor else {
                if self.place == self.segments.count() {
                    return Ok(None);
                }
                self.open_next()?;
                continue;
            };
            let piece = cursor.next(self.choice)?;
            let piece = piece.map(|piece| piece.into_owned(std::mem::take(&mut self.spare)));
            self.next = cursor.next_line();
            if piece.is_some() {
                return Ok(piece);
            }
            let is_last = self.place == self.segments.count();
            match cursor.check(is_last)? {
                Some(report) => self.judge.take(report),
                None => self.cursor = None,
            }
        }
    }

    /// Opens the next segment, unless retention removed it.
    fn open_next(&mut self) -> Result<(), LogdError> {
        match Cursor::open(&self.segments, self.place, self.next, self.choice)? {
            Opened::Passed { report, next } => {
                self.judge.take(report);
                self.next = self.next.max(next);
            }
            Opened::Cursor(cursor)
                if cursor.is_absent() && self.retired.contains(&self.segments, self.place) =>
            {
                self.judge.begin_again();
            }
            Opened::Cursor(cursor) => self.cursor = Some(cursor),
        }
        self.place += 1;
        Ok(())
    }
}

/// Checks one whole segment of a stream.
fn look<S: Segments, T>(
    segments: &S,
    place: usize,
    what: impl FnOnce(View) -> T,
) -> Result<T, LogdError> {
    let until_line = until_line(segments, place)?;
    Ok(what(segments.open(place)?.view(0, until_line)?))
}

/// Checks a stream. `tell` is called with a line for each segment. Returns the problems, a line each.
pub(crate) fn verify(
    segments: &impl Segments,
    mut tell: impl FnMut(&str) -> Result<(), LogdError>,
) -> Result<Vec<String>, LogdError> {
    let (mut judge, mut retired) = (Judge::default(), Retired::default());
    for place in 0..segments.count() {
        let is_last = place + 1 == segments.count();
        let until_line = until_line(segments, place)?;
        let mut segment = segments.open(place)?;
        if segment.is_absent() && retired.contains(segments, place) {
            judge.begin_again();
            continue;
        }
        let report = Report::new(&segment.view(0, until_line)?, is_last);
        tell(&report.line)?;
        judge.take(report);
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
            if segments.stream().content == Content::Lines && segment.data.is_some() {
                all.push(Scan::by_tenant(&segment.index));
            }
        }
    }
    Ok(all)
}

/// Reads the names of a stream. It goes backwards until a segment has its first batch, which repeats all earlier names.
pub(crate) fn names_of_stream(segments: &impl Segments) -> Result<Vec<Mark>, LogdError> {
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
    use std::{
        cell::Cell, fs, io::Write, ops::Range, path::PathBuf, process::Command, rc::Rc, thread,
    };

    use super::*;
    use crate::{
        disk::segment::{
            format::{
                entry::{BESIDE_SHIFT, Ends, Entry, Kind, REMOVED},
                name::{Part, Stream},
                record::StoredPart,
            },
            reading::{source::InMemory, view::Segment},
            tests::{in_memory, index_of_one, lines_of, write_one},
        },
        fuzzing::index_of,
    };

    const STREAM: Stream = Stream { content: Content::Lines, number: 0 };

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

        fn exists(&self, place: usize) -> bool {
            self.0.exists(place)
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

        fn ends(&self, place: usize) -> Result<Ends, LogdError> {
            self.0.ends(place)
        }

        fn name(&self, place: usize) -> PathBuf {
            self.0.name(place)
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
        let path = |part| directory.path().join(STREAM.file(0, part));
        fs::write(path(Part::Index), index).unwrap();
        fs::write(path(Part::Data), b"1\n1\n").unwrap();
        let names = names(directory.path()).unwrap();
        assert_eq!(
            names.iter().map(|mark| (&*mark.name, mark.line)).collect::<Vec<_>>(),
            [("web", 5)]
        );
    }

    /// Five segments of a line each, and how they are listed.
    fn write_five(directory: &Path) -> InDirectory<'_> {
        (0..5).for_each(|serial| write_one(directory, STREAM, serial));
        InDirectory::new(directory, STREAM, (0..5).collect())
    }

    fn remove(directory: &Path, serial: u64) {
        for part in [Part::Data, Part::Index] {
            fs::remove_file(directory.join(STREAM.file(serial, part))).unwrap();
        }
    }

    /// The lines and the problems of five segments, of which some are removed after the first was read.
    fn read_while_removed(removed: &[u64]) -> (String, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        let mut reader = Reader::new(write_five(directory.path()), 0, 0);
        let mut lines = reader.next().unwrap().unwrap().lines().to_vec();
        removed.iter().for_each(|serial| remove(directory.path(), *serial));
        while let Some(piece) = reader.next().unwrap() {
            lines.extend_from_slice(piece.lines());
        }
        (String::from_utf8(lines).unwrap(), reader.judge.problems)
    }

    /// The problems of five segments, of which some are removed after the first was verified.
    fn verify_while_removed(removed: &[u64]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let mut is_first = true;
        let told = |_: &str| {
            if std::mem::take(&mut is_first) {
                removed.iter().for_each(|serial| remove(directory.path(), *serial));
            }
            Ok(())
        };
        verify(&write_five(directory.path()), told).unwrap()
    }

    /// Lines that retention removed while `cat` ran were reported as missing.
    #[test]
    fn segments_that_retention_removes_meanwhile_are_left_out() {
        let (lines, problems) = read_while_removed(&[0, 1, 2]);
        assert_eq!((&*lines, problems), ("0\n3\n4\n", Vec::new()));
        assert_eq!(verify_while_removed(&[0, 1, 2]), Vec::<String>::new());
    }

    #[test]
    fn a_segment_that_is_gone_while_an_older_one_is_there_is_a_loss() {
        let lost = |serial, lines| {
            format!("lines-000-000000000{serial}.ndjson: lines {lines} are missing")
        };
        for (removed, left, problem) in [
            (&[1, 2][..], "0\n3\n4\n", lost(3, "1 to 2")),
            (&[0, 2][..], "0\n1\n3\n4\n", lost(3, "2 to 2")),
            (&[3][..], "0\n1\n2\n4\n", lost(4, "3 to 3")),
        ] {
            let (lines, problems) = read_while_removed(removed);
            assert_eq!((&*lines, &*problems), (left, &[problem.clone()][..]));
            assert_eq!(verify_while_removed(removed), [problem]);
        }
    }

    /// The index was read before retention noted the removal in it, and the lines were opened after they had gone.
    #[test]
    fn a_removal_between_the_index_and_the_lines_is_no_loss() {
        let directory = tempfile::tempdir().unwrap();
        let segments = write_five(directory.path());
        let path = |part| directory.path().join(STREAM.file(0, part));
        let (index, noted) = (path(Part::Index), directory.path().join("noted"));
        fs::write(&noted, index_of_one(0, REMOVED)).unwrap();
        fs::remove_file(path(Part::Data)).unwrap();
        // Whoever opens the pipe reads the index as it was.
        fs::remove_file(&index).unwrap();
        assert!(Command::new("mkfifo").arg(&index).status().unwrap().success());
        let retention = thread::spawn(move || {
            let mut pipe = fs::File::options().write(true).open(&index).unwrap();
            pipe.write_all(&index_of_one(0, 0)).unwrap();
            fs::rename(noted, index).unwrap();
        });
        assert_eq!(verify(&segments, |_| Ok(())).unwrap(), Vec::<String>::new());
        retention.join().unwrap();
    }

    const DAY_MS: u64 = 24 * 3600 * 1000;

    struct Between(Range<u64>);

    impl Choice for Between {
        fn times_ms(&self) -> Range<u64> {
            self.0.clone()
        }

        fn wants(&self, part: &StoredPart) -> bool {
            self.0.contains(&part.time_ms)
        }
    }

    /// Three segments of one line, written on the days 10, 20 and 30. The batch of the second has another day.
    fn on_days(batch_day: u64) -> Vec<(u64, Part, Vec<u8>)> {
        let mut files = Vec::new();
        for serial in 0..3 {
            let day = (serial + 1) * 10;
            let batch_day = if serial == 1 { batch_day } else { day };
            let mut entries: Vec<Entry> =
                index_of_one(serial, 0).chunks(64).filter_map(Entry::decode).collect();
            for (entry, day) in entries.iter_mut().zip([day, batch_day, day]) {
                entry.time_ms = day * DAY_MS;
            }
            let index = entries.iter().flat_map(Entry::encode).collect();
            files.push((serial, Part::Index, index));
            files.push((serial, Part::Data, format!("{serial}\n").into_bytes()));
        }
        files
    }

    /// The lines between two days, and how many segments were opened for them.
    fn read_between(days: Range<u64>, batch_day: u64) -> (String, usize) {
        let choice = Between(days.start * DAY_MS..days.end * DAY_MS);
        let looks = Rc::default();
        let segments = Counted(in_memory(on_days(batch_day)), Rc::clone(&looks));
        let mut reader = Reader::new(segments, 0, 0).with_choice(Some(&choice));
        let mut lines = String::new();
        while let Some(piece) = reader.next().unwrap() {
            assert!(piece.missing.is_empty(), "what is passed over is not missing");
            lines += std::str::from_utf8(piece.lines()).unwrap();
        }
        assert_eq!((reader.problems(), reader.next_line()), (&[][..], 3));
        (lines, looks.get().0)
    }

    #[test]
    fn segments_far_from_the_wanted_times_are_not_opened() {
        assert_eq!(read_between(0..100, 20), ("0\n1\n2\n".into(), 3));
        assert_eq!(read_between(15..25, 20), ("1\n".into(), 1));
        assert_eq!(read_between(12..19, 20), (String::new(), 0));
        // Within a day of the first or the last entry the clock may have been wrong.
        assert_eq!(read_between(12..20, 19), ("1\n".into(), 1));
        assert_eq!(read_between(21..29, 21), ("1\n".into(), 1));
        assert_eq!(read_between(30..31, 20), ("2\n".into(), 1));
    }

    #[test]
    fn batches_outside_the_wanted_times_are_not_read() {
        let mut files = on_days(20);
        // Nobody sees the damage of a batch that is not read.
        files[3].2[0] = b'x';
        let choice = Between(0..20 * DAY_MS);
        let mut reader = Reader::new(in_memory(files), 0, 0).with_choice(Some(&choice));
        assert_eq!(reader.next().unwrap().unwrap().lines(), b"0\n");
        assert!(reader.next().unwrap().is_none());
        assert_eq!(reader.problems(), &[] as &[String]);
    }
}
