//! What can be wrong with a trace, each in one line that says what to do.

use std::{fmt, io};

/// Why a trace could not be read to its end, or not be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// Reading or writing failed.
    Io(io::Error),
    /// The bytes are none of the formats that this crate reads.
    NotATrace,
    /// A later version of the format.
    Newer {
        /// The version that the trace has.
        version: u16,
        /// The latest version that this crate reads.
        supported: u16,
    },
    /// The trace ends before its end record. All records before this error are whole.
    Cut {
        /// The byte after the last whole frame.
        at_byte: u64,
    },
    /// A frame is not what was written.
    Corrupt {
        /// The first byte of the frame.
        at_byte: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A line of another format cannot be read.
    Line {
        /// The number of the line, from 1.
        number: u64,
        /// What is wrong with it.
        what: String,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io(error) => write!(f, "{error}"),
            TraceError::NotATrace => f.write_str(
                "not a trace: expected a trace of `ringwise lab record`, output of `strace -f -ttt -T -y`, \
                 a fio iolog of version 2 or 3, or binary events of blktrace",
            ),
            TraceError::Newer { version, supported } => write!(
                f,
                "the trace has version {version} of the format, and this program reads versions up to {supported}: \
                 use a newer ringwise"),
            TraceError::Cut { at_byte } => write!(
                f,
                "the trace is cut after byte {at_byte}: it has no end record; everything before is whole"
            ),
            TraceError::Corrupt { at_byte, what } => {
                write!(f, "the trace is corrupt at byte {at_byte}: {what}; everything before is whole")
            }
            TraceError::Line { number, what } => write!(f, "line {number}: {what}"),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TraceError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        TraceError::Io(error)
    }
}
