//! What statx(2) tells of a file.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::sys::statx::RawStatx;

/// A file's metadata. Functions that end in `_ns` give nanoseconds since 1970, negative before.
///
/// # Examples
///
/// ```
/// use std::time::SystemTime;
/// use ringwise::{Ring, fs};
///
/// # futures::executor::block_on(async {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("file");
/// # let ring = Ring::new()?;
/// fs::write(&ring, &path, "text").await.into_result()?;
/// let metadata = fs::metadata(&ring, &path).await?;
/// assert!(metadata.is_file() && metadata.len() == 4);
/// println!("changed {:?} ago", SystemTime::now().duration_since(metadata.modified()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Metadata(pub(crate) RawStatx);

/// What direct I/O on a file needs. All in bytes, powers of two.
///
/// # Examples
///
/// ```
/// use ringwise::{AlignedBuf, Ring, fs};
///
/// # futures::executor::block_on(async {
/// let metadata = fs::metadata(&Ring::new()?, "/proc/self/exe").await?;
/// let needs = metadata.direct_alignment().unwrap_or_default();
/// let len = 65536_usize.next_multiple_of(needs.offset as usize);
/// let buffer = AlignedBuf::zeroed(len, needs.memory as usize);
/// assert!(buffer.as_ptr().addr().is_multiple_of(needs.memory as usize));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectAlignment {
    /// Alignment of the buffer's address.
    pub memory: u32,
    /// Alignment of the offset and the length.
    pub offset: u32,
}

impl Default for DirectAlignment {
    /// 4096 for both, which suits nearly every device, for where the kernel does not tell.
    fn default() -> DirectAlignment {
        DirectAlignment { memory: 4096, offset: 4096 }
    }
}

impl Metadata {
    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "metadata of an empty file is not empty")]
    pub fn len(&self) -> u64 {
        self.0.0.stx_size
    }

    /// Space taken, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.0.stx_blocks
    }

    /// The block size in bytes that the file system prefers.
    pub fn block_size(&self) -> u32 {
        self.0.0.stx_blksize
    }

    /// File type and permission bits, as in `st_mode`.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.0.stx_mode)
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// The kind of the file.
    pub fn file_type(&self) -> FileType {
        FileType(self.mode() & libc::S_IFMT)
    }

    /// The permission bits, as the standard library has them.
    pub fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.mode() & 0o7777)
    }

    /// The time at which the content last changed.
    pub fn modified(&self) -> SystemTime {
        system_time(self.modified_ns())
    }

    /// The time at which the content was last read, as far as the mount keeps track.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.accessed_ns())
    }

    /// The time at which the file was made, if the file system keeps it.
    pub fn created(&self) -> Option<SystemTime> {
        self.created_ns().map(system_time)
    }

    /// Names that the file has.
    pub fn links(&self) -> u32 {
        self.0.0.stx_nlink
    }

    /// The owner's number.
    pub fn uid(&self) -> u32 {
        self.0.0.stx_uid
    }

    /// The group's number.
    pub fn gid(&self) -> u32 {
        self.0.0.stx_gid
    }

    /// The inode's number.
    pub fn inode(&self) -> u64 {
        self.0.0.stx_ino
    }

    /// Major and minor number of the device that the file lies on.
    pub fn device(&self) -> (u32, u32) {
        (self.0.0.stx_dev_major, self.0.0.stx_dev_minor)
    }

    /// When the content last changed.
    pub fn modified_ns(&self) -> i128 {
        nanoseconds(&self.0.0.stx_mtime)
    }

    /// When the content was last read, as far as the mount keeps track.
    pub fn accessed_ns(&self) -> i128 {
        nanoseconds(&self.0.0.stx_atime)
    }

    /// When the inode last changed.
    pub fn changed_ns(&self) -> i128 {
        nanoseconds(&self.0.0.stx_ctime)
    }

    /// When the file was made, where the file system keeps it.
    pub fn created_ns(&self) -> Option<i128> {
        self.tells(libc::STATX_BTIME).then(|| nanoseconds(&self.0.0.stx_btime))
    }

    /// What direct I/O on this file needs (Linux 6.1). Nothing where the kernel does not tell, or
    /// where the file takes no direct I/O; the default of [`DirectAlignment`] is then the safe guess.
    pub fn direct_alignment(&self) -> Option<DirectAlignment> {
        let (memory, offset) = (self.0.0.stx_dio_mem_align, self.0.0.stx_dio_offset_align);
        (self.tells(libc::STATX_DIOALIGN) && offset != 0)
            .then_some(DirectAlignment { memory, offset })
    }

    /// Whether the kernel said that this file takes no direct I/O at all.
    pub fn refuses_direct(&self) -> bool {
        self.tells(libc::STATX_DIOALIGN) && self.0.0.stx_dio_offset_align == 0
    }

    fn tells(&self, field: u32) -> bool {
        self.0.0.stx_mask & field != 0
    }
}

/// The kind of a file, from [`Metadata::file_type`] or [`fs::DirEntry::file_type`](crate::fs::DirEntry::file_type).
///
/// # Examples
///
/// ```
/// use ringwise::{Local, Operation};
///
/// let done = Local::new()?.run(Operation::statx("/dev/null"))?;
/// let kind = done.metadata()?.file_type();
/// assert!(kind.is_char_device() && !kind.is_file());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileType(u32);

impl FileType {
    /// Of the kind in a directory's record (`DT_*`), if it tells one.
    pub(crate) fn of_record(kind: u8) -> Option<FileType> {
        // `DT_*` are the file type bits of `st_mode`, shifted (include/linux/fs_types.h).
        (kind != libc::DT_UNKNOWN).then(|| FileType(u32::from(kind) << 12))
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0 == libc::S_IFREG
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0 == libc::S_IFDIR
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0 == libc::S_IFLNK
    }

    /// Whether it is a named pipe.
    pub fn is_fifo(&self) -> bool {
        self.0 == libc::S_IFIFO
    }

    /// Whether it is a socket.
    pub fn is_socket(&self) -> bool {
        self.0 == libc::S_IFSOCK
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.0 == libc::S_IFBLK
    }

    /// Whether it is a character device.
    pub fn is_char_device(&self) -> bool {
        self.0 == libc::S_IFCHR
    }
}

/// A time of so many nanoseconds since 1970; the nearest that the type holds.
fn system_time(ns: i128) -> SystemTime {
    const NS_OF_SECOND: u128 = 1_000_000_000;
    let distance = ns.unsigned_abs();
    let seconds = u64::try_from(distance / NS_OF_SECOND).unwrap_or(u64::MAX);
    let distance = Duration::new(seconds, (distance % NS_OF_SECOND) as u32);
    let time = match ns < 0 {
        true => UNIX_EPOCH.checked_sub(distance),
        false => UNIX_EPOCH.checked_add(distance),
    };
    time.unwrap_or(UNIX_EPOCH)
}

fn nanoseconds(time: &libc::statx_timestamp) -> i128 {
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}
