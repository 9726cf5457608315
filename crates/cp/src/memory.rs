//! Which sources are in the page cache, asked no more often than the choice of a way needs it.

use ringwise::Descriptor;

use crate::way::SMALL_BYTES;

/// Small files that are taken to be in memory because the last that was asked for was.
const TRUSTED_FILES: u32 = 15;

/// What was seen of the files before.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    trusted: u32,
}

impl Memory {
    /// Pages of a source that are not in memory. A small file costs little, and is one of many
    /// that are alike: there it is asked for some of them, until one is not in memory.
    pub(crate) fn absent_pages(&mut self, source: &Descriptor, size: u64) -> u64 {
        let is_small = size <= SMALL_BYTES;
        if size == 0 || (is_small && self.trusted > 0) {
            self.trusted = self.trusted.saturating_sub(1);
            return 0;
        }
        // Where the kernel does not tell, nothing is read ahead.
        let cached = ringwise::page_cache(source, 0, 0);
        let pages = size.div_ceil(rustix::param::page_size() as u64);
        let absent = cached.map_or(0, |state| pages.saturating_sub(state.cached_pages));
        if is_small && absent == 0 {
            self.trusted = TRUSTED_FILES;
        }
        absent
    }
}
