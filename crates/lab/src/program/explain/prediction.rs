//! What a ring could do for a recorded program: which share of its waiting, at which depth, and what the lab measured of
//! that on this machine.
//!
//! A trace shows in which order operations were made, not which of them need the result of another. So the depth is the
//! recorded one, and what would raise it is said as a condition.

use ringwise_measure::quantity::size_text;
use ringwise_trace::Kind;

use super::analysis::{Analysis, Counted, Group, share};
use crate::{
    program::traced::Traced,
    results::{
        report::saved::{Saved, SavedPairing},
        verdict::interval_text,
    },
};

/// A group with less than this share of the waiting is not looked up in results.
const LOOKED_UP_SHARE_MIN: f64 = 0.1;
/// So many rivals are told.
const RIVALS_MAX: usize = 3;

/// What a ring could take, and how deep it would be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Prediction {
    /// The share of the waiting in operations that io_uring has.
    pub ring_share: f64,
    /// The share of the waiting in operations that already go through io_uring or Linux AIO.
    pub asynchronous_share: f64,
    /// In flight in one ring for all threads: at the median of the time with any, and at most.
    pub depth_median: u64,
    pub depth_most: u64,
    /// The share of the waiting for reads that is in sequential ones.
    pub sequential_wait: Option<f64>,
    /// The share of the waiting for reads whose data were in the page cache, of what is known.
    pub cached_wait: Option<f64>,
}

impl Prediction {
    pub fn of(analysis: &Analysis) -> Prediction {
        let whole = analysis.waited_ns();
        let for_rings = analysis.groups().filter(|(group, _)| group.is_for_rings());
        let for_rings_ns = for_rings.map(|(_, counted)| counted.waited_ns).sum();
        // Of reads that hardly count nothing is said.
        let reads = analysis.group(Group::Reads);
        let does_count =
            share(reads.waited_ns, whole).is_some_and(|own| own >= LOOKED_UP_SHARE_MIN);
        let of_reads = |part, whole| share(part, whole).filter(|_| does_count);
        Prediction {
            ring_share: share(for_rings_ns, whole).unwrap_or(0.0),
            asynchronous_share: share(analysis.asynchronous_ns, whole).unwrap_or(0.0),
            depth_median: analysis.for_rings.median_over_time,
            depth_most: analysis.for_rings.most,
            sequential_wait: of_reads(reads.sequential_ns, reads.waited_ns),
            cached_wait: of_reads(reads.cache_ns, reads.cache_ns + reads.device_ns),
        }
    }

    /// The prediction in sentences.
    pub fn sentences(&self) -> Vec<String> {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let mut said =
            vec![format!("A ring can take {} of the waiting.", percent(self.ring_share))];
        if self.asynchronous_share > 0.0 {
            said.push(format!(
                "{} of the waiting already is io_uring's or Linux AIO's.",
                percent(self.asynchronous_share)
            ));
        }
        said.push(self.depth_text());
        if let Some(sequential) = self.sequential_wait.filter(|&share| share >= 0.5) {
            said.push(format!(
                "{} of the waiting for reads is in sequential reads. Usually they do not depend on each other, so that a program \
                 can read ahead with many in flight.",
                percent(sequential)
            ));
        }
        if let Some(cached) = self.cached_wait.filter(|&share| share >= 0.1) {
            said.push(format!(
                "{} of the time in reads, where the source is known, is for data in the page cache. No device is \
                 waited for there, so depth does not help.",
                percent(cached)
            ));
        }
        said
    }

    fn depth_text(&self) -> String {
        let Prediction { depth_median: median, depth_most: most, .. } = self;
        let condition = "Only if operations of a thread are independent of each other can they be in flight \
                         together; a trace cannot tell that.";
        match (most, self.asynchronous_share >= 0.5) {
            (0, _) => "There is nothing for a ring to hold.".to_owned(),
            (_, true) => {
                format!("The recorded depth is {median} at the median and {most} at most.")
            }
            (1, false) => format!(
                "A ring would hold 1 operation at a time: each began when the one before had ended. {condition}"
            ),
            _ => format!(
                "One ring for all threads would hold {median} at the median and {most} at most. Each \
                 thread adds only 1, because it waits for each operation. {condition}"
            ),
        }
    }
}

/// What a results file says of the operations that take longest, at this depth: sentences.
pub(crate) fn measured(
    traced: &Traced,
    analysis: &Analysis,
    prediction: &Prediction,
    saved: &Saved,
) -> Vec<String> {
    let whole = analysis.waited_ns();
    let mut groups: Vec<(Group, &Counted)> = analysis
        .groups()
        .filter(|(_, own)| {
            share(own.waited_ns, whole).is_some_and(|own| own >= LOOKED_UP_SHARE_MIN)
        })
        .collect();
    groups.sort_by_key(|(_, counted)| std::cmp::Reverse(counted.waited_ns));
    let mut said: Vec<String> = Vec::new();
    for (group, counted) in groups {
        let text = match Wanted::of(traced, group, counted) {
            None => format!("The lab has no workload for {}.", group.name()),
            Some(wanted) => wanted.found_in(saved, prediction.depth_median.max(1)),
        };
        if !said.contains(&text) {
            said.push(text);
        }
    }
    said
}

/// The rows that are like a group of operations.
#[derive(Default)]
struct Wanted {
    workload: &'static str,
    profile: Option<&'static str>,
    pattern: Option<&'static str>,
    /// Whether the data came from the device through the page cache. None: it does not matter, or is unknown.
    is_uncached: Option<bool>,
    bytes: u64,
}

impl Wanted {
    fn of(traced: &Traced, group: Group, counted: &Counted) -> Option<Wanted> {
        let bytes = counted.median_bytes();
        match group {
            Group::Reads => {
                let reads = || traced.operations.iter().filter(|own| own.kind == Kind::Read);
                let direct = reads().filter(|own| own.is_direct).count();
                let is_direct = direct * 2 > reads().count();
                let is_random = counted.sequential_share().is_some_and(|share| share < 0.5);
                Some(Wanted {
                    workload: "read",
                    profile: Some(if is_direct { "direct" } else { "buffered" }),
                    pattern: Some(if is_random { "random" } else { "seq" }),
                    is_uncached: counted
                        .cached_share()
                        .filter(|_| !is_direct)
                        .map(|share| share < 0.5),
                    bytes,
                })
            }
            Group::Syncs => Some(Wanted { workload: "chain", bytes: 0, ..Wanted::default() }),
            Group::Receives | Group::Sends => {
                Some(Wanted { workload: "echo", bytes, ..Wanted::default() })
            }
            Group::Writes | Group::Pipes | Group::Copies => None,
        }
    }

    fn found_in(&self, saved: &Saved, depth: u64) -> String {
        let Wanted { workload, .. } = self;
        let is_rival =
            |own: &&SavedPairing| own.place.workload == *workload && own.baseline_kind == "rival";
        let mut rows: Vec<&SavedPairing> = saved.comparisons.iter().filter(is_rival).collect();
        keep(&mut rows, |own| own.place.profile.as_deref() == self.profile);
        if let Some(is_uncached) = self.is_uncached {
            // "bounded" is a cache that is too small.
            let is_of_device = |own: &&SavedPairing| {
                matches!(own.place.cache.as_deref(), Some("cold" | "bounded"))
            };
            rows.retain(|own| {
                own.place.profile.as_deref() == self.profile && is_of_device(own) == is_uncached
            });
            if rows.is_empty() {
                let (from, state) = match is_uncached {
                    true => ("the device through the page cache", "cold"),
                    false => ("the page cache", "warm"),
                };
                return format!(
                    "{} has no reads from {from}: `ringwise lab read --profile buffered --cache {state}` measures them.",
                    saved.name
                );
            }
        }
        keep(&mut rows, |own| own.place.pattern.as_deref() == self.pattern);
        nearest(&mut rows, self.bytes, |own| own.place.block_bytes);
        nearest(&mut rows, depth, |own| own.depth);
        let Some(&first) = rows.first() else {
            return format!("{} has nothing of the workload {workload}.", saved.name);
        };
        let section = first.place.section.and_then(|index| saved.sections.get(index));
        let title = section.map_or_else(|| self.words(first), |section| section.title.clone());
        let noun = section.map_or("depth", |section| section.depth_is.as_str());
        rows.retain(|own| own.place.section == first.place.section);
        let times = rows.iter().take(RIVALS_MAX).map(|own| {
            format!("{} does {} times {}", own.candidate, interval_text(&own.ratio), own.baseline)
        });
        let times: Vec<String> = times.collect();
        format!("Measured: {title}, {noun} {}: {}.", first.depth, times.join("; "))
    }

    fn words(&self, row: &SavedPairing) -> String {
        format!("{} of {}", self.workload, size_text(row.place.block_bytes))
    }
}

/// Leaves out the rows that are not as wanted, if others are.
fn keep(rows: &mut Vec<&SavedPairing>, is_wanted: impl Fn(&SavedPairing) -> bool) {
    if rows.iter().any(|row| is_wanted(row)) {
        rows.retain(|row| is_wanted(row));
    }
}

/// Leaves the rows whose figure is nearest, by factors.
fn nearest(rows: &mut Vec<&SavedPairing>, wanted: u64, figure: impl Fn(&SavedPairing) -> u64) {
    let distance =
        |row: &SavedPairing| ((figure(row).max(1) as f64) / (wanted.max(1) as f64)).ln().abs();
    let least = rows.iter().map(|row| distance(row)).fold(f64::INFINITY, f64::min);
    rows.retain(|row| distance(row) <= least);
}

#[cfg(test)]
mod tests {
    use ringwise_trace::{Interface, Operation, Source};

    use super::*;
    use crate::{
        program::traced::tests::{operation, traced},
        results::{row::RowKind, section::Section, verdict},
        testing::{Figures, row, saved, saved_text},
        workload::{chain, echo},
    };

    #[test]
    fn one_thread_is_a_depth_of_one_and_says_under_which_condition() {
        let trace = traced(vec![
            operation(1, Kind::Read, (0, 60)),
            operation(1, Kind::Read, (60, 30)),
            operation(1, Kind::Copy, (90, 10)),
        ]);
        let prediction = Prediction::of(&Analysis::of(&trace));
        assert_eq!((prediction.depth_median, prediction.depth_most), (1, 1));
        assert!((prediction.ring_share - 0.9).abs() < 1e-9);
        let text = prediction.sentences().join(" ");
        assert!(text.contains("A ring can take 90 % of the waiting."), "{text}");
        assert!(text.contains("would hold 1 operation at a time"), "{text}");
        assert!(text.contains("a trace cannot tell that"), "{text}");
    }

    #[test]
    fn threads_that_wait_together_are_a_depth() {
        let trace =
            traced(vec![operation(1, Kind::Read, (0, 60)), operation(2, Kind::Read, (10, 50))]);
        let prediction = Prediction::of(&Analysis::of(&trace));
        assert_eq!((prediction.depth_median, prediction.depth_most), (2, 2));
        assert!(prediction.sentences()[1].starts_with("One ring for all threads would hold 2"));
    }

    #[test]
    fn what_is_on_a_ring_and_what_is_cached_is_said() {
        let read = |begin, source| Operation {
            interface: Interface::IoUring,
            source,
            ..operation(1, Kind::Read, (begin, 50))
        };
        let trace = traced(vec![read(0, Source::Cache), read(0, Source::Device)]);
        let prediction = Prediction::of(&Analysis::of(&trace));
        assert_eq!(prediction.cached_wait, Some(0.5));
        let text = prediction.sentences().join(" ");
        assert!(text.contains("100 % of the waiting already is io_uring's"), "{text}");
        assert!(text.contains("The recorded depth is 2 at the median and 2 at most."), "{text}");
        assert!(text.contains("50 % of the time in reads"), "{text}");
    }

    #[test]
    fn results_are_told_at_the_nearest_depth() {
        let saved = Saved::parse(&saved_text()).unwrap();
        let direct = |thread, begin| Operation {
            is_direct: true,
            offset: Some(begin * 8192),
            ..operation(thread, Kind::Read, (begin, 100))
        };
        let trace = traced((1..=20).map(|own| direct(own % 2 + 1, u64::from(own))).collect());
        let analysis = Analysis::of(&trace);
        let prediction = Prediction::of(&analysis);
        let told = measured(&trace, &analysis, &prediction, &saved);
        assert_eq!(told.len(), 1, "{told:?}");
        let start = "Measured: read direct random, 4k blocks, O_DIRECT, depth 32: uring does 1.25";
        assert!(told[0].starts_with(start), "{told:?}");
        // Reads through the page cache that came from the device are not like those from the cache.
        for (source, state) in [(Source::Device, "cold"), (Source::Cache, "warm")] {
            let read = Operation { source, ..operation(1, Kind::Read, (0, 9)) };
            let buffered = traced(vec![read]);
            let analysis = Analysis::of(&buffered);
            let told = measured(&buffered, &analysis, &prediction, &saved);
            let command = format!("`ringwise lab read --profile buffered --cache {state}`");
            assert!(told[0].contains(&command), "{told:?}");
        }
        let writes = traced(vec![operation(1, Kind::Write, (0, 9))]);
        let analysis = Analysis::of(&writes);
        let told = measured(&writes, &analysis, &prediction, &saved);
        assert_eq!(told, ["The lab has no workload for writes."]);
    }

    #[test]
    fn syncs_and_messages_are_told_by_their_workloads() {
        let section = |facts, title: &str| {
            let rival = Figures { ops_per_s: 80_000.0, ..Figures::DIRECT };
            let rows = vec![
                row("other", RowKind::Rival, 1, rival),
                row("uring", RowKind::Subject, 1, Figures::DIRECT),
            ];
            let mut section = Section::new(facts, title.to_owned(), rows);
            section.pairings.extend(verdict::pairings(&section.rows, 1, 1));
            section
        };
        let sections = vec![section(&chain::FACTS, "pages"), section(&echo::FACTS, "messages")];
        let saved = Saved::parse(&saved(sections)).unwrap();
        for (kind, start) in [
            (Kind::Sync, "Measured: pages, depth 1: uring does 1.25"),
            (Kind::DataSync, "Measured: pages, depth 1: uring does 1.25"),
            (Kind::Send, "Measured: messages, connections 1: uring does 1.25"),
            (Kind::Receive, "Measured: messages, connections 1: uring does 1.25"),
            (Kind::Read, " has nothing of the workload read."),
        ] {
            let trace = traced(vec![operation(1, kind, (0, 9))]);
            let analysis = Analysis::of(&trace);
            let told = measured(&trace, &analysis, &Prediction::of(&analysis), &saved);
            assert!(told[0].starts_with(start), "{kind:?}: {told:?}");
        }
    }
}
