//! What `ringwise logd` counted, from the line that it prints when it ends, and whether it ran on what
//! it was to.
//!
//! A count that is not there is left out: other daemons print none.

use std::collections::BTreeMap;

/// Counts, by the words behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Statistics {
    accepted_lines: Option<f64>,
    committed_bytes: Option<f64>,
    commits: Option<f64>,
    writes: Option<f64>,
    syncs: Option<f64>,
    receives: Option<f64>,
    enters: Option<f64>,
}

impl Statistics {
    /// Reads all that a daemon printed.
    pub(super) fn read(told: &str) -> Statistics {
        let count = |words: &str| {
            let (before, _) = told.rsplit_once(words)?;
            let start = before.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
            before[start..].parse().ok()
        };
        Statistics {
            accepted_lines: count(" lines accepted"),
            committed_bytes: count(" committed by "),
            commits: count(" commits"),
            writes: count(" writes"),
            syncs: count(" syncs"),
            receives: count(" receives"),
            enters: count(" enters"),
        }
    }

    /// What is shown of them: `lines` were taken in `elapsed_ns`.
    pub(super) fn figures(&self, lines: u64, elapsed_ns: u64) -> BTreeMap<&'static str, f64> {
        let is_whole = self.accepted_lines.is_some_and(|accepted| accepted >= lines as f64);
        let per = |of: Option<f64>, each: Option<f64>| {
            Some(of? / each.filter(|&each| each > 0.0 && is_whole)?)
        };
        let lines = Some(lines as f64);
        let figures = [
            ("lines_per_receive", per(lines, self.receives)),
            ("lines_per_enter", per(lines, self.enters)),
            ("lines_per_commit", per(lines, self.commits)),
            ("bytes_per_commit", per(self.committed_bytes, self.commits)),
            ("bytes_per_write", per(self.committed_bytes, self.writes)),
            ("syncs_per_s", per(self.syncs.filter(|&n| n > 0.0), Some(elapsed_ns as f64 / 1e9))),
        ];
        figures.into_iter().filter_map(|(name, figure)| Some((name, figure?))).collect()
    }
}

/// Why its ring went without a thread of the kernel that was asked for, if it did: another row's figures
/// would stand under this one's name.
pub(super) fn lacks_sqpoll(told: &str) -> Option<&str> {
    let (_, reason) = told.split_once("without SQPOLL: ")?;
    reason.lines().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_was_refused_its_thread_is_told() {
        let told =
            "ringwise: logd: without SQPOLL: a submission thread was refused\n3 connections\n";
        assert_eq!(lacks_sqpoll(told), Some("a submission thread was refused"));
        assert_eq!(lacks_sqpoll("3 connections\n"), None);
    }

    #[test]
    fn counts_are_found_by_their_words() {
        let told = "warning: 7 commits were slow\n3 connections, 0 open, 0 broken; 1000 lines \
            accepted, 0 rejected; 150100 bytes received by 20 receives, 150000 committed by 10 \
            commits, 12 writes and 9 syncs; 12 sends, 0 senders stopped, 0 stalls, 0 threads stalled, 0 enters\n";
        let figures = Statistics::read(told).figures(1000, 2_000_000_000);
        let expected = [
            ("lines_per_receive", 50.0),
            ("lines_per_commit", 100.0),
            ("bytes_per_commit", 15_000.0),
            ("bytes_per_write", 12_500.0),
            ("syncs_per_s", 4.5),
        ];
        assert_eq!(figures, expected.into());
        // Others say nothing of the kind, or of another run.
        assert!(Statistics::read("rsyslogd: stopped").figures(10, 1).is_empty());
        assert!(Statistics::read(told).figures(1001, 1).is_empty());
    }
}
