//! What a connection keeps besides lines in a batch, and how it gives that up.
//!
//! Answers stay until the client reads them, so a client that does not read takes memory from all others.

use std::{collections::VecDeque, time::Instant};

use super::{Connection, Stage};
use crate::unfinished::{FREE_BYTES, Held, Kept};

impl Connection {
    /// What it keeps besides its lines: bytes that were not looked at, and answers.
    pub(crate) fn kept(&self) -> Kept {
        let rejected = self.rejected.capacity() * size_of::<(u64, &str)>();
        let answers = self.answers.capacity() + self.unsent.capacity() + self.sending + rejected;
        let bytes = self.backlog.capacity() + answers;
        Kept { bytes, unread: if self.unread().is_some() { bytes } else { 0 } }
    }

    /// Since when its client reads nothing of a send, if there is one; and whose certificate it showed.
    pub(crate) fn unread(&self) -> Option<(Instant, Option<&str>)> {
        let is_waiting = self.is_sending && self.stage != Stage::Broken;
        is_waiting.then_some((self.sending_since, self.tenant.as_deref()))
    }

    /// Ends it, since its client does not read its answers and others need the memory.
    pub(crate) fn give_up_answers(&mut self) {
        self.rejected = VecDeque::new();
        (self.answers, self.unsent, self.backlog) = (Vec::new(), Vec::new(), Vec::new());
        self.break_off();
    }

    /// Since when it has a line without an end, if it has one; and whose certificate it showed.
    pub(crate) fn unfinished(&self) -> Option<(Instant, Option<&str>)> {
        self.unfinished_since.map(|since| (since, self.tenant.as_deref()))
    }

    /// Keeps no more of such a line than each may: it is too long for the memory that there is.
    pub(crate) fn give_up_line(&mut self, partials: &mut Held) {
        partials.remove(self.partial());
        self.framer.give_up(FREE_BYTES);
        self.octets.give_up(FREE_BYTES);
        partials.add(self.partial());
    }

    /// Bytes that it keeps of a line without an end.
    pub(crate) fn partial(&self) -> usize {
        self.framer.held() + self.octets.held()
    }
}
