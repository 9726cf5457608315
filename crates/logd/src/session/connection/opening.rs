//! Decides by the first bytes of a connection whether they are meant for this port.
//!
//! A page in a browser or a forged request of another server can send HTTP to any port, and its body would be
//! stored as lines. Therefore HTTP is answered with an error, and so is TLS on a port without it; nothing of
//! either is stored. A request is known by its form, whatever its method: its first line ends in a version of
//! HTTP. No JSON, greeting or count of bytes does. A first line that may still become one is held back until
//! its end.

use super::{Connection, Desk, state::Greeting};
use crate::{lines::framing::Framing, monitoring::log};

/// These are requests before their line ends, which may be long, and without a version. `PRI` is the preface of
/// HTTP/2 (RFC 9113, 3.4).
const METHODS: [&[u8]; 10] = [
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"CONNECT ",
    b"OPTIONS ",
    b"TRACE ",
    b"PATCH ",
    b"PRI ",
];
/// How much of a first line is held back. Servers take request lines of 8 KiB (RFC 9112, 3).
const HELD_BYTES_MAX: usize = 8 << 10;
/// A handshake record of any version (RFC 8446, 5.1).
const HANDSHAKE: &[u8] = &[22, 3];
/// An alert: fatal, the handshake failed (RFC 8446, 6.2).
const HANDSHAKE_FAILED: &[u8] = &[21, 3, 3, 0, 2, 2, 40];

const BAD_REQUEST: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 82\r\n\
                           Connection: close\r\n\r\n\
                           This port takes log lines, not HTTP. Metrics and health have their own (--http).\r\n";

/// The protocol of a connection that should have gone to another port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stranger {
    Http,
    Tls,
}

/// The first bytes of a connection, until its protocol is known.
#[derive(Debug)]
pub(super) enum Opening {
    /// Too few bytes to decide. Not empty, they are the beginning of a line without its end.
    Unknown(Vec<u8>),
    Lines,
}

impl Default for Opening {
    fn default() -> Opening {
        Opening::Unknown(Vec::new())
    }
}

impl Opening {
    /// Bytes that are held back.
    pub(super) fn held(&self) -> usize {
        match self {
            Opening::Unknown(held) => held.len(),
            Opening::Lines => 0,
        }
    }
}

/// Whether bytes begin lines or another protocol; nothing while that is open, which ends with the line.
fn judge(bytes: &[u8], framing: Framing) -> Option<Result<(), Stranger>> {
    if bytes.starts_with(HANDSHAKE) {
        return Some(Err(Stranger::Tls));
    }
    if METHODS.iter().any(|method| bytes.starts_with(method)) {
        return Some(Err(Stranger::Http));
    }
    let is_count =
        framing == Framing::OctetCounting && bytes.first().is_some_and(u8::is_ascii_digit);
    if is_count || bytes.starts_with(b"LOGD ") {
        return Some(Ok(()));
    }
    match HANDSHAKE.starts_with(bytes) || bytes == b"\r" {
        true => None,
        false => judge_line(bytes),
    }
}

/// The same by the form of a line: a method, spaces, and a version of HTTP at its end.
fn judge_line(bytes: &[u8]) -> Option<Result<(), Stranger>> {
    let after = bytes.iter().position(|byte| !is_of_token(*byte))?;
    // Lenient servers take any of these for a space (RFC 9112, 3).
    if after == 0 || !b" \t\x0b\x0c\r".contains(&bytes[after]) {
        return Some(Ok(()));
    }
    let end = memchr::memchr(b'\n', bytes)?;
    Some(if ends_in_version(&bytes[..end]) { Err(Stranger::Http) } else { Ok(()) })
}

/// Whether a method may have such a byte (RFC 9110, 5.6.2).
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn ends_in_version(line: &[u8]) -> bool {
    let Some((before, version)) = line.trim_ascii_end().split_last_chunk::<8>() else {
        return false;
    };
    let is_version = version[..5].eq_ignore_ascii_case(b"HTTP/")
        && version[5].is_ascii_digit()
        && version[6] == b'.'
        && version[7].is_ascii_digit();
    is_version && before.last().is_some_and(|byte| byte.is_ascii_whitespace() || *byte == 0x0b)
}

/// Leaves out empty lines, which count for nothing. Some clients send one before a request (RFC 9112, 2.2).
fn without_empty_lines(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = bytes.strip_prefix(b"\n").or_else(|| bytes.strip_prefix(b"\r\n")) {
        bytes = rest;
    }
    bytes
}

impl Connection {
    /// Takes the first bytes in plain.
    pub(super) fn open(&mut self, bytes: &[u8], desk: &mut Desk<'_>) {
        let Opening::Unknown(held) = &mut self.opening else { return self.take_lines(bytes, desk) };
        let mut held = std::mem::take(held);
        let all = if held.is_empty() {
            bytes
        } else {
            held.extend_from_slice(bytes);
            &held[..]
        };
        let all = without_empty_lines(all);
        // Nothing is received from a connection that holds more than it may.
        let most = HELD_BYTES_MAX.min(desk.limits.budget_each);
        match judge(all, self.framing) {
            Some(Err(stranger)) => self.turn_away(stranger, desk),
            None if all.len() < most => self.opening = Opening::Unknown(all.to_vec()),
            Some(Ok(())) | None => {
                self.opening = Opening::Lines;
                self.take_lines(all, desk);
            }
        }
    }

    /// Takes the bytes that were held back as the beginning of lines.
    pub(super) fn release(&mut self, desk: &mut Desk<'_>) {
        if let Opening::Unknown(held) = std::mem::replace(&mut self.opening, Opening::Lines)
            && !held.is_empty()
        {
            self.take_lines(&held, desk);
        }
    }

    /// Holds back no more than so many bytes: there is too little memory.
    pub(super) fn give_up_opening(&mut self, bytes: usize) {
        let Opening::Unknown(held) = &mut self.opening else { return };
        if held.len() <= bytes {
            return;
        }
        match self.framing {
            // It is a line now, which can be given up as others are.
            Framing::Lines => {
                self.framer.feed(held, HELD_BYTES_MAX, |_| {});
                self.opening = Opening::Lines;
            }
            // Its first byte is no count, so nothing after that is looked at.
            Framing::OctetCounting => {
                held.truncate(bytes);
                held.shrink_to_fit();
            }
        }
    }

    /// Answers with an error of its protocol, and takes nothing more.
    fn turn_away(&mut self, stranger: Stranger, desk: &mut Desk<'_>) {
        self.opening = Opening::Lines;
        self.greeting = Greeting::Refused;
        desk.counts.misdirected += 1;
        let what = match stranger {
            Stranger::Http => {
                self.answers.extend_from_slice(BAD_REQUEST.as_bytes());
                "an HTTP request"
            }
            Stranger::Tls => {
                // The alert goes out as it is, and not as a line. Within a session it is what the client sees.
                let answers = if self.is_encrypted { &mut self.answers } else { &mut self.unsent };
                answers.extend_from_slice(HANDSHAKE_FAILED);
                "a TLS handshake"
            }
        };
        let peer = &self.peer;
        log::remark("misdirected", format_args!("{peer}: refused {what} on the port for lines"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAMINGS: [Framing; 2] = [Framing::Lines, Framing::OctetCounting];

    #[test]
    fn what_begins_as_lines_do_is_never_taken_for_something_else() {
        for line in [&b"{"[..], b"[", b"\"", b" ", b"LOGD 1", b"\xff"] {
            let first = line.len().min(5);
            for framing in FRAMINGS {
                assert_eq!(judge(&line[..first], framing), Some(Ok(())), "{line:?}");
            }
        }
        // A count needs no line end.
        assert_eq!(judge(b"1", Framing::OctetCounting), Some(Ok(())));
        // What may be a method is known at the end of its line.
        for line in ["1", "-1", "null", "true", "false ", "GETTY", "get / HTTP/1", "x HTTP/1.1x"] {
            assert_eq!(judge(line.as_bytes(), Framing::Lines), None, "{line}");
            for end in ["\n", "\r\n", " \n{}"] {
                let whole = format!("{line}{end}");
                assert_eq!(judge(whole.as_bytes(), Framing::Lines), Some(Ok(())), "{whole:?}");
            }
        }
        for line in ["HTTP/1.1\n", "xHTTP/1.1\n", "\u{16}\u{2}", "\u{17}\u{3}", "{} HTTP/1.1\n"] {
            assert_eq!(judge(line.as_bytes(), Framing::Lines), Some(Ok(())), "{line:?}");
        }
    }

    #[test]
    fn a_request_is_known_by_its_form() {
        for line in [
            "PROPFIND / HTTP/1.1",
            "get / HTTP/1.1",
            "trace / http/1.1",
            "true / HTTP/1.0 ",
            "M-SEARCH * HTTP/1.1",
            "x\t/\tHTTP/1.1",
            "null HTTP/1.1",
        ] {
            for end in ["\n", "\r\n", "\r\nHost: x\r\n\r\n{}\n"] {
                let whole = format!("{line}{end}");
                let judged = judge(whole.as_bytes(), Framing::Lines);
                assert_eq!(judged, Some(Err(Stranger::Http)), "{whole:?}");
            }
            let is_open = |end: usize| judge(&line.as_bytes()[..end], Framing::Lines).is_none();
            assert!((1..=line.len()).all(is_open), "{line}");
        }
    }

    #[test]
    fn the_length_of_the_answer_is_as_it_says() {
        let (head, body) = BAD_REQUEST.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    }
}
