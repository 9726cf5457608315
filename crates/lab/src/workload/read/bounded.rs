//! A bounded page cache: the group of the run, what it may use, and whether that had an effect.

use std::{cell::RefCell, sync::atomic::Ordering};

use ringwise_measure::quantity::{bytes_text, size_text};

use super::{group::Group, page_cache};
use crate::{
    checks::gates::{self, Bound},
    dataset::DataFile,
    error::LabError,
    plan::typed::invalid,
    sampling::{
        job::{Cache, Job},
        memory_group::MemoryGroup,
        sample::Sample,
    },
    workload::form::Context,
};

/// What share of the bound need not be in use for the cache to be called full.
const SLACK_PARTS: u64 = 16;
/// What share of the files the default bound is.
const DEFAULT_PARTS: u64 = 4;

/// The bound of a group of rows, until it is dropped.
#[derive(Debug)]
pub struct Bounded {
    group: MemoryGroup,
    bound: Bound,
    /// The file that the cache is filled from next, so that the same is not always in it.
    next_file: RefCell<usize>,
}

impl Bounded {
    /// Makes the group, where the rows need one. It is done before files are laid out: where it
    /// cannot be done nothing else is worth its time.
    ///
    /// # Errors
    ///
    /// No memory cgroup can be made here.
    pub fn make(context: &Context<'_>, group: &Group) -> Result<Option<MemoryGroup>, LabError> {
        let is_bounded = group.cache == Cache::Bounded;
        is_bounded.then(|| MemoryGroup::make(&context.instruments.sources)).transpose()
    }

    /// Limits the group to the plan's bound or a quarter of the files, empties the cache of them
    /// and moves the process in. What it has allocated before is not charged.
    ///
    /// # Errors
    ///
    /// The files would fit into the bound; what the kernel reports.
    pub fn enter(
        mut group: MemoryGroup,
        plan: &Group,
        files: &[DataFile],
    ) -> Result<Bounded, LabError> {
        let files_bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let least = plan.bound_bytes_min();
        let bytes = plan.bound_bytes.unwrap_or((files_bytes / DEFAULT_PARTS).max(least));
        if bytes >= files_bytes {
            let why = format!(
                "test files of {} would fit; raise --size, or lower --depth, which needs {} for \
                 itself",
                bytes_text(files_bytes),
                bytes_text(least)
            );
            return Err(invalid("--cache", &format!("bounded:{}", size_text(bytes)), why));
        }
        // Pages that are cached now are charged elsewhere.
        files.iter().try_for_each(page_cache::forget)?;
        group.limit(bytes)?;
        group.enter()?;
        Ok(Bounded { group, bound: Bound { bytes, files_bytes }, next_file: RefCell::new(0) })
    }

    /// How much memory the run may use.
    pub fn bytes(&self) -> u64 {
        self.bound.bytes
    }

    /// What is to be known of it.
    pub fn note(&self) -> String {
        format!(
            "a memory cgroup bounds the run and its page cache to {}: at least {:.0} % of what is \
             read through the cache has to come from the device",
            bytes_text(self.bound.bytes),
            self.bound.device_share_min() * 100.0
        )
    }

    /// Fills the cache before a sample that reads through it, and empties it before one that reads
    /// past it, which would have to look there for every block.
    ///
    /// # Errors
    ///
    /// What reading or forgetting a file reports; [`LabError::Interrupted`].
    pub fn prepare(&self, job: &Job) -> Result<Option<String>, LabError> {
        if job.cache != Cache::Bounded {
            if page_cache::cached_bytes(&job.files)? != Some(0) {
                job.files.iter().try_for_each(page_cache::forget)?;
            }
            return page_cache::prepare(job);
        }
        let mut left = self.bound.bytes;
        let full = self.bound.bytes - self.bound.bytes / SLACK_PARTS;
        let mut next = self.next_file.borrow_mut();
        while left > 0 && self.group.used_bytes()? < full {
            if job.interrupt.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            let file = &job.files[*next % job.files.len()];
            left -= page_cache::read_through(file, left)?;
            *next += 1;
        }
        Ok(None)
    }

    /// Why the bound had no effect on a sample, if so.
    ///
    /// # Errors
    ///
    /// What opening a file reports.
    pub fn inspect(&self, job: &Job, sample: &Sample) -> Result<Option<String>, LabError> {
        if job.cache != Cache::Bounded {
            return Ok(None);
        }
        Ok(gates::bound(&self.bound, page_cache::cached_bytes(&job.files)?, sample))
    }
}
