//! The options that may change while the daemon runs, which SIGHUP reads again. It reads nothing itself.

use std::{sync::Arc, time::Duration};

use crate::{
    clients::tokens::Tokens,
    disk::segment::{retention::Policy, writing::appender::Limits as SegmentLimits},
    session::connection::Limits,
};

/// What may change while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    pub(crate) limits: Limits,
    pub(crate) segments: SegmentLimits,
    pub(crate) care: Care,
    /// Where connections speak TLS.
    pub(crate) tls: Option<Arc<rustls::ServerConfig>>,
    /// How long a handshake may take.
    pub(crate) handshake: Duration,
    /// Who may read lines on the status page, if it is told by tokens.
    pub(crate) page_tokens: Option<Arc<Tokens>>,
}

/// What is done with ended segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Care {
    pub(crate) policy: Policy,
    /// zstd's level; nothing is not to pack.
    pub(crate) pack_level: Option<i32>,
    /// After how long without a use names expire.
    pub(crate) forget_names: Option<Duration>,
}
