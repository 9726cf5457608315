//! Whether one thread is enough for what a ring's tasks do.
//!
//! Tasks that are woken one after the other stay on one thread, which is the cheapest as long as they
//! do little between two operations. Where they compute, or there are more results than a thread can
//! take, it never comes to rest; then they are woken all at once for a while, for as many threads as
//! the runtime has, before it is tried again. Nothing of that changes what a task gets.

use std::time::{Duration, Instant};

use crate::ring::hub::Spread;

/// How long tasks go one after the other without a rest before they are spread over all threads. A
/// thousand results and more are handed out in that time.
const PATIENCE: Duration = Duration::from_millis(4);
/// For how many times as long they are spread, the first time, and at most: so little is lost where
/// it does not help that it is tried again.
const TIMES: u32 = 4;
const TIMES_MAX: u32 = 128;

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Since when there was always somebody whose turn was to come.
    busy_since: Option<Instant>,
    spread_until: Option<Instant>,
    /// How often one thread was not enough since it last was: at most what makes `TIMES_MAX`.
    failures: u32,
}

impl Pace {
    /// How the results that are there are handed out. The clock is read only where it matters.
    pub(super) fn spread(&mut self, now: impl Fn() -> Instant) -> Spread {
        if let Some(until) = self.spread_until {
            if now() < until {
                return Spread::AtOnce;
            }
            (self.spread_until, self.busy_since) = (None, None);
        }
        let Some(busy_since) = self.busy_since else { return Spread::InTurn };
        let now = now();
        let busy = now.saturating_duration_since(busy_since);
        if busy < PATIENCE {
            return Spread::InTurn;
        }
        let times = TIMES << self.failures;
        self.failures = (self.failures + 1).min((TIMES_MAX / TIMES).ilog2());
        self.spread_until = now.checked_add(busy.saturating_mul(times));
        Spread::AtOnce
    }

    /// Others wait for their turn.
    pub(super) fn go_on(&mut self, now: impl Fn() -> Instant) {
        self.busy_since.get_or_insert_with(now);
    }

    /// Nobody does: one thread was enough, if it was tried.
    pub(super) fn rest(&mut self) {
        if self.spread_until.is_none() && self.busy_since.take().is_some() {
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tasks that always leave somebody waiting for a turn, `ms` each time.
    fn overload(pace: &mut Pace, start: Instant, ms: u64) -> (Spread, Instant) {
        assert_eq!(pace.spread(|| start), Spread::InTurn);
        pace.go_on(|| start);
        let end = start + Duration::from_millis(ms);
        (pace.spread(|| end), end)
    }

    #[test]
    fn one_thread_is_enough_until_it_never_rests() {
        let mut pace = Pace::default();
        let start = Instant::now();
        assert_eq!(overload(&mut pace, start, 3).0, Spread::InTurn);
        pace.rest();
        // A rest in between: it begins anew.
        assert_eq!(overload(&mut pace, start, 3).0, Spread::InTurn);
        assert_eq!(pace.spread(|| start + PATIENCE), Spread::AtOnce);
    }

    #[test]
    fn it_is_tried_again_and_each_time_later() {
        let mut pace = Pace::default();
        let mut now = Instant::now();
        for times in [4, 8, 16, 32, 64, 128, 128] {
            let (spread, end) = overload(&mut pace, now, 10);
            assert_eq!(spread, Spread::AtOnce);
            // To come to rest with all threads says nothing of one.
            pace.rest();
            let until = end + Duration::from_millis(10) * times;
            assert_eq!(pace.spread(|| until - Duration::from_millis(1)), Spread::AtOnce);
            now = until;
        }
        assert_eq!(pace.spread(|| now), Spread::InTurn);
        pace.go_on(|| now);
        pace.rest();
        let (_, end) = overload(&mut pace, now, 10);
        assert_eq!(pace.spread(|| end + Duration::from_millis(40)), Spread::InTurn);
    }
}
