//! The limits that cgroups put on this process: a share of the processors' time, and memory.
//!
//! A parent group can have a lower limit than the process's own group. The lowest limit of all visible groups counts.

use std::path::Path;

use serde::Serialize;

use crate::{
    cgroup::{Group, Version},
    fact::{self, Fact, Sources},
};

/// Limits by cgroups. `None` means no limit and is serialised as null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quota {
    /// CPU time per wall-clock time, in processors: 1.5 is the time of one and a half processors.
    pub processors: Fact<Option<f64>>,
    /// Memory that may be used, in bytes. It includes the page cache of the group's own files.
    pub memory_bytes: Fact<Option<u64>>,
}

impl Quota {
    pub(super) fn read(sources: &Sources) -> Quota {
        Quota {
            processors: least(sources, "cpu", processors),
            memory_bytes: least(sources, "memory", memory),
        }
    }
}

/// Finds the lowest limit of the process's own group and its parents. A group without the file, such as the root, has
/// no limit.
fn least<T: PartialOrd + Copy>(
    sources: &Sources,
    controller: &str,
    limit: fn(Version, &Path) -> Option<T>,
) -> Fact<Option<T>> {
    Group::find(sources, controller).map(|group| {
        let limits = group.upwards().filter_map(|directory| limit(group.version, directory));
        limits.reduce(|left, right| if right < left { right } else { left })
    })
}

fn processors(version: Version, directory: &Path) -> Option<f64> {
    let text = |name: &str| fact::text(&directory.join(name)).known().cloned();
    let (quota, period) = match version {
        Version::One => (text("cpu.cfs_quota_us")?, text("cpu.cfs_period_us")?),
        Version::Two => {
            let both = text("cpu.max")?;
            let (quota, period) = both.split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
    };
    // Without a limit, version 1 has -1 here and version 2 the word "max". Neither parses as u64.
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0).then(|| quota as f64 / period as f64)
}

/// More memory than any machine has. Version 1 writes a number near 2^63 if there is no limit.
const MEMORY_UNLIMITED_BYTES: u64 = 1 << 60;

fn memory(version: Version, directory: &Path) -> Option<u64> {
    let name = match version {
        Version::One => "memory.limit_in_bytes",
        Version::Two => "memory.max",
    };
    let bytes = fact::text(&directory.join(name)).known()?.parse().ok()?;
    (bytes < MEMORY_UNLIMITED_BYTES).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::tests::tree;

    #[test]
    fn the_least_of_the_first_version() {
        let mounts = "35 31 0:32 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
            36 31 0:33 / /cg/memory rw - cgroup cgroup rw,memory\n";
        let files = [
            ("cg/cpu/a/b/cgroup.procs", "SELF\n"),
            ("cg/cpu/a/b/cpu.cfs_quota_us", "-1\n"),
            ("cg/cpu/a/b/cpu.cfs_period_us", "100000\n"),
            ("cg/cpu/a/cpu.cfs_quota_us", "150000\n"),
            ("cg/cpu/a/cpu.cfs_period_us", "100000\n"),
            ("cg/memory/cgroup.procs", "SELF\n"),
            ("cg/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        let (_root, sources) = tree("4:cpu,cpuacct:/a/b\n3:memory:/\n", mounts, &files);
        let quota = Quota::read(&sources);
        assert_eq!(quota.processors, Fact::Known(Some(1.5)));
        assert_eq!(quota.memory_bytes, Fact::Known(None));
    }

    #[test]
    fn the_least_of_the_second_version() {
        let mounts = "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n";
        let files = [
            ("cg/a/b/cgroup.procs", "SELF\n"),
            ("cg/a/b/cpu.max", "200000 100000\n"),
            ("cg/a/cpu.max", "max 100000\n"),
            ("cg/a/b/memory.max", "max\n"),
            ("cg/a/memory.max", "536870912\n"),
        ];
        let (_root, sources) = tree("0::/a/b\n", mounts, &files);
        let quota = Quota::read(&sources);
        assert_eq!(quota.processors, Fact::Known(Some(2.0)));
        assert_eq!(quota.memory_bytes, Fact::Known(Some(512 << 20)));
    }

    #[test]
    fn without_cgroups_there_is_a_reason() {
        let (_root, sources) = tree("", "", &[]);
        assert!(Quota::read(&sources).processors.reason().is_some());
    }
}
