//! Traces of I/O: which reads, writes, syncs, sends and receives a program made.
//!
//! This crate exists so that everything that explains or repeats a program's I/O has one model of it. A [`Record`] is
//! one fact of a trace ([`model`]). A [`Writer`] writes records in the format of `docs/reference/trace.md`, and a
//! [`Reader`] iterates over them without keeping the file in memory ([`format`](mod@format)). A [`Summary`] counts
//! them.
//!
//! The crate judges nothing and measures no engine. It uses neither the library `ringwise` nor the lab.

#![forbid(unsafe_code)]

mod error;
pub mod format;
pub mod model;
mod summary;

pub use error::TraceError;
pub use format::{Reader, Writer};
pub use model::{
    End, File, FileId, FileKind, Header, Interface, Kind, Lost, Name, OpenFlags, Operation,
    Outcome, Reason, Record, Source, Thread, ThreadId,
};
pub use summary::Summary;
