//! Tests of the whole life of a segment, and helpers that read a stream in memory.

mod crashes;

use std::{ops::Range, path::Path};

use crate::disk::segment::{
    format::{
        entry::{ENTRY_BYTES, Entry, Kind},
        name::{Part, Stream},
        record::{Mark, Origin, StoredPart},
    },
    reading::{
        cursor::Choice,
        reader::{Reader, names_of_stream, read_all, verify},
        source::InMemory,
    },
};

pub(super) fn in_memory(files: Vec<(u64, Part, Vec<u8>)>) -> InMemory {
    let mut segments = InMemory::default();
    for (serial, part, bytes) in files {
        let segment = segments.0.entry(serial).or_default();
        if part == Part::Index { segment.0 = bytes } else { segment.1 = Some(bytes) }
    }
    segments
}

/// Makes the index of a sealed segment with one line, which is the segment's own number. `flags` are those of the head.
pub(super) fn index_of_one(serial: u64, flags: u32) -> Vec<u8> {
    let line = format!("{serial}\n");
    let (bytes, first_line) = (line.len() as u64, serial);
    let checksum = crc32fast::hash(line.as_bytes());
    let head = Entry { flags, first_line, ..Entry::new(Kind::Head) };
    let batch = Entry { bytes, lines: 1, first_line, checksum, ..Entry::new(Kind::Batch) };
    let end = Entry { number: 1, offset: bytes, lines: 1, ..Entry::new(Kind::Seal) };
    let seal = Entry { first_line: serial + 1, ..end };
    [head, batch, seal].iter().flat_map(Entry::encode).collect()
}

/// Writes the files of such a segment.
pub(super) fn write_one(directory: &Path, stream: Stream, serial: u64) {
    let path = |part| directory.join(stream.file(serial, part));
    std::fs::write(path(Part::Index), index_of_one(serial, 0)).unwrap();
    std::fs::write(path(Part::Data), format!("{serial}\n")).unwrap();
}

/// Returns the lines of a stream, and its problems.
pub(super) fn lines_of(files: Vec<(u64, Part, Vec<u8>)>) -> (Vec<String>, Vec<String>) {
    let segments = in_memory(files);
    let judged = verify(&segments, |_| Ok(())).unwrap();
    let (out, problems) = read_all(segments).unwrap();
    assert_eq!(problems, judged, "reading and verifying find the same problems");
    let text = String::from_utf8(out).unwrap();
    (text.lines().map(str::to_owned).collect(), problems)
}

/// All lines, with their senders.
struct All;

impl Choice for All {
    fn times_ms(&self) -> Range<u64> {
        0..u64::MAX
    }

    fn wants(&self, _: &StoredPart) -> bool {
        true
    }
}

/// Returns the lines of a stream, with the sender of each.
fn origins_of(files: Vec<(u64, Part, Vec<u8>)>) -> Vec<(String, Option<Origin>)> {
    let mut reader = Reader::new(in_memory(files), 0, 0).with_choice(Some(&All));
    let mut found = Vec::new();
    while let Some(piece) = reader.next().unwrap() {
        for (part, lines, _) in piece.parts() {
            let lines = std::str::from_utf8(lines).unwrap().lines();
            found.extend(lines.map(|line| (line.to_owned(), part.origin.clone())));
        }
    }
    found
}

/// Returns the names in a stream, as a start reads them.
fn names_of(files: Vec<(u64, Part, Vec<u8>)>) -> Vec<Mark> {
    names_of_stream(&in_memory(files)).unwrap()
}

impl Entry {
    /// Makes the entries of a name as earlier versions wrote them.
    pub(crate) fn of_name(name: &str, line: u64) -> impl Iterator<Item = Entry> {
        name.as_bytes().chunks(40).enumerate().map(move |(place, piece)| {
            let mut bytes = [0; ENTRY_BYTES];
            bytes[16..][..piece.len()].copy_from_slice(piece);
            let flags = name.len() as u32 | (place as u32) << 16;
            Entry { flags, number: line, ..Entry::read(Kind::Name, &bytes) }
        })
    }
}
