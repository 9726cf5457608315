//! A group of `read`: what is read, how, and by which engines.

use crate::{
    dataset::Size,
    engine::{name::EngineName, uring::Switch},
    sampling::job::{Cache, Pattern, Profile},
};

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

    /// Leaves out engines that can have no result: a memory map cannot go past the page cache, and nothing is polled
    /// for through it.
    pub fn leave_out_impossible(&mut self) {
        let (is_direct, mapped) = (self.profile == Profile::Direct, self.cache_of("mmap"));
        self.engines.retain(|engine| match engine {
            EngineName::Mmap(_) => mapped != Cache::Bypassed,
            EngineName::Uring(switches) => is_direct || !switches.has(Switch::Iopoll),
            _ => true,
        });
    }
}
