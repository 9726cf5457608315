//! Where this process is among the memory cgroups, and where a group beside or below it can be made.
//!
//! In the first version of cgroups a group may have processes and groups at once, so the new one is
//! made within the process's own. In the second only groups without processes divide their memory
//! (cgroups(7), "no internal processes"), so the new one is made within the nearest group above
//! that does.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ringwise_measure::{
    Fact, Sources,
    cgroup::{Group, Version},
};

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
    let group = match Group::find(sources, "memory") {
        Fact::Known(group) => group,
        Fact::Unknown(reason) => return Err(reason),
    };
    let parent = match group.version {
        Version::One => group.home.clone(),
        Version::Two => dividing(&group).ok_or_else(|| {
            let home = group.home.display();
            format!("no group from {home} upwards hands its memory on to groups")
        })?,
    };
    Ok(Hierarchy { version: group.version, home: group.home, parent })
}

/// The nearest group, from the own one upwards, whose groups have a share of its memory.
fn dividing(group: &Group) -> Option<PathBuf> {
    let hands_on = |directory: &&Path| {
        let text = fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
        text.split_whitespace().any(|name| name == "memory")
    };
    group.upwards().find(hands_on).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use std::process;

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
    fn what_is_missing_is_named() {
        let procs = [("cg/unified/a/cgroup.procs", "SELF\n")];
        for (groups, files, part) in [
            ("9:cpu:/x\n", &[][..], "names no memory cgroup"),
            ("0::/a\n", &procs[..], "hands its memory on"),
        ] {
            let (_root, sources) = tree(groups, MOUNTS, files);
            let reason = find(&sources).unwrap_err();
            assert!(reason.contains(part), "{reason}");
        }
    }
}
