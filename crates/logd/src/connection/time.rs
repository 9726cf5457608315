//! What a connection has a limited time for: its handshake, saying something, and going away.
//!
//! A client that does not ask for acknowledgements may be quiet for as long as it likes, also before
//! its first line, unless the operator says otherwise (`--idle`).

use std::time::{Duration, Instant};

use super::{Connection, Desk, Stage};

/// How long who was told that nothing more comes has to go. What it sends meanwhile is dropped.
const PARTING_TIME: Duration = Duration::from_secs(3);

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    Handshake,
    Silence,
    Parting,
}

impl Connection {
    /// What takes longer than it may, if something does.
    pub(crate) fn late(
        &self,
        now: Instant,
        handshake: Duration,
        idle: Option<Duration>,
    ) -> Option<Late> {
        let silence = now.saturating_duration_since(self.heard);
        match self.stage {
            Stage::Open if self.tls.as_ref().is_some_and(|tls| tls.is_late(handshake)) => {
                Some(Late::Handshake)
            }
            Stage::Open if !self.has_uncommitted() && idle.is_some_and(|idle| silence >= idle) => {
                Some(Late::Silence)
            }
            Stage::Parting if silence >= PARTING_TIME => Some(Late::Parting),
            _ => None,
        }
    }

    /// Ends it for that.
    pub(crate) fn end_for(&mut self, late: Late, desk: &mut Desk<'_>) {
        match late {
            Late::Handshake => self.session_failed("no handshake within --tls-handshake", desk),
            Late::Silence => self.drain(),
            // It is told everything, and is not broken.
            Late::Parting => self.stage = Stage::Broken,
        }
    }
}
