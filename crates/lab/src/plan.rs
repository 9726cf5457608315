//! What is to be measured: the command line, checked and with every default filled in.

mod chain;
mod check;
mod copy;
mod echo;
mod engine_name;
mod flags;
mod groups;
mod log;
mod percentile;
mod stat;

pub use chain::ChainGroup;
pub use copy::{CopyPlan, CopyProgram, DataSet, Part};
pub use echo::{EchoPlan, EchoServer, Spin};
pub use engine_name::EngineName;
pub use log::{
    Gather, Guarantee, LogGroup, LogPlan, LogServer, LogSwitches, RsyslogInput, Transport,
};
pub use percentile::Percentile;
pub use stat::StatPlan;

use std::{fmt, path::PathBuf, time::Duration};

use serde::Serialize;

use crate::{
    args::Args,
    dataset::Size,
    job::{Cache, Pattern},
};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Whether it is the suite, which leaves out what cannot run here.
    pub is_suite: bool,
    /// Time for further blocks where intervals are wide.
    pub spare: Duration,
    /// The workloads, in order.
    pub workloads: Vec<Workload>,
    /// Where test files go.
    pub directory: PathBuf,
    /// Whether they stay.
    pub keep: bool,
    /// Where the results file goes, if it was named.
    pub json: Option<PathBuf>,
    /// Where it goes otherwise.
    pub out: PathBuf,
    /// The seed of everything that is random.
    pub seed: u64,
    /// Interleaved blocks.
    pub repeats: usize,
    /// Runs with the same engine in all rows of a depth, where the lab itself is checked.
    pub self_check: Option<usize>,
    /// How much each sample measures.
    pub extent: ExtentChoice,
    /// What `read` measures, a group for each profile and block.
    pub groups: Vec<Group>,
    /// What `latency` measures, a group for each state of the cache.
    pub latency: Vec<Group>,
    /// What `stat` measures.
    pub stat: StatPlan,
    /// What `chain` measures.
    pub chain: Vec<ChainGroup>,
    /// What `echo` measures.
    pub echo: EchoPlan,
    /// What `log` measures.
    pub log: LogPlan,
    /// What `copy` measures.
    pub copy: CopyPlan,
    /// Batches of `nop`.
    pub batches: Vec<usize>,
    /// What the table shows of the latencies, beside the longest.
    pub percentiles: Vec<Percentile>,
    /// Where drawings of the latencies over time go, if they are wanted.
    pub heatmap: Option<PathBuf>,
}

/// A workload of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Reads of files.
    Read,
    /// No-ops through the ring.
    Nop,
    /// Reads one at a time, with each switch of the ring.
    Latency,
    /// Pages written, made durable and read back.
    Chain,
    /// The metadata of many files.
    Stat,
    /// Echo servers.
    Echo,
    /// Log daemons.
    Log,
    /// Programs that copy files.
    Copy,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 8] = [
        Workload::Read,
        Workload::Latency,
        Workload::Nop,
        Workload::Chain,
        Workload::Stat,
        Workload::Echo,
        Workload::Copy,
        Workload::Log,
    ];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Read => "read",
            Workload::Nop => "nop",
            Workload::Latency => "latency",
            Workload::Chain => "chain",
            Workload::Stat => "stat",
            Workload::Echo => "echo",
            Workload::Copy => "copy",
            Workload::Log => "log",
        }
    }

    /// Whether it has test files of its own.
    pub fn has_files(self) -> bool {
        !matches!(self, Workload::Nop | Workload::Echo | Workload::Log)
    }
}

/// How large a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// About two minutes.
    Quick,
    /// About half an hour.
    Standard,
    /// As large as the published studies.
    Full,
}

impl Scale {
    fn of(args: &Args) -> Scale {
        match (args.full, args.standard) {
            (true, _) => Scale::Full,
            (false, true) => Scale::Standard,
            (false, false) => Scale::Quick,
        }
    }
}

/// What share of the suite's time a workload has, in seconds of the quick one. One that is not in
/// the suite has none.
const SUITE: [(Workload, u64); 8] = [
    (Workload::Read, 26),
    (Workload::Latency, 22),
    (Workload::Nop, 18),
    // Every millisecond of it is written to the device, most of what the suite writes.
    (Workload::Chain, 4),
    (Workload::Stat, 6),
    (Workload::Echo, 12),
    // Each of its samples is one copy.
    (Workload::Copy, 0),
    // Each of its samples starts a daemon.
    (Workload::Log, 9),
];

impl Plan {
    /// How much each sample of a workload measures.
    pub fn extent_of(&self, workload: Workload) -> ExtentChoice {
        let share = SUITE.iter().find(|(other, _)| *other == workload);
        match (self.extent, share) {
            (ExtentChoice::Budget(_), Some((_, seconds))) if self.is_suite => {
                ExtentChoice::Budget(Duration::from_secs(*seconds))
            }
            (extent, _) => extent,
        }
    }
}

/// How much a sample measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentChoice {
    /// All samples together take about this long.
    Budget(Duration),
    /// Each sample.
    Time(Duration),
    /// Each sample.
    Reads(u64),
}

/// Through the page cache or past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Through the page cache.
    Buffered,
    /// Past it, with O_DIRECT.
    Direct,
}

/// Engines that are compared with each other in one interleaved run.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// What the files are called.
    pub set: &'static str,
    /// Through the page cache or past it.
    pub profile: Profile,
    /// In which order.
    pub pattern: Pattern,
    /// What the page cache holds, for engines that read through it.
    pub cache: Cache,
    /// With a bounded cache: how much memory the run may use. None is a quarter of the files.
    pub bound_bytes: Option<u64>,
    /// Bytes per read.
    pub block_bytes: usize,
    /// Whether nobody asked for this block: one of the sweep that larger runs make. What cannot be
    /// read so here is said then, and is no error.
    pub is_swept: bool,
    /// Reads in flight.
    pub depths: Vec<usize>,
    /// Threads of `threads`, beside the depths.
    pub threads: usize,
    /// Which engines.
    pub engines: Vec<EngineName>,
    /// How many files.
    pub files: u64,
    /// How large they are together.
    pub size: Size,
}

/// What a run in a bounded memory needs for itself, and for each read in flight: a thread's stacks
/// and structures, in the program and in the kernel.
const OWN_BYTES: u64 = 16 << 20;
const OWN_BYTES_PER_READ: u64 = 128 << 10;

impl Group {
    /// The most reads in flight of any row.
    pub fn depth_max(&self) -> usize {
        self.depths.iter().copied().chain([self.threads]).max().unwrap_or(1)
    }

    /// The least memory that a bound may leave to the run.
    pub fn bound_bytes_min(&self) -> u64 {
        OWN_BYTES + self.depth_max() as u64 * (OWN_BYTES_PER_READ + self.block_bytes as u64)
    }

    /// What the page cache holds for one engine: in a direct group all but a mapping go past it.
    pub fn cache_of(&self, engine: &str) -> Cache {
        match self.profile {
            Profile::Direct if engine != "mmap" => Cache::Bypassed,
            Profile::Direct | Profile::Buffered => self.cache,
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Profile::Buffered => "buffered",
            Profile::Direct => "direct",
        })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pattern::Sequential => "sequential",
            Pattern::Random => "random",
        })
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cache::Warm => "warm",
            Cache::Cold => "cold",
            Cache::Bypassed => "O_DIRECT",
            Cache::Bounded => "bounded cache",
        })
    }
}
