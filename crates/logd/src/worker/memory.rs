//! The memory that the connections of a thread use together, and what happens if it is too much.
//!
//! Usually senders wait: bytes beyond the budget stay in the shared receive buffers, which are few. Only memory that a
//! client would have to free is given up, because the client may never do so: unfinished lines, and answers that the
//! client does not read.

use std::time::Duration;

use ringwise::net;

use super::Worker;
use crate::{
    monitoring::log,
    session::unfinished::{self, Line},
};

/// How long a client may leave answers unread before its connection can be ended to free memory for others.
const UNREAD_TIME: Duration = Duration::from_secs(1);

impl Worker {
    /// Updates the count of a connection's memory.
    pub(super) fn count_kept(&mut self, index: usize) {
        if let Some(client) = &mut self.clients[index] {
            let now = client.connection.kept();
            self.kept.replace(std::mem::replace(&mut client.kept, now), now);
        }
    }

    /// Ends connections of clients that do not read their answers or have lines beyond a quota, if together they use more
    /// than half of the memory. Only these clients could free it otherwise.
    pub(super) fn give_up_answers(&mut self) {
        let max = self.limits.budget_all / 2;
        let Some(excess) = self.kept.unread.checked_sub(max).filter(|excess| *excess > 0) else {
            return;
        };
        let waiting = self.clients.iter().enumerate().filter_map(|(connection, client)| {
            let client = client.as_ref()?;
            let since = client.connection.unread_since()?;
            let (owner, bytes) = (client.connection.owner(), client.kept.unread);
            (since.elapsed() > UNREAD_TIME).then_some(Line { connection, owner, bytes, since })
        });
        // Frees a little more, so that the next few bytes do not start another search over all connections.
        let given_up = unfinished::to_give_up(waiting, 0, excess + max / 16);
        if given_up.is_empty() {
            return;
        }
        log::remark(
            "answers",
            format_args!(
                "--budget is used up: closed {} connections, those with the most unread answers or lines \
                 beyond a quota",
                given_up.len()
            ),
        );
        for index in given_up {
            if let Some(client) = &mut self.clients[index] {
                client.connection.give_up_answers();
                // The shutdown also ends the send in flight.
                let _ = net::shutdown(&client.socket, net::Shutdown::Both);
            }
            self.count_kept(index);
            self.touch(index);
        }
    }

    /// Gives up unfinished lines if together they use more than half of the memory. If they filled all of it, no line
    /// could ever be finished.
    pub(super) fn give_up_lines(&mut self) {
        let Some(excess) = self.partials.excess(self.limits.budget_all / 2) else { return };
        let lines = self.clients.iter().enumerate().filter_map(|(connection, client)| {
            let client = client.as_ref()?;
            let since = client.connection.unfinished_since()?;
            let (owner, bytes) = (client.connection.owner(), client.connection.partial());
            Some(Line { connection, owner, bytes, since })
        });
        let given_up = unfinished::to_give_up(lines, unfinished::FREE_BYTES, excess);
        log::remark(
            "unfinished",
            format_args!(
                "--budget is used up: gave up {} unfinished lines of the clients that use the most memory",
                given_up.len()
            ),
        );
        for index in given_up {
            if let Some(client) = &mut self.clients[index] {
                client.connection.give_up_line(&mut self.partials);
                if client.connection.is_broken() {
                    // It ends, and a send in flight with it.
                    let _ = net::shutdown(&client.socket, net::Shutdown::Both);
                    self.touch(index);
                }
            }
        }
    }

    /// Bytes that were received and are not committed, and answers.
    pub(super) fn held(&self) -> usize {
        self.batch.held() + self.committing_held + self.partials.bytes + self.kept.bytes
    }

    /// Whether all connections together use more than the budget. The few bytes of an unfinished line that each
    /// connection may always keep are not counted. Batches beyond the usual size are counted twice, because a direct
    /// write copies them.
    pub(super) fn is_over(&self) -> bool {
        let copied = |bytes: usize| bytes.saturating_sub(self.limits.commit_max);
        let copies = copied(self.batch.held()) + copied(self.committing_held);
        self.held() + copies - self.partials.free() > self.limits.budget_all
    }

    /// Whether received bytes stay in their buffers, so that senders wait: the batch that is being filled is large
    /// enough, or the budget is used up. The size of the batch does not count while storing has stalled or space is
    /// short.
    pub(super) fn is_full(&self) -> bool {
        let is_large = !self.batch.is_empty() && self.batch.held() >= self.limits.commit_max;
        let is_storing = !self.storage.is_stalled() && !self.storage.is_low();
        is_large && is_storing || self.is_over()
    }
}
