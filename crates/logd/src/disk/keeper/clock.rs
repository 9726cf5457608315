//! The age of segments, by a wall clock that may jump.
//!
//! If the clock is set ten years forward, no segment may become ten years old at once, because retention would
//! remove them all. So a jump forward does not age what was there before it. The time that a machine sleeps
//! counts as a jump. A clock that is wrong at the start is not noticed.

use std::time::{Duration, Instant};

/// A smaller difference between two looks is no jump, but rounding or a correction.
const TOLERANCE_MS: u64 = 60_000;

/// The wall clock and its jumps.
#[derive(Debug)]
pub(super) struct Clock {
    looked: Instant,
    now_ms: u64,
    jumps: Vec<Jump>,
}

/// A jump forward.
#[derive(Clone, Copy, Debug)]
struct Jump {
    /// What the clock said after it, in milliseconds since 1970.
    to_ms: u64,
    by_ms: u64,
}

impl Clock {
    /// A clock that says so now, in milliseconds since 1970.
    pub(super) fn new(now_ms: u64) -> Clock {
        Clock { looked: Instant::now(), now_ms, jumps: Vec::new() }
    }

    /// Takes what the clock says; gives by how much it jumped forward, if it did.
    pub(super) fn look(&mut self, now_ms: u64) -> Option<Duration> {
        let passed = std::mem::replace(&mut self.looked, Instant::now()).elapsed();
        self.pass(passed, now_ms)
    }

    fn pass(&mut self, passed: Duration, now_ms: u64) -> Option<Duration> {
        let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        let expected_ms = self.now_ms.saturating_add(passed_ms);
        self.now_ms = now_ms;
        // Those that it was set back over did not happen.
        self.jumps.retain(|jump| jump.to_ms <= now_ms);
        let by_ms = now_ms.saturating_sub(expected_ms);
        if by_ms <= TOLERANCE_MS {
            return None;
        }
        self.jumps.push(Jump { to_ms: now_ms, by_ms });
        Some(Duration::from_millis(by_ms))
    }

    /// How long ago something was, in milliseconds, that bears this time.
    pub(super) fn age_ms(&self, then_ms: u64) -> u64 {
        let jumps = self.jumps.iter().filter(|jump| jump.to_ms > then_ms);
        let jumped_ms = jumps.map(|jump| jump.by_ms).fold(0, u64::saturating_add);
        self.now_ms.saturating_sub(then_ms).saturating_sub(jumped_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const HOUR_MS: u64 = 3_600_000;
    const YEAR_MS: u64 = 365 * 24 * HOUR_MS;

    #[test]
    fn without_jumps_it_is_the_wall_clock() {
        let mut clock = Clock::new(10 * HOUR_MS);
        assert_eq!(clock.age_ms(9 * HOUR_MS), HOUR_MS);
        assert_eq!(clock.pass(HOUR, 11 * HOUR_MS + 900), None);
        assert_eq!(clock.age_ms(9 * HOUR_MS), 2 * HOUR_MS + 900);
        assert_eq!(clock.age_ms(12 * HOUR_MS), 0, "of the future");
    }

    #[test]
    fn a_jump_forward_makes_nothing_old_that_was_there() {
        let mut clock = Clock::new(YEAR_MS);
        assert_eq!(
            clock.pass(HOUR, 11 * YEAR_MS),
            Some(Duration::from_millis(10 * YEAR_MS) - HOUR)
        );
        assert_eq!(clock.age_ms(YEAR_MS), HOUR_MS);
        // What comes after it grows old as it should, and so does what was there.
        assert_eq!(clock.pass(HOUR, 11 * YEAR_MS + HOUR_MS), None);
        assert_eq!(clock.age_ms(11 * YEAR_MS), HOUR_MS);
        assert_eq!(clock.age_ms(YEAR_MS), 2 * HOUR_MS);
    }

    #[test]
    fn a_jump_back_undoes_one_forward() {
        let mut clock = Clock::new(YEAR_MS);
        clock.pass(HOUR, 11 * YEAR_MS);
        assert_eq!(clock.pass(HOUR, YEAR_MS + 2 * HOUR_MS), None);
        assert_eq!(clock.age_ms(YEAR_MS), 2 * HOUR_MS);
        assert_eq!(clock.pass(HOUR, 0), None);
        assert_eq!(clock.age_ms(YEAR_MS), 0);
    }
}
