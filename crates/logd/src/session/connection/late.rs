//! Time limits of a connection: for its handshake, for silence, and for its parting.
//!
//! A client that does not ask for acknowledgements may be silent for any time, even before its first line,
//! unless the operator sets a limit (`--idle`).

use std::time::{Duration, Instant};

use super::{Connection, Desk, Receiving, Stage, limits::PARTING_TIME};

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    Handshake,
    Silence,
    Parting,
}

impl Connection {
    /// What takes too long, if anything does. Until `busy_until` the thread had bytes that it had not looked at,
    /// so time before that is no silence.
    pub(crate) fn late(
        &self,
        now: Instant,
        busy_until: Instant,
        handshake: Duration,
        idle: Option<Duration>,
    ) -> Option<Late> {
        let silence = now.saturating_duration_since(self.heard);
        let is_silent = |idle: Duration| {
            // While the daemon does not receive, the client may have sent much, unless it reads no answers.
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

    /// Ends the connection for that reason.
    pub(crate) fn end_for(&mut self, late: Late, desk: &mut Desk<'_>) {
        match late {
            Late::Handshake => self.session_failed("no handshake within --tls-handshake", desk),
            Late::Silence => {
                desk.counts.idle_ended += 1;
                self.drain();
            }
            // All was acknowledged, so the connection does not count as broken.
            Late::Parting => self.stage = Stage::Broken,
        }
    }
}
