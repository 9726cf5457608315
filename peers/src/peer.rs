//! The peers: runtimes other than ringwise, each driven as its own documentation says is best for
//! many small positioned reads of one file, at equal depth.
//!
//! A peer is a file below this one with an [`Engine`], and a line in [`PEERS`]. The library's own
//! handle for async programs is one of the lab's engines, `ringwise`.
//!
//! One worker thread for the runtimes that are a thread per core, two for tokio ([`TOKIO_WORKERS`]),
//! besides the threads that a peer starts for its ring. Each opens the file before it says that it is ready, and keeps `depth` tasks
//! that read one block after the other.

mod a10;
mod compio;
mod glommio;
mod monoio;
mod rustfs_uring;
mod tokio_fs;
mod tokio_uring;
mod uring_file;

use std::{
    any::Any,
    fmt,
    ops::Range,
    panic::{self, AssertUnwindSafe},
};

use ringwise_lab::{
    engine::{Engine, name::EngineName},
    sampling::job::{Failure, Job, Timing},
};

/// Worker threads of tokio's runtime, told to it by `TOKIO_WORKER_THREADS`, which its builder heeds.
pub const TOKIO_WORKERS: &str = "2";

/// What runs unless engines are named.
pub const DEFAULT: &str = "ringwise,tokio,tokio-fs,tokio-fs-uring,rustfs-uring,a10,uring-file,tokio-uring,compio,monoio,\
     glommio,sync,threads,uring,fio";

/// What direct reads want of an address; enough for every block device there is.
const BUFFER_ALIGNMENT: usize = 4096;

/// A runtime that is compared with.
#[derive(Debug)]
pub struct Peer {
    /// As it is typed.
    name: &'static str,
    /// The crate that it is from.
    package: &'static str,
    /// How it is driven, in a few words.
    what: &'static str,
    make: fn() -> Box<dyn Engine>,
}

/// All of them.
const PEERS: [Peer; 9] = [
    Peer {
        name: "tokio-fs",
        package: "tokio",
        what: "`tokio::fs::File` per task, seek and read, 2 workers",
        make: || Box::new(tokio_fs::TokioFs { has_ring: false }),
    },
    Peer {
        name: "tokio-fs-uring",
        package: "tokio",
        what: "`tokio::fs::File` per task, seek and read, with tokio's own ring (unstable), 2 workers",
        make: || Box::new(tokio_fs::TokioFs { has_ring: true }),
    },
    Peer {
        name: "rustfs-uring",
        package: "rustfs-uring",
        what: "2 workers of tokio, and a thread per ring: 2 rings if cached, 1 if not",
        make: || Box::new(rustfs_uring::RustfsUring),
    },
    Peer {
        name: "a10",
        package: "a10",
        what: "2 workers of tokio, and a thread that polls its ring",
        make: || Box::new(a10::A10),
    },
    Peer {
        name: "uring-file",
        package: "uring-file",
        what: "registered file, 2 workers of tokio, and 2 threads for its ring",
        make: || Box::new(uring_file::UringFile),
    },
    Peer {
        name: "tokio-uring",
        package: "tokio-uring",
        what: "registered buffers, 1 thread",
        make: || Box::new(tokio_uring::TokioUring),
    },
    Peer {
        name: "compio",
        package: "compio",
        what: "its io_uring driver, 1 thread",
        make: || Box::new(compio::Compio),
    },
    Peer {
        name: "monoio",
        package: "monoio",
        what: "its io_uring driver, 1 thread",
        make: || Box::new(monoio::Monoio),
    },
    Peer {
        name: "glommio",
        package: "glommio",
        what: "`DmaFile` if direct, `BufferedFile` if not, 1 thread",
        make: || Box::new(glommio::Glommio),
    },
];

/// Who reads: a peer, or an engine of the lab for comparison.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// Another runtime.
    Peer(&'static Peer),
    /// The lab's. `tokio` is one of them: `spawn_blocking` around pread(2), as in `tokio::fs`.
    Lab(EngineName),
}

impl Choice {
    /// Reads a name. None where there is no such engine.
    pub fn parse(text: &str) -> Option<Choice> {
        let peer = PEERS.iter().find(|peer| peer.name == text).map(Choice::Peer);
        // A mapping reads through the page cache only, and has no depth.
        let of_lab = || EngineName::parse(text).filter(|name| !matches!(name, EngineName::Mmap(_)));
        peer.or_else(|| of_lab().map(Choice::Lab))
    }

    /// Whether it can keep so many reads in flight.
    pub fn has_depth(self, depth: usize) -> bool {
        depth == 1 || !matches!(self, Choice::Lab(name) if name.is_single())
    }

    /// The engine itself. `timing` is for those that keep their own time.
    pub fn engine(self, timing: Timing) -> Box<dyn Engine> {
        match self {
            Choice::Peer(peer) => (peer.make)(),
            Choice::Lab(name) => name.engine(timing),
        }
    }

    /// How it is driven, in a few words.
    pub fn what(self) -> String {
        match self {
            Choice::Peer(peer) => peer.what.to_owned(),
            Choice::Lab(EngineName::Ringwise(_)) => {
                format!("ringwise's `fs::File`, {TOKIO_WORKERS} workers of tokio")
            }
            Choice::Lab(EngineName::Tokio(_)) => {
                format!("`spawn_blocking` around pread(2), {TOKIO_WORKERS} workers")
            }
            Choice::Lab(EngineName::Sync(_)) => "pread(2) in one thread".to_owned(),
            Choice::Lab(EngineName::Threads(_)) => {
                "pread(2), a thread per read in flight".to_owned()
            }
            Choice::Lab(EngineName::Fio { .. }) => {
                "the fio program's io_uring engine, which verifies nothing".to_owned()
            }
            Choice::Lab(EngineName::Aio(_)) => "Linux AIO, 1 thread".to_owned(),
            Choice::Lab(EngineName::Uring(_) | EngineName::Mmap(_)) => {
                "ringwise's `Local`, 1 thread".to_owned()
            }
        }
    }

    /// The crate it is from, where it is another's.
    pub fn package(self) -> Option<&'static str> {
        match self {
            Choice::Peer(peer) => Some(peer.package),
            Choice::Lab(EngineName::Tokio(_)) => Some("tokio"),
            Choice::Lab(_) => None,
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Peer(peer) => f.write_str(peer.name),
            Choice::Lab(name) => name.fmt(f),
        }
    }
}

/// The names that [`Choice::parse`] knows, for a message.
pub fn accepted() -> String {
    let peers: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
    format!("tokio, {}, sync, threads, aio, uring, fio, fio+fixed, fio+batches", peers.join(", "))
}

/// Memory for one read and the part of it that is aligned for direct I/O. The peers' buffer traits
/// are unsafe to implement and all of them know `Vec` and its parts, so that this is how their users
/// get aligned memory without unsafe code.
fn aligned(job: &Job) -> (Vec<u8>, Range<usize>) {
    let memory = vec![0; job.block_bytes + BUFFER_ALIGNMENT];
    let address = memory.as_ptr() as usize;
    let start = address.next_multiple_of(BUFFER_ALIGNMENT) - address;
    (memory, start..start + job.block_bytes)
}

/// Starts a runtime. One that cannot be had here returns an error, or panics (glommio, without a
/// ring); neither is a failure of the run.
fn start<T, E: fmt::Display>(start: impl FnOnce() -> Result<T, E>) -> Result<T, Failure> {
    match panic::catch_unwind(AssertUnwindSafe(start)) {
        Ok(started) => started.map_err(refused),
        Err(payload) => Err(refused(panic_text(&*payload))),
    }
}

/// The failure of a runtime that does not start.
fn refused(reason: impl fmt::Display) -> Failure {
    let line = reason.to_string();
    Failure::Unavailable(format!("does not start: {}", line.lines().next().unwrap_or("no reason")))
}

/// What a panic says, in one line.
pub fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref().map(String::as_str));
    format!("panicked: {}", text.and_then(|text| text.lines().next()).unwrap_or("no message"))
}
