//! Received bytes that were not looked at yet, and whose turn is next.
//!
//! Connections that sent little go before those that sent more than a small buffer holds, so a client with one line
//! does not wait for a hundred clients that flood the daemon. While both kinds wait, each gets half of the bytes, so
//! neither can starve the other. This module does not interpret received bytes.

use std::collections::VecDeque;

use ringwise::Completion;

use super::buffers::{LARGE_BYTES, SMALL_BYTES};

/// The bytes of a connection that are looked at in one turn. It is also the number of bytes of small ones before a
/// large one has a turn.
const TURN_EACH_BYTES: usize = LARGE_BYTES;

/// The received bytes that a connection has waiting.
#[derive(Default)]
pub(super) struct Queue {
    completions: VecDeque<Completion>,
    /// Bytes that may be looked at before the next connection has its turn. 0 means that the connection is in no list.
    left_bytes: usize,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.completions.is_empty()
    }
}

/// Connections with waiting bytes, each in one of the lists.
#[derive(Default)]
pub(super) struct Turns {
    /// Connections whose first waiting receive is smaller than a small buffer.
    small: VecDeque<usize>,
    large: VecDeque<usize>,
    /// Bytes of small connections that were looked at since the last turn of a large one.
    small_bytes: usize,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.small.is_empty() && self.large.is_empty()
    }

    /// Whether a receive may be looked at before those that wait.
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

    /// Adds a receive behind what the connection has waiting already.
    pub(super) fn add(&mut self, index: usize, queue: &mut Queue, completion: Completion) {
        if queue.left_bytes == 0 {
            queue.left_bytes = TURN_EACH_BYTES;
            let is_large = len(&completion) >= SMALL_BYTES;
            if is_large { &mut self.large } else { &mut self.small }.push_back(index);
        }
        queue.completions.push_back(completion);
    }

    /// Returns the connection whose turn it is. The caller passes its queue to [`take`](Self::take).
    pub(super) fn next(&self) -> Option<usize> {
        let list = if self.list()? { &self.large } else { &self.small };
        list.front().copied()
    }

    /// Takes the next receive of the connection whose turn it is.
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

    /// Whether the next turn belongs to a large connection. None if no connection waits.
    fn list(&self) -> Option<bool> {
        match (self.small.is_empty(), self.large.is_empty()) {
            (true, true) => None,
            (false, false) => Some(self.small_bytes >= TURN_EACH_BYTES),
            (is_large, _) => Some(is_large),
        }
    }
}

/// The number of received bytes. A completion that reports an error or the end has none.
pub(super) fn len(completion: &Completion) -> usize {
    usize::try_from(completion.raw_result()).unwrap_or(0)
}
