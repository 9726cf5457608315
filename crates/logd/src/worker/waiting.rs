//! What was received and not looked at yet, and whose turn is next.
//!
//! Who sent little goes before those who sent more than a small buffer holds, so that a client with one line does not
//! wait for each of a hundred that flood the daemon. Of the bytes both get half while both wait, so neither can
//! keep out the other. It looks into nothing that was received.

use std::collections::VecDeque;

use ringwise::Completion;

use super::buffers::{LARGE_BYTES, SMALL_BYTES};

/// What is looked at of a connection before it waits behind the others, and of those that sent little before one
/// of those that sent much.
const TURN_EACH_BYTES: usize = LARGE_BYTES;

/// What a connection has waiting.
#[derive(Default)]
pub(super) struct Queue {
    completions: VecDeque<Completion>,
    /// What may be looked at before the next connection's turn. 0: it is in no list.
    left_bytes: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.completions.is_empty()
    }
}

/// Connections that have something waiting, each in one of the lists.
#[derive(Default)]
pub(super) struct Turns {
    /// Those of which less than a small buffer came since they had nothing waiting.
    small: VecDeque<usize>,
    large: VecDeque<usize>,
    /// What was looked at of the small ones since the last large one.
    small_bytes: usize,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// Whether what came may be looked at without waiting, as far as the other connections go.
    pub(super) fn may_pass(
        &mut self,
        own: &Queue,
        completion: &Completion,
        has_time: bool,
    ) -> bool {
        if !own.is_empty() || !self.small.is_empty() {
            return false;
        }
        if self.large.is_empty() && has_time {
            return true;
        }
        let bytes = len(completion);
        if bytes >= SMALL_BYTES || self.small_bytes >= TURN_EACH_BYTES {
            return false;
        }
        self.small_bytes += bytes;
        true
    }

    /// Adds what came for a connection, behind what it has waiting already.
    pub(super) fn add(&mut self, index: usize, queue: &mut Queue, completion: Completion) {
        if queue.left_bytes == 0 {
            queue.left_bytes = TURN_EACH_BYTES;
            let is_large = len(&completion) >= SMALL_BYTES;
            if is_large { &mut self.large } else { &mut self.small }.push_back(index);
        }
        queue.completions.push_back(completion);
    }

    /// The connection whose turn it is. It has to be given to [`take`](Self::take).
    pub(super) fn next(&self) -> Option<usize> {
        let list = if self.list()? { &self.large } else { &self.small };
        list.front().copied()
    }

    /// Takes what comes next of the connection whose turn it is.
    pub(super) fn take(&mut self, queue: &mut Queue) -> Option<Completion> {
        let is_large = self.list()?;
        let list = if is_large { &mut self.large } else { &mut self.small };
        let index = list.pop_front()?;
        let completion = queue.completions.pop_front()?;
        let bytes = len(&completion);
        self.small_bytes = if is_large { 0 } else { self.small_bytes + bytes };
        queue.left_bytes = queue.left_bytes.saturating_sub(bytes);
        if queue.completions.is_empty() {
            *queue = Queue::default();
        } else if queue.left_bytes > 0 {
            list.push_front(index);
        } else {
            queue.left_bytes = TURN_EACH_BYTES;
            self.large.push_back(index);
        }
        Some(completion)
    }

    /// Whether the next turn is that of a large one, if any is.
    fn list(&self) -> Option<bool> {
        match (self.small.is_empty(), self.large.is_empty()) {
            (true, true) => None,
            (false, false) => Some(self.small_bytes >= TURN_EACH_BYTES),
            (is_large, _) => Some(is_large),
        }
    }
}

/// The bytes that came. What tells of an error or an end has none.
pub(super) fn len(completion: &Completion) -> usize {
    usize::try_from(completion.raw_result()).unwrap_or(0)
}
