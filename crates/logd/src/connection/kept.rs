//! What a connection keeps besides lines in a batch, and how it gives that up.
//!
//! Answers stay until the client reads them, so a client that does not read takes memory from all others.

use std::{collections::VecDeque, time::Instant};

use super::{Connection, Stage};
use crate::unfinished::{FREE_BYTES, Held, Kept, Owner};

impl Connection {
    /// What it keeps besides its lines: bytes that were not looked at, and answers.
    pub(crate) fn kept(&self) -> Kept {
        let rejected = self.rejected.capacity() * size_of::<(u64, &str)>();
        let answers = self.answers.capacity() + self.unsent.capacity() + self.sending + rejected;
        let bytes = self.backlog.capacity() + answers;
        Kept { bytes, unread: if self.unread_since().is_some() { bytes } else { 0 } }
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> Owner<'_> {
        Owner::new(self.tenant.as_deref(), self.network)
    }

    /// Since when its client reads nothing of a send, if there is one.
    pub(crate) fn unread_since(&self) -> Option<Instant> {
        (self.is_sending && self.stage != Stage::Broken).then_some(self.sending_since)
    }

    /// Ends it, since its client does not read its answers and others need the memory.
    pub(crate) fn give_up_answers(&mut self) {
        self.rejected = VecDeque::new();
        (self.answers, self.unsent, self.backlog) = (Vec::new(), Vec::new(), Vec::new());
        self.break_off();
    }

    /// Since when it has a line without an end, if it has one.
    pub(crate) fn unfinished_since(&self) -> Option<Instant> {
        self.unfinished_since
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
