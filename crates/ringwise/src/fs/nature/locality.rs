//! Which file systems ask no network and no other process about an open file.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;

use super::{EXT4, RAMFS, TMPFS};

/// The numbers of others (statfs(2), include/uapi/linux/magic.h). The layers of an overlay are local, except in
/// rare setups.
const OTHERS: [u64; 8] = [
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0xe0f5_e1e2, // EROFS
    0x7371_7368, // SquashFS
];

/// Whether a file is on a file system that is known to be local. On others, such as NFS, CIFS and FUSE, an open or
/// a look at a file asks a server or a process, which may not answer; this call may wait for it too. An unknown file
/// system counts as one of those.
///
/// # Examples
///
/// ```
/// let file = std::fs::File::open("/proc/self/stat")?;
/// // The kernel makes this file when it is read.
/// assert!(!ringwise::fs::is_local(&file));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn is_local(file: impl AsFd) -> bool {
    fstatfs(file).is_ok_and(|filesystem| is_local_magic(filesystem.f_type as u64))
}

/// The same by the number of the file system.
pub(crate) fn is_local_magic(magic: u64) -> bool {
    matches!(magic, EXT4 | TMPFS | RAMFS) || OTHERS.contains(&magic)
}
