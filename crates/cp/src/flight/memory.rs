//! Memory as the choice of a way sees it: whether sources are in the page cache, asked no more often
//! than that needs to be known, and whether it has room for what is to be written.

use ringwise::Descriptor;

use crate::way::SMALL_BYTES;

/// Small files that are taken to be in memory because the last that was asked for was.
const TRUSTED_FILES: u32 = 15;

/// A file of fewer bytes is not worth the question whether the page cache takes it at once.
const ASKED_BYTES_MIN: u64 = 64 << 20;

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

/// Whether whoever writes a file through the page cache would be made to wait for the device.
pub(super) fn would_be_throttled(size: u64) -> bool {
    let room = || room_bytes(&std::fs::read_to_string("/proc/vmstat").ok()?);
    size >= ASKED_BYTES_MIN && room().is_some_and(|room| size > room)
}

/// What may still be written before writers wait: to the middle between both thresholds
/// (mm/page-writeback.c, dirty_freerun_ceiling). None where the kernel does not tell.
fn room_bytes(vmstat: &str) -> Option<u64> {
    let value = |name: &str| {
        let mut lines = vmstat.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let limit = value("nr_dirty_threshold ")?;
    let background = value("nr_dirty_background_threshold ")?;
    let dirty = value("nr_dirty ")? + value("nr_writeback ")?;
    let pages = (limit.saturating_add(background) / 2).saturating_sub(dirty);
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_the_kernel_lets_be_dirty_less_what_is() {
        let text = "nr_free_pages 9\nnr_dirty 100\nnr_writeback 20\nnr_writeback_temp 7\n\
                    nr_dirty_threshold 4000\nnr_dirty_background_threshold 2000\n";
        let page = rustix::param::page_size() as u64;
        assert_eq!(room_bytes(text), Some((3000 - 120) * page));
        assert_eq!(room_bytes(&text.replace("nr_dirty 100", "nr_dirty 5000")), Some(0));
        assert_eq!(room_bytes("nr_dirty 100\n"), None);
        assert!(!would_be_throttled(ASKED_BYTES_MIN - 1) && would_be_throttled(u64::MAX));
    }
}
