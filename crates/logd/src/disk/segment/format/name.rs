//! The names of a segment's files, such as `lines-000-0000000001.ndjson`.

use std::{fmt, path::PathBuf};

/// The kind of lines in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Content {
    /// Lines that were accepted.
    Lines,
    /// Rejected lines, each in a record with the reason.
    DeadLetters,
}

/// The segments of one kind, written by one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stream {
    pub(crate) content: Content,
    pub(crate) number: u32,
}

/// A file of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The lines.
    Data,
    /// The entries.
    Index,
    /// Bytes that a recovery cut off the end of the lines.
    Torn,
    /// The packed lines of a sealed segment. A file with this name is whole.
    Packed,
    /// A packed file that is being written.
    Packing,
    /// The record that its lines and its index are in object storage.
    Uploaded,
}

/// The first part of file names.
const BEGINNINGS: [(&str, Content); 2] =
    [("lines", Content::Lines), ("dead", Content::DeadLetters)];
const ENDINGS: [(&str, Part); 6] = [
    ("ndjson", Part::Data),
    ("index", Part::Index),
    ("torn", Part::Torn),
    ("ndjson.zst", Part::Packed),
    ("ndjson.zst.part", Part::Packing),
    ("uploaded", Part::Uploaded),
];

fn word_of<T: Copy + PartialEq>(words: &[(&'static str, T)], wanted: T) -> &'static str {
    words.iter().find(|(_, what)| *what == wanted).map_or("", |(word, _)| word)
}

fn what_is<T: Copy>(words: &[(&str, T)], word: &str) -> Option<T> {
    words.iter().find(|(known, _)| *known == word).map(|(_, what)| *what)
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:03}", word_of(&BEGINNINGS, self.content), self.number)
    }
}

impl Stream {
    /// Returns the name of a file of the segment `serial`.
    pub(crate) fn file(&self, serial: u64, part: Part) -> PathBuf {
        format!("{self}-{serial:010}.{}", word_of(&ENDINGS, part)).into()
    }
}

/// Parses a file's name. Returns nothing if it is not a segment's.
pub(crate) fn parse(name: &str) -> Option<(Stream, u64, Part)> {
    let (stem, ending) = name.split_once('.')?;
    let part = what_is(&ENDINGS, ending)?;
    let mut words = stem.split('-');
    let content = what_is(&BEGINNINGS, words.next()?)?;
    let stream = Stream { content, number: words.next()?.parse().ok()? };
    let serial = words.next()?.parse().ok()?;
    // This refuses names such as `lines-0-1.ndjson`.
    (stream.file(serial, part).to_str() == Some(name)).then_some((stream, serial, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_no_others() {
        for content in [Content::Lines, Content::DeadLetters] {
            for (_, part) in ENDINGS {
                for (number, serial) in [(0, 1), (7, 12_345_678_901), (1234, 0)] {
                    let stream = Stream { content, number };
                    let name = stream.file(serial, part);
                    assert_eq!(parse(name.to_str().unwrap()), Some((stream, serial, part)));
                }
            }
        }
        for name in ["lines-0-1.ndjson", "lines-000-0000000001", "x-000-0000000001.index", "lock"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
