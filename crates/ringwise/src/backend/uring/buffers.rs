//! The ring's features for sockets: groups of buffers that the kernel chooses from, one entry with
//! many results, and sends without a completion. Also how a loop learns that something came back.
//!
//! # Safety
//!
//! The kernel reads a group's queue as long as it is registered; the loop keeps the group until
//! the ring is gone (invariant 13).
#![allow(unsafe_code)]

use std::{io, task::Waker};

use super::Uring;
use crate::{
    backend::{Cqe, Driver, classic::Classic},
    buf::Entries,
    op::Opcode,
};

impl Uring {
    /// Registers a queue of buffers and returns its number. The caller keeps the queue until the
    /// ring is gone.
    pub(crate) fn register_entries(&mut self, entries: &Entries) -> Result<u16, String> {
        if !self.supports(Opcode::ReceiveMulti) {
            return Err("the ring makes no receives".into());
        }
        let number = self.free_groups.last().copied().unwrap_or(self.groups);
        let next =
            number.checked_add(1).ok_or("a loop registers at most 65535 groups at a time")?;
        let address = entries.base().expose_provenance() as u64;
        // SAFETY: the queue's memory lives until the ring is gone (see the header).
        let registered = unsafe {
            let submitter = self.ring.submitter();
            submitter.register_buf_ring_with_flags(address, entries.count(), number, 0)
        };
        registered.map_err(|error| format!("io_uring_register(PBUF_RING): {error}"))?;
        if self.free_groups.pop().is_none() {
            self.groups = next;
        }
        Ok(number)
    }

    /// Returns a waker with which other threads wake this loop.
    pub(crate) fn waker(&mut self) -> io::Result<Waker> {
        if let Some(companion) = self.companion.as_ref().or(self.spare.as_ref()) {
            return Ok(companion.waker());
        }
        let spare = self.spare.insert(Box::new(Classic::new(self.threads_max, usize::MAX)?));
        Ok(spare.waker())
    }

    /// From now on reports nudges as results. Somebody has a waker already.
    pub(crate) fn expect_nudges(&mut self) {
        if self.companion.is_none() {
            self.companion = self.spare.take();
        }
        if let Some(companion) = &mut self.companion {
            companion.expect_nudges();
        }
    }

    /// Takes the ring's results, and removes those that `keep` refuses.
    pub(crate) fn sift(&mut self, keep: &mut dyn FnMut(Cqe) -> bool) {
        self.reap();
        self.reaped.sift(keep);
    }

    /// Returns whether sends that succeed have no completion.
    pub(crate) fn mutes_sends(&self) -> bool {
        self.how.mutes_sends && self.supports(Opcode::Send)
    }

    /// Returns whether the kernel has taken all queued entries and holds no result back.
    pub(crate) fn has_taken_all(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.is_empty() && !queue.cq_overflow()
    }

    /// Returns whether there are results, or work of the kernel that makes some when it is entered.
    pub(crate) fn has_work(&mut self) -> bool {
        if self.count_ready() > 0 || self.companion.as_mut().is_some_and(|beside| beside.has_work())
        {
            return true;
        }
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }
}
