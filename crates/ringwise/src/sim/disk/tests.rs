//! Tests of names after a crash, and of kernel errors that no operation of the library causes.

use super::*;

const SEEDS: u64 = 300;

fn disk_with(directories: &[&str], files: &[&str]) -> Disk {
    let mut disk = Disk::new();
    for path in directories {
        let made = disk.create_directory(disk.root, path.as_bytes(), 0o755).unwrap();
        disk.settle(made);
    }
    for path in files {
        let made = create(&mut disk, path);
        disk.settle(made);
    }
    disk
}

fn create(disk: &mut Disk, path: &str) -> Inode {
    disk.open(disk.root, path.as_bytes(), libc::O_CREAT | libc::O_RDWR, 0o644).unwrap()
}

fn rename(disk: &mut Disk, from: &str, to: &str, flags: u32) -> Result<(), i32> {
    let root = disk.root;
    disk.rename((root, from.as_bytes()), (root, to.as_bytes()), flags)
}

fn link(disk: &mut Disk, from: &str, to: &str) -> Result<(), i32> {
    let root = disk.root;
    disk.link((root, from.as_bytes()), (root, to.as_bytes()), 0)
}

fn unlink(disk: &mut Disk, path: &str, flags: i32) -> Result<(), i32> {
    disk.unlink(disk.root, path.as_bytes(), flags)
}

fn inode(disk: &Disk, path: &str) -> Option<Inode> {
    disk.find(disk.root, path.as_bytes(), Ending::Followed).ok()?.inode
}

fn sync(disk: &mut Disk, path: &str) {
    let inode = inode(disk, path).unwrap();
    disk.sync(inode);
}

/// Returns which of these paths exist after a crash, in each way that many seeds lead to.
fn after_crashes(make: impl Fn() -> Disk, paths: &[&str]) -> BTreeSet<Vec<bool>> {
    let crashed = |seed| {
        let mut disk = make();
        disk.crash(&mut Random::stream(seed, 0));
        paths.iter().map(|path| inode(&disk, path).is_some()).collect()
    };
    (0..SEEDS).map(crashed).collect()
}

fn seen(cases: &[&[bool]]) -> BTreeSet<Vec<bool>> {
    cases.iter().map(|case| case.to_vec()).collect()
}

#[test]
fn a_new_name_is_certain_after_a_sync_of_its_directory() {
    let make = |synced: bool| {
        move || {
            let mut disk = disk_with(&[], &[]);
            let file = create(&mut disk, "new");
            disk.sync(file);
            if synced {
                sync(&mut disk, "/");
            }
            disk
        }
    };
    assert_eq!(after_crashes(make(false), &["new"]), seen(&[&[false], &[true]]));
    assert_eq!(after_crashes(make(true), &["new"]), seen(&[&[true]]));
}

#[test]
fn a_removed_name_may_come_back() {
    let make = || {
        let mut disk = disk_with(&[], &["old"]);
        unlink(&mut disk, "old", 0).unwrap();
        disk
    };
    assert_eq!(after_crashes(make, &["old"]), seen(&[&[false], &[true]]));
}

#[test]
fn a_rename_happens_or_does_not() {
    let make = || {
        let mut disk = disk_with(&["d"], &["a", "d/b"]);
        rename(&mut disk, "a", "d/a", 0).unwrap();
        disk
    };
    assert_eq!(after_crashes(make, &["a", "d/a"]), seen(&[&[true, false], &[false, true]]));
}

#[test]
fn either_directorys_sync_makes_a_rename_durable() {
    for directory in ["/", "d"] {
        let make = || {
            let mut disk = disk_with(&["d"], &["a"]);
            rename(&mut disk, "a", "d/a", 0).unwrap();
            sync(&mut disk, directory);
            disk
        };
        assert_eq!(after_crashes(make, &["a", "d/a"]), seen(&[&[false, true]]));
    }
}

#[test]
fn a_later_change_of_a_name_is_not_kept_without_the_earlier() {
    let make = || {
        let mut disk = disk_with(&[], &[]);
        create(&mut disk, "new");
        rename(&mut disk, "new", "final", 0).unwrap();
        disk
    };
    let expected = seen(&[&[false, false], &[true, false], &[false, true]]);
    assert_eq!(after_crashes(make, &["new", "final"]), expected);
}

#[test]
fn changes_to_different_names_are_kept_in_any_combination() {
    let make = || {
        let mut disk = disk_with(&[], &[]);
        create(&mut disk, "a");
        create(&mut disk, "b");
        disk
    };
    assert_eq!(after_crashes(make, &["a", "b"]).len(), 4);
}

#[test]
fn a_synced_name_is_lost_with_its_unsynced_directory() {
    let make = || {
        let mut disk = disk_with(&[], &[]);
        disk.create_directory(disk.root, b"d", 0o755).unwrap();
        create(&mut disk, "d/a");
        sync(&mut disk, "d");
        disk
    };
    assert_eq!(after_crashes(make, &["d", "d/a"]), seen(&[&[false, false], &[true, true]]));
}

#[test]
fn a_file_moved_into_a_new_directory_is_not_lost_with_it() {
    let make = || {
        let mut disk = disk_with(&[], &["a"]);
        disk.create_directory(disk.root, b"d", 0o755).unwrap();
        link(&mut disk, "a", "d/a").unwrap();
        unlink(&mut disk, "a", 0).unwrap();
        disk
    };
    assert!(!after_crashes(make, &["a", "d/a"]).contains(&vec![false, false]));
}

#[test]
fn the_removal_of_a_directory_is_not_kept_without_the_moves_that_emptied_it() {
    let make = || {
        let mut disk = disk_with(&["d"], &["d/a"]);
        rename(&mut disk, "d/a", "a", 0).unwrap();
        unlink(&mut disk, "d", libc::AT_REMOVEDIR).unwrap();
        disk
    };
    let left = after_crashes(make, &["a", "d/a"]);
    assert_eq!(left, seen(&[&[true, false], &[false, true]]));
}

#[test]
fn a_later_sync_does_not_repair_a_failed_directory_sync() {
    let is_lost = |seed: &u64| {
        let mut random = Random::stream(*seed, 0);
        let mut disk = disk_with(&[], &[]);
        create(&mut disk, "new");
        disk.lose(disk.root, &mut random);
        disk.sync(disk.root);
        assert!(inode(&disk, "new").is_some(), "the name is still visible");
        disk.crash(&mut random);
        inode(&disk, "new").is_none()
    };
    let lost = (0..SEEDS).filter(is_lost).count() as u64;
    assert!(lost > SEEDS / 4 && lost < SEEDS, "{lost}");
}

#[test]
fn an_exchange_swaps_and_keeps_both() {
    let mut disk = disk_with(&["d"], &["a", "d/b"]);
    let (a, d) = (inode(&disk, "a"), inode(&disk, "d"));
    rename(&mut disk, "a", "d", libc::RENAME_EXCHANGE).unwrap();
    assert_eq!((inode(&disk, "d"), inode(&disk, "a")), (a, d));
    assert!(inode(&disk, "a/b").is_some());
    assert_eq!(rename(&mut disk, "a", "none", libc::RENAME_EXCHANGE), Err(libc::ENOENT));
    assert_eq!(rename(&mut disk, "a", "a/b", libc::RENAME_EXCHANGE), Err(libc::EINVAL));
    let both = libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE;
    assert_eq!(rename(&mut disk, "a", "d", both), Err(libc::EINVAL));
    let links = |disk: &Disk, path| disk.file(inode(disk, path).unwrap()).links;
    assert_eq!((links(&disk, "a"), links(&disk, "d"), links(&disk, "/")), (2, 1, 3));
}

/// Random programs on names: a file that always had a name has one after a crash, and the
/// directories still form a tree.
#[test]
fn a_file_that_always_had_a_name_is_never_lost() {
    let places = ["a", "b", "d", "e", "d/a", "d/b", "e/a", "e/d", "d/e", "d/e/a"];
    for seed in 0..2_000 {
        let mut random = Random::stream(seed, 3);
        let mut disk = disk_with(&["d", "e"], &["a", "b", "d/a"]);
        let first: Vec<Inode> = ["a", "b", "d/a"].map(|path| inode(&disk, path).unwrap()).into();
        let mut named: BTreeSet<Inode> = first.iter().copied().collect();
        for _ in 0..random.below(14) {
            let mut place = || places[random.below(places.len() as u64) as usize];
            let (from, to) = (place(), place());
            // Many fail, as they would on a real disk.
            let _ = match random.below(7) {
                0 => disk.create_directory(disk.root, to.as_bytes(), 0o755).map(drop),
                1 => link(&mut disk, from, to),
                2 => unlink(&mut disk, from, 0),
                3 => unlink(&mut disk, from, libc::AT_REMOVEDIR),
                4 => rename(&mut disk, from, to, libc::RENAME_EXCHANGE),
                5 if inode(&disk, from).is_some() => {
                    sync(&mut disk, from);
                    Ok(())
                }
                _ => rename(&mut disk, from, to, 0),
            };
            named.retain(|inode| disk.file(*inode).links > 0);
        }
        disk.crash(&mut random);
        for inode in named {
            let links = disk.inodes.get(&inode).map_or(0, |file| file.links);
            assert!(links > 0, "seed {seed}: {inode} is lost");
        }
        check_tree(&disk, seed);
    }
}

/// Checks that every directory is in one place, and that its parent is right.
fn check_tree(disk: &Disk, seed: u64) {
    let mut places: BTreeMap<Inode, usize> = BTreeMap::new();
    for (at, file) in &disk.inodes {
        let Node::Directory(directory) = &file.node else { continue };
        assert_eq!(directory.now, directory.durable);
        for inode in directory.now.values().filter(|inode| disk.is_directory(**inode)) {
            *places.entry(*inode).or_default() += 1;
            assert_eq!(disk.directory(*inode).unwrap().parent, *at, "seed {seed}");
        }
        let subdirectories = directory.now.values().filter(|inode| disk.is_directory(**inode));
        assert_eq!(file.links as usize, 2 + subdirectories.count(), "seed {seed}");
    }
    assert!(places.values().all(|count| *count == 1), "seed {seed}: {places:?}");
}

#[test]
fn errors_match_the_kernels() {
    let mut disk = disk_with(&["d", "full"], &["f", "full/x"]);
    disk.symlink(disk.root, b"loop", b"loop").unwrap();
    assert_eq!(disk.symlink(disk.root, b"d", b"to"), Err(libc::EEXIST));
    let root = disk.root;
    let open = |disk: &mut Disk, path: &str, flags| disk.open(root, path.as_bytes(), flags, 0o600);
    assert_eq!(open(&mut disk, "f/x", 0), Err(libc::ENOTDIR));
    assert_eq!(open(&mut disk, "f/", 0), Err(libc::ENOTDIR));
    assert_eq!(open(&mut disk, "none/", libc::O_CREAT), Err(libc::EISDIR));
    assert_eq!(open(&mut disk, "none/x", libc::O_CREAT), Err(libc::ENOENT));
    assert_eq!(open(&mut disk, "d", libc::O_RDWR), Err(libc::EISDIR));
    assert_eq!(open(&mut disk, "f", libc::O_DIRECTORY), Err(libc::ENOTDIR));
    assert_eq!(open(&mut disk, "loop", 0), Err(libc::ELOOP));
    assert_eq!(open(&mut disk, "", 0), Err(libc::ENOENT));
    assert_eq!(unlink(&mut disk, "d", 0), Err(libc::EISDIR));
    assert_eq!(unlink(&mut disk, "f", libc::AT_REMOVEDIR), Err(libc::ENOTDIR));
    assert_eq!(unlink(&mut disk, "full", libc::AT_REMOVEDIR), Err(libc::ENOTEMPTY));
    assert_eq!(unlink(&mut disk, "d/.", libc::AT_REMOVEDIR), Err(libc::EINVAL));
    assert_eq!(unlink(&mut disk, "d/..", libc::AT_REMOVEDIR), Err(libc::ENOTEMPTY));
    assert_eq!(unlink(&mut disk, "/", libc::AT_REMOVEDIR), Err(libc::EBUSY));
    assert_eq!(rename(&mut disk, "d", "f", 0), Err(libc::ENOTDIR));
    assert_eq!(rename(&mut disk, "f", "d", 0), Err(libc::EISDIR));
    assert_eq!(rename(&mut disk, "d", "full", 0), Err(libc::ENOTEMPTY));
    assert_eq!(rename(&mut disk, "full", "full/in", 0), Err(libc::EINVAL));
    assert_eq!(rename(&mut disk, "full/x", "full", 0), Err(libc::ENOTEMPTY));
    assert_eq!(rename(&mut disk, "f", "d", libc::RENAME_NOREPLACE), Err(libc::EEXIST));
    assert_eq!(link(&mut disk, "d", "e"), Err(libc::EPERM));
    assert_eq!(link(&mut disk, "f", "d"), Err(libc::EEXIST));
    assert_eq!(disk.set_len(inode(&disk, "d").unwrap(), 1), Err(libc::EINVAL));
    assert_eq!(disk.set_len(inode(&disk, "f").unwrap(), 1 << 44), Err(libc::EFBIG));
}

#[test]
fn a_removed_directory_takes_no_names() {
    let mut disk = disk_with(&["d"], &[]);
    let d = inode(&disk, "d").unwrap();
    unlink(&mut disk, "d", libc::AT_REMOVEDIR).unwrap();
    assert_eq!(disk.open(d, b"x", libc::O_CREAT, 0o600), Err(libc::ENOENT));
    assert_eq!(disk.create_directory(d, b"x", 0o700), Err(libc::ENOENT));
}

#[test]
fn unreachable_inodes_are_forgotten() {
    let mut disk = disk_with(&[], &[]);
    let open = create(&mut disk, "open");
    unlink(&mut disk, "open", 0).unwrap();
    for _ in 0..100 {
        create(&mut disk, "file");
        unlink(&mut disk, "file", 0).unwrap();
    }
    sync(&mut disk, "/");
    disk.collect(&BTreeSet::from([open]));
    assert_eq!(disk.inodes.len(), 2, "the root and the open file are left");
}
