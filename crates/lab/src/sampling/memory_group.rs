//! A memory cgroup of the run's own, so that the page cache it may use has a bound.
//!
//! The kernel charges a page of a file to the group of the process that brings it in. So the whole
//! process moves into a group with a limit while it is measured, and back when that is over: what
//! it reads then pushes out what it has read before, as on a machine with less memory. Its own
//! memory is charged too, as in a container, but only what it allocates within. The group goes
//! with its guard, whatever ends the run but SIGKILL; what such an end leaves is removed by the
//! next run.
//!
//! It neither drops pages that are cached already, which stay charged to whoever brought them in,
//! nor looks whether the bound had an effect; a gate does.

mod hierarchy;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process, thread,
    time::Duration,
};

use ringwise_measure::{Sources, cgroup::Version};

use crate::error::{LabError, plain, tell_left};
use hierarchy::Hierarchy;

/// What the lab's groups are called, before the number of their process.
const NAME_PREFIX: &str = "ringwise-lab-bound-";
/// Threads that are ending keep their group from being removed for a moment.
const REMOVALS: u32 = 100;
const REMOVAL_PAUSE: Duration = Duration::from_millis(10);

/// The group, removed when dropped.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    /// The group that the process is otherwise in.
    home: PathBuf,
    version: Version,
    is_inside: bool,
}

impl MemoryGroup {
    /// Makes an empty group without a limit. The process stays where it is.
    ///
    /// # Errors
    ///
    /// There is no memory cgroup, or this user may not make one: the message says what is missing.
    pub fn make(sources: &Sources) -> Result<MemoryGroup, LabError> {
        let Hierarchy { version, home, parent } =
            hierarchy::find(sources).map_err(|reason| unusable(&reason))?;
        remove_left(sources, &parent);
        let path = parent.join(format!("{NAME_PREFIX}{}", process::id()));
        fs::create_dir(&path)
            .map_err(|error| unusable(&format!("making {}: {}", path.display(), plain(&error))))?;
        Ok(MemoryGroup { path, home, version, is_inside: false })
    }

    /// Limits the group. Its own memory is not to be swapped out to make room for the cache.
    ///
    /// # Errors
    ///
    /// What writing the limit reports.
    pub fn limit(&self, bytes: u64) -> Result<(), LabError> {
        let (limit, swap) = match self.version {
            Version::One => ("memory.limit_in_bytes", "memory.swappiness"),
            Version::Two => ("memory.max", "memory.swap.max"),
        };
        self.write(limit, &bytes.to_string())?;
        // Missing where the kernel has no swap.
        let _ = fs::write(self.path.join(swap), "0");
        Ok(())
    }

    /// Moves the process into the group.
    ///
    /// # Errors
    ///
    /// What the move reports.
    pub fn enter(&mut self) -> Result<(), LabError> {
        self.write("cgroup.procs", &process::id().to_string())?;
        self.is_inside = true;
        Ok(())
    }

    /// What is charged to it, the cache included.
    ///
    /// # Errors
    ///
    /// What reading the kernel's file reports, or that it is no number.
    pub fn used_bytes(&self) -> Result<u64, LabError> {
        let path = self.path.join(match self.version {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        });
        let text =
            fs::read_to_string(&path).map_err(|error| LabError::on("reading", &path, &error))?;
        let number = text.trim().parse();
        number.map_err(|_| LabError::Failed(format!("{}: not a number", path.display())))
    }

    fn write(&self, file: &str, text: &str) -> Result<(), LabError> {
        let path = self.path.join(file);
        fs::write(&path, text)
            .map_err(|error| unusable(&format!("writing {}: {}", path.display(), plain(&error))))
    }

    fn leave_and_remove(&mut self) -> io::Result<()> {
        if self.is_inside {
            fs::write(self.home.join("cgroup.procs"), process::id().to_string())?;
            self.is_inside = false;
        }
        for _ in 1..REMOVALS {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    thread::sleep(REMOVAL_PAUSE);
                }
                result => return result,
            }
        }
        fs::remove_dir(&self.path)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if let Err(error) = self.leave_and_remove() {
            tell_left(&self.path, &error);
        }
    }
}

fn unusable(reason: &str) -> LabError {
    LabError::Failed(format!(
        "--cache bounded: {reason}; it needs a memory cgroup that may be divided: run as root with \
         the cgroups mounted for writing, or within `systemd-run --user --scope`"
    ))
}

/// Removes groups of runs that are no more. One that still has a process cannot be removed.
fn remove_left(sources: &Sources, parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(NAME_PREFIX));
        if id.is_some_and(|id| !sources.proc.join(id).exists()) {
            // If it stays, it is in nobody's way.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree in which this process is in a group of the first version.
    fn tree() -> (tempfile::TempDir, Sources, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("cgroup/memory/job");
        fs::create_dir_all(&home).unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/cgroup"), "4:memory:/job\n0::/\n").unwrap();
        let mounts = "35 31 0:32 / /cgroup/memory rw - cgroup cgroup rw,memory\n";
        fs::write(root.path().join("proc/self/mountinfo"), mounts).unwrap();
        fs::write(home.join("cgroup.procs"), format!("1\n{}\n", process::id())).unwrap();
        let sources = Sources::below(root.path());
        (root, sources, home)
    }

    #[test]
    fn a_group_is_made_limited_and_entered() {
        let (_root, sources, home) = tree();
        let left = home.join("ringwise-lab-bound-999999");
        fs::create_dir(&left).unwrap();
        let mut group = MemoryGroup::make(&sources).unwrap();
        assert!(!left.exists(), "what an earlier run left is removed");
        let path = home.join(format!("ringwise-lab-bound-{}", process::id()));
        assert!(path.is_dir());
        group.limit(1 << 20).unwrap();
        group.enter().unwrap();
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        assert_eq!(read(path.join("memory.limit_in_bytes")), "1048576");
        assert_eq!(read(path.join("cgroup.procs")), process::id().to_string());
        fs::write(path.join("memory.usage_in_bytes"), "4096\n").unwrap();
        assert_eq!(group.used_bytes().unwrap(), 4096);
        // The kernel's files go with their directory, unlike these.
        for entry in fs::read_dir(&path).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        drop(group);
        assert_eq!(read(home.join("cgroup.procs")), process::id().to_string(), "back again");
        assert!(!path.exists());
    }

    #[test]
    fn what_is_missing_is_one_line() {
        let empty = tempfile::tempdir().unwrap();
        let error = MemoryGroup::make(&Sources::below(empty.path())).unwrap_err();
        assert_eq!(error.exit_status(), 1);
        let text = error.to_string();
        assert!(text.starts_with("--cache bounded: ") && text.contains("self/cgroup"), "{text}");
        assert!(text.contains("run as root") && !text.contains('\n'), "{text}");
    }
}
