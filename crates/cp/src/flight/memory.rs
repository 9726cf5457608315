//! Whether sources are in memory, asked no more often than that needs to be known.

use crate::{job::Job, way::SMALL_BYTES};

/// Small files that are taken to be in memory because the last that was asked for was.
const TRUSTED_FILES: u32 = 15;

/// What was seen of the files before.
#[derive(Debug, Default)]
pub(super) struct Memory {
    trusted: u32,
}

impl Memory {
    /// Pages of a source that are not in memory. A small file costs little, and is one of many
    /// that are alike: there it is asked for some of them, until one is not in memory.
    pub(super) fn absent_pages(&mut self, job: &Job) -> u64 {
        let is_small = job.size() <= SMALL_BYTES;
        if job.size() == 0 || (is_small && self.trusted > 0) {
            self.trusted = self.trusted.saturating_sub(1);
            return 0;
        }
        // Where the kernel does not tell, nothing is read ahead.
        let cached = ringwise::page_cache(&job.source, 0, 0);
        let absent = cached.map_or(0, |state| job.pages().saturating_sub(state.cached_pages));
        if is_small && absent == 0 {
            self.trusted = TRUSTED_FILES;
        }
        absent
    }
}
