//! CPU time of the kernel's own threads and of child processes that have ended.
//!
//! Some work for a program is done by kernel threads (write-back, journals, a loop device). Their parent is kthreadd,
//! and no process is charged for their time. Neither figure includes interrupts.

use std::collections::HashMap;

use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;

use super::threads::{added_ns, schedstat_ns, stat_ns};
use crate::fact::{Fact, Sources, plain, text};

/// The process that creates kernel threads (kernel/kthread.c).
const KTHREADD: &str = "2";

/// CPU time of every kernel thread so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelThreads(HashMap<u32, u64>);

impl KernelThreads {
    /// Reads all kernel threads. This costs some hundred file reads, so call it outside the measured time.
    pub fn read(sources: &Sources) -> Fact<KernelThreads> {
        let entries = match sources.proc.read_dir() {
            Ok(entries) => entries,
            Err(error) => {
                return Fact::Unknown(format!("{}: {}", sources.proc.display(), plain(&error)));
            }
        };
        let mut found = HashMap::new();
        for entry in entries.flatten() {
            let path = entry.path();
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let is_kernel = text(&path.join("stat")).known().is_some_and(|stat| {
                let behind_name = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
                behind_name.split_whitespace().nth(1) == Some(KTHREADD)
            });
            // A thread that has ended since it was listed has no readable time.
            if is_kernel && let Some(cpu_ns) = schedstat_ns(&path).or_else(|| stat_ns(&path)) {
                found.insert(id, cpu_ns);
            }
        }
        match found.is_empty() {
            true => Fact::Unknown("kernel threads are not seen from here".to_owned()),
            false => Fact::Known(KernelThreads(found)),
        }
    }

    /// Returns the CPU time consumed since `earlier`. A new thread counts from zero. A thread that has ended is left
    /// out.
    pub fn since_ns(&self, earlier: &KernelThreads) -> u64 {
        added_ns(self.0.iter().map(|(id, cpu_ns)| (*id, *cpu_ns)), &earlier.0)
    }
}

/// CPU time in nanoseconds, in user mode and in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CpuSplit {
    /// In user mode.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

impl CpuSplit {
    /// Reads the CPU time of this process and its threads.
    pub fn own() -> CpuSplit {
        CpuSplit::of(UsageWho::RUSAGE_SELF)
    }

    /// Reads the CPU time of all child processes that have ended and were waited for, and of their children, including
    /// io-wq workers (getrusage(2)).
    pub fn children() -> CpuSplit {
        CpuSplit::of(UsageWho::RUSAGE_CHILDREN)
    }

    fn of(who: UsageWho) -> CpuSplit {
        // getrusage(2) fails only for a wrong argument.
        let Ok(usage) = getrusage(who) else { return CpuSplit::default() };
        let ns = |time: nix::sys::time::TimeVal| {
            (time.tv_sec().max(0) as u64)
                .saturating_mul(1_000_000_000)
                .saturating_add((time.tv_usec().max(0) as u64).saturating_mul(1000))
        };
        CpuSplit { user_ns: ns(usage.user_time()), system_ns: ns(usage.system_time()) }
    }

    /// Returns the time added since `earlier`.
    pub fn since(&self, earlier: &CpuSplit) -> CpuSplit {
        CpuSplit {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
        }
    }

    /// Returns the sum of both.
    pub fn total_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.system_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command};

    use super::*;

    fn tree(threads: &[(&str, &str, &str)]) -> (tempfile::TempDir, Sources) {
        let directory = tempfile::tempdir().unwrap();
        for (id, parent, schedstat) in threads {
            let path = directory.path().join("proc").join(id);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("stat"), format!("{id} (a) b) S {parent} 0 0")).unwrap();
            fs::write(path.join("schedstat"), schedstat).unwrap();
        }
        let sources = Sources::below(directory.path());
        (directory, sources)
    }

    #[test]
    fn threads_of_the_kernel_are_summed_and_others_are_not() {
        let (_one, before) = tree(&[("7", "2", "100 0 0"), ("9", "1", "5000 0 0")]);
        let (_other, after) =
            tree(&[("7", "2", "130 0 0"), ("8", "2", "20 0 0"), ("9", "1", "9000 0 0")]);
        let (before, after) = (KernelThreads::read(&before), KernelThreads::read(&after));
        let used = after.zip(&before).map(|(after, before)| after.since_ns(before));
        assert_eq!(used, Fact::Known(50));
        let (_empty, none) = tree(&[("9", "1", "5000 0 0")]);
        assert!(KernelThreads::read(&none).reason().is_some());
    }

    #[test]
    fn a_child_is_counted_when_it_has_ended() {
        let before = CpuSplit::children();
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", script]).status().unwrap().success());
        let used = CpuSplit::children().since(&before);
        assert!(used.total_ns() > 1_000_000, "{used:?}");
        assert!(CpuSplit::own().total_ns() > 0);
    }
}
