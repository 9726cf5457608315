//! The drain of a thread: it receives, stores and acknowledges what clients have sent, and then ends connections.

use std::time::{Duration, Instant};

use super::Worker;
use crate::error::LogdError;

/// How long nothing has to arrive until a drain assumes that it has received everything.
const QUIET_TIME: Duration = Duration::from_millis(100);

/// A drain receives until nothing has arrived for a while. Then it ends connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    /// When the last bytes arrived.
    pub(super) received: Instant,
    /// When receiving ends even if more arrives.
    taking_until: Instant,
    until: Instant,
    pub(super) is_taking: bool,
}

impl Worker {
    pub(super) fn begin_drain(&mut self) -> Result<(), LogdError> {
        let now = Instant::now();
        if let Some(draining) = &mut self.draining {
            // A second request ends the drain at once.
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

    /// Ends the receiving of a drain if nothing has arrived for a while, or if it has taken too long.
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
