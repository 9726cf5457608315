//! Directories in a row, taken in another order than that of their inodes.
//!
//! XFS gives each new directory the next of its allocation groups, and inode numbers begin with the
//! group's: in their order all directories of one group come after each other, and threads that
//! share blocks of their files wait for each other's locks of that group (docs/notes/cp/other-programs.md). So a
//! long row is taken from four places in turn. Each has its place in the report, where all goes
//! that is said of it.
//!
//! Not where the destination lies within the source: what is copied before that is met depends on
//! the order.

use std::{collections::VecDeque, ops::Range, os::fd::AsFd};

use rustix::{
    fs::{Mode, OFlags, fstat, openat},
    io::Errno,
};

use super::held::Held;
use crate::{messages::report::Report, names::place::Identity};

/// A shorter row is taken as it is.
pub(super) const LEAST: usize = 8;

/// Directories at a time: each has a place in the report.
pub(super) const MOST: usize = 4096;

/// As many as mkfs.xfs(8) makes allocation groups of a disk of less than 4 TiB.
const PARTS: usize = 4;

/// Lines that may wait; then the first place comes first.
const WAITING_MAX: usize = 2 * MOST;

/// Directories above a destination, at the most that anybody looks at.
const ABOVE_MAX: usize = 256;

/// A row: places in the report, and indexes in the listing.
#[derive(Debug, Default)]
pub(super) struct Apart {
    left: VecDeque<(u64, usize)>,
}

impl Apart {
    pub(super) fn new(first: u64, indexes: Range<usize>) -> Apart {
        let (start, len) = (indexes.start, indexes.len());
        let each = len.div_ceil(PARTS);
        let turns = (0..each).flat_map(|at| (0..PARTS).map(move |part| part * each + at));
        let left = turns.filter(|at| *at < len).map(|at| (first + at as u64, start + at)).collect();
        Apart { left }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Takes the next one.
    pub(super) fn take(&mut self, report: &Report) -> Option<(u64, usize)> {
        if report.waiting() > WAITING_MAX && !self.left.iter().is_sorted() {
            self.left.make_contiguous().sort_unstable();
        }
        self.left.pop_front()
    }

    /// Leaves the rest.
    pub(super) fn abandon(&mut self, report: &mut Report) {
        self.left.drain(..).for_each(|(number, _)| report.ended(number, Vec::new()));
    }
}

/// Whether a directory is below another, or that cannot be told.
pub(super) fn lies_within(below: &Held, above: &Held) -> bool {
    let (Some(file), Some(mut last), Some(above)) =
        (below.file(), below.identity(), above.identity())
    else {
        return true;
    };
    let parent = |of: std::os::fd::BorrowedFd<'_>| -> Result<_, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let file = openat(of, "..", flags, Mode::empty())?;
        let identity = Identity::of(&fstat(&file)?);
        Ok((file, identity))
    };
    let Ok((mut file, mut identity)) = parent(file.as_fd()) else { return true };
    for _ in 0..ABOVE_MAX {
        if last == above || identity == above {
            return true;
        }
        if identity == last {
            return false;
        }
        last = identity;
        match parent(file.as_fd()) {
            Ok(next) => (file, identity) = next,
            Err(_) => return true,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_taken_from_four_places_in_turn() {
        let row: Vec<_> = Apart::new(100, 3..13).left.into();
        let indexes: Vec<usize> = row.iter().map(|(_, index)| *index).collect();
        assert_eq!(indexes, [3, 6, 9, 12, 4, 7, 10, 5, 8, 11]);
        assert!(row.iter().all(|(number, index)| *number - 100 == *index as u64 - 3));
    }
}
