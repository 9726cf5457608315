//! What can be wrong with a connection, in words that name what was expected and what came.

use std::{fmt, io, net::SocketAddr};

use crate::{crew, error::plain, target::connecting};

/// Bytes that are shown of a wrong echo.
const SHOWN_BYTES: usize = 8;

/// What was wrong with a connection.
#[derive(Debug)]
pub(super) enum Fault {
    /// It could not be made.
    Connect(SocketAddr, io::Error),
    /// A call on it failed.
    Call { what: &'static str, error: io::Error, echoed: u64, sent: u64 },
    /// The server ended it early.
    Ended { echoed: u64, sent: u64 },
    /// The server sent something else than it was given.
    Wrong { at: u64, length: usize, expected: Vec<u8>, found: Vec<u8> },
    /// The server sent more than it was given.
    Unasked { sent: u64, more: u64 },
    /// The server gave nothing back for too long.
    Silent { seconds: u64, echoed: u64, sent: u64 },
    /// The server did not take it, or not answer its first message, for too long.
    Unopened { seconds: u64 },
    /// The server did not close after a half-close, though it had echoed all.
    Unended { seconds: u64 },
}

impl Fault {
    /// A wrong echo: where `found` first differs from `expected`, which begins at byte `position`
    /// of the connection.
    pub(super) fn wrong(position: u64, length: usize, expected: &[u8], found: &[u8]) -> Fault {
        let same = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
        let shown = |bytes: &[u8]| bytes[same..].iter().copied().take(SHOWN_BYTES).collect();
        Fault::Wrong {
            at: position + same as u64,
            length,
            expected: shown(expected),
            found: shown(found),
        }
    }
}

impl crew::Fault for Fault {
    fn unopened(seconds: u64) -> Fault {
        Fault::Unopened { seconds }
    }

    fn is_of_connecting(&self) -> bool {
        matches!(self, Fault::Connect(..))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Connect(address, error) => f.write_str(&connecting(&address.to_string(), error)),
            Fault::Call { what, error, echoed, sent } => {
                write!(f, "{what}: {} ({echoed} of {sent} bytes were echoed)", plain(error))
            }
            Fault::Ended { echoed, sent } => {
                write!(f, "the server closed it after echoing {echoed} of {sent} bytes")
            }
            Fault::Wrong { at, length, expected, found } => {
                let (message, byte) = (at / *length as u64, at % *length as u64);
                write!(
                    f,
                    "echo wrong at byte {at} (byte {byte} of message {message}): expected {}, got \
                     {}",
                    hex(expected),
                    hex(found)
                )
            }
            Fault::Unasked { sent, more } => {
                write!(f, "the server sent {more} bytes more than the {sent} that it was given")
            }
            Fault::Silent { seconds, echoed, sent } => write!(
                f,
                "no echo for {seconds} s after the end ({echoed} of {sent} bytes were echoed)"
            ),
            Fault::Unopened { seconds } => {
                write!(f, "not taken, or its first message not echoed, within {seconds} s")
            }
            Fault::Unended { seconds } => write!(
                f,
                "all was echoed, but the server did not close within {seconds} s of the half-close"
            ),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_echo_is_shown_from_its_first_wrong_byte() {
        let fault = Fault::wrong(120, 64, &[1, 2, 3, 4], &[1, 2, 255, 4]);
        assert_eq!(
            fault.to_string(),
            "echo wrong at byte 122 (byte 58 of message 1): expected 03 04, got ff 04"
        );
    }

    #[test]
    fn a_refusal_says_what_to_look_at() {
        let refused = io::Error::from_raw_os_error(111);
        let text = Fault::Connect("127.0.0.1:1".parse().unwrap(), refused).to_string();
        assert_eq!(
            text,
            "connecting to 127.0.0.1:1: Connection refused: is a server listening there?"
        );
    }
}
