//! The file system under a path, from statfs(2).
//!
//! The magic number distinguishes the kinds that matter to a measurement. ext2, ext3 and ext4 share one magic number;
//! the mount has the exact name ([`crate::device::Mount::kind`]).

use std::path::Path;

use serde::Serialize;

use crate::fact::{Fact, lowered};

/// The result of statfs(2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Filesystem {
    /// The name for the magic number, or its hexadecimal form.
    pub name: String,
    /// The magic number.
    pub magic: u64,
    /// Bytes free to an ordinary user.
    pub free_bytes: u64,
    /// Bytes altogether.
    pub total_bytes: u64,
}

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;
const OVERLAY: u64 = 0x794c_7630;

/// Magic numbers from linux/magic.h, and those of file systems that define their own.
const NAMES: [(u64, &str); 20] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (TMPFS, "tmpfs"),
    (RAMFS, "ramfs"),
    (OVERLAY, "overlay"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x6573_5546, "fuse"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x2011_bab0, "exfat"),
    (0x4d44, "vfat"),
    (0x7371_7368, "squashfs"),
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
];

impl Filesystem {
    /// Reads the file system that holds `path`.
    pub fn of(path: &Path) -> Fact<Filesystem> {
        match rustix::fs::statfs(path) {
            Ok(answer) => {
                // The type is signed on some processors and its width differs. Magic numbers have 32 bits.
                let magic = answer.f_type as u64 & 0xffff_ffff;
                let block_bytes = u64::try_from(answer.f_bsize).unwrap_or(0);
                Fact::Known(Filesystem {
                    name: name_of(magic),
                    magic,
                    free_bytes: answer.f_bavail.saturating_mul(block_bytes),
                    total_bytes: answer.f_blocks.saturating_mul(block_bytes),
                })
            }
            Err(error) => {
                Fact::Unknown(format!("statfs {}: {}", path.display(), lowered(&error.into())))
            }
        }
    }

    /// Returns whether the files are in memory. A measurement there measures no device.
    pub fn is_memory_backed(&self) -> bool {
        matches!(self.magic, TMPFS | RAMFS)
    }

    /// Returns whether this is an overlay, whose files are on another file system.
    pub fn is_overlay(&self) -> bool {
        self.magic == OVERLAY
    }
}

fn name_of(magic: u64) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == magic);
    known.map_or_else(|| format!("{magic:#x}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_disk_are_told_apart() {
        let proc = Filesystem::of(Path::new("/proc"));
        assert_eq!(proc.known().unwrap().name, "proc");
        let here = Filesystem::of(Path::new("."));
        let here = here.known().unwrap();
        assert!(here.total_bytes >= here.free_bytes && here.total_bytes > 0);
        if let Fact::Known(shared) = Filesystem::of(Path::new("/dev/shm")) {
            assert_eq!(shared.is_memory_backed(), shared.name == "tmpfs");
        }
    }

    #[test]
    fn names_and_reasons() {
        assert_eq!(name_of(0x5846_5342), "xfs");
        assert_eq!(name_of(0x1234), "0x1234");
        let missing = Filesystem::of(Path::new("/does/not/exist"));
        assert!(missing.reason().unwrap().contains("no such file"), "{missing:?}");
    }
}
