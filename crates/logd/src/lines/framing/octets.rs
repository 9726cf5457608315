//! Octet counting (RFC 6587, 3.4.1): each message is a count of bytes, a space, and the bytes.
//!
//! The daemon stores lines, so it rejects a message that contains a line end. A line end at the end of a message
//! is not part of it. After a wrong count no message can be found, so the rest of the input is lost.

use super::{Frame, without_return};

/// The longest count, in digits. It is far larger than any message.
const DIGITS_MAX: u32 = 12;

/// The place in the input.
#[derive(Debug, Default)]
pub(crate) struct Octets {
    stage: Stage,
    /// The bytes of an unfinished message, up to the limit.
    partial: Vec<u8>,
}

#[derive(Debug)]
enum Stage {
    Count {
        value: u64,
        digits: u32,
    },
    /// `is_given_up`: no more bytes of it are kept.
    Message {
        bytes: u64,
        left: u64,
        is_given_up: bool,
    },
    Lost,
}

impl Default for Stage {
    fn default() -> Stage {
        Stage::Count { value: 0, digits: 0 }
    }
}

impl Octets {
    /// Takes a piece, and gives each message that ends in it.
    pub(crate) fn feed(&mut self, piece: &[u8], line_max: usize, mut take: impl FnMut(Frame<'_>)) {
        let mut rest = piece;
        while let Some((&byte, after)) = rest.split_first() {
            match &mut self.stage {
                Stage::Count { value, digits } => {
                    rest = after;
                    let is_first = *digits == 0;
                    match byte {
                        b'0'..=b'9' if *digits < DIGITS_MAX && !(is_first && byte == b'0') => {
                            *value = *value * 10 + u64::from(byte - b'0');
                            *digits += 1;
                        }
                        b' ' if !is_first => {
                            let (bytes, left) = (*value, *value);
                            self.stage = Stage::Message { bytes, left, is_given_up: false };
                        }
                        // Some clients add a line end to each message and do not count it.
                        b'\n' | b'\r' if is_first => {}
                        _ => {
                            self.stage = Stage::Lost;
                            take(Frame::Lost { byte });
                        }
                    }
                }
                Stage::Message { bytes, left, is_given_up } => {
                    let own = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    let (message, after) = rest.split_at(own);
                    rest = after;
                    *left -= own as u64;
                    // Two more bytes, for the line end of the longest message.
                    let kept_max = if *is_given_up { 0 } else { line_max + 2 };
                    let room = kept_max.saturating_sub(self.partial.len()).min(own);
                    if *left > 0 {
                        self.partial.extend_from_slice(&message[..room]);
                        continue;
                    }
                    let bytes = *bytes;
                    if self.partial.is_empty() {
                        end(message, bytes, line_max, &mut take);
                    } else {
                        self.partial.extend_from_slice(&message[..room]);
                        end(&self.partial, bytes, line_max, &mut take);
                        self.partial.clear();
                        self.partial.shrink_to(4096);
                    }
                    self.stage = Stage::default();
                }
                Stage::Lost => return,
            }
        }
    }

    /// Ends the input, and gives what came of an unfinished message.
    pub(crate) fn finish(&mut self, mut take: impl FnMut(Frame<'_>)) {
        if let Stage::Message { bytes, left, .. } = self.stage {
            take(Frame::TooLong { start: &self.partial, bytes: bytes - left });
        }
        *self = Octets::default();
    }

    /// Keeps only `bytes` of an unfinished message, which then counts as too long.
    pub(crate) fn give_up(&mut self, bytes: usize) {
        if let Stage::Message { is_given_up, .. } = &mut self.stage
            && self.partial.len() > bytes
        {
            *is_given_up = true;
            self.partial.truncate(bytes);
            self.partial.shrink_to_fit();
        }
    }

    /// Drops an unfinished message of which more came than the limit and a line end.
    pub(crate) fn forget(&mut self, line_max: usize) {
        if let Stage::Message { bytes, left, is_given_up } = &mut self.stage
            && *bytes - *left > line_max as u64 + 2
        {
            *is_given_up = true;
            self.partial = Vec::new();
        }
    }

    /// Bytes kept.
    pub(crate) fn held(&self) -> usize {
        self.partial.len()
    }
}

/// Gives a whole message, of which `kept` may be only the beginning.
fn end(kept: &[u8], bytes: u64, line_max: usize, take: &mut impl FnMut(Frame<'_>)) {
    if kept.len() as u64 != bytes {
        return take(Frame::TooLong { start: &kept[..line_max.min(kept.len())], bytes });
    }
    let line = kept.strip_suffix(b"\n").map_or(kept, without_return);
    if line.len() > line_max {
        take(Frame::TooLong { start: &line[..line_max], bytes });
    } else if let Some(offset) = memchr::memchr(b'\n', line) {
        take(Frame::Broken { line, offset });
    } else if !line.is_empty() {
        take(Frame::Line { line, place: None });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(pieces: &[&[u8]], line_max: usize) -> Vec<String> {
        let mut octets = Octets::default();
        let mut found = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut take = |frame: Frame<'_>| {
            found.push(match frame {
                Frame::Line { line, place } => {
                    assert_eq!(place, None);
                    text(line)
                }
                Frame::TooLong { start, bytes } => format!("{bytes}: {}", text(start)),
                Frame::Broken { line, offset } => format!("broken at {offset}: {}", text(line)),
                Frame::Lost { byte } => format!("lost at {:?}", char::from(byte)),
            });
        };
        for piece in pieces {
            octets.feed(piece, line_max, &mut take);
            assert!(octets.held() <= line_max + 2, "{} bytes are kept", octets.held());
        }
        octets.finish(&mut take);
        assert_eq!(octets.held(), 0);
        found
    }

    #[test]
    fn messages_are_the_same_however_they_come() {
        let text = b"3 one4 two\n5 tre\r\n1 \n\n3 a\nb8 12345678\n9 12345678\n9 123456789\r\n\
            13 longer than x2 {}5 ab";
        let expected = [
            "one",
            "two",
            "tre",
            "broken at 1: a\nb",
            "12345678",
            "12345678",
            "9: 12345678",
            "13: longer t",
            "{}",
            "2: ab",
        ];
        assert_eq!(frames(&[text], 8), expected);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(frames(&bytes, 8), expected);
        for cut in 0..text.len() {
            let (first, second) = text.split_at(cut);
            assert_eq!(frames(&[first, second], 8), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_count_that_is_none_ends_it() {
        for (text, at) in [
            ("2 {}{}2 {}", '{'),
            ("2 {}02 {}", '0'),
            ("2 {} 2 {}", ' '),
            ("2 {}-1 x", '-'),
            ("2 {}1234567890123 x", '3'),
        ] {
            assert_eq!(frames(&[text.as_bytes()], 8), ["{}".to_owned(), format!("lost at {at:?}")]);
        }
    }

    /// And what comes after it is told apart as before.
    #[test]
    fn what_is_forgotten_takes_no_memory() {
        let text = b"3 one14 long long line10 12345678\r\n11 123456789\r\n2 {}20 longer than";
        let expected = ["3", "14", "8", "11", "2", "11"];
        for size in 1..=text.len() {
            let (mut octets, mut found) = (Octets::default(), Vec::new());
            let mut note = |frame: Frame<'_>| {
                found.push(match frame {
                    Frame::Line { line, .. } => line.len().to_string(),
                    Frame::TooLong { bytes, .. } => bytes.to_string(),
                    other => panic!("{other:?} is not expected"),
                });
            };
            for piece in text.chunks(size) {
                octets.feed(piece, 8, &mut note);
                octets.forget(8);
                assert!(octets.held() <= 10);
            }
            octets.finish(&mut note);
            assert_eq!((octets.held(), &found[..]), (0, &expected.map(String::from)[..]), "{size}");
        }
    }

    #[test]
    fn a_message_that_is_given_up_is_too_long_and_no_other() {
        let mut octets = Octets::default();
        let mut found = Vec::new();
        for piece in [&b"5 who"[..], b"le5 fir", b"st2 xy"] {
            octets.give_up(3);
            octets.feed(piece, 8, |frame| found.push(format!("{frame:?}")));
            if piece.starts_with(b"le") {
                octets.give_up(2);
            }
        }
        let line = |line: &'static [u8]| format!("{:?}", Frame::Line { line, place: None });
        let too_long = format!("{:?}", Frame::TooLong { start: b"fi", bytes: 5 });
        assert_eq!(found, [line(b"whole"), too_long, line(b"xy")]);
    }

    #[test]
    fn what_never_ends_is_not_kept() {
        let piece = [b'x'; 1000];
        let mut pieces = vec![&b"999999999999 "[..]];
        pieces.extend(vec![&piece[..]; 1000]);
        assert_eq!(frames(&pieces, 10), ["1000000: xxxxxxxxxxxx"]);
    }
}
