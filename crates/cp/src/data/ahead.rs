//! Reading ahead of a copy whose source is not in memory.
//!
//! By advice (posix_fadvise(2)): nobody waits for it, and without it the pages are read when they
//! are wanted. Of a file that is no longer than the kernel reads at a time, all is begun to be read
//! as soon as it is known, before its turn has come. A longer one is read by the kernel's own
//! reading ahead, with longer steps: it puts what it reads into larger folios than what was
//! asked for by `POSIX_FADV_WILLNEED` gets (mm/readahead.c, force_page_cache_ra), which costs the
//! copy less.

use ringwise::Descriptor;
use rustix::fs::{Advice, fadvise};

/// Up to this length a file is read ahead as a whole. docs/notes/cp/cold-files.md has what was tried.
const WHOLE_BYTES_MAX: u64 = 4 << 20;

/// Begins.
pub(crate) fn begin(source: &Descriptor, size: u64) {
    let advice = match size <= WHOLE_BYTES_MAX {
        true => Advice::WillNeed,
        false => Advice::Sequential,
    };
    let _ = fadvise(source, 0, None, advice);
}
