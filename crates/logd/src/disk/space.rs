//! Free space, and the floor below which nothing is begun until there is more again.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long an answer of the file system is used.
const FRESH_TIME: Duration = Duration::from_millis(20);

/// Free bytes of a path's file system; nothing if that cannot be read.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(path).ok()?;
    space.f_bavail.checked_mul(space.f_frsize)
}

/// A floor under the free space of a file system, shared by all threads.
#[derive(Debug)]
pub(crate) struct Floor {
    directory: PathBuf,
    looked: Option<Instant>,
    is_low: bool,
}

impl Floor {
    pub(crate) fn new(directory: &Path) -> Floor {
        Floor { directory: directory.to_owned(), looked: None, is_low: false }
    }

    /// Whether less than `min_free` is free, and whether that is new; the first thread that learns it reports
    /// it. To go on, a sixteenth more has to be free, so that small changes do not stop and start storing.
    pub(crate) fn look(&mut self, min_free: u64) -> (bool, bool) {
        let was_low = self.is_low;
        if self.looked.is_none_or(|looked| looked.elapsed() >= FRESH_TIME) {
            self.looked = Some(Instant::now());
            // If that cannot be read, writes will fail.
            let free = free_bytes(&self.directory).unwrap_or(u64::MAX);
            self.is_low = is_low(free, min_free, self.is_low);
        }
        (self.is_low, self.is_low != was_low)
    }
}

fn is_low(free: u64, min_free: u64, was_low: bool) -> bool {
    free < if was_low { min_free.saturating_add(min_free / 16) } else { min_free }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_left_where_it_was_met_and_a_little_more() {
        assert!(!is_low(100, 100, false));
        assert!(is_low(99, 100, false));
        assert!(is_low(105, 100, true));
        assert!(!is_low(106, 100, true));
        assert!(!is_low(0, 0, true));
    }

    /// Each thread told of it.
    #[test]
    fn a_change_is_told_to_one() {
        let mut floor = Floor::new(Path::new("/"));
        assert_eq!(floor.look(u64::MAX), (true, true));
        assert_eq!(floor.look(u64::MAX), (true, false));
        std::thread::sleep(FRESH_TIME);
        assert_eq!(floor.look(0), (false, true));
        assert_eq!(floor.look(0), (false, false));
    }

    #[test]
    fn the_space_of_a_place_that_is_there_is_known() {
        assert!(free_bytes(Path::new("/")).is_some());
        assert_eq!(free_bytes(Path::new("/no/such/place")), None);
    }
}
