//! Results taken from the completion queue, a batch at a time. Taken one by one, each would read
//! and write the head and tail, which are shared with the kernel. The results lie as the kernel
//! wrote them, and all come out in one place. A copy that is read back at once waits for its own
//! stores, which took five nanoseconds of a no-op's forty.
//!
//! # Safety
//!
//! A result here has the layout of the kernel's own (`struct io_uring_cqe`), which its assertions
//! check, and no invalid bits.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

use io_uring::{IoUring, cqueue};

use crate::backend::Cqe;

/// See the header.
#[derive(Debug, Default)]
pub(super) struct Reaped {
    /// Never shrinks; only `first..end` is in use.
    results: Vec<Cqe>,
    first: usize,
    end: usize,
}

impl Reaped {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.end - self.first
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first == self.end
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<Cqe> {
        let result = *self.results[..self.end].get(self.first)?;
        self.first += 1;
        Some(result)
    }

    /// Takes all results of the ring, and returns how many.
    pub(super) fn take_from(&mut self, ring: &mut IoUring) -> usize {
        let mut completions = ring.completion();
        let count = completions.len();
        if count == 0 {
            return 0;
        }
        self.compact();
        let free = self.reserve(count);
        const _: () = assert!(size_of::<Cqe>() == size_of::<cqueue::Entry>());
        const _: () = assert!(align_of::<Cqe>() == align_of::<cqueue::Entry>());
        let entries = (&raw mut *free) as *mut [MaybeUninit<cqueue::Entry>];
        // SAFETY: the entries, each a `struct io_uring_cqe` as `Cqe` is, cover `free` and nothing
        // else, and whatever is written is a valid `Cqe`, which has no invalid bits.
        completions.fill(unsafe { &mut *entries });
        count
    }

    /// Makes room for `more` results, and returns the place to write them.
    fn reserve(&mut self, more: usize) -> &mut [Cqe] {
        let start = self.end;
        self.end += more;
        if self.end > self.results.len() {
            self.results.resize(self.end, Cqe::default());
        }
        &mut self.results[start..self.end]
    }

    /// Removes the result with this number. Returns whether it was there.
    pub(super) fn remove(&mut self, user_data: u64) -> bool {
        let waiting = &self.results[self.first..self.end];
        let Some(at) = waiting.iter().position(|cqe| cqe.user_data == user_data) else {
            return false;
        };
        // Not swapped with the last: the results of one stream keep their order.
        self.results.copy_within(self.first + at + 1..self.end, self.first + at);
        self.end -= 1;
        true
    }

    /// Takes back results that were taken first. They go before the rest: out of order, results of
    /// one byte stream are worth nothing.
    pub(super) fn put_back(&mut self, results: &[Cqe]) {
        self.results.truncate(self.end);
        self.results.splice(..self.first, results.iter().copied());
        (self.first, self.end) = (0, self.results.len());
    }

    /// Removes the results that `keep` refuses. The others keep their order.
    pub(super) fn sift(&mut self, keep: &mut dyn FnMut(Cqe) -> bool) {
        let mut kept = self.first;
        for at in self.first..self.end {
            let cqe = self.results[at];
            if keep(cqe) {
                self.results[kept] = cqe;
                kept += 1;
            }
        }
        self.end = kept;
    }

    /// Frees the room of taken results before more come. The rest is moved: it is seldom anything,
    /// and never more than can be in flight.
    fn compact(&mut self) {
        if !self.is_empty() {
            self.results.copy_within(self.first..self.end, 0);
        }
        self.end -= self.first;
        self.first = 0;
    }
}

impl Extend<Cqe> for Reaped {
    fn extend<I: IntoIterator<Item = Cqe>>(&mut self, results: I) {
        results.into_iter().for_each(|result| self.reserve(1)[0] = result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cqe(user_data: u64) -> Cqe {
        Cqe { user_data, ..Cqe::default() }
    }

    /// A log daemon that waited for a file between two pieces of a line stored them swapped.
    #[test]
    fn results_that_were_put_back_come_first() {
        let mut reaped = Reaped::default();
        reaped.extend((1..=5).map(cqe));
        let taken: Vec<Cqe> = (0..3).map(|_| reaped.next().unwrap()).collect();
        reaped.put_back(&taken[..2]);
        reaped.extend([cqe(6)]);
        assert!(reaped.remove(2));
        let order: Vec<u64> =
            std::iter::from_fn(|| reaped.next()).map(|cqe| cqe.user_data).collect();
        assert_eq!(order, [1, 4, 5, 6]);
    }
}
