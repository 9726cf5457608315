//! The order of samples: random blocks, each followed by its mirror image, so that drift of the
//! machine falls on all engines alike (see [`BlockOrder`]).

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use ringwise_measure::statistics::BlockOrder;

use crate::{
    checks::gates,
    error::LabError,
    results::{row::Row, verdict},
    sampling::{
        job::{Failure, Job, Timing},
        sample::{self, Counted, Instruments, Sample},
    },
};

/// Returns the reason why a sample is excluded, if it is.
pub type Inspect<'a> = dyn Fn(&Job, &Sample) -> Result<Option<String>, LabError> + 'a;

/// How many times the blocks that were planned there may be.
const BLOCKS_TIMES_MAX: usize = 3;
/// How often a sample is taken in which no operation completes.
const TRIES_MAX: u32 = 3;

/// Time for further blocks, of all sections together.
#[derive(Debug, Default)]
pub struct Spare(Cell<Duration>);

impl Spare {
    /// So much time.
    pub fn new(time: Duration) -> Spare {
        Spare(Cell::new(time))
    }

    /// Whether there is as much left, which is then spent.
    fn take(&self, time: Duration) -> bool {
        let left = self.0.get().checked_sub(time);
        self.0.set(left.unwrap_or(self.0.get()));
        left.is_some()
    }
}

/// How samples are taken.
pub struct Schedule<'a> {
    /// Interleaved blocks; each has two samples of every row.
    pub blocks: usize,
    /// The seed of the order and of the random offsets.
    pub seed: u64,
    /// How long each sample takes.
    pub timing: Timing,
    /// What is read around each.
    pub instruments: &'a Instruments,
    /// Makes the job of a row, with a seed for its order.
    pub job: &'a dyn Fn(&Row, u64) -> Job,
    /// Brings the page cache into the state for the job. Returns the reason why samples would be excluded, if there is
    /// one.
    pub prepare: &'a dyn Fn(&Job) -> Result<Option<String>, LabError>,
    /// Checks after a sample whether that state has held. Returns the reason why the sample is excluded, if it is.
    pub inspect: &'a Inspect<'a>,
    /// Time for further blocks while the interval of a verdict is too wide.
    pub spare: &'a Spare,
}

/// A sample with its job, and the reason of an exclusion that was known before the sample.
type Taken = (Arc<Job>, Option<String>, Result<Sample, Failure>);

impl Schedule<'_> {
    /// Takes all samples of all rows but those that they have already, which are the first of the
    /// order. `progress` is told the row before each sample.
    ///
    /// # Errors
    ///
    /// A failure that ends the run; [`LabError::Interrupted`], with what was measured so far in
    /// the rows.
    pub fn run(&self, rows: &mut [Row], progress: &mut dyn FnMut(&Row)) -> Result<(), LabError> {
        let began = Instant::now();
        let mut had: Vec<usize> = rows.iter().map(|row| row.measured.samples.len()).collect();
        let orders = BlockOrder::new(rows.len(), self.seed);
        for (block, order) in orders.take(self.blocks * BLOCKS_TIMES_MAX).enumerate() {
            if block >= self.blocks && !self.goes_on(rows, began.elapsed() / block as u32) {
                break;
            }
            for (position, &index) in order.iter().enumerate() {
                let row = &mut rows[index];
                progress(row);
                let is_taken = had[index] > 0;
                had[index] = had[index].saturating_sub(1);
                if is_taken || row.measured.void.is_some() {
                    continue;
                }
                // Other offsets in each sample.
                let order_seed = self.seed ^ ((block as u64) << 32) ^ ((position as u64) << 16);
                self.sample(row, block, order_seed)?;
            }
        }
        for row in rows.iter_mut().filter(|row| row.is_valid()) {
            row.measured.void = gates::steadiness(&row.measured);
        }
        Ok(())
    }

    /// Whether another block, which takes about so long, is worth its time and there is that time.
    fn goes_on(&self, rows: &[Row], block_time: Duration) -> bool {
        verdict::is_undecided(rows, self.seed) && self.spare.take(block_time)
    }

    fn sample(&self, row: &mut Row, block: usize, order_seed: u64) -> Result<(), LabError> {
        let (job, unready, taken) = self.take(row, order_seed)?;
        match taken {
            Ok(sample) => {
                let void = unready.or_else(|| gates::sample(job.cache, &sample));
                let inspected = (self.inspect)(&job, &sample)?;
                let void = void.or(inspected);
                row.measured.add(block, &sample, void);
            }
            Err(failure) => {
                let void = gates::verification(&failure);
                row.measured.void = Some(match failure {
                    Failure::Unavailable(reason) => reason,
                    Failure::Mismatch(_) => void.unwrap_or_default(),
                    Failure::Io(text) => return Err(LabError::Failed(text)),
                });
            }
        }
        Ok(())
    }

    /// Takes a sample, with the reason of an exclusion that is known before. A sample without a completed operation is
    /// repeated: on a busy machine a short sample may get no processor time at all.
    fn take(&self, row: &Row, order_seed: u64) -> Result<Taken, LabError> {
        let mut tries = 0;
        loop {
            let job = Arc::new((self.job)(row, order_seed));
            let unready = (self.prepare)(&job)?;
            let taken = sample::take(&*row.runner, &job, self.timing, self.instruments);
            if job.interrupt.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            tries += 1;
            let is_empty = taken.as_ref().is_ok_and(|sample| gates::presence(sample).is_some());
            if !is_empty || tries == TRIES_MAX {
                return Ok((job, unready, taken));
            }
        }
    }

    /// Counts kernel events of each valid row in a pass of its own. In another it looks at the kernel's
    /// threads, where the ring has any that work, or the workload `writes`.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn count(&self, rows: &mut [Row], timing: Timing, writes: bool) -> Result<(), LabError> {
        for row in rows.iter_mut().filter(|row| row.is_valid()) {
            let job = Arc::new((self.job)(row, self.seed));
            (self.prepare)(&job)?;
            let sources = &self.instruments.sources;
            let has_sqpoll = row.engine.contains("sqpoll");
            let counted = sample::count(&*row.runner, &job, timing, sources).and_then(|counted| {
                let has_workers = counted.worker_punts.known().is_some_and(|&punts| punts > 0.0);
                let shares = match writes || has_sqpoll || has_workers {
                    true => sample::kernel_shares(&*row.runner, &job, timing, sources)?,
                    false => None,
                };
                Ok(Counted { shares, ..counted })
            });
            if job.interrupt.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            }
            match counted {
                Ok(counted) => row.measured.counted = Some(counted),
                Err(Failure::Io(text)) => return Err(LabError::Failed(text)),
                Err(failure) => row.measured.void = Some(failure.to_string()),
            }
        }
        Ok(())
    }
}
