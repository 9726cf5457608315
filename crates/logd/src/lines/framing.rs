//! Finds the ends of lines, LF or CRLF, in pieces of any size.
//!
//! A line within one piece is not copied. Of a line that is longer than the limit only the beginning is kept,
//! up to the limit. At its end the beginning and the length are reported, so a client that sends no line end
//! costs no more memory than the limit.

use std::ops::Range;

use clap::ValueEnum;

pub(crate) mod octets;

/// How a client separates lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Framing {
    /// Each line ends in LF or CRLF
    Lines,
    /// Each line comes after its length in bytes and a space (RFC 6587)
    OctetCounting,
}

/// A line whose end has not come.
#[derive(Debug, Default)]
pub(crate) struct Framer {
    partial: Vec<u8>,
    /// The length so far of a line that is longer than the limit.
    too_long: Option<u64>,
}

/// A line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// A whole line. If it lies in the piece and ends in LF alone, `place` is its place there, with the LF.
    Line { line: &'a [u8], place: Option<Range<usize>> },
    /// The beginning of a line that is `bytes` long, with a CR at its end.
    TooLong { start: &'a [u8], bytes: u64 },
    /// A counted message that contains a line end.
    Broken { line: &'a [u8], offset: usize },
    /// A byte that is no count. Nothing after it can be separated.
    Lost { byte: u8 },
}

impl Framer {
    /// Takes a piece, and gives each line that ends in it. Empty lines are skipped.
    pub(crate) fn feed(&mut self, piece: &[u8], line_max: usize, mut take: impl FnMut(Frame<'_>)) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', piece) {
            if self.partial.is_empty() && self.too_long.is_none() {
                whole(piece, start..end, line_max, &mut take);
            } else {
                self.keep(&piece[start..end], line_max);
                self.end(line_max, &mut take);
            }
            start = end + 1;
        }
        if start < piece.len() {
            self.keep(&piece[start..], line_max);
        }
    }

    /// Ends the input, and gives what came after the last line end, if anything.
    pub(crate) fn finish(&mut self, mut take: impl FnMut(Frame<'_>)) {
        if self.held() > 0 || self.too_long.is_some() {
            self.end(usize::MAX, &mut take);
        }
    }

    /// Keeps only `bytes` of an unfinished line, which then counts as too long.
    pub(crate) fn give_up(&mut self, bytes: usize) {
        if self.partial.len() > bytes {
            self.too_long.get_or_insert(self.partial.len() as u64);
            self.partial.truncate(bytes);
            self.partial.shrink_to_fit();
        }
    }

    /// Drops an unfinished line that is longer than the limit.
    pub(crate) fn forget(&mut self, line_max: usize) {
        if self.too_long.is_some_and(|bytes| bytes > line_max as u64) {
            self.partial = Vec::new();
        }
    }

    /// Bytes kept.
    pub(crate) fn held(&self) -> usize {
        self.partial.len()
    }

    fn keep(&mut self, bytes: &[u8], line_max: usize) {
        // One more byte, for the CR of the longest line.
        let room = (line_max + 1).saturating_sub(self.partial.len());
        if let Some(all) = &mut self.too_long {
            *all += bytes.len() as u64;
        } else if bytes.len() > room {
            self.too_long = Some(self.partial.len() as u64 + bytes.len() as u64);
            self.partial.extend_from_slice(&bytes[..room.min(bytes.len())]);
            self.partial.truncate(line_max);
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }

    fn end(&mut self, line_max: usize, take: &mut impl FnMut(Frame<'_>)) {
        match self.too_long.take() {
            Some(bytes) => take(Frame::TooLong { start: &self.partial, bytes }),
            None => {
                let line = without_return(&self.partial);
                if line.len() > line_max {
                    let bytes = self.partial.len() as u64;
                    take(Frame::TooLong { start: &line[..line_max], bytes });
                } else if !line.is_empty() {
                    take(Frame::Line { line, place: None });
                }
            }
        }
        self.partial.clear();
        // The memory of a long line is not kept for the next.
        self.partial.shrink_to(4096);
    }
}

/// Gives a line within one piece, up to its LF.
#[inline]
fn whole(piece: &[u8], place: Range<usize>, line_max: usize, take: &mut impl FnMut(Frame<'_>)) {
    let Range { start, end } = place;
    let with_return = &piece[start..end];
    let line = without_return(with_return);
    if line.len() > line_max {
        take(Frame::TooLong { start: &line[..line_max], bytes: with_return.len() as u64 });
    } else if !line.is_empty() {
        let place = (line.len() == with_return.len()).then_some(start..end + 1);
        take(Frame::Line { line, place });
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(pieces: &[&[u8]], line_max: usize) -> Vec<String> {
        let mut framer = Framer::default();
        let mut found = Vec::new();
        let mut note = |piece: &[u8], frame: Frame<'_>| {
            found.push(match frame {
                Frame::Line { line, place } => {
                    let placed = place.map(|place| &piece[place]);
                    assert!(placed.is_none_or(|placed| placed == [line, b"\n"].concat()));
                    String::from_utf8_lossy(line).into_owned()
                }
                Frame::TooLong { start, bytes } => {
                    format!("{bytes}: {}", String::from_utf8_lossy(start))
                }
                other => panic!("{other:?} of lines"),
            });
        };
        for piece in pieces {
            framer.feed(piece, line_max, |frame| note(piece, frame));
            assert!(framer.held() <= line_max + 1, "{} bytes are kept", framer.held());
        }
        framer.finish(|frame| note(b"", frame));
        assert_eq!(framer.held(), 0);
        found
    }

    #[test]
    fn lines_are_the_same_however_they_come() {
        let text = b"one\r\n\n\r\ntwo\rx\nfour\n12345678\r\n123456789\nlong long line\nrest";
        let expected = ["one", "two\rx", "four", "12345678", "9: 12345678", "14: long lon", "rest"];
        assert_eq!(frames(&[text], 8), expected);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(frames(&bytes, 8), expected);
        for cut in 0..text.len() {
            let (first, second) = text.split_at(cut);
            assert_eq!(frames(&[first, second], 8), expected, "cut at {cut}");
        }
    }

    #[test]
    fn what_never_ends_is_not_kept() {
        let piece = [b'x'; 1000];
        let pieces = vec![&piece[..]; 1000];
        assert_eq!(frames(&pieces, 10), ["1000000: xxxxxxxxxx"]);
    }

    /// And what comes after it is told apart as before.
    #[test]
    fn what_is_forgotten_takes_no_memory() {
        let text = b"one\n123456789\ntwo\r\nlong long line\n12345678\r\nlong long rest";
        let expected = ["3", "9", "3", "14", "8", "14"];
        for size in 1..=text.len() {
            let (mut framer, mut found) = (Framer::default(), Vec::new());
            let mut note = |frame: Frame<'_>| {
                found.push(match frame {
                    Frame::Line { line, .. } => line.len().to_string(),
                    Frame::TooLong { bytes, .. } => bytes.to_string(),
                    other => panic!("{other:?} of lines"),
                });
            };
            for piece in text.chunks(size) {
                framer.feed(piece, 8, &mut note);
                framer.forget(8);
                assert!(framer.too_long.is_none() || framer.held() == 0);
            }
            framer.finish(&mut note);
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_that_is_given_up_is_too_long_and_no_other() {
        let mut framer = Framer::default();
        let mut found = Vec::new();
        for piece in [&b"whole\nfir"[..], b"st", b"!\nwhole\nx", b"y\n"] {
            framer.feed(piece, 8, |frame| found.push(format!("{frame:?}")));
            framer.give_up(3);
        }
        let line = |line: &'static [u8], place| format!("{:?}", Frame::Line { line, place });
        let too_long = Frame::TooLong { start: b"fir", bytes: 6 };
        let expected = [
            line(b"whole", Some(0..6)),
            format!("{too_long:?}"),
            line(b"whole", Some(2..8)),
            line(b"xy", None),
        ];
        assert_eq!(found, expected);
    }
}
