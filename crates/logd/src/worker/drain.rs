//! The end of a thread: what was sent is taken, stored and acknowledged, and then connections are ended.

use std::time::{Duration, Instant};

use super::Worker;
use crate::error::LogdError;

/// How long nothing may come before a drain takes it that all has come.
const QUIET_TIME: Duration = Duration::from_millis(100);

/// A drain first takes what has been sent, until nothing comes for a while, then ends connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    /// When the last bytes came.
    pub(super) received: Instant,
    /// When taking ends even if more comes.
    taking_until: Instant,
    until: Instant,
    pub(super) is_taking: bool,
}

impl Worker {
    pub(super) fn begin_drain(&mut self) -> Result<(), LogdError> {
        let now = Instant::now();
        if let Some(draining) = &mut self.draining {
            // Asked twice: at once.
            draining.until = now;
            return Ok(());
        }
        self.draining = Some(Draining {
            received: now,
            taking_until: now + self.drain / 2,
            until: now + self.drain,
            is_taking: true,
        });
        Ok(self.door.shut(&mut self.local)?)
    }

    /// Ends the taking of a drain when nothing came for a while, or for too long.
    pub(super) fn look_at_drain(&mut self) {
        let Some(draining) = &mut self.draining else { return };
        let now = Instant::now();
        if !self.turns.is_empty() {
            draining.received = now;
        }
        if !draining.is_taking
            || (now < draining.received + QUIET_TIME && now < draining.taking_until)
        {
            return;
        }
        draining.is_taking = false;
        for index in 0..self.clients.len() {
            if let Some(client) = &mut self.clients[index] {
                client.connection.drain();
                self.touch(index);
            }
        }
    }

    pub(super) fn has_drained(&self) -> bool {
        let Some(draining) = self.draining else { return false };
        let is_stored = self.batch.is_empty() && !self.storage.is_busy();
        let is_over = Instant::now() >= draining.until;
        is_over || (!draining.is_taking && self.door.open() == 0 && is_stored)
    }
}
