//! A call as the simulation keeps it: owned, without addresses.
//!
//! The bytes of a write and the text of a path are copied when the call is submitted. Results are
//! copied back into the operation when the loop takes them. In between nothing here points into an
//! operation, so a simulation can be shared between threads, outlive a loop, and lose its power at
//! any moment.

use std::{fmt, os::fd::OwnedFd};

use crate::{
    buf::BufferGroup,
    net::Address,
    op::{Manner, Opcode},
    sim::network::EndpointId,
};

/// The number of an open file of the simulation, in the order of opening.
pub(crate) type FileId = u64;

/// Where a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// The simulation's root, which is also its current directory.
    Root,
    File(FileId),
}

/// A name on the simulated disk.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) base: Base,
    pub(crate) path: Vec<u8>,
}

/// The kind of a call, with its arguments.
#[derive(Debug)]
pub(crate) enum Deed {
    Nop,
    /// `aligned`: the memory is aligned for direct I/O.
    Read {
        file: FileId,
        offset: u64,
        len: u64,
        aligned: bool,
    },
    Write {
        file: FileId,
        offset: u64,
        bytes: Vec<u8>,
        aligned: bool,
    },
    Sync {
        file: FileId,
    },
    Allocate {
        file: FileId,
        mode: i32,
        offset: u64,
        len: u64,
    },
    SetLen {
        file: FileId,
        len: u64,
    },
    Open {
        place: Place,
        flags: i32,
        mode: u32,
    },
    Statx {
        place: Place,
        flags: i32,
    },
    /// Performing the call closes the placeholder. A cancelled call gives it back.
    Close {
        file: FileId,
        placeholder: OwnedFd,
    },
    Unlink {
        place: Place,
        flags: i32,
    },
    CreateDirectory {
        place: Place,
        mode: u32,
    },
    Rename {
        from: Place,
        to: Place,
        flags: u32,
    },
    Link {
        from: Place,
        to: Place,
        flags: i32,
    },
    Symlink {
        target: Vec<u8>,
        place: Place,
    },
    ReadLink {
        place: Place,
        len: usize,
    },
    SetMode {
        place: Place,
        mode: u32,
    },
    ReadDirectory {
        file: FileId,
        len: usize,
    },
    Timeout {
        after_ns: u64,
    },
    /// The operation to cancel, if it was ever handed over.
    Cancel {
        target: Option<u64>,
    },
    /// A call on a socket, where it may wait.
    Exchange {
        endpoint: EndpointId,
        exchange: Exchange,
    },
    /// The timeout of an endpoint: its silence becomes an error. No loop submits this.
    GiveUp {
        endpoint: EndpointId,
    },
    /// A call that the kernel refuses before it looks at anything else, with this errno.
    Refused(i32),
}

/// The kind of a call on a socket, with its arguments.
#[derive(Debug)]
pub(crate) enum Exchange {
    Accept {
        multi: bool,
    },
    /// `to` is `None` if the address is invalid.
    Connect {
        to: Option<Address>,
    },
    Receive {
        len: usize,
    },
    ReceiveMulti {
        group: BufferGroup,
    },
    /// `moved`: the number of bytes sent so far.
    Send {
        bytes: Vec<u8>,
        moved: usize,
        manner: Manner,
        to: Option<Address>,
    },
}

impl Deed {
    /// Returns whether this only waits for time to pass.
    pub(crate) fn is_time(&self) -> bool {
        matches!(self, Deed::Timeout { .. } | Deed::GiveUp { .. })
    }
}

impl Exchange {
    /// Returns whether this waits for room or for an accept, not for something to arrive.
    pub(crate) fn is_outward(&self) -> bool {
        matches!(self, Exchange::Connect { .. } | Exchange::Send { .. })
    }
}

/// A call and the kind of its operation.
#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) opcode: Opcode,
    pub(crate) deed: Deed,
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) result: i32,
    pub(crate) payload: Payload,
    /// More results of the same call follow.
    pub(crate) has_more: bool,
}

/// Data that goes back into the operation besides the result's number.
#[derive(Debug)]
pub(crate) enum Payload {
    Nothing,
    Bytes(Vec<u8>),
    Metadata(Box<libc::statx>),
    Opened(OwnedFd),
    /// Received bytes, and the sender's address if the socket reports one.
    Received {
        bytes: Vec<u8>,
        from: Option<Address>,
    },
    /// Received bytes, and the buffer of the group that was chosen for them.
    Leased {
        group: BufferGroup,
        index: u16,
        bytes: Vec<u8>,
    },
    /// The call was cancelled before it was performed.
    NeverRan,
}

impl Outcome {
    pub(crate) fn of(result: Result<usize, i32>) -> Outcome {
        let result = match result {
            Ok(count) => i32::try_from(count).unwrap_or(i32::MAX),
            Err(errno) => -errno,
        };
        Outcome { result, payload: Payload::Nothing, has_more: false }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.base {
            Base::Root => write!(f, "{}", self.path.escape_ascii()),
            Base::File(id) => write!(f, "[file {id}]/{}", self.path.escape_ascii()),
        }
    }
}

/// Describes the call for the trace.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.opcode.name();
        match &self.deed {
            Deed::Nop | Deed::Refused(_) => write!(f, "{name}"),
            Deed::Read { file, offset, len, .. } => {
                write!(f, "{name} file {file} at {offset}, {len} bytes")
            }
            Deed::Write { file, offset, bytes, .. } => {
                write!(f, "{name} file {file} at {offset}, {} bytes", bytes.len())
            }
            Deed::Sync { file } | Deed::Close { file, .. } | Deed::ReadDirectory { file, .. } => {
                write!(f, "{name} file {file}")
            }
            Deed::Allocate { file, mode, offset, len } => {
                write!(f, "{name} file {file} mode {mode:#x} at {offset}, {len} bytes")
            }
            Deed::SetLen { file, len } => write!(f, "{name} file {file} to {len} bytes"),
            Deed::Open { place, flags, .. } => write!(f, "{name} {place} flags {flags:#o}"),
            Deed::Statx { place, .. }
            | Deed::Unlink { place, .. }
            | Deed::Symlink { place, .. }
            | Deed::ReadLink { place, .. }
            | Deed::SetMode { place, .. }
            | Deed::CreateDirectory { place, .. } => write!(f, "{name} {place}"),
            Deed::Rename { from, to, .. } | Deed::Link { from, to, .. } => {
                write!(f, "{name} {from} to {to}")
            }
            Deed::Timeout { after_ns } => write!(f, "{name} {after_ns} ns"),
            Deed::Exchange { endpoint, exchange: Exchange::Send { bytes, .. } } => {
                write!(f, "{name} socket {endpoint}, {} bytes", bytes.len())
            }
            Deed::Exchange { endpoint, .. } => write!(f, "{name} socket {endpoint}"),
            Deed::GiveUp { endpoint } => write!(f, "silence on socket {endpoint}"),
            Deed::Cancel { target: Some(target) } => write!(f, "{name} #{target}"),
            Deed::Cancel { target: None } => write!(f, "{name} of nothing"),
        }
    }
}
