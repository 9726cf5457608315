//! All that a copy can get right or wrong of a tree, as text that can be compared.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::fs::{SeekFrom, lgetxattr, llistxattr, seek};

/// What each path below `root` is. Times from `since` on are "now": two runs cannot share them.
pub fn take(root: &Path, since: SystemTime) -> BTreeMap<PathBuf, String> {
    let since = since.duration_since(UNIX_EPOCH).unwrap().as_secs() as i64 - 1;
    let mut all = BTreeMap::new();
    let mut groups = HashMap::new();
    // Names first: in their order, so that hard links get the same numbers in both.
    let mut paths = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path);
        let metadata = metadata.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if metadata.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        paths.push((path, metadata));
    }
    paths.sort_by(|one, other| one.0.cmp(&other.0));
    for (path, metadata) in paths {
        let next = groups.len();
        let group = *groups.entry((metadata.dev(), metadata.ino())).or_insert(next);
        let text = describe(&path, &metadata, group, since);
        all.insert(path.strip_prefix(root).unwrap().to_owned(), text);
    }
    all
}

fn describe(path: &Path, metadata: &fs::Metadata, group: usize, since: i64) -> String {
    let what = metadata.file_type();
    let time = |seconds: i64, nanoseconds| match seconds >= since {
        true => "now".to_owned(),
        false => format!("{seconds}.{nanoseconds}"),
    };
    let mut text = format!(
        "{:o} {}:{} group {group} of {} modified {}",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.nlink(),
        time(metadata.mtime(), metadata.mtime_nsec())
    );
    if what.is_file() || what.is_symlink() {
        text += &format!(" size {}", metadata.size());
    }
    if what.is_block_device() || what.is_char_device() {
        text += &format!(" device {}", metadata.rdev());
    }
    if what.is_symlink() {
        text += &format!(" to {:?}", fs::read_link(path).unwrap());
    }
    if what.is_file() {
        let content = fs::read(path).unwrap();
        text += &format!(" content {:x} parts {:?}", checksum(&content), parts(path));
    }
    text + &attributes(path)
}

fn checksum(content: &[u8]) -> u64 {
    content.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Where there is data, as far as the file system tells.
fn parts(path: &Path) -> Vec<(u64, u64)> {
    let file = fs::File::open(path).unwrap();
    let mut parts = Vec::new();
    let mut at = 0;
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(start)).unwrap();
        parts.push((start, at));
    }
    parts
}

fn attributes(path: &Path) -> String {
    let mut names = vec![0; 4096];
    let Ok(len) = llistxattr(path, &mut names[..]) else { return String::new() };
    let mut names: Vec<&[u8]> =
        names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let mut text = String::new();
    for name in names {
        let mut value = vec![0; 4096];
        let len = lgetxattr(path, name, &mut value[..]).unwrap_or(0);
        text += &format!(" {}={:?}", String::from_utf8_lossy(name), &value[..len]);
    }
    text
}
