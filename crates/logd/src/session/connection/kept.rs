//! What a connection keeps besides lines in a batch, and how it gives that up.
//!
//! Answers stay until the client reads them, so a client that does not read takes memory from all others.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use super::{Connection, Stage};
use crate::{
    clients::tenants::Tenants,
    disk::segment::format::record::Origin,
    session::{
        tls::Session,
        unfinished::{FREE_BYTES, Held, Kept, Owner, network},
    },
};

impl Connection {
    /// What it keeps besides its lines: bytes that were not looked at, and answers.
    pub(crate) fn kept(&self) -> Kept {
        let rejected = self.rejected.capacity() * size_of::<(u64, &str)>();
        let answers = self.answers.capacity() + self.unsent.capacity() + self.sending + rejected;
        let bytes = self.backlog.capacity() + answers;
        Kept { bytes, unread: if self.unread_since().is_some() { bytes } else { 0 } }
    }

    /// Lines from here on are this tenant's.
    pub(super) fn identify(&mut self, tenant: &str, tenants: &Tenants) {
        if self.origin.tenant.as_deref() != Some(tenant) {
            self.account = tenants.account(Some(tenant)).clone();
            let origin = Origin { peer: self.origin.peer, tenant: Some(tenant.into()) };
            self.origin = Arc::new(origin);
        }
    }

    /// Whose it is.
    pub(crate) fn owner(&self) -> Owner<'_> {
        let network = self.origin.peer.map_or(0, network);
        Owner::new(self.origin.tenant.as_deref(), network)
    }

    /// Since when it keeps memory that its client does not free: a send that is not read, or lines beyond
    /// its tenant's quota.
    pub(crate) fn unread_since(&self) -> Option<Instant> {
        if self.stage == Stage::Broken {
            return None;
        }
        let is_over_quota = self.has_backlog() && self.account.is_full();
        let since = if self.is_sending { Some(self.sending_since) } else { None };
        since.or(is_over_quota.then_some(self.heard))
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

    /// Keeps no more of such a line than each may: it is too long for the memory that there is. Of TLS no part
    /// can be given up, so if that has more the connection ends.
    pub(crate) fn give_up_line(&mut self, partials: &mut Held) {
        let of_tls = self.tls.as_ref().map_or(0, Session::held);
        let most = FREE_BYTES.saturating_sub(of_tls);
        self.give_up_opening(most);
        self.framer.give_up(most);
        self.octets.give_up(most);
        if of_tls > FREE_BYTES {
            self.tls = None;
            self.break_off();
        }
        self.count_partial(partials);
    }

    /// Bytes that it keeps of a line without an end.
    pub(super) fn unfinished(&self) -> usize {
        self.opening.held() + self.framer.held() + self.octets.held()
    }

    /// The same, and of TLS's records and handshakes without an end.
    pub(crate) fn partial(&self) -> usize {
        self.unfinished() + self.tls.as_ref().map_or(0, Session::held)
    }

    /// Counts what it keeps of these now.
    pub(super) fn count_partial(&mut self, partials: &mut Held) {
        let now = self.partial();
        partials.remove(std::mem::replace(&mut self.counted, now));
        partials.add(now);
        if now == 0 {
            self.unfinished_since = None;
        } else {
            self.unfinished_since.get_or_insert(self.heard);
        }
    }

    /// As how much of these it is counted.
    pub(crate) fn counted(&self) -> usize {
        self.counted
    }
}
