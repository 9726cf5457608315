//! Tests of the whole life of a segment, and helpers that read a stream in memory.

mod crashes;

use super::{
    entry::{ENTRY_BYTES, Entry, Kind},
    name::Part,
    reader::{InMemory, Reader, names_of_stream, read_all, verify},
    record::{Mark, Origin},
};

pub(super) fn in_memory(files: Vec<(u64, Part, Vec<u8>)>) -> InMemory {
    let mut segments = InMemory::default();
    for (serial, part, bytes) in files {
        let segment = segments.0.entry(serial).or_default();
        if part == Part::Index { segment.0 = bytes } else { segment.1 = Some(bytes) }
    }
    segments
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

/// Returns the lines of a stream, with the sender of each.
fn origins_of(files: Vec<(u64, Part, Vec<u8>)>) -> Vec<(String, Option<Origin>)> {
    let mut reader = Reader::new(in_memory(files), 0, 0).with_origins(Some(0));
    let mut found = Vec::new();
    while let Some(piece) = reader.next().unwrap() {
        for (part, lines) in piece.parts() {
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
