//! Which way the content of a file goes, and why: one table, asked once for each file.
//!
//! | first that fits | way |
//! |---|---|
//! | the file systems share blocks (`--reflink`) | shared blocks: one FICLONE, tried before this table is asked |
//! | either side is no regular file, or the source says that it has no bytes | read and write |
//! | holes are to be made: `--sparse=always`, or the source has fewer blocks than bytes | holes |
//! | `--engine=uring` | ring: reads ahead, writes in order |
//! | most of the source is not in memory, several threads may run, and its file system takes direct reads | past the page cache: direct reads, and with `--durable` direct writes of what was read |
//! | `--durable`, the source is in memory, and the copy's file system takes direct writes | past the page cache: direct writes of the source's pages |
//! | both files are on one file system | copy_file_range |
//! | else | read and write |
//!
//! The ways past the page cache are for `--engine=auto` without `--verify`, which looks at every byte.
//! A file of at most [`SMALL_BYTES`] is not worth them.
//!
//! docs/explanation/copying.md explains the ways, and docs/notes/cp/ways.md tells which were removed.

use std::collections::HashMap;

use ringwise::Descriptor;
use rustix::{
    fs::{self, AtFlags, FileType, Stat, StatxFlags},
    io::Errno,
};

use crate::{
    command::options::{EngineChoice, Options, Reflink, Sparse},
    job::Job,
};

/// The longest file that is copied at once, with the fewest syscalls.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;

/// The alignment of direct reads and writes: a page.
pub(crate) const DIRECT_ALIGNMENT_BYTES: u64 = 4096;

/// BTRFS_SUPER_MAGIC (include/uapi/linux/magic.h): with its checksums it takes direct writes
/// through the page cache (since Linux 6.15), and before that from pages that must not change.
const BTRFS_MAGIC: u64 = 0x9123_683E;

/// Why a file that is not in memory goes through the page cache.
const COLD: &str = "the source is not in memory: several are read ahead";

/// How content is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// One FICLONE.
    Share,
    /// copy_file_range(2).
    Range,
    /// Reads and writes through a buffer.
    Plain,
    /// Reads and writes of what is no hole.
    Holes,
    /// Reads and writes by a ring.
    Ring,
    /// Through a pipe, past the page cache on these sides.
    Past(Sides),
}

impl Way {
    /// As `--debug` and `--json` call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Share => "shared blocks",
            Way::Range => "copy_file_range",
            Way::Plain => "read and write",
            Way::Holes => "holes",
            Way::Ring => "ring",
            Way::Past(_) => "past the page cache",
        }
    }
}

/// Which sides of a copy go past the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sides {
    pub(crate) source: bool,
    pub(crate) copy: bool,
}

/// A way and its reason, for `--debug`.
pub(crate) type Chosen = (Way, &'static str);

/// What was found out about file systems and pairs of them, so that the kernel is asked once.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// Whether files of a pair of file systems share blocks.
    clone: HashMap<(u64, u64), bool>,
    direct: HashMap<u64, bool>,
}

impl Pairs {
    /// Whether a file system takes direct reads and writes of whole pages.
    fn takes_direct(&mut self, file: &Descriptor, stat: &Stat) -> bool {
        let asks = || {
            let flags = StatxFlags::DIOALIGN;
            let found = fs::statx(file, "", AtFlags::EMPTY_PATH, flags).ok()?;
            let (offset, memory) = (found.stx_dio_offset_align, found.stx_dio_mem_align);
            // Zero means none (statx(2)). Before Linux 6.1 no file system tells, and none is used so.
            let suits =
                |align: u32| align > 0 && DIRECT_ALIGNMENT_BYTES.is_multiple_of(u64::from(align));
            let kind = fs::fstatfs(file).ok()?.f_type as u64;
            Some(suits(offset) && suits(memory) && kind != BTRFS_MAGIC)
        };
        *self.direct.entry(stat.st_dev).or_insert_with(|| asks().unwrap_or(false))
    }

    /// Whether files of these file systems share blocks. None: nobody tried.
    pub(crate) fn share(&self, source_device: u64, copy_device: u64) -> Option<bool> {
        self.clone.get(&(source_device, copy_device)).copied()
    }

    /// Whether a thread may try to share the source's blocks: others of these file systems did.
    pub(crate) fn are_known_to_clone(&self, job: &Job) -> bool {
        self.share(job.source_stat.st_dev, job.copy_stat.st_dev) == Some(true)
    }

    /// Tries to share the source's blocks. `Ok(false)`: these file systems or files cannot.
    pub(crate) fn clone_content(&mut self, job: &Job) -> Result<bool, Errno> {
        let pair = (job.source_stat.st_dev, job.copy_stat.st_dev);
        let optional = job.options.reflink == Reflink::Auto;
        if optional && self.clone.get(&pair) == Some(&false) {
            return Ok(false);
        }
        match fs::ioctl_ficlone(&job.copy, &job.source) {
            Ok(()) => {
                self.clone.insert(pair, true);
                Ok(true)
            }
            Err(errno) if optional => {
                if matches!(errno, Errno::OPNOTSUPP | Errno::XDEV | Errno::NOTTY | Errno::NOSYS) {
                    self.clone.insert(pair, false);
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
    choose_in_memory(job)
}

/// Chooses. `are_several`: more than one thread may read.
pub(crate) fn choose(job: &Job, pairs: &mut Pairs, are_several: bool) -> Chosen {
    let options = &job.options;
    let chosen = choose_in_memory(job);
    let may_go_past = matches!(chosen.0, Way::Range | Way::Plain)
        && has_content(job)
        && options.engine == EngineChoice::Auto
        && !options.verify
        && job.size() > SMALL_BYTES;
    if !may_go_past {
        return chosen;
    }
    let sides = Sides {
        source: job.is_cold() && are_several && pairs.takes_direct(&job.source, &job.source_stat),
        copy: options.durable && pairs.takes_direct(&job.copy, &job.copy_stat),
    };
    match sides {
        Sides { source: true, .. } => (Way::Past(sides), "the source is not in memory"),
        Sides { copy: true, .. } if !job.is_cold() => {
            (Way::Past(sides), "the device takes it from the page cache")
        }
        _ => chosen,
    }
}

/// Chooses among the ways that go through the page cache.
pub(crate) fn choose_in_memory(job: &Job) -> Chosen {
    let options = &job.options;
    if !is_regular(&job.source_stat) || !is_regular(&job.copy_stat) {
        return (Way::Plain, "not a regular file");
    }
    if let Some(chosen) = sparse(job, options) {
        return chosen;
    }
    if job.size() == 0 {
        return (Way::Plain, "the source says it has no bytes");
    }
    if options.engine == EngineChoice::Uring {
        return (Way::Ring, "the ring was asked for");
    }
    let may_share = options.reflink != Reflink::Never && options.sparse != Sparse::Never;
    let is_one_system = job.source_stat.st_dev == job.copy_stat.st_dev;
    let (way, reason) = match is_one_system && may_share && !options.verify {
        true => (Way::Range, "within one file system"),
        false => (Way::Plain, "its bytes pass through a buffer"),
    };
    (way, if job.is_cold() { COLD } else { reason })
}

fn has_content(job: &Job) -> bool {
    is_regular(&job.source_stat) && is_regular(&job.copy_stat) && job.size() > 0
}

/// The way that makes holes, where some are to be made.
fn sparse(job: &Job, options: &Options) -> Option<Chosen> {
    match options.sparse {
        Sparse::Never => None,
        _ if looks_sparse(&job.source_stat) => Some((Way::Holes, "the source has holes")),
        Sparse::Always => Some((Way::Holes, "holes are to be made of zeros")),
        Sparse::Auto => None,
    }
}

/// Whether a file has fewer blocks than bytes.
pub(crate) fn looks_sparse(stat: &Stat) -> bool {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    u64::try_from(stat.st_blocks).unwrap_or(0) < size / 512
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
