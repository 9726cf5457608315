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
        job::{Cache, Failure, Job, Timing},
        sample::{self, Counted, Instruments, Sample},
    },
};

/// Returns the reason why a sample is excluded, if it is.
pub type Inspect<'a> = dyn Fn(&Job, &Sample) -> Result<Option<String>, LabError> + 'a;

/// How many times the blocks that were planned there may be.
const BLOCKS_TIMES_MAX: usize = 3;
/// How often a sample is taken that says nothing.
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

    /// Takes a sample, with the reason of an exclusion that is known before. Two kinds of samples are repeated. On a busy
    /// machine a short sample may get no processor time at all. And a kernel that reclaims idle pages may take some of a
    /// file that was cached just now.
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
            let is_spoilt = taken.as_ref().is_ok_and(|sample| {
                let has_lost_pages = job.cache == Cache::Warm
                    && (unready.is_some() || gates::device(job.cache, sample).is_some());
                has_lost_pages || gates::presence(sample).is_some()
            });
            if !is_spoilt || tries == TRIES_MAX {
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use ringwise_measure::Sources;

    use super::*;
    use crate::{
        engine::Tally,
        results::row::RowKind,
        sampling::{job::Extent, lane::Counts},
        testing::{self, Mock},
    };

    /// How often a sample is taken whose files are ready after so many attempts, and why it is excluded.
    fn tries(cache: Cache, ready_after: u32) -> (u32, Option<String>) {
        let tries = Cell::new(0);
        let engine = Mock(|_: &Arc<Job>, _| {
            let counts = Counts { operations: 1, completed: 1, ..Counts::default() };
            Ok(Tally { counts, elapsed_ns: 1, ..Tally::default() })
        });
        let instruments =
            Instruments { sources: Sources::default(), device_number: None, idle: None };
        let schedule = Schedule {
            blocks: 1,
            seed: 1,
            timing: Timing { warm_up: Duration::ZERO, extent: Extent::Operations(1) },
            instruments: &instruments,
            job: &|_, _| Job { cache, ..testing::job() },
            prepare: &|_| {
                tries.set(tries.get() + 1);
                Ok((tries.get() <= ready_after).then(|| "pages are gone".to_owned()))
            },
            inspect: &|_, _| Ok(None),
            spare: &Spare::default(),
        };
        let row = Row::new("mock".to_owned(), RowKind::Rival, 1, Box::new(engine));
        let (_, unready, _) = schedule.take(&row, 1).unwrap();
        (tries.get(), unready)
    }

    #[test]
    fn a_sample_that_lost_cached_pages_is_taken_again() {
        let gone = || Some("pages are gone".to_owned());
        assert_eq!(tries(Cache::Warm, 0), (1, None));
        assert_eq!(tries(Cache::Warm, 1), (2, None));
        assert_eq!(tries(Cache::Warm, 9), (TRIES_MAX, gone()));
        // Pages that a cold cache has are no accident.
        assert_eq!(tries(Cache::Cold, 1), (1, gone()));
    }
}
