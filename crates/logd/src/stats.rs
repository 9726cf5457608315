//! What a thread counted, and how it is printed.

use std::{fmt, iter::Sum, time::Duration};

use ringwise_measure::quantity::latency_text;

/// Up to how long the commits of each count took; what took longer has one more.
pub(crate) const BOUNDS: [Duration; 15] = [
    Duration::from_micros(100),
    Duration::from_micros(200),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// How long commits took, from the first line of the batch on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) counts: [u64; BOUNDS.len() + 1],
    pub(crate) sum_ns: u64,
}

impl Times {
    pub(crate) fn note(&mut self, time: Duration) {
        let place = BOUNDS.iter().position(|bound| time <= *bound).unwrap_or(BOUNDS.len());
        self.counts[place] += 1;
        self.sum_ns += u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    }

    fn plus(mut self, other: &Times) -> Times {
        self.counts.iter_mut().zip(other.counts).for_each(|(own, one)| *own += one);
        self.sum_ns += other.sum_ns;
        self
    }

    /// What came after these.
    pub(crate) fn since(mut self, before: &Times) -> Times {
        let counts = self.counts.iter_mut().zip(before.counts);
        counts.for_each(|(own, one)| *own = own.saturating_sub(one));
        self.sum_ns = self.sum_ns.saturating_sub(before.sum_ns);
        self
    }

    /// What this share of them did not take longer than, in words; nothing of none.
    pub(crate) fn quantile(&self, share: f64) -> Option<String> {
        let all: u64 = self.counts.iter().sum();
        let wanted = (all as f64 * share).ceil() as u64;
        let mut count = 0;
        let place = self.counts.iter().position(|own| {
            count += own;
            count >= wanted.max(1)
        })?;
        Some(match BOUNDS.get(place) {
            Some(bound) => format!("at most {}", latency_text(bound.as_nanos() as f64)),
            None => "over 5 s".to_owned(),
        })
    }
}

/// Counts of one thread, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) connections: u64,
    /// Connections beyond what their address may have.
    pub(crate) turned_away: u64,
    /// Accepts that failed, after which accepting went on.
    pub(crate) accept_failures: u64,
    pub(crate) open: u64,
    /// Connections that an error ended.
    pub(crate) broken: u64,
    /// Connections that ended because what came was not the TLS that it has to be.
    pub(crate) tls_failures: u64,
    /// Connections that spoke HTTP, or TLS to a port without it.
    pub(crate) misdirected: u64,
    pub(crate) received_bytes: u64,
    pub(crate) receives: u64,
    pub(crate) accepted_lines: u64,
    pub(crate) rejected_lines: u64,
    /// Of which nothing is stored.
    pub(crate) refused_lines: u64,
    pub(crate) committed_bytes: u64,
    pub(crate) commits: u64,
    pub(crate) syncs: u64,
    /// Writes of lines and dead letters.
    pub(crate) writes: u64,
    /// Sends of answers.
    pub(crate) sends: u64,
    /// Times that nothing more was received from a sender for a while.
    pub(crate) stopped_senders: u64,
    /// Times that storage failed for a while, and threads where it does now.
    pub(crate) stalls: u64,
    pub(crate) stalled: u64,
    /// Times that a batch waited for segments to be sealed.
    pub(crate) seal_waits: u64,
    /// Threads below the floor of free space.
    pub(crate) low: u64,
    /// Segments that failed and are not written to any more.
    pub(crate) dead_segments: u64,
    /// Bytes that were received and are not committed.
    pub(crate) uncommitted_bytes: u64,
    pub(crate) commit_times: Times,
    /// System calls that hand over and wait; on epoll not counted.
    pub(crate) enters: u64,
    /// Threads whose ring has one of the kernel's that takes what it is asked for.
    pub(crate) polled: u64,
}

impl Sum for Stats {
    fn sum<I: Iterator<Item = Stats>>(all: I) -> Stats {
        all.fold(Stats::default(), |sum, one| Stats {
            connections: sum.connections + one.connections,
            turned_away: sum.turned_away + one.turned_away,
            accept_failures: sum.accept_failures + one.accept_failures,
            open: sum.open + one.open,
            broken: sum.broken + one.broken,
            tls_failures: sum.tls_failures + one.tls_failures,
            misdirected: sum.misdirected + one.misdirected,
            received_bytes: sum.received_bytes + one.received_bytes,
            receives: sum.receives + one.receives,
            accepted_lines: sum.accepted_lines + one.accepted_lines,
            rejected_lines: sum.rejected_lines + one.rejected_lines,
            refused_lines: sum.refused_lines + one.refused_lines,
            committed_bytes: sum.committed_bytes + one.committed_bytes,
            commits: sum.commits + one.commits,
            syncs: sum.syncs + one.syncs,
            writes: sum.writes + one.writes,
            sends: sum.sends + one.sends,
            stopped_senders: sum.stopped_senders + one.stopped_senders,
            stalls: sum.stalls + one.stalls,
            stalled: sum.stalled + one.stalled,
            seal_waits: sum.seal_waits + one.seal_waits,
            low: sum.low + one.low,
            dead_segments: sum.dead_segments + one.dead_segments,
            uncommitted_bytes: sum.uncommitted_bytes + one.uncommitted_bytes,
            commit_times: sum.commit_times.plus(&one.commit_times),
            enters: sum.enters + one.enters,
            polled: sum.polled + one.polled,
        })
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections, {} failed accepts, {} turned away, {} open, {} broken, {} refused by TLS, {} misdirected; {} lines accepted, {} rejected; {} \
             refused for their length; {} bytes received by {} receives, {} committed by {} commits, {} \
             writes and {} syncs; {} sends, {} senders stopped, {} stalls, {} threads stalled, {} short of \
             space, {} dead segments, {} enters",
            self.connections,
            self.accept_failures,
            self.turned_away,
            self.open,
            self.broken,
            self.tls_failures,
            self.misdirected,
            self.accepted_lines,
            self.rejected_lines,
            self.refused_lines,
            self.received_bytes,
            self.receives,
            self.committed_bytes,
            self.commits,
            self.writes,
            self.syncs,
            self.sends,
            self.stopped_senders,
            self.stalls,
            self.stalled,
            self.low,
            self.dead_segments,
            self.enters
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds_of_what_was_noted() {
        let mut times = Times::default();
        assert_eq!(times.quantile(0.5), None);
        (0..99).for_each(|_| times.note(Duration::from_micros(150)));
        times.note(Duration::from_secs(6));
        assert_eq!(times.quantile(0.5).as_deref(), Some("at most 200 \u{b5}s"));
        assert_eq!(times.quantile(1.0).as_deref(), Some("over 5 s"));
        let before = times;
        times.note(Duration::from_millis(1));
        let since = times.since(&before);
        assert_eq!(since.quantile(0.5).as_deref(), Some("at most 1.00 ms"));
        assert_eq!(since.counts.iter().sum::<u64>(), 1);
    }
}
