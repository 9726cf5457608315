//! Chains in the submission queue. Notices a chain that the kernel takes in two parts.
//!
//! The kernel links only entries that one enter takes. It stops half-way only for want of memory
//! (io_uring/io_uring.c, io_submit_sqes, io_alloc_req). The second part then starts by itself with
//! the next enter and waits for nothing. This cannot be undone, but it can be seen, since an enter
//! says how many entries it took. The library does not believe the results of such a part.

use std::collections::{HashSet, VecDeque};

/// A chain whose last entry the kernel has not taken yet.
#[derive(Debug)]
struct Queued {
    /// Entries ahead of its next one.
    ahead: usize,
    /// Its members that are still in the queue.
    members: VecDeque<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Links {
    queued: Vec<Queued>,
    severed: HashSet<u64>,
}

impl Links {
    /// Notes a chain that was queued behind `ahead` entries.
    pub(super) fn queued(&mut self, ahead: usize, members: impl Iterator<Item = u64>) {
        self.queued.push(Queued { ahead, members: members.collect() });
    }

    /// Returns whether the kernel has taken every chain.
    #[inline]
    pub(super) fn are_submitted(&self) -> bool {
        self.queued.is_empty()
    }

    /// Notes that the kernel took `taken` entries.
    pub(super) fn submitted(&mut self, taken: usize) {
        let Links { queued, severed } = self;
        queued.retain_mut(|chain| {
            let of_chain = taken.saturating_sub(chain.ahead).min(chain.members.len());
            chain.ahead = chain.ahead.saturating_sub(taken);
            chain.members.drain(..of_chain);
            if of_chain > 0 {
                severed.extend(&chain.members);
            }
            !chain.members.is_empty()
        });
    }

    /// Returns whether this member came after a cut, and forgets it.
    pub(super) fn take_severed(&mut self, user_data: u64) -> bool {
        !self.severed.is_empty() && self.severed.remove(&user_data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_that_is_taken_whole_is_not_severed() {
        let mut links = Links::default();
        links.queued(2, [10, 11, 12].into_iter());
        links.submitted(2);
        assert!(!links.are_submitted());
        links.submitted(3);
        assert!(links.are_submitted());
        assert!([10, 11, 12].into_iter().all(|member| !links.take_severed(member)));
    }

    #[test]
    fn what_comes_after_a_cut_is_severed() {
        let mut links = Links::default();
        links.queued(0, [10, 11].into_iter());
        links.queued(2, [20, 21, 22].into_iter());
        links.submitted(3);
        links.submitted(2);
        let severed: Vec<u64> =
            [10, 11, 20, 21, 22].into_iter().filter(|member| links.take_severed(*member)).collect();
        assert_eq!(severed, [21, 22]);
        assert!(links.are_submitted() && !links.take_severed(21));
    }
}
