//! When operations are to begin in an open loop: evenly, dealt out to the connections in turn, or
//! on all connections at one moment.
//!
//! The schedule follows from the rate alone. It knows no server, so that one that stalls cannot
//! slow it.

/// The schedule of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Between two operations of a connection.
    period_ns: f64,
    /// Between those of two connections.
    step_ns: f64,
    /// When the thread's first operation begins.
    first_ns: u64,
    connections: u64,
}

impl Pace {
    /// The schedule of thread `thread` of `threads` that has `connections` of `all`, for
    /// `rate_per_s` over all.
    pub(crate) fn new(
        rate_per_s: f64,
        (thread, threads): (usize, usize),
        (connections, all): (usize, usize),
        start_ns: u64,
    ) -> Pace {
        let own_rate = rate_per_s * connections as f64 / all as f64;
        let step_ns = 1e9 / own_rate;
        // Threads begin one after the other within an interval, not all at once.
        let offset_ns = step_ns * thread as f64 / threads as f64;
        Pace {
            period_ns: step_ns * connections as f64,
            step_ns,
            first_ns: start_ns + offset_ns as u64,
            connections: connections as u64,
        }
    }

    /// The schedule of a thread whose `connections` all begin an operation at each period's
    /// beginning.
    pub(crate) fn together(period_ns: f64, connections: usize, start_ns: u64) -> Pace {
        let connections = connections as u64;
        Pace { period_ns, step_ns: 0.0, first_ns: start_ns, connections }
    }

    /// When the thread's operation `number` is to begin.
    pub(crate) fn intended_ns(&self, number: u64) -> u64 {
        self.intended_of_ns(self.connection(number), number / self.connections)
    }

    /// The connection of the thread's operation `number`.
    pub(crate) fn connection(&self, number: u64) -> usize {
        (number % self.connections) as usize
    }

    /// When operation `nth` of a connection is to begin.
    pub(crate) fn intended_of_ns(&self, connection: usize, nth: u64) -> u64 {
        let since = self.period_ns * nth as f64 + self.step_ns * connection as f64;
        self.first_ns + since as u64
    }

    /// How many operations of a connection are to begin before a moment.
    pub(crate) fn count_before(&self, connection: usize, end_ns: u64) -> u64 {
        let first_ns = self.intended_of_ns(connection, 0);
        let Some(span_ns) = end_ns.checked_sub(first_ns) else { return 0 };
        let mut count = (span_ns as f64 / self.period_ns) as u64 + 1;
        while count > 0 && self.intended_of_ns(connection, count - 1) >= end_ns {
            count -= 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_and_dealt_out_in_turn() {
        let pace = Pace::new(1000.0, (0, 1), (4, 4), 5);
        assert_eq!(pace.intended_ns(0), 5);
        assert_eq!(pace.intended_ns(1000), 1_000_000_005);
        assert_eq!(pace.connection(6), 2);
        assert_eq!(pace.intended_of_ns(2, 1), pace.intended_ns(6));
    }

    #[test]
    fn threads_share_the_rate_by_their_connections() {
        let paces = [Pace::new(900.0, (0, 2), (2, 3), 0), Pace::new(900.0, (1, 2), (1, 3), 0)];
        let in_a_second = |pace: &Pace, connections: usize| -> u64 {
            (0..connections).map(|at| pace.count_before(at, 1_000_000_000)).sum()
        };
        let counts = [in_a_second(&paces[0], 2), in_a_second(&paces[1], 1)];
        assert!(counts[0].abs_diff(600) <= 1 && counts[1].abs_diff(300) <= 1, "{counts:?}");
        assert!(paces[1].intended_ns(0) > paces[0].intended_ns(0));
    }

    #[test]
    fn what_is_due_is_counted_to_the_moment() {
        let pace = Pace::new(10.0, (0, 1), (2, 2), 1000);
        assert_eq!(pace.count_before(0, 1000), 0);
        assert_eq!(pace.count_before(0, 1001), 1);
        assert_eq!(pace.count_before(1, 1001), 0);
        assert_eq!(pace.count_before(0, 200_001_000), 1);
        assert_eq!(pace.count_before(0, 200_001_001), 2);
        assert_eq!(pace.count_before(0, 0), 0);
    }

    #[test]
    fn together_is_at_one_moment() {
        let pace = Pace::together(1000.0, 3, 7);
        let moments: Vec<u64> = (0..5).map(|number| pace.intended_ns(number)).collect();
        assert_eq!(moments, [7, 7, 7, 1007, 1007]);
        assert_eq!((pace.count_before(2, 1007), pace.count_before(2, 1008)), (1, 2));
    }
}
