//! CPU time, context switches and memory of another process, such as a server that its client measures.
//!
//! It reads /proc. It needs no privilege unless /proc hides the processes of other users (hidepid, proc(5)).

use serde::Serialize;

use super::{
    CpuSplit, ThreadKind,
    threads::{ContextSwitches, added_ns, directories, schedstat_ns, stat_split, switches},
};
use crate::fact::{Fact, Sources, field, kibibytes_field, text};

/// Another process at one moment. The difference of two is a [`ForeignUse`].
#[derive(Clone, Debug)]
pub struct ForeignProcess {
    /// The number of each thread, its exact CPU time if the kernel keeps it, and its context switches.
    threads: Fact<Vec<Thread>>,
    /// CPU time in ticks of all threads, including those that have exited.
    total: Fact<CpuSplit>,
    /// Resident memory, its own and shared, from /proc/PID/status.
    pub resident_bytes: Fact<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    id: u32,
    kind: ThreadKind,
    cpu_ns: Option<u64>,
    switches: Option<ContextSwitches>,
}

/// What another process used between two moments.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ForeignUse {
    /// CPU time of all its threads, including io_uring's workers. It is exact to the nanosecond if no thread exited
    /// between the two moments, otherwise to a clock tick (10 ms).
    pub cpu_ns: Fact<u64>,
    /// The same CPU time, split into user mode and kernel mode. Kernel mode includes the kernel's threads for its
    /// rings. The split is counted in ticks, so for a short time only the mean of many measurements is meaningful.
    pub split: Fact<CpuSplit>,
    /// CPU time of the io-wq workers that existed at the later moment.
    pub io_worker_ns: u64,
    /// CPU time of the submission pollers that existed at the later moment.
    pub sqpoll_ns: u64,
    /// Context switches of the threads that existed at the later moment.
    pub context_switches: Fact<ContextSwitches>,
}

impl ForeignProcess {
    /// Reads a process. If it has exited, every fact is unknown, with a reason.
    pub fn read(sources: &Sources, pid: u32) -> ForeignProcess {
        let name = pid.to_string();
        let directory = sources.proc.join(&name);
        let threads = directories(sources, &name).map(|found| {
            let thread = |(id, path): (u32, std::path::PathBuf)| Thread {
                id,
                kind: text(&path.join("comm"))
                    .known()
                    .map_or(ThreadKind::Own, |name| ThreadKind::of(name)),
                cpu_ns: schedstat_ns(&path),
                switches: switches(&path),
            };
            found.into_iter().map(thread).collect()
        });
        let unknown = |what: &str| format!("{}: no {what} there", directory.display());
        let total = Fact::of(stat_split(&directory), || unknown("CPU time in stat"));
        let status = sources.proc_text(format!("{name}/status"));
        let resident_bytes = status.and_then(|text| {
            Fact::of(kibibytes_field(&text, "VmRSS"), || unknown("VmRSS in status"))
        });
        ForeignProcess { threads, total, resident_bytes }
    }

    /// Reads the list of processors that the process's first thread may run on, in the kernel's form: `0`, `0-3,8`.
    pub fn processors(sources: &Sources, pid: u32) -> Fact<String> {
        sources.proc_text(format!("{pid}/status")).and_then(|text| {
            let list = field(&text, "Cpus_allowed_list").map(str::to_owned);
            Fact::of(list, || format!("/proc/{pid}/status: no Cpus_allowed_list there"))
        })
    }

    /// Returns whether the process existed.
    pub fn exists(&self) -> bool {
        self.total.known().is_some()
    }

    /// Returns what was used since `earlier`.
    pub fn since(&self, earlier: &ForeignProcess) -> ForeignUse {
        let exact = self.threads.zip(&earlier.threads).and_then(|(later, earlier)| {
            Fact::of(consumed_ns(later, earlier), || "threads have exited".to_owned())
        });
        let ticks = self.total.zip(&earlier.total).map(|(later, earlier)| later.since(earlier));
        let of_kind = |kind| {
            let threads = self.threads.zip(&earlier.threads);
            threads.known().map_or(0, |(later, earlier)| of_kind_ns(later, earlier, kind))
        };
        let context_switches = self.threads.zip(&earlier.threads).and_then(|(later, earlier)| {
            let reason = "/proc/PID/task/TID/status: no context switches there";
            Fact::of(switched(later, earlier), || reason.to_owned())
        });
        let cpu_ns = match exact {
            Fact::Known(_) => exact,
            Fact::Unknown(_) => ticks.clone().map(|ticks| ticks.total_ns()),
        };
        ForeignUse {
            split: cpu_ns.zip(&ticks).and_then(|(cpu_ns, ticks)| apportioned(*cpu_ns, *ticks)),
            cpu_ns,
            io_worker_ns: of_kind(ThreadKind::IoWorker),
            sqpoll_ns: of_kind(ThreadKind::SubmissionPoller),
            context_switches,
        }
    }
}

impl ForeignUse {
    /// Makes the result for a process that cannot be seen.
    pub fn unknown(reason: &str) -> ForeignUse {
        ForeignUse {
            cpu_ns: Fact::Unknown(reason.to_owned()),
            split: Fact::Unknown(reason.to_owned()),
            io_worker_ns: 0,
            sqpoll_ns: 0,
            context_switches: Fact::Unknown(reason.to_owned()),
        }
    }
}

/// Splits CPU time in the ratio of its ticks.
fn apportioned(cpu_ns: u64, ticks: CpuSplit) -> Fact<CpuSplit> {
    if ticks.total_ns() == 0 {
        return Fact::Unknown("less than a tick of CPU time".to_owned());
    }
    let user_ns = (cpu_ns as f64 * ticks.user_ns as f64 / ticks.total_ns() as f64) as u64;
    Fact::Known(CpuSplit { user_ns, system_ns: cpu_ns - user_ns.min(cpu_ns) })
}

/// Adds up the CPU time of the threads of one kind.
fn of_kind_ns(later: &[Thread], earlier: &[Thread], kind: ThreadKind) -> u64 {
    let known = |thread: &Thread| Some((thread.id, thread.cpu_ns?));
    let later = later.iter().filter(|thread| thread.kind == kind).filter_map(known);
    added_ns(later, &earlier.iter().filter_map(known).collect())
}

/// Computes the exact CPU time. Returns `None` if a thread has exited, because its time is no longer readable.
fn consumed_ns(later: &[Thread], earlier: &[Thread]) -> Option<u64> {
    let total = |threads: &[Thread]| {
        threads.iter().try_fold(0u64, |sum, thread| Some(sum.saturating_add(thread.cpu_ns?)))
    };
    let is_there = |id: u32| later.iter().any(|thread| thread.id == id);
    let is_whole = !earlier.is_empty() && earlier.iter().all(|thread| is_there(thread.id));
    if is_whole { Some(total(later)?.saturating_sub(total(earlier)?)) } else { None }
}

fn switched(later: &[Thread], earlier: &[Thread]) -> Option<ContextSwitches> {
    let before = |id: u32| {
        let thread = earlier.iter().find(|thread| thread.id == id);
        thread.and_then(|thread| thread.switches).unwrap_or_default()
    };
    let mut sum = ContextSwitches::default();
    // The switches of a thread that is just exiting cannot be read.
    let readable = || later.iter().filter_map(|thread| Some((thread.id, thread.switches?)));
    for (id, switches) in readable() {
        let since = switches.since(&before(id));
        sum.voluntary = sum.voluntary.saturating_add(since.voluntary);
        sum.involuntary = sum.involuntary.saturating_add(since.involuntary);
    }
    readable().next().map(|_| sum)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    fn write(root: &Path, threads: &[(u32, u64, u64)], ticks: u64) {
        let process = root.join("proc/7");
        let _ = fs::remove_dir_all(&process);
        for &(id, cpu_ns, switches) in threads {
            let thread = process.join(format!("task/{id}"));
            fs::create_dir_all(&thread).unwrap();
            let name = if id == 9 { "iou-wrk-7" } else { "x" };
            fs::write(thread.join("comm"), name).unwrap();
            fs::write(thread.join("schedstat"), format!("{cpu_ns} 5 1")).unwrap();
            let status = format!(
                "voluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t{switches}\n"
            );
            fs::write(thread.join("status"), status).unwrap();
        }
        fs::write(process.join("status"), "Name:\tx\nVmRSS:\t     100 kB\n").unwrap();
        let stat = format!("7 (a b) S 1 1 1 0 -1 0 0 0 0 0 {ticks} {ticks} 0 0 20 0 1 0");
        fs::write(process.join("stat"), stat).unwrap();
    }

    #[test]
    fn threads_that_stay_are_exact_and_those_that_exit_are_in_the_ticks() {
        let root = tempfile::tempdir().unwrap();
        let sources = Sources::below(root.path());
        write(root.path(), &[(7, 100, 1), (8, 200, 2)], 10);
        let first = ForeignProcess::read(&sources, 7);
        assert_eq!(first.resident_bytes, Fact::Known(102_400));
        write(root.path(), &[(7, 150, 2), (8, 260, 4), (9, 1000, 7)], 11);
        let second = ForeignProcess::read(&sources, 7);
        let used = second.since(&first);
        assert_eq!(used.cpu_ns, Fact::Known(50 + 60 + 1000));
        assert_eq!((used.io_worker_ns, used.sqpoll_ns), (1000, 0));
        assert_eq!(used.split, Fact::Known(CpuSplit { user_ns: 555, system_ns: 555 }));
        let switches = ContextSwitches { voluntary: 1 + 2 + 7, involuntary: 1 + 2 + 7 };
        assert_eq!(used.context_switches, Fact::Known(switches));
        write(root.path(), &[(7, 170, 2)], 14);
        let third = ForeignProcess::read(&sources, 7);
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!(third.since(&second).cpu_ns, Fact::Known(2 * 3 * tick_ns));
    }

    #[test]
    fn a_process_that_is_gone_has_reasons() {
        let root = tempfile::tempdir().unwrap();
        let sources = Sources::below(root.path());
        let gone = ForeignProcess::read(&sources, 7);
        assert!(!gone.exists() && gone.resident_bytes.reason().is_some());
        let used = gone.since(&gone);
        assert!(used.cpu_ns.reason().is_some() && used.split.reason().is_some());
        assert!(used.context_switches.reason().is_some());
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let sources = Sources::default();
        let before = ForeignProcess::read(&sources, std::process::id());
        assert!(before.exists() && *before.resident_bytes.known().unwrap() > 0);
        let since = ForeignProcess::read(&sources, std::process::id()).since(&before);
        assert!(since.cpu_ns.known().is_some(), "{since:?}");
        let processors = ForeignProcess::processors(&sources, std::process::id());
        assert!(processors.known().is_some_and(|list| list.starts_with(char::is_numeric)));
    }
}
