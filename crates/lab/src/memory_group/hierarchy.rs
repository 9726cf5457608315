//! Where this process is among the memory cgroups, and where a group beside or below it can be made.
//!
//! In the first version of cgroups a group may have processes and groups at once, so the new one is
//! made within the process's own. In the second only groups without processes divide their memory
//! (cgroups(7), "no internal processes"), so the new one is made within the nearest group above
//! that does. Which directory is the process's own is not concluded from names, which containers
//! change, but looked for: it lists the process.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use ringwise_measure::Sources;

/// The version of cgroups that has the memory controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller.
    One,
    /// One hierarchy for all.
    Two,
}

/// Where a group can be made.
#[derive(Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Whose files it has.
    pub version: Version,
    /// The process's own group.
    pub home: PathBuf,
    /// The group to divide.
    pub parent: PathBuf,
}

/// Finds the hierarchy that has the memory controller.
///
/// # Errors
///
/// What is missing.
pub fn find(sources: &Sources) -> Result<Hierarchy, String> {
    let unread = |fact: ringwise_measure::Fact<String>| match fact {
        ringwise_measure::Fact::Known(text) => Ok(text),
        ringwise_measure::Fact::Unknown(reason) => Err(reason),
    };
    let groups = unread(sources.proc_text("self/cgroup"))?;
    let mounts = unread(sources.proc_text("self/mountinfo"))?;
    let (version, group) = own_group(&groups).ok_or("/proc/self/cgroup names no memory cgroup")?;
    let mount = mounts.lines().filter_map(Mount::parse).find(|mount| mount.has_memory(version));
    let mount = mount.ok_or("no cgroup file system with a memory controller is mounted")?;
    let top = below(sources, Path::new(mount.point));
    let home = candidates(&top, mount.root, group).find(|directory| lists_this_process(directory));
    let home = home.ok_or_else(|| format!("no group below {} lists this process", mount.point))?;
    let parent = match version {
        Version::One => home.clone(),
        Version::Two => dividing(&home, &top).ok_or_else(|| {
            format!("no group from {} upwards hands its memory on to groups", home.display())
        })?,
    };
    Ok(Hierarchy { version, home, parent })
}

/// The own group's path as the kernel tells it: `4:memory:/job` or `0::/job`.
fn own_group(text: &str) -> Option<(Version, &str)> {
    let fields = || {
        text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
    };
    let first = fields().find(|(_, names, _)| names.split(',').any(|name| name == "memory"));
    let second = || fields().find(|(number, names, _)| *number == "0" && names.is_empty());
    let first = first.map(|(_, _, path)| (Version::One, path));
    first.or_else(|| second().map(|(_, _, path)| (Version::Two, path)))
}

/// A line of proc_pid_mountinfo(5).
struct Mount<'a> {
    /// The directory of the file system that is mounted.
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl Mount<'_> {
    fn parse(line: &str) -> Option<Mount<'_>> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let (root, point) = (before.next()?, before.next()?);
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        Some(Mount { root, point, kind, options })
    }

    fn has_memory(&self, version: Version) -> bool {
        match version {
            Version::One => {
                self.kind == "cgroup" && self.options.split(',').any(|option| option == "memory")
            }
            Version::Two => self.kind == "cgroup2",
        }
    }
}

fn below(sources: &Sources, absolute: &Path) -> PathBuf {
    sources.root.join(absolute.strip_prefix("/").unwrap_or(absolute))
}

/// Where the own group may be: at its path without what the mount leaves out, at its path, or,
/// where a container sees only its own, at the top.
fn candidates(top: &Path, root: &str, group: &str) -> impl Iterator<Item = PathBuf> {
    let at = |path: &str| top.join(path.trim_start_matches('/'));
    let rest = group.strip_prefix(root.trim_end_matches('/')).map(at);
    rest.into_iter().chain([at(group), top.to_owned()])
}

fn lists_this_process(directory: &Path) -> bool {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    let own = process::id().to_string();
    text.lines().any(|line| line == own)
}

/// The nearest group, from `home` upwards, whose groups have a share of its memory.
fn dividing(home: &Path, top: &Path) -> Option<PathBuf> {
    let hands_on = |directory: &&Path| {
        let text = fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
        text.split_whitespace().any(|name| name == "memory")
    };
    let within = home.ancestors().take_while(|directory| directory.starts_with(top));
    within.into_iter().find(hands_on).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        35 31 0:32 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /cg/unified rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn tree(groups: &str, mounts: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Sources) {
        let root = tempfile::tempdir().unwrap();
        let own = process::id().to_string();
        for (path, text) in
            [("proc/self/cgroup", groups), ("proc/self/mountinfo", mounts)].iter().chain(files)
        {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace("SELF", &own)).unwrap();
        }
        let sources = Sources::below(root.path());
        (root, sources)
    }

    #[test]
    fn the_first_version_divides_the_own_group() {
        let files = [("cg/memory/a/b/cgroup.procs", "7\nSELF\n"), ("cg/unified/cgroup.procs", "")];
        let (root, sources) = tree("9:cpu:/x\n4:memory:/a/b\n0::/\n", MOUNTS, &files);
        let found = find(&sources).unwrap();
        let home = root.path().join("cg/memory/a/b");
        assert_eq!(found, Hierarchy { version: Version::One, parent: home.clone(), home });
    }

    #[test]
    fn the_second_version_divides_the_nearest_group_that_may_be() {
        let files = [
            ("cg/unified/user/app/run/cgroup.procs", "SELF\n"),
            ("cg/unified/user/app/run/cgroup.subtree_control", "\n"),
            ("cg/unified/user/app/cgroup.subtree_control", "cpu memory pids\n"),
            ("cg/unified/user/cgroup.subtree_control", "memory\n"),
        ];
        let (root, sources) = tree("0::/user/app/run\n", MOUNTS, &files);
        let found = find(&sources).unwrap();
        assert_eq!(found.version, Version::Two);
        assert_eq!(found.home, root.path().join("cg/unified/user/app/run"));
        assert_eq!(found.parent, root.path().join("cg/unified/user/app"));
    }

    #[test]
    fn a_container_that_sees_only_its_own_group() {
        let mounts = "35 31 0:32 /docker/abc /cg/memory ro - cgroup cgroup rw,memory\n";
        let files = [("cg/memory/cgroup.procs", "SELF\n")];
        let (root, sources) = tree("4:memory:/docker/abc\n", mounts, &files);
        assert_eq!(find(&sources).unwrap().home, root.path().join("cg/memory"));
        let (root, sources) = tree("4:memory:/elsewhere\n", mounts, &files);
        assert_eq!(find(&sources).unwrap().home, root.path().join("cg/memory"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let procs = [("cg/unified/a/cgroup.procs", "SELF\n")];
        for (groups, mounts, files, part) in [
            ("9:cpu:/x\n", MOUNTS, &procs[..], "names no memory cgroup"),
            ("4:memory:/a\n", "", &[], "no cgroup file system"),
            ("4:memory:/a\n", MOUNTS, &[], "lists this process"),
            ("0::/a\n", MOUNTS, &procs, "hands its memory on"),
        ] {
            let (_root, sources) = tree(groups, mounts, files);
            let reason = find(&sources).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        }
    }
}
