//! Which file operations the kernel hands to worker threads under the path:
//! counted, not assumed.
//!
//! Each kind of operation is made 32 times through a ring on a thread of its own,
//! while the tracepoint io_uring:io_uring_queue_async_work is counted. Where that
//! cannot be had, the worker threads that the kernel made for that thread are
//! counted instead: they carry its number in their names.

use std::thread;

use ringwise::{AlignedBuf, BackendChoice, Descriptor, Local, Operation, drop_page_cache};
use ringwise_measure::counters::{Counters, Event};
use ringwise_measure::cpu::CpuSnapshot;
use ringwise_measure::{Fact, Sources, plain};

use crate::finding::{Finding, Status};
use crate::probe_file::{FILE_BYTES, ProbeFile};

const OPERATIONS: u64 = 32;
const BLOCK_BYTES: usize = 4096;
/// Far enough apart that reading one block reads no other ahead.
const STRIDE_BYTES: u64 = FILE_BYTES as u64 / OPERATIONS;

/// A kind of operation that is tried.
struct Kind {
    name: &'static str,
    what: &'static str,
    direct: bool,
    cold: bool,
    operation: fn(&Descriptor, u64) -> Operation,
    moves_bytes: usize,
    remedy: &'static str,
}

const KINDS: [Kind; 6] = [
    Kind {
        name: "workers.buffered_read",
        what: "buffered reads from a warm cache",
        direct: false,
        cold: false,
        operation: read,
        moves_bytes: BLOCK_BYTES,
        remedy: "read what is cached with preadv2(2) and RWF_NOWAIT instead",
    },
    Kind {
        name: "workers.cold_read",
        what: "buffered reads from a cold cache",
        direct: false,
        cold: true,
        operation: read,
        moves_bytes: BLOCK_BYTES,
        remedy: "use O_DIRECT, or a file system whose buffered reads do not block",
    },
    Kind {
        name: "workers.buffered_write",
        what: "buffered writes",
        direct: false,
        cold: false,
        operation: write,
        moves_bytes: BLOCK_BYTES,
        remedy: "use O_DIRECT or threads for writes here; XFS and btrfs can write without a worker",
    },
    Kind {
        name: "workers.direct_read",
        what: "O_DIRECT reads",
        direct: true,
        // A page in the cache sends a direct operation to a worker: it has to be written back or
        // dropped first, which may block (mm/filemap.c, kiocb_write_and_wait and
        // kiocb_invalidate_pages).
        cold: true,
        operation: read,
        moves_bytes: BLOCK_BYTES,
        remedy: "give a PATH on a file system with asynchronous direct I/O (ext4, XFS)",
    },
    Kind {
        name: "workers.direct_write",
        what: "O_DIRECT overwrites",
        direct: true,
        // As above.
        cold: true,
        operation: write,
        moves_bytes: BLOCK_BYTES,
        remedy: "give a PATH on a file system with asynchronous direct I/O (ext4, XFS)",
    },
    Kind {
        name: "workers.sync",
        what: "fdatasync calls",
        direct: false,
        cold: false,
        operation: |file, _| Operation::sync_data(file),
        moves_bytes: 0,
        remedy: "every kernel hands syncs to a worker: sync once for many writes",
    },
];

fn read(file: &Descriptor, offset: u64) -> Operation {
    Operation::read_at(file, AlignedBuf::zeroed(BLOCK_BYTES, BLOCK_BYTES), offset)
}

fn write(file: &Descriptor, offset: u64) -> Operation {
    Operation::write_at(file, AlignedBuf::zeroed(BLOCK_BYTES, BLOCK_BYTES), offset)
}

/// What a trial counted.
#[derive(Clone, Debug, PartialEq)]
struct Trial {
    /// Operations handed to workers, by the tracepoint.
    punts: Fact<u64>,
    /// Worker threads that the kernel made for the trial, and their CPU time.
    workers: Fact<Workers>,
}

impl Trial {
    /// Whether a worker thread had any of its operations, as far as that is known.
    fn has_workers(&self) -> bool {
        match (&self.punts, &self.workers) {
            (Fact::Known(punts), _) => *punts > 0,
            (Fact::Unknown(_), Fact::Known(workers)) => workers.threads > 0,
            (Fact::Unknown(_), Fact::Unknown(_)) => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Workers {
    threads: u64,
    cpu_ns: u64,
}

pub(crate) fn examine(sources: &Sources, file: &ProbeFile) -> Vec<Finding> {
    KINDS.iter().map(|kind| judge(kind, try_again(sources, kind, file))).collect()
}

/// Tries it out, and what is to find its pages in memory up to three times: on a machine that is short
/// of it the kernel may have taken one back since it was read.
fn try_again(sources: &Sources, kind: &Kind, file: &ProbeFile) -> Result<Trial, Failure> {
    let wants_pages = kind.name == "workers.buffered_read";
    let trial = try_out(sources, kind, file);
    (1..3).fold(trial, |trial, _| match &trial {
        Ok(own) if wants_pages && own.has_workers() => try_out(sources, kind, file),
        _ => trial,
    })
}

/// Why a trial has no count.
#[derive(Clone, Debug)]
enum Failure {
    /// There was nothing to try it with.
    NotTried(String),
    /// An operation failed.
    Failed(String),
}

fn try_out(sources: &Sources, kind: &Kind, file: &ProbeFile) -> Result<Trial, Failure> {
    let file = if kind.direct { &file.direct } else { &file.buffered };
    let file = file.as_ref().map_err(|reason| match kind.direct {
        true => Failure::Failed(reason.clone()),
        false => Failure::NotTried(reason.clone()),
    })?;
    if kind.cold {
        let dropped = drop_page_cache(file, 0, FILE_BYTES as u64);
        dropped
            .map_err(|error| Failure::NotTried(format!("dropping the cache: {}", plain(&error))))?;
    } else {
        warm(file);
    }
    // A thread of its own has worker threads of its own.
    thread::scope(|scope| scope.spawn(|| count(sources, kind, file)).join())
        .unwrap_or_else(|_| Err(Failure::NotTried("the thread of the trial panicked".into())))
}

/// Brings back what another program or the kernel has taken from the cache. A read that fails
/// here fails in the trial too, which tells it.
fn warm(file: &Descriptor) {
    let mut block = [0; BLOCK_BYTES];
    for index in 0..OPERATIONS {
        let _ = rustix::io::pread(file, &mut block, index * STRIDE_BYTES);
    }
}

fn count(sources: &Sources, kind: &Kind, file: &Descriptor) -> Result<Trial, Failure> {
    let ring = Local::builder().backend(BackendChoice::Uring).build();
    let mut ring = ring.map_err(|error| Failure::NotTried(error.to_string()))?;
    let mut counters = Counters::open(sources, &[Event::WorkerPunts]);
    counters.start();
    let made = make(&mut ring, kind, file);
    counters.stop();
    let workers = own_workers(sources);
    made.map_err(Failure::Failed)?;
    Ok(Trial { punts: counters.count(Event::WorkerPunts), workers })
}

/// Makes all operations of a kind in one batch, and checks each.
fn make(ring: &mut Local, kind: &Kind, file: &Descriptor) -> Result<(), String> {
    for index in 0..OPERATIONS {
        let operation = (kind.operation)(file, index * STRIDE_BYTES);
        ring.push(operation, index).map_err(|error| error.to_string())?;
    }
    ring.submit_and_wait(OPERATIONS as usize).map_err(|error| error.to_string())?;
    let mut completed = 0;
    while let Some(done) = ring.next_completion() {
        let moved = done.result().map_err(|error| error.to_string())?;
        if moved != kind.moves_bytes {
            return Err(format!("{} moved {moved} bytes of {}", done.opcode(), kind.moves_bytes));
        }
        completed += 1;
    }
    match completed {
        OPERATIONS => Ok(()),
        _ => Err(format!("{completed} of {OPERATIONS} operations completed")),
    }
}

/// The workers of this thread: `iou-wrk-` and its number. They stay for some
/// seconds after their work.
fn own_workers(sources: &Sources) -> Fact<Workers> {
    let name = format!("iou-wrk-{}", rustix::thread::gettid().as_raw_nonzero());
    let snapshot = CpuSnapshot::take(sources);
    snapshot.threads().clone().map(|threads| {
        let own = threads.iter().filter(|thread| thread.name == name);
        own.fold(Workers { threads: 0, cpu_ns: 0 }, |sum, thread| Workers {
            threads: sum.threads + 1,
            cpu_ns: sum.cpu_ns + thread.cpu_ns,
        })
    })
}

fn judge(kind: &Kind, tried: Result<Trial, Failure>) -> Finding {
    let what = format!("{OPERATIONS} {}", kind.what);
    let trial = match tried {
        Ok(trial) => trial,
        Err(Failure::NotTried(reason)) => {
            return Finding::unknown(kind.name, format!("{what}: not tried ({reason})"));
        }
        Err(Failure::Failed(reason)) => {
            return Finding::blocked(kind.name, format!("{what}: {reason}"));
        }
    };
    let (status, counted) = match (&trial.punts, &trial.workers) {
        (Fact::Known(0), _) => {
            (Status::Ok, format!("none handed to a worker thread ({TRACEPOINT})"))
        }
        (Fact::Known(punts), _) => {
            (Status::Limited, format!("{punts} handed to a worker thread ({TRACEPOINT})"))
        }
        (Fact::Unknown(reason), Fact::Known(workers)) => by_threads(workers, reason),
        (Fact::Unknown(punts), Fact::Unknown(workers)) => {
            (Status::Unknown, format!("could not be counted ({punts}; {workers})"))
        }
    };
    let finding = Finding::new(kind.name, status, format!("{what}: {counted}"));
    if status == Status::Limited { finding.remedy(kind.remedy) } else { finding }
}

const TRACEPOINT: &str = "tracepoint io_uring:io_uring_queue_async_work";

fn by_threads(workers: &Workers, reason: &str) -> (Status, String) {
    let source = format!("threads named iou-wrk in /proc/self/task; no tracepoint: {reason}");
    match workers.threads {
        0 => (Status::Ok, format!("no worker thread appeared ({source})")),
        threads => {
            let cpu_us = workers.cpu_ns / 1000;
            (
                Status::Limited,
                format!("{threads} worker threads appeared, {cpu_us} us of CPU ({source})"),
            )
        }
    }
}

#[cfg(test)]
mod tests;
