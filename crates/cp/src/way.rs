//! Which way the content of a file goes, and why: the table that a reader can follow.
//!
//! | first that fits | way |
//! |---|---|
//! | the file systems share blocks (`--reflink`) | one FICLONE, before this table is asked: by the walk for the first file and with `--durable`, which saves CPU time, else that of small files, and of all whose names threads get, by the threads, which saves wall time |
//! | either side is no regular file, or the source says it has no bytes | read and write |
//! | holes are to be made: `--sparse=always`, or the source has fewer blocks than bytes | by extents (`SEEK_DATA`), or by looking for zeros where there is no such call |
//! | `--engine=uring` | the ring: reads ahead, writes in order |
//! | the same as in the next row, at most [`SPLICED_BYTES_MAX`], `--durable` and not to be checked, by threads or of one file alone | spliced: the device takes the pages of the source from a pipe, by direct writes |
//! | at least [`MAPPED_BYTES_MIN`], a ring is there, the copy's file system takes direct writes, its device is not slow, most of the source is in memory, and one of: `--durable`; no copy_file_range; more bytes than the kernel lets be dirty; after the first 128 MiB of a run, all threads are busy and the device is not | mapped: the device takes the pages of the source, by direct writes |
//! | most of the source is not in memory, at least [`COLD_BYTES_MIN`] ([`MAPPED_BYTES_MIN`] with `--durable`), [`COLD_FROM_BYTES`] in the run so far ([`COLD_FROM_BYTES_DURABLE`]), a ring is there, the source's file system takes direct reads (with `--durable` the copy's takes direct writes), not to be checked, more than one thread may be had | direct reads: the device reads it into buffers, pieces of which go on through the page cache or straight back |
//! | the same, more than [`SMALL_BYTES`], no engine that was asked for | piped: threads read it past the page cache into pipes, and write it from there through that |
//! | at least [`SPLIT_BYTES_MIN`], nearly all of the source in memory, one file alone, not `--jobs=1` nor an engine that was asked for, direct writes as above, and what the next row asks for | split: a thread copies from its beginning by copy_file_range, the device takes the pages of the source from its end on |
//! | the same file system, content neither to be checked nor sparseness to be undone | copy_file_range: one copy in memory instead of two, and one call for a small file |
//! | most of the source is not in memory | read and write, with advice to read ahead |
//! | at most [`SMALL_BYTES`] | read and write |
//! | nothing is to be checked, a ring is there, and its reads do not all go to a worker | the ring |
//! | else | read and write |
//!
//! What was tried for each size, and what it cost, is in docs/copying.md; `ringwise lab copy`
//! measures it again.

use std::collections::{HashMap, HashSet};

use ringwise::Descriptor;
use rustix::{
    fs::{self, AtFlags, FileType, SeekFrom, Stat, StatxFlags},
    io::Errno,
};

use crate::{
    job::Job,
    options::{EngineChoice, Options, Reflink, Sparse},
};

/// A file of this many bytes is copied at once, by the fewest calls, and by no thread or ring.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;

/// From this many bytes on the device's time for a direct write is less than that of copying in
/// memory and writing back later (docs/copying.md).
pub(crate) const MAPPED_BYTES_MIN: u64 = 128 << 10;

/// From this many bytes on a file is read past the page cache (docs/copying.md), and with
/// `--durable` from [`MAPPED_BYTES_MIN`].
pub(crate) const COLD_BYTES_MIN: u64 = 1 << 20;

/// So many bytes of a run have to be copied, with the file, before buffers for that are worth it: each
/// page of them costs its first touch. Until then pipes have what they hold from the kernel.
pub(crate) const COLD_FROM_BYTES: u64 = 128 << 20;

/// The same with `--durable`, where a ring has more on its way to the device, and copies nothing.
pub(crate) const COLD_FROM_BYTES_DURABLE: u64 = 16 << 20;

/// Up to this many bytes to map a file costs more than it saves.
const SPLICED_BYTES_MAX: u64 = 4 << 20;

/// From this many bytes on a file alone is copied sooner by a thread and the device than by a thread
/// (docs/copying.md).
const SPLIT_BYTES_MIN: u64 = 8 << 20;

/// What direct writes are aligned to: pages, since a mapping has no less.
pub(crate) const DIRECT_ALIGNMENT_BYTES: u64 = 4096;

/// BTRFS_SUPER_MAGIC (include/uapi/linux/magic.h): with its checksums it takes direct writes
/// through the page cache (since Linux 6.15), and before that from pages that must not change.
const BTRFS_MAGIC: u64 = 0x9123_683E;

/// Why a file that is not in memory goes the way it goes.
const COLD: &str = "the source is not in memory: several are read ahead";

/// How content is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    Range,
    Extents,
    Zeros,
    Ring,
    Mapped,
    /// By a thread, through a pipe.
    Spliced,
    /// The source is read past the page cache, by a thread, through a pipe.
    Piped,
    /// The same by a ring, into buffers.
    Direct,
    /// In memory by a thread, and from the page cache to the device by a ring.
    Split,
    /// One FICLONE, by a thread: this pair of file systems is known to share blocks.
    Share,
}

impl Way {
    /// As `--debug` and `--json` call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Plain => "read and write",
            Way::Range => "copy_file_range",
            Way::Extents => "extents",
            Way::Zeros => "search for zeros",
            Way::Ring => "ring",
            Way::Mapped => "mapped",
            Way::Spliced => "spliced",
            Way::Piped => "piped",
            Way::Direct => "direct reads",
            Way::Split => "split",
            Way::Share => "shared blocks",
        }
    }
}

/// What there is to move it with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Means {
    /// A ring is open.
    pub(crate) ring: bool,
    /// Direct writes by a ring: neither forbidden here nor slow, and no later than by other means.
    pub(crate) direct: bool,
    /// A ring that reads past the page cache, and threads for what it read.
    pub(crate) past: bool,
    /// Pipes for what is read past the page cache.
    pub(crate) piped: bool,
    /// A thread and direct writes by a ring, for one file alone.
    pub(crate) split: bool,
    /// Pipes, in a run that waits for the device: direct writes by threads, or for one file alone
    /// without opening a ring.
    pub(crate) pipes: bool,
}

/// A way and its reason, for `--debug`.
pub(crate) type Chosen = (Way, &'static str);

/// What was found out about pairs of file systems, so that it is asked once.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    without_clone: HashSet<(u64, u64)>,
    with_clone: HashSet<(u64, u64)>,
    direct: HashMap<u64, bool>,
}

impl Pairs {
    /// Whether the copy's file system takes direct writes as they are made here.
    pub(crate) fn takes_direct(&mut self, job: &Job) -> bool {
        self.is_direct(&job.copy, &job.copy_stat)
    }

    /// The same of the source's, as it is read.
    pub(crate) fn gives_direct(&mut self, job: &Job) -> bool {
        self.is_direct(&job.source, &job.source_stat)
    }

    fn is_direct(&mut self, file: &Descriptor, stat: &Stat) -> bool {
        let asks = || {
            let flags = StatxFlags::DIOALIGN;
            let found = fs::statx(file, "", AtFlags::EMPTY_PATH, flags).ok()?;
            let (offset, memory) = (found.stx_dio_offset_align, found.stx_dio_mem_align);
            // Zero: none (statx(2)). Before Linux 6.1 nobody tells, and none is taken.
            let suits =
                |align: u32| align > 0 && DIRECT_ALIGNMENT_BYTES.is_multiple_of(u64::from(align));
            let kind = fs::fstatfs(file).ok()?.f_type as u64;
            Some(suits(offset) && suits(memory) && kind != BTRFS_MAGIC)
        };
        *self.direct.entry(stat.st_dev).or_insert_with(|| asks().unwrap_or(false))
    }

    /// Whether files of these file systems share blocks. None: nobody tried.
    pub(crate) fn share(&self, source_device: u64, copy_device: u64) -> Option<bool> {
        let pair = (source_device, copy_device);
        let without = || self.without_clone.contains(&pair).then_some(false);
        self.with_clone.contains(&pair).then_some(true).or_else(without)
    }

    /// Whether a thread may try to share the source's blocks: others of these file systems did.
    pub(crate) fn are_known_to_clone(&self, job: &Job) -> bool {
        self.share(job.source_stat.st_dev, job.copy_stat.st_dev) == Some(true)
    }

    /// Tries to share the source's blocks. `Ok(false)`: these file systems or files cannot.
    pub(crate) fn clone_content(&mut self, job: &Job) -> Result<bool, Errno> {
        let pair = (job.source_stat.st_dev, job.copy_stat.st_dev);
        let optional = job.options.reflink == Reflink::Auto;
        if optional && self.without_clone.contains(&pair) {
            return Ok(false);
        }
        match fs::ioctl_ficlone(&job.copy, &job.source) {
            Ok(()) => {
                self.with_clone.insert(pair);
                Ok(true)
            }
            Err(errno) if optional => {
                if matches!(errno, Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) {
                    self.without_clone.insert(pair);
                }
                Ok(false)
            }
            Err(errno) => Err(errno),
        }
    }
}

/// Shares the blocks of a file of which that was expected, or gives the way that it goes instead.
pub(crate) fn share(job: &mut Job) -> Chosen {
    if fs::ioctl_ficlone(&job.copy, &job.source).is_ok() {
        job.cloned = true;
        return (Way::Share, "the file system can");
    }
    choose(job, &job.options, Means::default())
}

/// Chooses.
pub(crate) fn choose(job: &Job, options: &Options, means: Means) -> Chosen {
    let (source, copy) = (&job.source_stat, &job.copy_stat);
    let size = job.size();
    if !is_regular(source) || !is_regular(copy) {
        return (Way::Plain, "not a regular file");
    }
    if let Some(chosen) = sparse(job, options) {
        return chosen;
    }
    if size == 0 {
        return (Way::Plain, "the source says it has no bytes");
    }
    if means.ring && options.engine == EngineChoice::Uring {
        return (Way::Ring, "the ring was asked for");
    }
    let is_cold = job.is_cold();
    if means.direct && size >= MAPPED_BYTES_MIN && !is_cold {
        if means.pipes && size <= SPLICED_BYTES_MAX {
            return (Way::Spliced, "the device takes it from the page cache, by a pipe");
        }
        return (Way::Mapped, "the device takes it from the page cache");
    }
    if means.past && is_cold {
        return (Way::Direct, "the source is not in memory: the device reads it into buffers");
    }
    if means.piped && is_cold {
        return (Way::Piped, "the source is not in memory: it is read past the page cache");
    }
    if means.split && size >= SPLIT_BYTES_MIN && job.is_warm() && may_range(job, options) {
        return (Way::Split, "alone: the device takes its end while its beginning is copied");
    }
    if may_range(job, options) {
        return (Way::Range, if is_cold { COLD } else { "within one file system" });
    }
    if is_cold {
        return (Way::Plain, COLD);
    }
    if size <= SMALL_BYTES {
        return (Way::Plain, "small: one read and one write");
    }
    // What is to be checked waits for its device: threads do that for several at a time.
    if means.ring && options.engine == EngineChoice::Auto && !options.verify {
        return (Way::Ring, "across file systems: reads ahead of the writes");
    }
    (Way::Plain, "read and write")
}

/// Whether copy_file_range(2) may be asked: it may share blocks, and keeps holes.
pub(crate) fn may_range(job: &Job, options: &Options) -> bool {
    let may = options.reflink != Reflink::Never && options.sparse != Sparse::Never;
    may && !options.verify && job.source_stat.st_dev == job.copy_stat.st_dev
}

/// The way that makes holes, where some are to be made.
fn sparse(job: &Job, options: &Options) -> Option<Chosen> {
    let source = &job.source_stat;
    let size = u64::try_from(source.st_size).unwrap_or(0);
    let looks_sparse = u64::try_from(source.st_blocks).unwrap_or(0) < size / 512;
    if options.sparse == Sparse::Never || (options.sparse == Sparse::Auto && !looks_sparse) {
        return None;
    }
    let tells_extents = looks_sparse
        && match fs::seek(&job.source, SeekFrom::Data(0)) {
            Ok(_) | Err(Errno::NXIO) => true,
            Err(_) => false,
        };
    // The question may have moved it.
    let _ = fs::seek(&job.source, SeekFrom::Start(0));
    Some(match tells_extents {
        true => (Way::Extents, "the source has holes"),
        false => (Way::Zeros, "holes are to be made of zeros"),
    })
}

/// Whether copy_file_range(2) said that it cannot, rather than that something failed.
pub(crate) fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOSYS
            | Errno::XDEV
            | Errno::INVAL
            | Errno::BADF
            | Errno::OPNOTSUPP
            | Errno::TXTBSY
            // Containers filter the call, and CIFS has had ENOENT.
            | Errno::PERM
            | Errno::ACCESS
            | Errno::NOENT
            | Errno::ISDIR
    )
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode).is_file()
}
