//! The names of a segment's files: `lines-000-0000000001.ndjson` and what lies beside it.

use std::{fmt, path::PathBuf};

/// What a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Content {
    /// Lines that were accepted.
    Lines,
    /// Lines that were rejected, each in a record that says why.
    DeadLetters,
}

/// The segments that one thread writes.
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
    /// What was cut off the end of the lines at a start.
    Torn,
    /// The lines of a sealed segment, packed: whole, if it has this name.
    Packed,
    /// The same before it is whole.
    Packing,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.content {
            Content::Lines => "lines",
            Content::DeadLetters => "dead",
        };
        write!(f, "{word}-{:03}", self.number)
    }
}

impl Stream {
    /// The name of a file of the segment `serial`.
    pub(crate) fn file(&self, serial: u64, part: Part) -> PathBuf {
        let ending = match part {
            Part::Data => "ndjson",
            Part::Index => "index",
            Part::Torn => "torn",
            Part::Packed => "ndjson.zst",
            Part::Packing => "ndjson.zst.part",
        };
        format!("{self}-{serial:010}.{ending}").into()
    }
}

/// What a file's name says; nothing where it is none of a segment's.
pub(crate) fn parse(name: &str) -> Option<(Stream, u64, Part)> {
    let (stem, ending) = name.split_once('.')?;
    let part = match ending {
        "ndjson" => Part::Data,
        "index" => Part::Index,
        "torn" => Part::Torn,
        "ndjson.zst" => Part::Packed,
        "ndjson.zst.part" => Part::Packing,
        _ => return None,
    };
    let mut words = stem.split('-');
    let content = match words.next()? {
        "lines" => Content::Lines,
        "dead" => Content::DeadLetters,
        _ => return None,
    };
    let stream = Stream { content, number: words.next()?.parse().ok()? };
    let serial = words.next()?.parse().ok()?;
    // Only what it would be called: not `lines-0-1.ndjson`.
    (stream.file(serial, part).to_str() == Some(name)).then_some((stream, serial, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_no_others() {
        for content in [Content::Lines, Content::DeadLetters] {
            for part in [Part::Data, Part::Index, Part::Torn, Part::Packed, Part::Packing] {
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
