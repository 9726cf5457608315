//! How much a thread's connections keep together, and what is done when that is too much.
//!
//! Senders wait: what comes beyond the budget is left in the shared buffers, of which there are few. Only what
//! waits for a client is given up, since to wait for that may be to wait for ever: lines without an end, and
//! answers that are not read.

use std::time::Duration;

use ringwise::net;

use super::Worker;
use crate::{
    log,
    unfinished::{self, Line},
};

/// How long a client may read nothing before it can be ended for the others' sake.
const UNREAD_TIME: Duration = Duration::from_secs(1);

impl Worker {
    /// Counts what a connection keeps now.
    pub(super) fn count_kept(&mut self, index: usize) {
        if let Some(client) = &mut self.clients[index] {
            let now = client.connection.kept();
            self.kept.replace(std::mem::replace(&mut client.kept, now), now);
        }
    }

    /// Ends connections of clients that do not read, where what waits for them takes half of the memory:
    /// nothing but they could free it.
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
        // Somewhat more, so that it is not looked at all of them again at once.
        let given_up = unfinished::to_give_up(waiting, excess + max / 16);
        if given_up.is_empty() {
            return;
        }
        log::remark(
            "answers",
            format_args!(
                "{} connections are ended, of those with the most answers that are not read or lines \
                 beyond a quota: too little memory (--budget)",
                given_up.len()
            ),
        );
        for index in given_up {
            if let Some(client) = &mut self.clients[index] {
                client.connection.give_up_answers();
                // The send in flight ends with it.
                let _ = net::shutdown(&client.socket, net::Shutdown::Both);
            }
            self.count_kept(index);
            self.touch(index);
        }
    }

    /// Has unfinished lines given up that have more memory than all of them may: half of what there
    /// is, since were they to fill all of it nothing would ever go on.
    pub(super) fn give_up_lines(&mut self) {
        let Some(excess) = self.partials.excess(self.limits.budget_all / 2) else { return };
        let lines = self.clients.iter().enumerate().filter_map(|(connection, client)| {
            let client = client.as_ref()?;
            let since = client.connection.unfinished_since()?;
            let (owner, bytes) = (client.connection.owner(), client.connection.partial());
            Some(Line { connection, owner, bytes, since })
        });
        let given_up = unfinished::to_give_up(lines, excess);
        log::remark(
            "unfinished",
            format_args!(
                "{} unfinished lines are given up, of who has the most: too little memory (--budget)",
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

    /// Whether all connections together hold more than they may. Of an unfinished line each may keep a
    /// little whatever the others do, so that is not counted.
    pub(super) fn is_over(&self) -> bool {
        self.held() - self.partials.free() > self.limits.budget_all
    }

    /// Whether what comes is left in its buffers, of which there are few, so that senders wait. The batch
    /// that is filled is large enough to go next; or where storing has stalled, or there is no space, the
    /// budget is used up.
    pub(super) fn is_full(&self) -> bool {
        let is_large = !self.batch.is_empty() && self.batch.held() >= self.limits.commit_max;
        let is_storing = !self.storage.is_stalled() && !self.storage.is_low();
        is_large && is_storing || self.is_over()
    }
}
