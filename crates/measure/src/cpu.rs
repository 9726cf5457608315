//! CPU time: of this process, of its kernel workers, and of the whole machine.
//!
//! Verdicts use the clock of the process. Since Linux 5.12 the threads that io_uring creates (io-wq workers
//! `iou-wrk-*`, submission pollers `iou-sqp-*`) are threads of the process that made the ring, so the clock includes
//! their time (IORING_FEAT_NATIVE_WORKERS, io_uring_setup(2)). getrusage(2) of one thread does not include it.
//! Interrupts and softirqs appear only in the figures of the whole machine. Time spent waiting for I/O ("iowait") is
//! idle time and never counts as load.

mod affinity;
mod foreign;
mod kernel;
mod listener;
mod nodes;
mod system;
mod threads;

pub use affinity::{allowed_cpus, pin_current_thread};
pub use foreign::{ForeignProcess, ForeignUse};
pub use kernel::{CpuSplit, KernelThreads};
pub use listener::listening_process;
pub use nodes::Nodes;
pub use system::{IdleBaseline, SystemCpu};
pub use threads::{ContextSwitches, ThreadCpu, ThreadKind, ThreadTime};

use crate::fact::{Fact, Sources};
use rustix::time::{ClockId, clock_gettime};

/// CPU time consumed so far. The difference of two snapshots is a [`CpuUse`].
#[derive(Clone, Debug)]
pub struct CpuSnapshot {
    process_ns: u64,
    threads: Fact<Vec<ThreadCpu>>,
}

/// CPU time consumed between two snapshots.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuUse {
    /// All threads of the process, including kernel workers and threads that have exited.
    pub process_ns: u64,
    /// io-wq workers that were alive at the later snapshot. They exit after 5 idle seconds, and then only `process_ns`
    /// includes their time.
    pub io_worker_ns: Fact<u64>,
    /// Submission-queue pollers that were alive at the later snapshot.
    pub sqpoll_ns: Fact<u64>,
}

/// Reads the CPU time of the process in nanoseconds (CLOCK_PROCESS_CPUTIME_ID): all its threads, including kernel
/// workers.
pub fn process_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // Seconds and nanoseconds of CPU time are never negative.
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}

/// Lists the numbers of all threads of a process. `None` stands for this process.
pub(crate) fn thread_ids(sources: &Sources, pid: Option<u32>) -> Fact<Vec<u32>> {
    let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let found = threads::directories(sources, &process);
    found.map(|found| found.into_iter().map(|(id, _)| id).collect())
}

impl CpuSnapshot {
    /// Reads all sources. This costs several file reads per thread, so call it outside the measured time.
    pub fn take(sources: &Sources) -> Self {
        let threads = threads::read(sources);
        // The clock is read last, because reading the files costs CPU time itself.
        CpuSnapshot { threads, process_ns: process_cpu_ns() }
    }

    /// Returns the CPU time consumed since `earlier`.
    pub fn since(&self, earlier: &CpuSnapshot) -> CpuUse {
        let of_kind = |kind| {
            let both = self.threads.zip(&earlier.threads);
            both.map(|(later, earlier)| threads::consumed_ns(later, earlier, kind))
        };
        CpuUse {
            process_ns: self.process_ns.saturating_sub(earlier.process_ns),
            io_worker_ns: of_kind(ThreadKind::IoWorker),
            sqpoll_ns: of_kind(ThreadKind::SubmissionPoller),
        }
    }

    /// Returns the threads that the process had when the snapshot was taken.
    pub fn threads(&self) -> &Fact<Vec<ThreadCpu>> {
        &self.threads
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn burn(duration: Duration) {
        let start = process_cpu_ns();
        while process_cpu_ns() - start < duration.as_nanos() as u64 {
            std::hint::black_box(0);
        }
    }

    #[test]
    fn burnt_time_is_seen_by_the_process_and_the_machine() {
        let sources = Sources::default();
        let (before, system_before) = (CpuSnapshot::take(&sources), SystemCpu::read(&sources));
        burn(Duration::from_millis(200));
        let used = CpuSnapshot::take(&sources).since(&before);
        assert!(used.process_ns >= 200_000_000, "{used:?}");
        // The machine's figures count in ticks of up to 10 ms.
        let system = SystemCpu::read(&sources);
        let busy =
            system.zip(&system_before).map(|(later, earlier)| later.since(earlier).busy_ns());
        assert!(*busy.known().unwrap() >= 100_000_000, "{busy:?}");
    }

    #[test]
    fn time_of_a_thread_that_has_exited_is_kept() {
        let sources = Sources::default();
        let before = CpuSnapshot::take(&sources);
        std::thread::spawn(|| burn(Duration::from_millis(50))).join().unwrap();
        let used = CpuSnapshot::take(&sources).since(&before);
        assert!(used.process_ns >= 50_000_000, "{used:?}");
    }

    #[test]
    fn missing_trees_leave_the_clock() {
        let empty = tempfile::tempdir().unwrap();
        let sources = Sources::below(empty.path());
        let before = CpuSnapshot::take(&sources);
        burn(Duration::from_millis(5));
        let used = CpuSnapshot::take(&sources).since(&before);
        assert!(used.process_ns >= 5_000_000);
        assert!(used.sqpoll_ns.reason().is_some() && used.io_worker_ns.reason().is_some());
    }
}
