//! What a connection has a limited time for: its handshake, saying something, and going away.
//!
//! A client that does not ask for acknowledgements may be quiet for as long as it likes, also before
//! its first line, unless the operator says otherwise (`--idle`).

use std::time::{Duration, Instant};

use super::{Connection, Desk, Receiving, Stage};

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
    /// What takes longer than it may, if something does. Until `busy_until` the thread did not look at all
    /// that came, so nobody was silent before that.
    pub(crate) fn late(
        &self,
        now: Instant,
        busy_until: Instant,
        handshake: Duration,
        idle: Option<Duration>,
    ) -> Option<Late> {
        let silence = now.saturating_duration_since(self.heard);
        let is_silent = |idle: Duration| {
            // One that is not received from may have much to say, unless that is its own doing.
            let is_heard = self.receiving == Receiving::Armed || self.answers_are_many();
            is_heard
                && !self.has_uncommitted()
                && now.saturating_duration_since(self.heard.max(busy_until)) >= idle
        };
        match self.stage {
            Stage::Open if self.tls.as_ref().is_some_and(|tls| tls.is_late(handshake)) => {
                Some(Late::Handshake)
            }
            Stage::Open if idle.is_some_and(is_silent) => Some(Late::Silence),
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
