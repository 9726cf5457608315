//! What the sections of `scale` share: the files and processors of a run, and the form of its reads.

use std::sync::Arc;

use ringwise_measure::quantity::size_text;

use super::shares::Place as Files;
use crate::{
    dataset::DataFile,
    results::section::Place,
    sampling::job::{Cache, Job, Pattern, Profile},
    workload::form::Context,
};

/// What all sections of a run share.
#[derive(Debug)]
pub(super) struct Ground {
    /// The files of each directory.
    pub places: Vec<Files>,
    /// The processors that threads are bound to in turn.
    pub processors: Vec<usize>,
    /// The file system of the first directory.
    pub filesystem: Option<String>,
    /// What is to be known of all reads.
    pub notes: Vec<String>,
}

/// What all rows of a section have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes per read.
    pub block_bytes: usize,
    /// Reads in flight on each thread.
    pub depth: usize,
}

impl Shape {
    /// In words: "4k blocks, 32 in flight on each thread".
    pub(super) fn text(self) -> String {
        let block = size_text(self.block_bytes as u64);
        format!("{block} blocks, {} in flight on each thread", self.depth)
    }

    /// What it is in a results file.
    pub(super) fn place(self, cache: Option<Cache>) -> Place {
        Place {
            own: [("in_flight_per_thread", self.depth.into())].into(),
            profile: cache.map(|_| Profile::Direct),
            pattern: Some(Pattern::Random),
            cache,
            block_bytes: self.block_bytes,
            ..Place::default()
        }
    }

    /// A sample of a row that reads these files.
    pub(super) fn job(self, context: &Context<'_>, files: Arc<[DataFile]>, order_seed: u64) -> Job {
        Job {
            files,
            block_bytes: self.block_bytes,
            pattern: Pattern::Random,
            cache: Cache::Bypassed,
            ..context.job(self.depth, order_seed)
        }
    }
}
