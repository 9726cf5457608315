//! What is to be measured: the command line, checked and with every default filled in.

mod check;
mod copy;
mod echo;
mod engine_name;
mod groups;
mod log;
mod percentile;

pub use copy::{CopyPlan, CopyProgram, DataSet, Part};
pub use echo::{EchoPlan, EchoServer, Spin};
pub use engine_name::EngineName;
pub use log::{Guarantee, LogGroup, LogPlan, LogServer, RsyslogInput, Transport};
pub use percentile::Percentile;

use std::{fmt, path::PathBuf, time::Duration};

use serde::Serialize;

use crate::{
    dataset::Size,
    job::{Cache, Pattern},
};

/// What is to be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
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
    /// How much each sample measures.
    pub extent: ExtentChoice,
    /// What `read` measures, a group for each profile and block.
    pub groups: Vec<Group>,
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
    /// Echo servers.
    Echo,
    /// Log daemons.
    Log,
    /// Programs that copy files.
    Copy,
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
