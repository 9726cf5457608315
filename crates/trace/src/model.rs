//! What a trace says: files, threads, operations, lost events, and how the recording ended.
//!
//! The model knows no file format and no kernel. What is unknown is `None` or `Unknown`, and is never guessed.
//!
//! A record comes after the records that it refers to: an [`Operation`] after its [`File`] and its [`Thread`].
//! Operations come in the order in which they completed. The begin of a later operation can be earlier.

use std::{ffi::OsString, num::NonZeroU32};

use serde::{Deserialize, Serialize};

/// The number of a file in its trace. Files are numbered from 1 in the order of their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub NonZeroU32);

/// The number of a thread in its trace. Threads are numbered from 1 in the order of their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub NonZeroU32);

/// One fact of a trace.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A file that later operations refer to.
    File(File),
    /// A thread that later operations refer to.
    Thread(Thread),
    /// A read, write, sync, send, receive or copy that completed, or that never did.
    Operation(Operation),
    /// Events that the recorder did not see.
    Lost(Lost),
    /// The last record: why the recording ended, and what it cost.
    End(Box<End>),
}

/// What is known before the first record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The program that wrote the trace, with its version.
    pub recorder: String,
    /// How operations were observed: `perf`, `ptrace`, `strace`, `fio` or `blktrace`.
    pub method: String,
    /// When the trace began, in milliseconds since 1970. 0: unknown.
    pub began_unix_ms: u64,
    /// The command that was recorded. Empty: a running process, or a private trace.
    pub command: Vec<String>,
    /// The process that was recorded first. 0: unknown.
    pub pid: u32,
    /// Whether names of files are hashes.
    pub is_private: bool,
    /// What this method cannot see on this machine, a sentence each.
    pub blind_spots: Vec<String>,
}

/// A file, socket or pipe, as it was opened. A file that was opened with other flags has another record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its number in this trace.
    pub id: FileId,
    /// Its path, the hash of its path, or what it is instead of a path.
    pub name: Name,
    /// What kind of file it is.
    pub kind: FileKind,
    /// Its size in bytes when the recorder first saw it, if it is a regular file or a block device.
    pub size_bytes: Option<u64>,
    /// The flags it was opened with that change how operations work.
    pub flags: OpenFlags,
    /// When the file was made, in ns since the trace began, by the coarse clock of file systems. None: before the trace, or
    /// unknown. A file that was removed and made again has another record.
    pub made_ns: Option<u64>,
}

/// What a file is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// An absolute path, or what the kernel shows in its place, such as `socket:[4711]` or `pipe:[12]`.
    Path(OsString),
    /// A hash of that, with a key that is in no file. Equal names in one trace have equal hashes.
    Hash(u64),
}

/// What kind of file a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// A socket.
    Socket,
    /// A pipe or FIFO.
    Pipe,
    /// A character device, a directory, an eventfd and others.
    Other,
    /// The recorder could not tell.
    Unknown,
}

/// Flags of open(2) that change how operations on a file work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpenFlags {
    /// `O_DIRECT`: operations do not use the page cache.
    pub is_direct: bool,
    /// `O_APPEND`: writes go to the end of the file.
    pub is_append: bool,
    /// `O_SYNC`: a write returns when data and metadata are durable.
    pub is_sync: bool,
    /// `O_DSYNC`: a write returns when its data are durable. `O_SYNC` includes it.
    pub is_data_sync: bool,
}

/// A thread that made an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its number in this trace.
    pub id: ThreadId,
    /// The kernel's id of the thread. 0: unknown.
    pub tid: u32,
    /// The kernel's id of its process. 0: unknown.
    pub pid: u32,
    /// Its name when the recorder first saw it (`/proc/PID/comm`). Empty: unknown.
    pub name: String,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The thread that asked for it.
    pub thread: ThreadId,
    /// The file. None: the recorder does not know what the descriptor referred to.
    pub file: Option<FileId>,
    /// The file that a [`Kind::Copy`] writes to. None for other kinds, or if it is unknown.
    pub target: Option<FileId>,
    /// What it does.
    pub kind: Kind,
    /// The absolute offset in the file, in bytes. None: unknown, or a file without offsets.
    pub offset: Option<u64>,
    /// The number of bytes that the program asked for. 0 for syncs. None: unknown.
    pub asked_bytes: Option<u64>,
    /// What it returned.
    pub outcome: Outcome,
    /// When it began, in ns since the trace began.
    pub begin_ns: u64,
    /// How long it took, in ns. If it did not finish: until the recording ended.
    pub duration_ns: u64,
    /// Whether it went past the page cache.
    pub is_direct: bool,
    /// Where its data came from or went to.
    pub source: Source,
    /// How the program asked for it.
    pub interface: Interface,
    /// How long its thread computed before it, in ns: had a processor since its last operation by a syscall ended. None:
    /// unknown, the thread's first operation, or no syscall.
    pub computed_ns: Option<u64>,
}

impl Operation {
    /// The bytes that it moved. An operation that failed or did not finish moved none.
    pub fn bytes(&self) -> u64 {
        match self.outcome {
            Outcome::Done { bytes } => bytes,
            Outcome::Failed { .. } | Outcome::Unfinished => 0,
        }
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// read(2) and its relatives.
    Read,
    /// write(2) and its relatives.
    Write,
    /// fsync(2): data and metadata become durable.
    Sync,
    /// fdatasync(2) and sync_file_range(2): data become durable.
    DataSync,
    /// send(2), sendto(2), sendmsg(2).
    Send,
    /// recv(2), recvfrom(2), recvmsg(2).
    Receive,
    /// sendfile(2), copy_file_range(2), splice(2): from the file to the target, inside the kernel.
    Copy,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 7] = [
        Kind::Read,
        Kind::Write,
        Kind::Sync,
        Kind::DataSync,
        Kind::Send,
        Kind::Receive,
        Kind::Copy,
    ];

    /// The name that people read.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Sync => "sync",
            Kind::DataSync => "data sync",
            Kind::Send => "send",
            Kind::Receive => "receive",
            Kind::Copy => "copy",
        }
    }
}

/// What an operation returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded and moved this many bytes: 0 at the end of a file, and for syncs.
    Done {
        /// The number of bytes.
        bytes: u64,
    },
    /// It failed.
    Failed {
        /// The kernel's number of the error, from errno(3).
        errno: u16,
    },
    /// It had not finished when the recording or its thread ended, or its end was lost.
    Unfinished,
}

/// Where the data of an operation came from, or where they went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The method cannot tell, or the operation has no page cache.
    Unknown,
    /// The page cache alone.
    Cache,
    /// The device had a part in it.
    Device,
}

/// How the program asked for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interface {
    /// A syscall of its own.
    Syscall,
    /// io_uring.
    IoUring,
    /// Linux AIO: io_submit(2).
    LinuxAio,
    /// Unknown: the request was seen in the kernel's block layer.
    BlockLayer,
}

/// Events that the recorder did not see, because it could not keep up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// When the recorder noticed, in ns since the trace began.
    pub at_ns: u64,
    /// How many events. An operation has up to two.
    pub events: u64,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The recorded processes ended.
    #[default]
    Exited,
    /// The time that was asked for was over.
    Duration,
    /// A signal ended the recorder.
    Signal,
    /// The trace could not be written any further, for example because the disk was full.
    WriteFailed,
}

/// The last record: why the recording ended, and what it cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// Why it ended.
    pub reason: Reason,
    /// More about the reason, such as the error of the write that failed. Empty: nothing.
    pub detail: String,
    /// How long the recording took, in ns.
    pub elapsed_ns: u64,
    /// All lost events.
    pub lost_events: u64,
    /// Operations whose records were dropped at the end, because the disk was full.
    pub dropped_records: u64,
    /// CPU time of the recorder, in ns.
    pub recorder_cpu_ns: u64,
    /// The time that recording adds to a syscall, in ns, measured on this machine after the recording. None: not
    /// measured.
    pub added_ns_per_syscall: Option<u64>,
    /// The part of it that is in the recorded durations, in ns. None: not measured.
    pub added_ns_in_duration: Option<u64>,
    /// The most operations in flight at once.
    pub in_flight_max: u64,
    /// The median number of operations in flight, over the begins of operations.
    pub in_flight_median: u64,
    /// Operations whose file is unknown.
    pub unknown_files: u64,
    /// Requests that the method saw being made, but cannot follow, such as Linux AIO of a running process.
    pub unseen_requests: u64,
}
