//! Finds the cgroup of this process in the hierarchy of a controller.
//!
//! Containers change the names of groups, so names alone do not identify the process's own group. It is the group whose
//! `cgroup.procs` lists the process. This module creates and changes no group.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
};

use crate::{
    device::Mount,
    fact::{Fact, Sources},
};

/// The version of the cgroup hierarchy that has a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy for each controller.
    One,
    /// One hierarchy for all controllers.
    Two,
}

/// The process's own group in a controller's hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The version of the hierarchy, which decides the names of the group's files.
    pub version: Version,
    /// The group that lists this process.
    pub home: PathBuf,
    /// The mount point of the hierarchy. Groups above it are not visible.
    pub top: PathBuf,
}

impl Group {
    /// Finds the process's own group of a controller, such as `memory` or `cpu`.
    pub fn find(sources: &Sources, controller: &str) -> Fact<Group> {
        let texts = sources.proc_text("self/cgroup");
        let found = texts.zip(&Mount::all(sources)).map(|(groups, mounts)| {
            let Some((version, group)) = own_group(groups, controller) else {
                return Fact::Unknown(format!("/proc/self/cgroup names no {controller} cgroup"));
            };
            let Some(mount) = mounts.iter().find(|mount| has(mount, version, controller)) else {
                let reason = format!("no cgroup file system with {controller} is mounted");
                return Fact::Unknown(reason);
            };
            let top = below(sources, &mount.point);
            let mut homes = candidates(&top, &mount.root, group);
            let home = homes.find(|home| lists_this_process(home));
            Fact::of(home.map(|home| Group { version, home, top: top.clone() }), || {
                format!("no group below {} lists this process", mount.point.display())
            })
        });
        found.and_then(|found| found)
    }

    /// Lists the process's own group and its parents, nearest first.
    pub fn upwards(&self) -> impl Iterator<Item = &Path> {
        self.home.ancestors().take_while(|directory| directory.starts_with(&self.top))
    }
}

/// Finds the path of the process's own group in /proc/self/cgroup: `4:memory:/job` or `0::/job`.
fn own_group<'a>(text: &'a str, controller: &str) -> Option<(Version, &'a str)> {
    let fields = || {
        text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            Some((fields.next()?, fields.next()?, fields.next()?))
        })
    };
    let first = fields().find(|(_, names, _)| names.split(',').any(|name| name == controller));
    let second = || fields().find(|(number, names, _)| *number == "0" && names.is_empty());
    let first = first.map(|(_, _, path)| (Version::One, path));
    first.or_else(|| second().map(|(_, _, path)| (Version::Two, path)))
}

fn has(mount: &Mount, version: Version, controller: &str) -> bool {
    match version {
        Version::One => {
            mount.kind == "cgroup" && mount.options.split(',').any(|option| option == controller)
        }
        Version::Two => mount.kind == "cgroup2",
    }
}

fn below(sources: &Sources, absolute: &Path) -> PathBuf {
    sources.root.join(absolute.strip_prefix("/").unwrap_or(absolute))
}

/// Lists the directories that may be the process's own group: its path without the part above the mount, its full path,
/// and the top, which is the only group that some containers see.
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MOUNTS: &str = "\
        35 31 0:32 / /cg/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /cg/unified rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    /// Makes a tree with these files. `SELF` in them stands for the number of this process.
    pub(crate) fn tree(
        groups: &str,
        mounts: &str,
        files: &[(&str, &str)],
    ) -> (tempfile::TempDir, Sources) {
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

    fn found(sources: &Sources) -> Group {
        Group::find(sources, "memory").known().unwrap().clone()
    }

    #[test]
    fn the_own_group_lists_the_process() {
        let files = [("cg/memory/a/b/cgroup.procs", "7\nSELF\n"), ("cg/unified/cgroup.procs", "")];
        let (root, sources) = tree("9:cpu:/x\n4:memory:/a/b\n0::/\n", MOUNTS, &files);
        let top = root.path().join("cg/memory");
        assert_eq!(found(&sources), Group { version: Version::One, home: top.join("a/b"), top });
        let files = [("cg/unified/user/run/cgroup.procs", "SELF\n")];
        let (root, sources) = tree("0::/user/run\n", MOUNTS, &files);
        let group = found(&sources);
        assert_eq!(group.version, Version::Two);
        let top = root.path().join("cg/unified");
        let upwards: Vec<&Path> = group.upwards().collect();
        assert_eq!(upwards, [&*top.join("user/run"), &*top.join("user"), &*top]);
    }

    #[test]
    fn a_container_that_sees_only_its_own_group() {
        let mounts = "35 31 0:32 /docker/abc /cg/memory ro - cgroup cgroup rw,memory\n";
        let files = [("cg/memory/cgroup.procs", "SELF\n")];
        for groups in ["4:memory:/docker/abc\n", "4:memory:/elsewhere\n"] {
            let (root, sources) = tree(groups, mounts, &files);
            assert_eq!(found(&sources).home, root.path().join("cg/memory"));
        }
    }

    #[test]
    fn the_reason_names_the_missing_part() {
        for (groups, mounts, part) in [
            ("9:cpu:/x\n", MOUNTS, "names no memory cgroup"),
            ("4:memory:/a\n", "", "no cgroup file system"),
            ("4:memory:/a\n", MOUNTS, "lists this process"),
        ] {
            let (_root, sources) = tree(groups, mounts, &[]);
            let group = Group::find(&sources, "memory");
            assert!(group.reason().is_some_and(|reason| reason.contains(part)), "{group:?}");
        }
    }
}
