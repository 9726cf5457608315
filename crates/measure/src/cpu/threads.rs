//! CPU time and context switches of each thread, from /proc/self/task.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::CpuSplit;
use crate::fact::{Fact, Sources, field, lowered, text};

/// The owner of a thread: the program or the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadKind {
    /// A thread of the program.
    Own,
    /// An io-wq worker, `iou-wrk-*`, which the kernel creates for operations that block.
    IoWorker,
    /// A submission-queue poller, `iou-sqp-*`, which the kernel creates for SQPOLL.
    SubmissionPoller,
}

impl ThreadKind {
    /// Finds the kind by the name that the kernel gives to the thread.
    pub(super) fn of(name: &str) -> ThreadKind {
        match name {
            name if name.starts_with("iou-wrk-") => ThreadKind::IoWorker,
            name if name.starts_with("iou-sqp-") => ThreadKind::SubmissionPoller,
            _ => ThreadKind::Own,
        }
    }
}

/// One thread of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadCpu {
    /// The thread's number.
    pub thread_id: u32,
    /// The thread's name, at most 15 bytes.
    pub name: String,
    /// The owner of the thread.
    pub kind: ThreadKind,
    /// CPU time since the thread began. The kernel updates the time of a running thread at each tick.
    pub cpu_ns: u64,
}

/// Context switches. Those of threads that have exited are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContextSwitches {
    /// The thread waited for something.
    pub voluntary: u64,
    /// Another thread took the processor.
    pub involuntary: u64,
}

impl ContextSwitches {
    /// Returns the switches added since `earlier`.
    pub fn since(&self, earlier: &ContextSwitches) -> ContextSwitches {
        ContextSwitches {
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
        }
    }
}

/// The calling thread's time so far: on a processor, and ready to run without a processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTime {
    /// CPU time, user and system (CLOCK_THREAD_CPUTIME_ID).
    pub cpu_ns: u64,
    /// Time in a run queue, while other threads or guests had the processor. It is read from
    /// /proc/thread-self/schedstat, which exists if the kernel has CONFIG_SCHED_INFO.
    pub waited_ns: Fact<u64>,
}

impl ThreadTime {
    /// Reads both for the calling thread.
    pub fn read(sources: &Sources) -> ThreadTime {
        let waited_ns = sources.proc_text("thread-self/schedstat").and_then(|text| {
            let waited = text.split_whitespace().nth(1).and_then(|field| field.parse().ok());
            Fact::of(waited, || "/proc/thread-self/schedstat: no waiting time there".to_owned())
        });
        let time = clock_gettime(ClockId::ThreadCPUTime);
        // Seconds and nanoseconds of CPU time are never negative.
        let seconds_ns = (time.tv_sec as u64).saturating_mul(1_000_000_000);
        ThreadTime { cpu_ns: seconds_ns.saturating_add(time.tv_nsec as u64), waited_ns }
    }
}

/// Lists the directories of all threads of a process, given by its name in /proc. A thread may exit before its files
/// are read.
pub(super) fn directories(sources: &Sources, process: &str) -> Fact<Vec<(u32, PathBuf)>> {
    let path = sources.proc.join(process).join("task");
    let entries = match path.read_dir() {
        Ok(entries) => entries,
        Err(error) => return Fact::Unknown(format!("{}: {}", path.display(), lowered(&error))),
    };
    let thread = |path: PathBuf| Some((path.file_name()?.to_str()?.parse().ok()?, path));
    Fact::Known(entries.flatten().filter_map(|entry| thread(entry.path())).collect())
}

pub(super) fn read(sources: &Sources) -> Fact<Vec<ThreadCpu>> {
    directories(sources, "self")
        .map(|found| found.iter().filter_map(|(id, path)| thread(*id, path)).collect())
}

fn thread(thread_id: u32, path: &Path) -> Option<ThreadCpu> {
    let name = text(&path.join("comm")).known()?.clone();
    let kind = ThreadKind::of(&name);
    let cpu_ns = schedstat_ns(path).or_else(|| stat_ns(path))?;
    Some(ThreadCpu { thread_id, name, kind, cpu_ns })
}

/// Reads the exact nanoseconds, which the kernel keeps if it has CONFIG_SCHED_INFO.
pub(super) fn schedstat_ns(path: &Path) -> Option<u64> {
    text(&path.join("schedstat")).known()?.split_whitespace().next()?.parse().ok()
}

/// Reads utime + stime, which count in ticks.
pub(super) fn stat_ns(path: &Path) -> Option<u64> {
    let split = stat_split(path)?;
    split.user_ns.checked_add(split.system_ns)
}

/// Reads utime and stime, which count in ticks: fields 14 and 15 of proc_pid_stat(5). They are counted after the name,
/// which may itself contain spaces and brackets.
pub(super) fn stat_split(path: &Path) -> Option<CpuSplit> {
    let text = text(&path.join("stat"));
    let (_, behind_name) = text.known()?.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace().skip(11);
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let mut time_ns = || fields.next()?.parse::<u64>().ok()?.checked_mul(tick_ns);
    Some(CpuSplit { user_ns: time_ns()?, system_ns: time_ns()? })
}

/// Adds up the time that the threads of one kind consumed.
pub(super) fn consumed_ns(later: &[ThreadCpu], earlier: &[ThreadCpu], kind: ThreadKind) -> u64 {
    let own = |thread: &ThreadCpu| (thread.thread_id, thread.cpu_ns);
    let later = later.iter().filter(|thread| thread.kind == kind).map(own);
    added_ns(later, &earlier.iter().map(own).collect())
}

/// Adds up the time that threads consumed, given each thread's number and CPU time. A new thread began at zero.
pub(super) fn added_ns(
    later: impl Iterator<Item = (u32, u64)>,
    earlier: &HashMap<u32, u64>,
) -> u64 {
    let used =
        |(id, cpu_ns): (u32, u64)| cpu_ns.saturating_sub(earlier.get(&id).copied().unwrap_or(0));
    later.map(used).fold(0, u64::saturating_add)
}

pub(super) fn switches(path: &Path) -> Option<ContextSwitches> {
    let text = text(&path.join("status"));
    let text = text.known()?;
    Some(ContextSwitches {
        voluntary: field(text, "voluntary_ctxt_switches")?.parse().ok()?,
        involuntary: field(text, "nonvoluntary_ctxt_switches")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn fixture(threads: &[(&str, &str, &str, &str)]) -> (tempfile::TempDir, Sources) {
        let directory = tempfile::tempdir().unwrap();
        for (id, comm, schedstat, stat) in threads {
            let path = directory.path().join("proc/self/task").join(id);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("comm"), comm).unwrap();
            fs::write(path.join("schedstat"), schedstat).unwrap();
            fs::write(path.join("stat"), stat).unwrap();
            let status = "voluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t2\n";
            fs::write(path.join("status"), status).unwrap();
        }
        let sources = Sources::below(directory.path());
        (directory, sources)
    }

    #[test]
    fn kernel_threads_are_told_by_their_names() {
        let (_directory, sources) = fixture(&[
            ("10", "main\n", "100 1 1", ""),
            ("11", "iou-wrk-10\n", "200 1 1", ""),
            ("12", "iou-sqp-10\n", "300 1 1", ""),
            ("13", "my iou-wrk-1\n", "400 1 1", ""),
            ("garbage", "x\n", "1", ""),
        ]);
        let later = read(&sources).known().unwrap().clone();
        assert_eq!(later.len(), 4);
        let earlier = [ThreadCpu {
            cpu_ns: 150,
            ..later.iter().find(|t| t.thread_id == 11).unwrap().clone()
        }];
        assert_eq!(consumed_ns(&later, &earlier, ThreadKind::IoWorker), 50);
        assert_eq!(consumed_ns(&later, &[], ThreadKind::SubmissionPoller), 300);
        assert_eq!(consumed_ns(&later, &[], ThreadKind::Own), 500);
        let switches = switches(&sources.proc.join("self/task/11"));
        assert_eq!(switches, Some(ContextSwitches { voluntary: 3, involuntary: 2 }));
    }

    #[test]
    fn stat_is_read_behind_a_name_with_brackets() {
        let stat = "7 (a) b) (c) S 1 1 1 0 -1 4194304 90 0 0 0 25 17 0 0 20 0 1 0";
        let (_directory, sources) = fixture(&[("7", "a) b) (c\n", "", stat)]);
        let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!(read(&sources).known().unwrap()[0].cpu_ns, 42 * tick_ns);
    }

    #[test]
    fn garbled_threads_are_left_out() {
        let (_directory, sources) =
            fixture(&[("7", "main\n", "x", "7 (main) S 1"), ("8", "b\n", "9 1 1", "")]);
        let names: Vec<String> =
            read(&sources).known().unwrap().iter().map(|thread| thread.name.clone()).collect();
        assert_eq!(names, ["b"]);
    }

    #[test]
    fn a_thread_that_works_has_its_own_time() {
        let sources = Sources::default();
        let before = ThreadTime::read(&sources);
        while ThreadTime::read(&sources).cpu_ns < before.cpu_ns + 20_000_000 {}
        let after = ThreadTime::read(&sources);
        assert!(after.cpu_ns >= before.cpu_ns + 20_000_000);
        if let (Some(before), Some(after)) = (before.waited_ns.known(), after.waited_ns.known()) {
            assert!(after >= before);
        }
        let empty = tempfile::tempdir().unwrap();
        let blind = ThreadTime::read(&Sources::below(empty.path()));
        assert!(blind.cpu_ns > 0 && blind.waited_ns.reason().is_some());
    }

    #[test]
    fn this_process_has_its_threads() {
        let found = read(&Sources::default());
        assert!(found.known().unwrap().iter().any(|thread| thread.kind == ThreadKind::Own));
    }
}
