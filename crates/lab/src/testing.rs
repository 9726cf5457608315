//! What several tests need.

use std::{path::PathBuf, sync::Arc};

use ringwise_measure::{
    Fact, Latency, Sources, device::Storage, environment::Environment, measurable::Measurable,
};

use crate::{
    Args, LabError,
    engine::{Engine, Tally},
    plan::typed::Typed,
    results::{
        gain,
        report::{Report, Section, json},
        row::{Row, RowKind},
        verdict,
    },
    sampling::{
        heat::Heat,
        job::{Cache, Failure, Job, Pattern, Start, Window},
        lane::{Counts, Record},
        sample::Sample,
    },
    session::suite::Suite,
    workload::read::{self, group::Group},
};

/// A directory on the file system of the build, which unlike the system's temporary directory is
/// seldom a tmpfs: direct reads and extents are tested on it.
pub fn directory() -> tempfile::TempDir {
    let executable = std::env::current_exe().unwrap();
    let parent: PathBuf = executable.parent().unwrap().into();
    tempfile::Builder::new().prefix("lab-test-").tempdir_in(parent).unwrap()
}

/// An engine that does what a closure does.
pub struct Mock<F>(pub F);

impl<F> Engine for Mock<F>
where
    F: Fn(&Arc<Job>, Window) -> Result<Tally, Failure> + Send + Sync,
{
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let window = start.ready()?;
        (self.0)(job, window)
    }
}

/// What `read` measures with these flags.
pub fn read_groups(args: &Args) -> Result<Vec<Group>, LabError> {
    let typed = Typed::of(args)?;
    read::plan::groups(args, typed.depths.as_deref())
}

/// A job of eight operations on no file.
pub fn job() -> Job {
    Job {
        files: [].into(),
        seed: 1,
        block_bytes: 4096,
        depth: 8,
        pattern: Pattern::Random,
        cache: Cache::Bypassed,
        order_seed: 1,
        heatmap: false,
        interrupt: Arc::default(),
        failed: false.into(),
        latency: Record::default(),
    }
}

/// What a mock row measures, the same in every sample but for a share of `wobble`.
#[derive(Clone, Copy)]
pub struct Figures {
    pub ops_per_s: f64,
    pub cpu_ns: f64,
    pub latency_ns: u64,
    pub device_share: f64,
    pub queue: f64,
    pub calls: u64,
    pub wobble: f64,
}

/// A row whose samples were never taken: three blocks of two.
pub fn row(engine: &str, kind: RowKind, depth: usize, figures: Figures) -> Row {
    let runner = Mock(|_: &Arc<Job>, _| Err(Failure::Io("a mock".to_owned())));
    let mut row = Row::new(engine.to_owned(), kind, depth, Box::new(runner));
    for index in 0..6 {
        // Up, down, up: the median is the figure itself.
        let factor = 1.0 + figures.wobble * [0.0, 1.0, -1.0][index % 3];
        let operations = (figures.ops_per_s * factor) as u64;
        let mut latency = Latency::new();
        latency.record_many_ns(figures.latency_ns, operations);
        let counts = Counts {
            operations,
            bytes: operations * 4096,
            issued: operations,
            completed: operations,
            in_flight_ns: depth as u64 * 1_000_000_000,
            ..Counts::default()
        };
        let tally = Tally {
            counts,
            latency,
            elapsed_ns: 1_000_000_000,
            system_calls: Some(operations * figures.calls),
            ..Tally::default()
        };
        let sample = Sample {
            tally,
            cpu_ns_per_operation: figures.cpu_ns,
            split: None,
            other_cpu_ns_per_operation: None,
            device_share: Some(figures.device_share),
            device_queue_depth: Some(figures.queue),
            device_written_bytes_per_op: None,
            device_flushes: None,
            kswapd_pages: None,
        };
        row.measured.add(index / 2, &sample, None);
    }
    row
}

impl Figures {
    /// Direct reads at depth 32, as a disk that keeps up would give them.
    pub const DIRECT: Figures = Figures {
        ops_per_s: 100_000.0,
        cpu_ns: 3000.0,
        latency_ns: 320_000,
        device_share: 1.0,
        queue: 31.0,
        calls: 1,
        wobble: 0.0,
    };
}

/// A section with a row of each kind, one of them excluded, and their remarks.
pub fn section() -> Section {
    let direct = Figures::DIRECT;
    let sync = Figures { ops_per_s: 15_000.0, latency_ns: 66_000, queue: 0.9, ..direct };
    let mut uring = row("uring", RowKind::Subject, 32, direct);
    uring.measured.remarks.push("lab's own time 12 %".to_owned());
    let mut mmap = row("mmap", RowKind::Rival, 1, direct);
    mmap.measured.void =
        Some("not measurable here: a mapping always goes through the page cache".to_owned());
    let threads = Figures { ops_per_s: 80_000.0, cpu_ns: 7000.0, ..direct };
    let rows = vec![
        row("sync", RowKind::Rival, 1, sync),
        mmap,
        row("threads", RowKind::Rival, 32, threads),
        uring,
        row("uring", RowKind::Control, 32, direct),
        row("uring-registered-files", RowKind::Variant, 32, threads),
    ];
    let title = "read direct random, 4k blocks, O_DIRECT".to_owned();
    let mut section = Section::new(&read::FACTS, title, rows);
    section.notes.push("1 file of 1.0 GiB, every block read is verified".to_owned());
    section.verdicts.push(verdict::at_depth(&section.rows, 32, "4 KiB", 1));
    section.pairings.extend(verdict::pairings(&section.rows, 32, 1));
    section.short = "O_DIRECT 4k".to_owned();
    section.gains = gain::of(&section, 1);
    section
}

/// Sections as a results file.
pub fn saved(sections: Vec<Section>) -> String {
    let args = Args { seed: Some("7".to_owned()), ..Args::default() };
    let nowhere = Sources::below("/nonexistent");
    let report = Report {
        plan: &Suite::new(&args).unwrap().plan,
        flags: &args,
        environment: Environment::read(&nowhere),
        storage: Storage::of(&nowhere, std::path::Path::new("/")),
        measurable: Measurable::probe(&nowhere, &Fact::Unknown("no device".to_owned())),
        sections,
        left_out: Vec::new(),
        ended_by: None,
        began_unix_s: 1_795_245_876,
        lasted_s: 12.5,
        written_bytes: Some(1 << 20),
    };
    json::text(&report)
}

/// A results file with that section, whose ring has its latencies over time too.
pub fn saved_text() -> String {
    let mut section = section();
    let mut heat = Heat::new();
    (0..1000).for_each(|at| heat.record(at, 1000, 100_000 + at * 100));
    section.rows[3].measured.heats = vec![heat; 2];
    section.rows[3].measured.slices = vec![60_000; 10];
    saved(vec![section])
}
