//! What a thread counted, and how it is printed.

use std::{fmt, iter::Sum, time::Duration};

use ringwise_measure::quantity::latency_text;

use crate::clients::refusal::Refusals;

/// The upper bounds of the counts of commit times. One more count has the longer times.
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

/// How long commits took, measured from the first line of the batch.
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

    /// Returns the times that were noted after `before`.
    pub(crate) fn since(mut self, before: &Times) -> Times {
        let counts = self.counts.iter_mut().zip(before.counts);
        counts.for_each(|(own, one)| *own = own.saturating_sub(one));
        self.sum_ns = self.sum_ns.saturating_sub(before.sum_ns);
        self
    }

    /// Returns an upper bound for this share of the times, in words; nothing if there are no times.
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

/// A figure of each thread: its name in `/metrics`, its help text, and how to read it.
pub(crate) type Figure = (&'static str, &'static str, fn(&Stats) -> u64);

/// Generates the fields, their sums, and the figures of `/metrics` from one list.
macro_rules! counts {
    ([$($counter:ident $counter_name:literal $counter_help:literal,)*]
     [$($gauge:ident $gauge_name:literal $gauge_help:literal,)*]) => {
        /// Counts of one thread, or of all.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Stats {
            $(#[doc = $counter_help] pub(crate) $counter: u64,)*
            $(#[doc = $gauge_help] pub(crate) $gauge: u64,)*
            pub(crate) refused_greetings: Refusals,
            pub(crate) commit_times: Times,
        }

        pub(crate) const COUNTERS: &[Figure] =
            &[$(($counter_name, $counter_help, |stats| stats.$counter),)*];
        pub(crate) const GAUGES: &[Figure] =
            &[$(($gauge_name, $gauge_help, |stats| stats.$gauge),)*];

        impl Sum for Stats {
            fn sum<I: Iterator<Item = Stats>>(all: I) -> Stats {
                all.fold(Stats::default(), |sum, one| Stats {
                    $($counter: sum.$counter + one.$counter,)*
                    $($gauge: sum.$gauge + one.$gauge,)*
                    refused_greetings: sum.refused_greetings.plus(&one.refused_greetings),
                    commit_times: sum.commit_times.plus(&one.commit_times),
                })
            }
        }
    };
}

counts! {[
    connections "connections" "Connections accepted",
    accept_failures "accept_failures" "Accepts that failed; the daemon continued",
    turned_away "turned_away" "Connections closed because their address had too many",
    broken "connections_broken" "Connections ended by an error",
    tls_failures "tls_failures" "Connections refused by TLS",
    misdirected "misdirected" "Connections that sent HTTP, or TLS to a port without TLS",
    idle_ended "idle_ended" "Connections that were silent for longer than --idle",
    accepted_lines "accepted_lines" "Lines stored or being stored",
    rejected_lines "rejected_lines" "Lines that became dead letters",
    refused_lines "refused_lines" "Lines that were too long and not stored",
    wrapped_lines "wrapped_lines" "Accepted lines that were no JSON and were wrapped",
    received_bytes "received_bytes" "Bytes received, including those of TLS itself",
    receives "receives" "Receives with bytes",
    committed_bytes "committed_bytes" "Bytes of lines and dead letters committed",
    commits "commits" "Batches begun",
    writes "writes" "Writes of lines and dead letters submitted",
    syncs "syncs" "Syncs submitted",
    sends "answer_sends" "Sends of answers",
    stopped_senders "stopped_senders" "Times that the daemon stopped receiving from a sender",
    stalls "stalls" "Times that storage failed for a while",
    seal_waits "seal_waits" "Times that a batch waited for segments to be sealed",
    dead_segments "dead_segments" "Segments that failed and are no longer written",
    enters "enters" "Times that the ring was entered (io_uring_enter)",
    refused_requests "refused_requests" "HTTP requests with lines that were answered with an error",
    refused_items "refused_items" "Items of _bulk that were no documents to store",
    repeated_items "repeated_items" "Chunks, documents and pushes that came again and were not stored again",
]
[
    open "connections_open" "Open connections",
    uncommitted_bytes "uncommitted_bytes" "Bytes received and not yet committed",
    low "short_of_space" "1 if less space is free than --min-free",
    polled "sqpoll" "1 if a kernel thread submits for the ring (SQPOLL)",
    stalled "stalled" "1 if the thread cannot store",
]}

impl fmt::Display for Stats {
    #[rustfmt::skip]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats {
            connections, accept_failures, turned_away, open, broken, tls_failures, misdirected,
            idle_ended, refused_greetings, accepted_lines, rejected_lines, refused_lines, wrapped_lines,
            received_bytes, receives, committed_bytes, commits, writes, syncs, sends, stopped_senders, stalls,
            stalled, low, dead_segments, enters, refused_requests, refused_items,
            repeated_items, ..
        } = self;
        let refused_greetings = refused_greetings.sum();
        write!(
            f,
            "{connections} connections, {accept_failures} failed accepts, {turned_away} turned away, {open} \
             open, {broken} broken, {tls_failures} refused by TLS, {misdirected} misdirected, \
             {idle_ended} ended for silence, {refused_greetings} greetings refused; \
             {accepted_lines} lines accepted, {rejected_lines} rejected; {refused_lines} refused for their \
             length, {wrapped_lines} wrapped; {received_bytes} bytes received by {receives} receives, \
             {committed_bytes} committed by {commits} commits, {writes} writes and {syncs} syncs; {sends} sends, {stopped_senders} senders \
             stopped, {stalls} stalls, {stalled} threads stalled, {low} short of space, {dead_segments} dead \
             segments, {enters} enters, {refused_requests} requests and {refused_items} items refused, \
             {repeated_items} recognised as sent again"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds_of_the_noted_times() {
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
