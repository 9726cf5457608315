//! Random directories to copy: all kinds of files, odd names, modes, owners, times, attributes,
//! holes and hard links, the same from the same seed.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

use fastrand::Rng;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, chownat, lsetxattr, makedev,
    mknodat, utimensat,
};

use crate::oracle::machine::NOBODY;

const NAMES: [&[u8]; 14] = [
    b"a",
    b"b",
    b"c",
    b"d d",
    b"it's",
    b"new\nline",
    b"\xff\xfe",
    b"-r",
    b"\xc3\xa9",
    b"back\\",
    b".hidden",
    b"tab\t",
    b"$x",
    b"#h",
];

/// What a world is made of.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Owners, devices and trusted attributes.
    pub root: bool,
    /// Files that are only root's, for a world that another walks.
    pub for_nobody: bool,
    /// Fifos, which make who opens them for writing wait.
    pub fifos: bool,
}

/// Where links of a world lead that lead to a device. Its permissions are changed through them, so
/// it is nobody else's.
pub fn device(scene: &Path) -> PathBuf {
    scene.join("null")
}

/// Makes it, as it is each time before a run.
pub fn make_device(scene: &Path, kinds: Kinds) {
    let path = device(scene);
    if kinds.root {
        special(&path, FileType::CharacterDevice, makedev(1, 3));
    } else {
        fs::write(&path, b"").unwrap();
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    age(&path);
}

/// Makes a random tree at `root`.
pub fn make(rng: &mut Rng, root: &Path, kinds: Kinds) {
    let mut made = Vec::new();
    fs::create_dir(root).unwrap();
    fill(rng, root, (root, 0), kinds, &mut made);
    made.push(root.to_owned());
    for path in &made {
        dress(rng, path, kinds);
    }
}

fn fill(
    rng: &mut Rng,
    directory: &Path,
    (root, depth): (&Path, usize),
    kinds: Kinds,
    made: &mut Vec<PathBuf>,
) {
    let mut names = NAMES;
    rng.shuffle(&mut names);
    let count = if depth == 0 { 7 } else { rng.usize(0..5) };
    for name in &names[..count] {
        let path = directory.join(OsStr::from_bytes(name));
        match rng.u8(0..16) {
            0..4 => {
                fs::create_dir(&path).unwrap();
                if depth < 3 {
                    fill(rng, &path, (root, depth + 1), kinds, made);
                }
                if rng.u8(..4) == 0 {
                    crowd(rng, &path, made);
                }
            }
            4 | 5 => link(rng, root, &path),
            6 if !made.is_empty() => {
                let other = &made[rng.usize(..made.len())];
                if fs::symlink_metadata(other).unwrap().is_dir()
                    || fs::hard_link(other, &path).is_err()
                {
                    fs::write(&path, b"instead").unwrap();
                }
            }
            7 if kinds.fifos => special(&path, FileType::Fifo, 0),
            8 => {
                if std::os::unix::net::UnixListener::bind(&path).is_err() {
                    // The path is too long for a socket's address.
                    fs::write(&path, b"instead").unwrap();
                }
            }
            9 if kinds.root && !kinds.for_nobody => {
                special(&path, FileType::CharacterDevice, makedev(1, 3));
            }
            10 => sparse(rng, &path),
            11 => fs::write(&path, bytes(rng, 1 << 20)).unwrap(),
            12 => fs::write(&path, b"").unwrap(),
            _ => fs::write(&path, bytes(rng, 9000)).unwrap(),
        }
        made.push(path);
    }
}

/// Many small files, which go to a thread together, and now and then one that does not.
fn crowd(rng: &mut Rng, directory: &Path, made: &mut Vec<PathBuf>) {
    for number in 0..rng.usize(12..60) {
        let path = directory.join(format!("crowd{number}"));
        match rng.u8(0..40) {
            0 => fs::write(&path, bytes(rng, 200_000)).unwrap(),
            1 => sparse(rng, &path),
            2 => symlink("crowd0", &path).unwrap(),
            3 => fs::create_dir(&path).unwrap(),
            4 if directory.join("crowd0").is_file() => {
                fs::hard_link(directory.join("crowd0"), &path).unwrap();
            }
            _ => fs::write(&path, bytes(rng, 9000)).unwrap(),
        }
        made.push(path);
    }
}

fn link(rng: &mut Rng, root: &Path, path: &Path) {
    let targets = ["a", "b", "nowhere", "../b", ".", "../a", "device", "c/d d", "loop"];
    let target = match targets[rng.usize(..targets.len())] {
        "loop" => path.file_name().unwrap().into(),
        "device" => device(root.parent().unwrap()),
        target => target.into(),
    };
    symlink(target, path).unwrap();
}

fn special(path: &Path, what: FileType, device: u64) {
    mknodat(CWD, path, what, Mode::from_raw_mode(0o644), device).unwrap();
}

fn bytes(rng: &mut Rng, most: usize) -> Vec<u8> {
    let mut bytes = vec![0; rng.usize(..most)];
    rng.fill(&mut bytes);
    if bytes.len() > 70_000 && rng.bool() {
        // Zeros that are no hole, for --sparse=always.
        bytes[4096..65_536].fill(0);
    }
    bytes
}

fn sparse(rng: &mut Rng, path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::File::create(path).unwrap();
    for _ in 0..rng.usize(0..4) {
        let at = rng.u64(..64) * 32_768;
        file.write_all_at(&bytes(rng, 50_000), at).unwrap();
    }
    let len = file.metadata().unwrap().len() + rng.u64(..3) * 100_000;
    file.set_len(len).unwrap();
}

/// Gives a file attributes.
fn dress(rng: &mut Rng, path: &Path, kinds: Kinds) {
    let what = fs::symlink_metadata(path).unwrap().file_type();
    let owner = match (kinds.root, kinds.for_nobody) {
        (true, false) => Some([0, 0, 1, 1234][rng.usize(..4)]),
        (true, true) => Some(if rng.u8(..12) == 0 { 0 } else { NOBODY }),
        _ => None,
    };
    if let Some(owner) = owner {
        use rustix::fs::{Gid, Uid};
        let (uid, gid) = (Uid::from_raw(owner), Gid::from_raw(owner));
        chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    if !what.is_symlink() {
        let modes: &[u32] = match what.is_dir() {
            true => &[0o755, 0o755, 0o700, 0o555, 0o777, 0o1777, 0o2775, 0o750, 0o500],
            false => &[0o644, 0o644, 0o600, 0o444, 0o755, 0o4755, 0o2755, 0o666, 0o000, 0o222],
        };
        let mode = modes[rng.usize(..modes.len())];
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    if (what.is_dir() || what.is_file()) && rng.u8(..4) == 0 {
        let _ = lsetxattr(path, "user.note", b"remember", XattrFlags::empty());
    }
    if kinds.root && rng.u8(..8) == 0 {
        let _ = lsetxattr(path, "trusted.note", b"root's", XattrFlags::empty());
    }
    if (what.is_dir() || what.is_file()) && rng.u8(..8) == 0 {
        let _ = lsetxattr(path, "system.posix_acl_access", &acl(), XattrFlags::empty());
    }
    if what.is_dir() && rng.u8(..10) == 0 {
        let _ = lsetxattr(path, "system.posix_acl_default", &acl(), XattrFlags::empty());
    }
    set_times(rng, path);
}

/// `u::rwx,u:1:r-x,g::r-x,m::rwx,o::r--` as the kernel stores it (linux/posix_acl_xattr.h).
fn acl() -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1_u16, 7_u16, u32::MAX),
        (2, 5, 1),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 4, u32::MAX),
    ] {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn set_times(rng: &mut Rng, path: &Path) {
    let mut time = || {
        let seconds =
            if rng.u8(..6) == 0 { -12_345 } else { rng.i64(1_000_000_000..1_600_000_000) };
        Timespec { tv_sec: seconds, tv_nsec: rng.i64(0..1_000_000_000) }
    };
    let times = Timestamps { last_access: time(), last_modification: time() };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// The times of all files below, to be set again after they were read.
pub fn times(root: &Path) -> Vec<(PathBuf, Timestamps)> {
    let mut found = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::symlink_metadata(&path).unwrap();
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: time(metadata.atime(), metadata.atime_nsec()),
            last_modification: time(metadata.mtime(), metadata.mtime_nsec()),
        };
        if metadata.is_dir()
            && let Ok(entries) = fs::read_dir(&path)
        {
            left.extend(entries.map(|entry| entry.unwrap().path()));
        }
        found.push((path, times));
    }
    found
}

/// Makes a file look as if it had not been touched for a long time.
pub fn age(path: &Path) {
    let time = || Timespec { tv_sec: 1_700_000_000, tv_nsec: 0 };
    let times = Timestamps { last_access: time(), last_modification: time() };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub fn set_all_times(times: &[(PathBuf, Timestamps)]) {
    for (path, times) in times {
        utimensat(CWD, path, times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// Makes a tree removable again.
pub fn open_up(root: &Path) {
    let Ok(metadata) = fs::symlink_metadata(root) else { return };
    if metadata.is_dir() {
        let mode = metadata.permissions().mode() | 0o700;
        fs::set_permissions(root, fs::Permissions::from_mode(mode)).unwrap();
        for entry in fs::read_dir(root).unwrap() {
            open_up(&entry.unwrap().path());
        }
    }
}
