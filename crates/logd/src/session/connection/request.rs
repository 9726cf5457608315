//! The lines of a request: a connection that asked for acknowledgements and has sent all that it will send.
//!
//! So the rules for lines are those of every connection. Who asks was found out before.

use std::net::SocketAddr;

use super::{Connection, Opening, state::Greeting};
use crate::{clients::tenants::Tenants, lines::framing::Framing};

impl Connection {
    /// The request with this number, of this client.
    pub(crate) fn of_request(
        number: u64,
        (peer, tenant): (SocketAddr, Option<&str>),
        framing: Framing,
        tenants: &Tenants,
    ) -> Connection {
        let mut own = Connection::new(number, Some(peer), framing, None, tenants);
        (own.greeting, own.opening) = (Greeting::Wanted, Opening::Lines);
        own.is_request = true;
        if let Some(tenant) = tenant {
            own.identify(tenant, tenants);
        }
        own
    }

    /// Whether its tenant has no room left.
    pub(crate) fn is_over_quota(&self) -> bool {
        self.account.is_full()
    }

    /// Whether it has lines in the batch that is filled.
    pub(crate) fn is_in_batch(&self) -> bool {
        self.filling.sequence > 0
    }

    /// Whether all its lines are committed.
    pub(crate) fn is_committed(&self) -> bool {
        !self.has_uncommitted()
    }

    /// How many lines it has sent.
    pub(crate) fn lines(&self) -> u64 {
        self.sequence
    }

    /// Lines that were rejected since the last call, with the reasons.
    pub(crate) fn take_rejected(&mut self) -> impl Iterator<Item = (u64, &'static str)> {
        std::mem::take(&mut self.rejected).into_iter()
    }
}
