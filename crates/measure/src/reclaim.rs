//! Counts the pages that kswapd scanned. This kernel thread looks for pages to reclaim when memory is short. Until then
//! writes into the page cache are fast.

use crate::fact::{Fact, Sources};

/// Pages of 4 KiB that kswapd scanned, since boot or between two readings (`pgscan_kswapd` of /proc/vmstat).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KswapdPages(pub u64);

impl KswapdPages {
    /// Reads the total. Kernels before 4.8 have one count per zone (`pgscan_kswapd_normal`); these are added up.
    pub fn read(sources: &Sources) -> Fact<KswapdPages> {
        sources.proc_text("vmstat").and_then(|text| {
            let of_line = |line: &str| {
                let (name, count) = line.split_once(' ')?;
                let count = count.trim().parse::<u64>().ok()?;
                name.starts_with("pgscan_kswapd").then_some(count)
            };
            let counts: Vec<u64> = text.lines().filter_map(of_line).collect();
            let sum = counts.into_iter().reduce(u64::saturating_add).map(KswapdPages);
            Fact::of(sum, || "/proc/vmstat: no pgscan_kswapd there".to_owned())
        })
    }

    /// Returns the pages scanned since `earlier`.
    pub fn since(self, earlier: KswapdPages) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_pages_of_kswapd_are_found_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let sources = Sources::below(root.path());
        assert!(KswapdPages::read(&sources).reason().is_some());
        fs::create_dir(root.path().join("proc")).unwrap();
        let write = |text: &str| fs::write(root.path().join("proc/vmstat"), text).unwrap();
        write("pgscan_direct 9\npgscan_kswapd 70\npgsteal_kswapd 50\n");
        let before = *KswapdPages::read(&sources).known().unwrap();
        assert_eq!(before, KswapdPages(70));
        write("pgscan_kswapd_dma 1\npgscan_kswapd_normal 80\n");
        assert_eq!(KswapdPages::read(&sources).known().unwrap().since(before), 11);
        write("nr_free_pages 7\n");
        assert!(KswapdPages::read(&sources).reason().unwrap().contains("pgscan_kswapd"));
        assert!(KswapdPages::read(&Sources::default()).known().is_some());
    }
}
