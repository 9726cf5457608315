//! How fast a device takes what it is given, so that none that is slow is waited for.

use std::time::{Duration, Instant};

/// Below this the device is what a copy waits for, and the page cache would let it return sooner.
pub(super) const BYTES_PER_S_MIN: f64 = 300e6;

/// So much has to be written before a device is given up.
const SLOW_BYTES: u64 = 64 << 20;

/// What was written, and how long the device had something to do.
#[derive(Debug, Default)]
pub(super) struct Pace {
    bytes: u64,
    busy: Duration,
    since: Option<Instant>,
}

impl Pace {
    /// Whether it is known to be slow.
    pub(super) fn is_slow(&self) -> bool {
        self.bytes >= SLOW_BYTES && !self.is_fast()
    }

    /// Whether all that was written so far was written fast.
    pub(super) fn is_proved(&self) -> bool {
        self.bytes > 0 && self.is_fast()
    }

    fn is_fast(&self) -> bool {
        let now = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        self.bytes as f64 >= BYTES_PER_S_MIN * (self.busy + now).as_secs_f64()
    }

    /// It has something to do.
    pub(super) fn work(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// It has nothing to do.
    pub(super) fn rest(&mut self) {
        if let Some(since) = self.since.take() {
            self.busy += since.elapsed();
        }
    }

    /// It wrote so many bytes.
    pub(super) fn take(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_needs_some_bytes_to_be_one() {
        let mut pace = Pace { bytes: 1 << 20, busy: Duration::from_secs(1), since: None };
        assert!(!pace.is_slow() && !pace.is_proved());
        pace.bytes = 200 << 20;
        assert!(pace.is_slow() && !pace.is_proved());
        pace.busy = Duration::from_millis(100);
        assert!(!pace.is_slow() && pace.is_proved());
        assert!(!Pace::default().is_proved());
    }
}
