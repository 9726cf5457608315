//! What can be wrong with a connection, in words that say how far it came.

use std::{fmt, io, net::SocketAddr};

use crate::{crew, error::plain, target::connecting};

/// What was wrong with a connection.
#[derive(Debug)]
pub(super) enum Fault {
    /// It could not be made.
    Connect(SocketAddr, io::Error),
    /// A call on it failed.
    Call { what: &'static str, error: io::Error, sent: u64, answered: u64 },
    /// The target ended it early.
    Ended { sent: u64, answered: Option<u64> },
    /// The target does not take lines on these terms.
    Refused(String),
    /// It promises less than was asked for.
    Weaker { asked: &'static str, promised: String },
    /// An answer that is none.
    Strange(String),
    /// Lines are acknowledged that were not sent.
    Early { acknowledged: u64, sent: u64 },
    /// An acknowledgement takes another one back.
    Back { acknowledged: u64, before: u64 },
    /// The target acknowledged nothing more for too long.
    Silent { seconds: u64, sent: u64, answered: u64 },
    /// The target did not take it, or not greet, for too long.
    Unopened { seconds: u64 },
    /// The target took nothing more for too long.
    Stuck { seconds: u64, made: u64, sent: u64 },
    /// The target did not close after a half-close.
    Unended { seconds: u64 },
}

impl Fault {
    /// Bytes that are no answer.
    pub(super) fn strange(bytes: &[u8]) -> Fault {
        let text = String::from_utf8_lossy(bytes);
        Fault::Strange(text.lines().next().unwrap_or_default().escape_debug().collect())
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
            Fault::Call { what, error, sent, answered } => {
                write!(f, "{what}: {} ({answered} of {sent} lines were answered)", plain(error))
            }
            Fault::Ended { sent, answered: Some(answered) } => {
                write!(f, "the target closed it after answering {answered} of {sent} lines")
            }
            Fault::Ended { sent, answered: None } => {
                write!(f, "the target closed it when {sent} lines were sent, before their end")
            }
            Fault::Refused(text) => write!(f, "the target refused: {text}"),
            Fault::Weaker { asked, promised } => {
                write!(f, "asked for {asked}, and the target promises {promised}")
            }
            Fault::Strange(text) => {
                write!(f, "the target answered what is no answer: \"{text}\"")
            }
            Fault::Early { acknowledged, sent } => {
                write!(f, "line {acknowledged} was acknowledged when {sent} were sent")
            }
            Fault::Back { acknowledged, before } => {
                write!(f, "line {acknowledged} was acknowledged after line {before}")
            }
            Fault::Silent { seconds, sent, answered } => write!(
                f,
                "no answer for {seconds} s after the end ({answered} of {sent} lines were answered)"
            ),
            Fault::Unopened { seconds } => {
                write!(f, "not taken, or not greeted, within {seconds} s")
            }
            Fault::Stuck { seconds, made, sent } => {
                write!(f, "the target took nothing for {seconds} s ({sent} of {made} lines)")
            }
            Fault::Unended { seconds } => write!(
                f,
                "the target did not close within {seconds} s of the half-close; whether it took \
                 all cannot be told"
            ),
        }
    }
}
