//! Looking for work before sleeping, where that pays.
//!
//! A sleep costs a wake-up: on a virtual machine tens of microseconds, more than an echo takes. To
//! look at memory for as long spares it when an answer is about to come. When none is, looking is
//! time taken from whoever would send it, so a look that finds nothing makes the next ones rarer.

use std::time::{Duration, Instant};

/// Sleeps without a look, at most, after looks that found nothing.
const SKIPPED_MAX: u32 = 64;
/// As many looks that found work are remembered.
const HITS_MAX: u32 = 64;

/// When to look, and how it went.
#[derive(Debug)]
pub(crate) struct Spin {
    budget: Duration,
    /// Sleeps to come without a look.
    skipping: u32,
    /// How many are skipped after the next look in vain.
    next_skip: u32,
    /// Looks that found work of late: each in vain halves them.
    hits: u32,
    pub(crate) spared_sleeps: u64,
}

impl Spin {
    pub(crate) fn new(budget: Duration) -> Spin {
        Spin { budget, skipping: 0, next_skip: 0, hits: 0, spared_sleeps: 0 }
    }

    /// Whether the next sleep may be spared.
    pub(crate) fn is_worth_it(&mut self) -> bool {
        if self.budget.is_zero() {
            return false;
        }
        if self.skipping > 0 {
            self.skipping -= 1;
            return false;
        }
        true
    }

    /// Looks that found work of late: each in vain halves them.
    pub(crate) fn hits(&self) -> u32 {
        self.hits
    }

    /// Looks until there is work or the time is over; true: there is.
    pub(crate) fn look(&mut self, mut has_work: impl FnMut() -> bool) -> bool {
        let began = Instant::now();
        loop {
            // Eight looks for each reading of the clock, which costs as much as they do.
            for _ in 0..8 {
                if has_work() {
                    self.next_skip = 0;
                    self.hits = (self.hits + 1).min(HITS_MAX);
                    self.spared_sleeps += 1;
                    return true;
                }
                std::hint::spin_loop();
            }
            if began.elapsed() >= self.budget {
                // One in vain among many is a processor that was taken away, and says nothing.
                self.skipping = self.next_skip;
                self.next_skip = (self.next_skip * 2 + 1).min(SKIPPED_MAX);
                self.hits /= 2;
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_budget_is_never_a_look() {
        assert!(!Spin::new(Duration::ZERO).is_worth_it());
    }

    #[test]
    fn looks_in_vain_become_rare_and_one_that_finds_makes_them_frequent_again() {
        let mut spin = Spin::new(Duration::from_micros(1));
        let mut looks = 0;
        for _ in 0..1000 {
            if spin.is_worth_it() {
                assert!(!spin.look(|| false));
                looks += 1;
            }
        }
        assert!((10..40).contains(&looks), "{looks} looks in vain before 1000 sleeps");
        while !spin.is_worth_it() {}
        assert_eq!(spin.hits(), 0);
        assert!(spin.look(|| true));
        assert!(spin.is_worth_it() && spin.is_worth_it());
        assert_eq!((spin.spared_sleeps, spin.hits()), (1, 1));
        (0..1000).for_each(|_| assert!(spin.look(|| true)));
        assert!(!spin.look(|| false) && spin.is_worth_it(), "one in vain is none");
        assert_eq!(spin.hits(), HITS_MAX / 2);
        assert!(!spin.look(|| false) && !spin.is_worth_it());
    }
}
