//! What connections are allowed: most of it by the operator, as it was decided from the options. It enforces nothing.

use std::{sync::Arc, time::Duration};

use clap::ValueEnum;

use crate::{
    clients::{names::NameRule, tokens::Tokens},
    lines::{framing::Framing, json::Rules, wrap::Wrap},
};

/// How long a client has to close after the daemon ended its side. What it sends meanwhile is dropped.
pub(crate) const PARTING_TIME: Duration = Duration::from_secs(3);

/// What applies to all connections.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) rules: Rules,
    /// Bytes of a line.
    pub(crate) line_max: usize,
    pub(crate) long_lines: LongLines,
    pub(crate) framing: Framing,
    /// What becomes of lines that are no JSON.
    pub(crate) wrap: Wrap,
    /// Uncommitted bytes of a connection from which on nothing more is received.
    pub(crate) budget_each: usize,
    /// The same for all connections of a thread.
    pub(crate) budget_all: usize,
    /// Bytes of a batch from which on it waits for the one on its way.
    pub(crate) commit_max: usize,
    /// Completions that are looked at in a turn; at 1 each answer is a send of its own too.
    pub(crate) turn_max: usize,
    /// Who may have names, and how many each may bring.
    pub(crate) names: (NameRule, usize),
    pub(crate) tokens: Arc<Tokens>,
    /// Who may send lines.
    pub(crate) senders: Senders,
    /// Connections that one address may have, if there is a limit.
    pub(crate) address_connections: Option<u32>,
    /// How long nothing may come from a connection, if there is a limit.
    pub(crate) idle: Option<Duration>,
}

/// What becomes of lines that are too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LongLines {
    /// Their beginnings are stored as dead letters
    DeadLetter,
    /// They are not stored; logd counts them and logs their senders
    Refuse,
}

/// Who may send lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Senders {
    /// All clients that reach a port
    #[default]
    Anyone,
    /// Clients with a tenant: from a token, a certificate or an address (--tenant NAME,from=NETWORK)
    Tenants,
}

impl Limits {
    /// Whether a client with such a tenant may send lines.
    pub(crate) fn lets_send(&self, tenant: Option<&str>) -> bool {
        self.senders == Senders::Anyone || tenant.is_some()
    }

    /// Uncommitted bytes that a connection may have. A line with CR and LF always fits.
    pub(crate) fn of_each(&self) -> usize {
        self.budget_each.max(self.line_max.saturating_add(2))
    }

    /// Whether a line without an end, of which so much came, is refused for its length.
    pub(super) fn refuses(&self, bytes: u64) -> bool {
        self.long_lines == LongLines::Refuse && bytes > self.line_max as u64
    }
}
