//! What a recorder observes, in the form that both methods have in common.
//!
//! Events are ordered by time. This file knows neither where they come from nor what they mean for a trace.

use std::ffi::OsString;

use crate::{
    descriptor::Identity,
    model::{FileKind, OpenFlags},
};

/// An event, with its time and its thread.
#[derive(Debug)]
pub(crate) struct Stamped {
    /// By `CLOCK_MONOTONIC`.
    pub(crate) time_ns: u64,
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) event: Event,
}

#[derive(Debug)]
pub(crate) enum Event {
    /// A syscall begins. The number is its place in `CALLS`.
    Enter { call: u16, arguments: [u64; 6] },
    /// The syscall returns.
    Exit { result: i64 },
    /// io_uring takes a request.
    RingSubmit { request: u64, opcode: u8 },
    /// The descriptor of a request, if it is not a registered file.
    RingFile { request: u64, descriptor: i32 },
    /// io_uring posts a completion.
    RingComplete { request: u64, result: i32, flags: u32 },
    /// A buffered read looks for these pages in the page cache.
    PagesWanted { identity: Identity, first: u64, last: u64 },
    /// Pages come into the page cache.
    PagesAdded { identity: Identity, first: u64, count: u64 },
    /// A direct read or write begins.
    DirectBegin { identity: Identity, offset: u64, bytes: u64 },
    /// The thread waits: it gave its processor away.
    Waited,
    /// The thread lost its processor to another one.
    Preempted,
    /// The thread has a processor again.
    Resumed,
    /// The process begins, as a copy of another one.
    Forked { parent: u32 },
    /// The process runs another program.
    Executed,
    /// The thread ended.
    Ended,
    /// A descriptor refers to this. Its position holds from `since_ns` on, because looking it up takes time.
    Opened { descriptor: i32, described: Box<Described>, since_ns: u64 },
    /// The process has these descriptors and no others. The numbers of its syscalls mean something else if it runs a
    /// program of another architecture.
    Table { table: Vec<(i32, Described)>, since_ns: u64, is_foreign: bool },
    /// Linux AIO takes requests.
    AioSubmit(Vec<AioRequest>),
    /// Linux AIO did not take these requests.
    AioRefused(Vec<AioName>),
    /// Linux AIO reports completions, with their results.
    AioReap(Vec<(AioName, i64)>),
    /// Events were lost.
    Lost { events: u64 },
}

/// What `/proc/PID/fd` says of a descriptor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Described {
    pub(crate) name: OsString,
    pub(crate) kind: FileKind,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) flags: OpenFlags,
    pub(crate) is_close_on_exec: bool,
    pub(crate) position: Option<u64>,
    pub(crate) identity: Identity,
    /// When the file was made, by the clock of its file system, in ns since 1970. None: unknown.
    pub(crate) made_unix_ns: Option<u64>,
}

/// What a completion of Linux AIO says of its request. A program can use a control block for another request before the
/// first one is completed, so neither of the two alone tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AioName {
    /// The address of its control block in the process.
    pub(crate) address: u64,
    /// The program's own value.
    pub(crate) data: u64,
}

/// A control block of Linux AIO (`struct iocb` in linux/aio_abi.h).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AioRequest {
    pub(crate) name: AioName,
    pub(crate) opcode: u16,
    pub(crate) descriptor: i32,
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
}
