//! Which operations the kernel hands to a worker thread here: run, and counted.
//!
//! An operation that cannot be made without blocking goes to an io-wq thread: a
//! context switch more than a plain call. Which do depends on the file system and
//! the kernel, so each is tried on the temporary file. Counted is the tracepoint
//! `io_uring:io_uring_queue_async_work`; where it cannot be opened, CPU time of
//! `iou-wrk` threads says yes or no.

use ringwise::{AlignedBuf, BackendChoice, Buffer, Descriptor, Local, Operation, drop_page_cache};
use ringwise_measure::{
    Fact, Sources,
    counters::{Counters, Event},
    cpu::{CpuSnapshot, ThreadKind},
};

use crate::{
    finding::Finding,
    probe_file::{FILE_BYTES, ProbeFile},
};

/// A readahead window apart, so that none finds what another brought.
const STRIDE_BYTES: usize = 128 << 10;
const OPERATIONS: usize = FILE_BYTES / STRIDE_BYTES;
const BLOCK_BYTES: usize = 4096;

/// One way to move a block.
struct Kind {
    name: &'static str,
    file: fn(&ProbeFile) -> &Result<Descriptor, String>,
    /// What has to be done before, once.
    prepare: fn(&Descriptor) -> std::io::Result<()>,
    operation: fn(&Descriptor, Buffer, u64) -> Operation,
    remedy: &'static str,
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "workers.cached_read",
        file: |file| &file.buffered,
        prepare: |_| Ok(()),
        operation: |file, buffer, offset| Operation::read_at(file, buffer, offset),
        remedy: "plain preadv2 with RWF_NOWAIT costs less for cached data",
    },
    Kind {
        name: "workers.cold_read",
        file: |file| &file.buffered,
        prepare: |file| drop_page_cache(file, 0, 0),
        operation: |file, buffer, offset| Operation::read_at(file, buffer, offset),
        remedy: "use O_DIRECT, or threads with plain calls",
    },
    Kind {
        name: "workers.direct_read",
        file: |file| &file.direct,
        prepare: |_| Ok(()),
        operation: |file, buffer, offset| Operation::read_at(file, buffer, offset),
        remedy: "threads with plain calls cost no more here",
    },
    Kind {
        name: "workers.direct_write",
        file: |file| &file.direct,
        prepare: |_| Ok(()),
        operation: |file, buffer, offset| Operation::write_at(file, buffer, offset),
        remedy: "write into space that was written before, or use threads with plain calls",
    },
    Kind {
        name: "workers.buffered_write",
        file: |file| &file.buffered,
        prepare: |_| Ok(()),
        operation: |file, buffer, offset| Operation::write_at(file, buffer, offset),
        remedy: "use O_DIRECT into allocated space, or a thread with plain calls",
    },
];

pub(crate) fn examine(sources: &Sources, file: &ProbeFile) -> Vec<Finding> {
    KINDS.iter().map(|kind| examine_kind(sources, file, kind)).collect()
}

fn examine_kind(sources: &Sources, file: &ProbeFile, kind: &Kind) -> Finding {
    let counted = (kind.file)(file)
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|descriptor| count(sources, descriptor, kind));
    match counted {
        Ok(counted) => counted.judge(kind),
        Err(reason) => Finding::unknown(kind.name, reason),
    }
}

/// How many operations went to a worker.
enum Punts {
    Counted(u64),
    /// The tracepoint could not be opened, for this reason; whether a worker ran.
    Seen(bool, String),
}

impl Punts {
    fn judge(&self, kind: &Kind) -> Finding {
        let name = kind.name;
        let (punted, evidence) = match self {
            Punts::Counted(punts) => (
                *punts > 0,
                format!(
                    "{punts} of {OPERATIONS} operations went to a worker \
                     (io_uring:io_uring_queue_async_work)"
                ),
            ),
            Punts::Seen(ran, reason) => (
                *ran,
                format!(
                    "{} iou-wrk thread ran for {OPERATIONS} operations (not counted: {reason})",
                    if *ran { "an" } else { "no" }
                ),
            ),
        };
        match punted {
            true => Finding::limited(name, evidence).remedy(kind.remedy),
            false => Finding::ok(name, evidence),
        }
    }
}

fn count(sources: &Sources, file: &Descriptor, kind: &Kind) -> Result<Punts, String> {
    let local = Local::builder().backend(BackendChoice::Uring).build();
    let mut local = local.map_err(|error| error.to_string())?;
    (kind.prepare)(file).map_err(|error| format!("dropping the page cache: {error}"))?;
    let mut counters = Counters::open(sources, &[Event::WorkerPunts]);
    let before = worker_cpu_ns(sources);
    counters.start();
    let moved = run(&mut local, file, kind);
    counters.stop();
    moved?;
    Ok(match counters.count(Event::WorkerPunts) {
        Fact::Known(punts) => Punts::Counted(punts),
        Fact::Unknown(reason) => Punts::Seen(worker_cpu_ns(sources) != before, reason),
    })
}

fn run(local: &mut Local, file: &Descriptor, kind: &Kind) -> Result<(), String> {
    for index in 0..OPERATIONS {
        let buffer = AlignedBuf::zeroed(BLOCK_BYTES, BLOCK_BYTES).into();
        let operation = (kind.operation)(file, buffer, (index * STRIDE_BYTES) as u64);
        let done = local.run(operation).map_err(|error| error.to_string())?;
        let moved = done.result().map_err(|error| error.to_string())?;
        if moved != BLOCK_BYTES {
            return Err(format!("{} moved {moved} of {BLOCK_BYTES} bytes", done.opcode()));
        }
    }
    Ok(())
}

/// Workers, and the CPU time of all of them.
fn worker_cpu_ns(sources: &Sources) -> Option<(usize, u64)> {
    let snapshot = CpuSnapshot::take(sources);
    let threads = snapshot.threads().known()?;
    let workers = threads.iter().filter(|thread| thread.kind == ThreadKind::IoWorker);
    Some((workers.clone().count(), workers.map(|worker| worker.cpu_ns).sum()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;

    #[test]
    fn punts_are_limits_with_remedies() {
        let kind = &KINDS[4];
        let none = Punts::Counted(0).judge(kind);
        assert_eq!((none.status, none.remedy), (Status::Ok, None));
        let some = Punts::Counted(32).judge(kind);
        assert_eq!(some.status, Status::Limited);
        assert!(some.evidence.starts_with("32 of 32 ") && some.remedy.is_some());
        let seen = Punts::Seen(true, "no tracefs".into()).judge(kind);
        assert_eq!(seen.status, Status::Limited);
        assert!(seen.evidence.contains("no tracefs"), "{}", seen.evidence);
        assert_eq!(Punts::Seen(false, String::new()).judge(kind).status, Status::Ok);
    }

    #[test]
    fn a_file_that_could_not_be_made_is_unknown() {
        let file = ProbeFile { buffered: Err("full".into()), direct: Err("refused".into()) };
        for finding in examine(&Sources::default(), &file) {
            assert_eq!(finding.status, Status::Unknown);
            assert!(["full", "refused"].contains(&finding.evidence.as_str()));
        }
    }
}
