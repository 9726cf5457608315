//! Traces of I/O: the reads, writes, syncs, sends, receives and copies of a program.
//!
//! This crate exists so that everything that explains or repeats a program's I/O has one model of it. A [`Record`] is
//! one fact of a trace ([`model`]). A [`Writer`] writes records in the format of `docs/reference/trace.md`, and a
//! [`Reader`] iterates over them without keeping the file in memory ([`format`](mod@format)). An [`AnyReader`] reads a
//! trace in any known format: this crate's, strace's output, or fio's iologs. A [`Summary`] counts records. The
//! [`recorder`] makes traces of commands and of running processes.
//!
//! Reading order: [`model`], [`format`](mod@format), `call` (what a syscall means), `descriptor` (what it refers to),
//! `registry` (numbers of files and threads), `foreign`, [`recorder`], `summary`.
//!
//! The crate judges nothing and measures no engine. It uses neither the library `ringwise` nor the lab.

// Two files of the recorder opt in: requests to perf events and to ptrace(2) that no safe crate has.
#![deny(unsafe_code)]

mod call;
mod descriptor;
mod error;
mod foreign;
pub mod format;
pub mod model;
pub mod recorder;
mod registry;
mod summary;

pub use error::TraceError;
pub use foreign::AnyReader;
pub use format::{Reader, Writer};
pub use model::{
    End, File, FileId, FileKind, Header, Interface, Kind, Lost, Name, OpenFlags, Operation,
    Outcome, Reason, Record, Source, Thread, ThreadId,
};
pub use summary::{Count, Summary};
