//! Decides by the first bytes of a connection whether they are meant for this port.
//!
//! A page in a browser or a forged request of another server can send HTTP to any port, and its body would be
//! stored as lines. Therefore HTTP is answered with an error, and so is TLS on a port without it; nothing of
//! either is stored. No JSON, greeting or count of bytes begins like one of them.

use super::{Connection, Desk, state::Greeting};
use crate::log;

/// A request begins with one of these. `PRI` is the preface of HTTP/2 (RFC 9113, 3.4).
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
    /// Too few bytes to decide.
    Unknown(Vec<u8>),
    Lines,
}

impl Default for Opening {
    fn default() -> Opening {
        Opening::Unknown(Vec::new())
    }
}

/// Whether bytes begin lines or another protocol; nothing while that is open.
fn judge(bytes: &[u8]) -> Option<Result<(), Stranger>> {
    let openings = METHODS.map(|method| (method, Stranger::Http));
    let mut may_be_one = false;
    for (opening, stranger) in openings.into_iter().chain([(HANDSHAKE, Stranger::Tls)]) {
        if bytes.starts_with(opening) {
            return Some(Err(stranger));
        }
        may_be_one |= opening.starts_with(bytes);
    }
    (!may_be_one).then_some(Ok(()))
}

impl Connection {
    /// Takes the first bytes in plain.
    pub(super) fn open(&mut self, bytes: &[u8], desk: &mut Desk<'_>) {
        let Opening::Unknown(held) = &mut self.opening else { return self.take_lines(bytes, desk) };
        held.extend_from_slice(bytes);
        match judge(held) {
            None => {}
            Some(Ok(())) => self.release(desk),
            Some(Err(stranger)) => self.turn_away(stranger, desk),
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

    /// Answers with an error of its protocol, and takes nothing more.
    fn turn_away(&mut self, stranger: Stranger, desk: &mut Desk<'_>) {
        self.opening = Opening::Lines;
        self.greeting = Greeting::Refused;
        *desk.misdirected += 1;
        let what = match stranger {
            Stranger::Http => {
                self.answers.extend_from_slice(BAD_REQUEST.as_bytes());
                "an HTTP request"
            }
            Stranger::Tls => {
                // The alert goes out as it is, neither as a line nor within a session.
                self.unsent.extend_from_slice(HANDSHAKE_FAILED);
                "a TLS handshake"
            }
        };
        let peer = &self.peer;
        log::remark(
            "misdirected",
            format_args!("{peer}: {what} came to the port for lines; refused"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_as_lines_do_is_never_taken_for_something_else() {
        let lines: [&[u8]; 9] =
            [b"{", b"[", b"\"", b"1", b"-", b"null", b"true", b"LOGD 1", b"12 {}"];
        for line in lines {
            assert_eq!(judge(&line[..1]), Some(Ok(())), "the first byte tells");
        }
        for word in [&b"GETTY"[..], b"get /", b"PUT", b"\x16\x02", b"\x17\x03", b" GET /"] {
            assert_ne!(judge(word).unwrap_or(Ok(())), Err(Stranger::Http), "{word:?}");
        }
    }

    #[test]
    fn the_length_of_the_answer_is_as_it_says() {
        let (head, body) = BAD_REQUEST.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    }
}
