//! How long to wait before the next connection.
//!
//! Pauses double up to a limit, and are a random part of that, so that the clients of a daemon that was away do not
//! come all at once. They begin anew after a connection that was good for something.

use std::time::Duration;

use crate::error::{Failure, Refusal};

/// The first pause when the daemon is still storing lines of the name.
const BUSY: Duration = Duration::from_millis(1);

/// Pauses between connections.
#[derive(Debug)]
pub(super) struct Backoff {
    least: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    pub(super) fn new(least: Duration, most: Duration) -> Backoff {
        Backoff { least, most, failures: 0 }
    }

    /// A connection was good.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The pause after a failure; half of it is random.
    pub(super) fn pause(&mut self, failure: &Failure) -> Duration {
        let least = match failure {
            Failure::Refused(Refusal::Busy) => BUSY.min(self.least),
            _ => self.least,
        };
        let doubled = least.saturating_mul(1 << self.failures.min(20)).min(self.most);
        self.failures = self.failures.saturating_add(1);
        doubled.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_begin_anew() {
        let (least, most) = (Duration::from_millis(50), Duration::from_secs(10));
        let mut backoff = Backoff::new(least, most);
        for exponent in 0..60 {
            let full = least.saturating_mul(1 << exponent.min(20)).min(most);
            let pause = backoff.pause(&Failure::Closed);
            assert!(pause >= full / 2 && pause <= full, "{exponent}: {pause:?}");
        }
        backoff.reset();
        assert!(backoff.pause(&Failure::Closed) <= least);
        backoff.reset();
        assert!(backoff.pause(&Failure::Refused(Refusal::Busy)) <= BUSY);
    }
}
