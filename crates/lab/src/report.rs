//! What is handed to people and programs: sections of rows with their verdicts.

mod chart;
pub mod compare;
pub mod csv;
pub mod figures;
pub mod fio;
pub mod heatmap;
pub mod json;
pub mod markdown;
mod markup;
pub mod page;
pub mod saved;
pub mod table;

use ringwise_measure::{device::Storage, environment::Environment, measurable::Measurable};

use crate::{
    args::Args,
    engine::chain::SyncKind,
    job::Cache,
    plan::{Group, LogGroup, Plan, Profile, Workload},
    row::Row,
    verdict::{self, BreakEven, Detour, Overall, Pairing, SwitchCost, Verdict},
};

/// A whole run.
pub struct Report<'a> {
    /// What was to be measured.
    pub plan: &'a Plan,
    /// What was typed, with what the `--config` file added.
    pub flags: &'a Args,
    /// The machine.
    pub environment: Environment,
    /// What is under the test files.
    pub storage: Storage,
    /// What was measured, in order.
    pub sections: Vec<Section>,
    /// What a measurement would like to have of the machine.
    pub measurable: Measurable,
    /// What ended the run early, if anything did.
    pub ended_by: Option<String>,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// How long it took.
    pub lasted_s: f64,
    /// What the device under the test files wrote meanwhile, for other programs too; known at the
    /// end, and where there is a device.
    pub written_bytes: Option<u64>,
}

impl Report<'_> {
    /// What may be said of each workload and of the machine; nothing where the lab checks itself.
    pub fn overall(&self) -> Vec<Overall> {
        match self.plan.self_check {
            None => verdict::overall(&self.sections),
            Some(_) => Vec::new(),
        }
    }
}

/// Rows that were measured in one interleaved run, and what they say.
pub struct Section {
    /// Which workload.
    pub workload: Workload,
    /// What of it, for `read`.
    pub group: Option<Group>,
    /// What it is called.
    pub title: String,
    /// With a bounded cache: how much memory the run could use.
    pub bound_bytes: Option<u64>,
    /// Bytes of a message, for `echo`, of a line, for `log`, or of a block, for the study of `copy`.
    pub message_bytes: usize,
    /// What of it, for `log`.
    pub log: Option<LogGroup>,
    /// What was copied and what the page cache held of it, for `copy`.
    pub data_set: Option<(String, Cache)>,
    /// The file system that it was measured on, where it is known.
    pub filesystem: Option<String>,
    /// What makes writes durable, for `chain`.
    pub sync: Option<SyncKind>,
    /// The rows.
    pub rows: Vec<Row>,
    /// What is to be known of all of them.
    pub notes: Vec<String>,
    /// What they say of the ring, by depth.
    pub verdicts: Vec<Verdict>,
    /// The ring beside each other row, by depth.
    pub pairings: Vec<Pairing>,
    /// What each switch of the ring costs, where that is asked.
    pub switches: Vec<SwitchCost>,
    /// From which depth on the ring wins.
    pub break_even: Option<BreakEven>,
    /// What a programmer can do.
    pub advice: Vec<String>,
}

impl std::fmt::Debug for Section {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Section").field("title", &self.title).finish_non_exhaustive()
    }
}

impl Section {
    /// A section with nothing measured.
    pub fn new(workload: Workload, group: Option<Group>, title: String, rows: Vec<Row>) -> Section {
        let (notes, verdicts, pairings) = (Vec::new(), Vec::new(), Vec::new());
        Section {
            workload,
            group,
            title,
            bound_bytes: None,
            message_bytes: 0,
            log: None,
            data_set: None,
            filesystem: None,
            sync: None,
            rows,
            notes,
            verdicts,
            pairings,
            switches: Vec::new(),
            break_even: None,
            advice: Vec::new(),
        }
    }

    /// What this workload calls the depth of a row.
    pub fn depth_noun(&self) -> &'static str {
        match self.workload {
            Workload::Read | Workload::Latency | Workload::Chain | Workload::Stat => "depth",
            Workload::Nop => "batch",
            Workload::Echo | Workload::Log => "connections",
            Workload::Copy if self.message_bytes > 0 => "depth",
            Workload::Copy => "files",
        }
    }

    /// Whether its operations move bytes of files.
    pub fn moves_bytes(&self) -> bool {
        matches!(self.workload, Workload::Read | Workload::Latency | Workload::Chain)
    }

    /// Whether any row has a sample.
    pub fn is_measured(&self) -> bool {
        self.rows.iter().any(|row| !row.measured.samples.is_empty())
    }

    /// Draws from the verdicts what they let be said together.
    pub fn summarise(&mut self) {
        let noun = self.depth_noun();
        self.break_even = BreakEven::of(noun, &self.verdicts);
        let detour = self.detour();
        self.advice = verdict::advice(noun, &self.rows, &self.verdicts, &self.switches, &detour);
    }

    /// What a program can do where the kernel hands what it does here to its workers.
    fn detour(&self) -> Detour {
        let is_direct = self.group.as_ref().is_some_and(|group| group.profile == Profile::Direct);
        let (what, remedy) = match (self.workload, self.sync, is_direct) {
            (Workload::Chain, Some(SyncKind::Dsync), false) => {
                ("buffered writes with O_DSYNC", "use O_DIRECT")
            }
            (Workload::Chain, _, false) => {
                ("buffered writes and syncs", "use O_DIRECT with O_DSYNC")
            }
            (Workload::Chain, Some(SyncKind::Dsync), true) => {
                ("direct writes with O_DSYNC", "write to blocks that are allocated and written")
            }
            (Workload::Chain, _, true) => ("syncs", "use O_DSYNC in place of a sync"),
            (Workload::Read | Workload::Latency, _, true) => {
                ("direct reads of this size", "use blocks that the device takes at once")
            }
            (Workload::Read | Workload::Latency, _, false) => {
                ("reads through the page cache", "use O_DIRECT, or read what is cached by calls")
            }
            (Workload::Stat, ..) => ("look-ups of names", "make them by calls"),
            _ => ("these operations", "make them by calls"),
        };
        Detour { what, remedy, filesystem: self.filesystem.clone() }
    }

    /// Voids every row for one reason.
    pub fn void_all(&mut self, reason: &str) {
        self.rows.iter_mut().for_each(|row| row.measured.void = Some(reason.to_owned()));
    }

    /// The reason why all rows are void, where it is the same for all.
    pub fn common_void(&self) -> Option<&str> {
        let first = self.rows.first()?.measured.void.as_deref()?;
        self.rows.iter().all(|row| row.measured.void.as_deref() == Some(first)).then_some(first)
    }
}
