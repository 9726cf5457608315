//! What a file's metadata says of an object.

use chrono::{DateTime, Utc};
use object_store::{ObjectMeta, path::Path};
use rustix::fs::{FileType, Stat};

/// What `object_store` says of an object.
pub(crate) fn meta(stat: &Stat, location: Path) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: modified(stat),
        size: stat.st_size as u64,
        e_tag: Some(e_tag(stat)),
        version: None,
    }
}

/// The entity tag: inode, time of modification in microseconds and size, as `LocalFileSystem` makes it.
pub(crate) fn e_tag(stat: &Stat) -> String {
    let modified = modified(stat).timestamp_micros().max(0);
    let tag = format!("{:x}-{modified:x}-{:x}", stat.st_ino, stat.st_size);
    // Since 0.14 it has the quotes of HTTP.
    if cfg!(feature = "object_store_0_13") { tag } else { format!("\"{tag}\"") }
}

fn modified(stat: &Stat) -> DateTime<Utc> {
    DateTime::from_timestamp(stat.st_mtime, stat.st_mtime_nsec as u32).unwrap_or_default()
}

/// Whether it is an object, and no directory or device.
pub(crate) fn is_object(stat: &Stat) -> bool {
    kind(stat) == FileType::RegularFile
}

pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Which file it is, among all of the machine.
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
