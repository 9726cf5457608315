//! A section: rows that were measured in one interleaved run, and what they show together.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{
    results::{
        gain::{Gain, Told},
        row::Row,
        verdict::{self, BreakEven, Detour, Pairing, SwitchCost, Verdict},
    },
    sampling::job::{Cache, Pattern, Profile},
    workload::form::{columns::Column, facts::Facts},
};

/// What the depth of a row is called if it is the operations that were offered per second.
pub const OFFERED: &str = "offered/s";
/// The figure of a sample that is its 99th percentile.
pub const SAMPLE_P99: &str = "sample_p99_ns";
/// The remark of the row that has the knee.
pub const KNEE: &str = "the knee";

/// Rows that were measured in one interleaved run, and what they show together.
pub struct Section {
    /// The workload.
    pub facts: &'static Facts,
    /// What was measured of it.
    pub place: Place,
    /// The heading of its table.
    pub title: String,
    /// What was measured, in a few words for a sentence; empty where the workload's name says it.
    pub short: String,
    /// What the depth of a row is called.
    pub depth_is: &'static str,
    /// The columns of its table.
    pub columns: &'static [Column],
    /// How much memory the run could use, if the page cache was bounded.
    pub bound_bytes: Option<u64>,
    /// The file system that it was measured on, if that is known.
    pub filesystem: Option<String>,
    /// What a program can do if the kernel gives this work to its workers.
    pub detour: Detour,
    /// The rows.
    pub rows: Vec<Row>,
    /// Facts that hold for all rows.
    pub notes: Vec<String>,
    /// What the rows show of the ring, by depth.
    pub verdicts: Vec<Verdict>,
    /// The ring beside each other row, by depth.
    pub pairings: Vec<Pairing>,
    /// What each switch of the ring costs, if that was asked.
    pub switches: Vec<SwitchCost>,
    /// From which depth on the ring wins.
    pub break_even: Option<BreakEven>,
    /// What a programmer can do.
    pub advice: Vec<String>,
    /// What each way to work today would gain.
    pub gains: Vec<Gain>,
    /// What the rows show beside gains, a sentence each, for the first screen.
    pub findings: Vec<(Told, String)>,
}

/// What distinguishes a section from others of its workload. The names are fields of results files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Place {
    /// Fields that only this workload has.
    #[serde(flatten)]
    pub own: BTreeMap<&'static str, Value>,
    /// Through the page cache or past it.
    pub profile: Option<Profile>,
    /// The order of reads.
    pub pattern: Option<Pattern>,
    /// The state of the page cache.
    pub cache: Option<Cache>,
    /// Operations per second that servers were offered over all connections; none for a closed loop.
    pub offered_per_s: Option<u64>,
    /// Bytes of a block, a message or a line; 0 if there is none.
    pub block_bytes: usize,
    /// The files that are copied.
    pub data_set: Option<String>,
    /// What makes writes durable.
    pub sync: Option<&'static str>,
}

impl std::fmt::Debug for Section {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Section").field("title", &self.title).finish_non_exhaustive()
    }
}

impl Section {
    /// A section with nothing measured.
    pub fn new(facts: &'static Facts, title: String, rows: Vec<Row>) -> Section {
        Section {
            facts,
            place: Place::default(),
            title,
            short: String::new(),
            depth_is: facts.depth_is,
            columns: facts.columns,
            bound_bytes: None,
            filesystem: None,
            detour: Detour { what: "these operations", remedy: "make them by calls" },
            rows,
            notes: Vec::new(),
            verdicts: Vec::new(),
            pairings: Vec::new(),
            switches: Vec::new(),
            break_even: None,
            advice: Vec::new(),
            gains: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// The state of the page cache for one of its rows.
    pub fn cache_of(&self, row: &Row) -> Option<Cache> {
        row.cache.or(self.place.cache)
    }

    /// Whether any row has a sample.
    pub fn is_measured(&self) -> bool {
        self.rows.iter().any(|row| !row.measured.samples.is_empty())
    }

    /// Derives the break-even point and the advice from the verdicts.
    pub fn summarise(&mut self) {
        let noun = self.depth_is;
        self.break_even = BreakEven::of(noun, &self.verdicts);
        // A program does not choose how many clients it has.
        let is_chosen = matches!(noun, "depth" | "batch");
        let deeper = is_chosen.then(|| verdict::deeper(noun, &self.rows)).flatten();
        let filesystem = self.filesystem.as_deref();
        let workers = |verdict| verdict::workers(&self.rows, verdict, &self.detour, filesystem);
        let mut advice: Vec<String> = deeper.into_iter().collect();
        advice.extend(self.verdicts.iter().rev().find_map(workers));
        let deepest = self.switches.iter().map(|cost| cost.depth).max();
        let shown = self.switches.iter().filter(|cost| Some(cost.depth) == deepest);
        advice.extend(shown.filter_map(SwitchCost::advice));
        self.advice = advice;
    }

    /// Excludes every row for one reason.
    pub fn void_all(&mut self, reason: &str) {
        self.rows.iter_mut().for_each(|row| row.measured.void = Some(reason.to_owned()));
    }

    /// The reason why all rows are excluded, if it is the same for all.
    pub fn common_void(&self) -> Option<&str> {
        let first = self.rows.first()?.measured.void.as_deref()?;
        self.rows.iter().all(|row| row.measured.void.as_deref() == Some(first)).then_some(first)
    }
}
