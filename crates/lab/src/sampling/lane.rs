//! One sequence of operations: what comes next, what came back, when.
//!
//! Every engine drives its operations through lanes (one per thread or task, one for a whole
//! ring), so that all are timed, verified and counted by the same code. A lane trusts no engine:
//! it counts what is in flight by itself, which the gate of Little's law then compares with the
//! latencies.

use std::sync::Arc;

pub use crate::sampling::record::Record;
use crate::{
    dataset::block::verify,
    sampling::{
        accesses::Accesses,
        heat::Heat,
        job::{Failure, Job, Request, Until, Window},
        record::Recent,
    },
};

/// Equal parts of the measured time in which operations are counted, for the test of steadiness.
pub const SLICES: usize = 10;

/// One sequence of operations.
#[derive(Debug)]
pub struct Lane {
    job: Arc<Job>,
    window: Window,
    accesses: Accesses,
    latest_ns: u64,
    until_ns: u64,
    quota: u64,
    is_verified: bool,
    requested: u64,
    in_flight: u64,
    in_flight_ns: u64,
    recent: Recent,
    counts: Counts,
}

/// What a lane, or all lanes of a sample, counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Operations that completed in the measured time.
    pub operations: u64,
    /// Bytes that they brought.
    pub bytes: u64,
    /// Operations begun, in warm-up and after the end too.
    pub issued: u64,
    /// Operations completed, in warm-up and after the end too.
    pub completed: u64,
    /// Operations in flight, integrated over the measured time: divided by it, the average.
    pub in_flight_ns: u64,
    /// What has to be added to `in_flight_ns` for the operations that cross an edge of the measured
    /// time: those that count are in it only from the start on, and those that end too late to
    /// count are in it up to the end.
    pub edge_ns: i64,
    /// When the last operation that counts completed.
    pub end_ns: u64,
    /// Whether there was nothing left to read before the time was over.
    pub exhausted: bool,
    /// Operations in each slice of the measured time; empty where it had no fixed length.
    pub slices: Vec<u64>,
    /// Which latencies came when, where that was asked for and the time had a fixed length.
    pub heat: Option<Heat>,
}

impl Counts {
    /// Adds another lane's.
    pub fn merge(&mut self, other: &Counts) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.issued += other.issued;
        self.completed += other.completed;
        self.in_flight_ns += other.in_flight_ns;
        self.edge_ns += other.edge_ns;
        self.end_ns = self.end_ns.max(other.end_ns);
        self.exhausted |= other.exhausted;
        if self.slices.is_empty() {
            self.slices.clone_from(&other.slices);
        } else {
            self.slices.iter_mut().zip(&other.slices).for_each(|(sum, more)| *sum += more);
        }
        match (&mut self.heat, &other.heat) {
            (Some(sum), Some(more)) => sum.merge(more),
            (none @ None, Some(first)) => *none = Some(first.clone()),
            (_, None) => {}
        }
    }
}

impl Lane {
    /// One of `lanes` lanes that share a job.
    pub fn new(job: &Arc<Job>, window: Window, lane: usize, lanes: usize) -> Lane {
        let (until_ns, quota, slices) = match window.until {
            Until::Time { ns } => (ns, u64::MAX, vec![0; SLICES]),
            Until::Operations { count } => {
                let share = |lane: usize| count * lane as u64 / lanes as u64;
                (u64::MAX, share(lane + 1) - share(lane), Vec::new())
            }
        };
        let heat = (job.heatmap && !slices.is_empty()).then(Heat::new);
        Lane {
            job: job.clone(),
            window,
            accesses: Accesses::new(job, lane, lanes),
            latest_ns: 0,
            until_ns,
            quota,
            is_verified: true,
            requested: 0,
            in_flight: 0,
            in_flight_ns: 0,
            recent: Recent::default(),
            counts: Counts { slices, heat, ..Counts::default() },
        }
    }

    /// The same lane, which does not look at what is read.
    #[must_use]
    pub fn unverified(self) -> Lane {
        Lane { is_verified: false, ..self }
    }

    /// The block to read next; none when it is over.
    #[inline]
    pub fn next_request(&mut self) -> Option<Request> {
        // Those that were asked for and not yet begun will count too.
        let open = self.requested - self.counts.completed;
        let spent =
            self.counts.operations + open >= self.quota && self.latest_ns >= self.window.from_ns;
        if self.latest_ns >= self.until_ns || spent || self.job.is_stopped() {
            return None;
        }
        let request = self.accesses.next();
        self.requested += u64::from(request.is_some());
        self.counts.exhausted = request.is_none();
        request
    }

    /// Now, in nanoseconds since the window's epoch.
    #[inline]
    pub fn clock(&self) -> u64 {
        self.window.now_ns()
    }

    /// Operations begin now: `count` of them are handed over.
    #[inline]
    pub fn begin(&mut self, count: u64, now_ns: u64) {
        self.pass_time(now_ns);
        self.in_flight += count;
        self.counts.issued += count;
    }

    /// An operation begins now that was to begin at `came_ns`, and counts as in flight since then.
    pub fn begin_late(&mut self, came_ns: u64, now_ns: u64) {
        self.begin(1, now_ns);
        self.in_flight_ns += self.waited_ns(came_ns, now_ns);
    }

    /// An operation has come back: counts it, and verifies what it brought. The time that takes
    /// is outside of its latency.
    ///
    /// # Errors
    ///
    /// [`Failure`] where it brought fewer bytes than the block has, or wrong ones.
    #[inline]
    pub fn complete(
        &mut self,
        request: Request,
        began_ns: u64,
        ended_ns: u64,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        self.complete_ranges(request, began_ns, ended_ns, [(request.offset, bytes)])
    }

    /// The same for an operation that brought several ranges of its file, each with its offset.
    ///
    /// # Errors
    ///
    /// [`Failure`] where they have together another length than the block, or wrong bytes.
    #[inline]
    pub fn complete_ranges<'a>(
        &mut self,
        request: Request,
        began_ns: u64,
        ended_ns: u64,
        ranges: impl IntoIterator<Item = (u64, &'a [u8])>,
    ) -> Result<(), Failure> {
        self.take_back(ended_ns);
        let file = &self.job.files[request.file];
        let mut total = 0;
        for (offset, bytes) in ranges {
            total += bytes.len();
            if self.is_verified {
                verify(self.job.seed, file.number, offset, bytes).map_err(Failure::Mismatch)?;
            }
        }
        if total != self.job.block_bytes {
            return Err(Failure::changed(file));
        }
        self.place(began_ns, ended_ns, total);
        Ok(())
    }

    /// An operation has come back that moves no bytes, and has been looked at.
    #[inline]
    pub fn complete_checked(&mut self, began_ns: u64, ended_ns: u64) {
        self.complete_moved(began_ns, ended_ns, 0);
    }

    /// The same for one that moved bytes, whose number has been looked at.
    #[inline]
    pub fn complete_moved(&mut self, began_ns: u64, ended_ns: u64, bytes: usize) {
        self.take_back(ended_ns);
        self.place(began_ns, ended_ns, bytes);
    }

    /// An operation that was to begin at `began_ns` is given up, and was never handed over: it counts as
    /// not issued, and what it waited is no time of one that counts.
    pub fn give_up(&mut self, began_ns: u64, now_ns: u64) {
        self.pass_time(now_ns);
        self.in_flight -= 1;
        self.requested -= 1;
        self.counts.issued -= 1;
        self.counts.edge_ns -= self.waited_ns(began_ns, now_ns) as i64;
    }

    /// How much of the measured time passed between the two.
    fn waited_ns(&self, came_ns: u64, now_ns: u64) -> u64 {
        now_ns.min(self.until_ns).saturating_sub(came_ns.max(self.window.from_ns))
    }

    #[inline]
    fn take_back(&mut self, ended_ns: u64) {
        self.pass_time(ended_ns);
        self.in_flight -= 1;
        self.counts.completed += 1;
    }

    /// Counts an operation that has come back, where it belongs to the measured time.
    #[inline]
    fn place(&mut self, began_ns: u64, ended_ns: u64, bytes: usize) {
        let from_ns = self.window.from_ns;
        if ended_ns >= self.until_ns {
            self.counts.edge_ns -= self.until_ns.saturating_sub(began_ns.max(from_ns)) as i64;
        } else if ended_ns >= from_ns {
            self.counts.edge_ns += from_ns.saturating_sub(began_ns) as i64;
            self.count(ended_ns.saturating_sub(began_ns), ended_ns, bytes);
        }
    }

    /// What was counted. To be taken when nothing is in flight any more.
    pub fn into_counts(mut self) -> Counts {
        self.recent.flush(&self.job.latency);
        Counts { in_flight_ns: self.in_flight_ns, ..self.counts }
    }

    fn count(&mut self, latency_ns: u64, ended_ns: u64, bytes: usize) {
        self.counts.operations += 1;
        self.counts.bytes += bytes as u64;
        self.recent.record_ns(latency_ns, &self.job.latency);
        self.counts.end_ns = ended_ns;
        if !self.counts.slices.is_empty() {
            let measured_ns = self.until_ns - self.window.from_ns;
            let slice = (ended_ns - self.window.from_ns) * SLICES as u64 / measured_ns;
            self.counts.slices[slice as usize] += 1;
            if let Some(heat) = &mut self.counts.heat {
                heat.record(ended_ns - self.window.from_ns, measured_ns, latency_ns);
            }
        }
    }

    /// Adds the time since the last event to what was in flight, as far as it is measured.
    #[inline]
    fn pass_time(&mut self, now_ns: u64) {
        let from = self.latest_ns.max(self.window.from_ns);
        let to = now_ns.min(self.until_ns);
        self.in_flight_ns += self.in_flight * to.saturating_sub(from);
        self.latest_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        dataset::{
            DataFile,
            block::{BLOCK_BYTES, Stamp},
        },
        sampling::job::{Cache, Extent, Pattern, Timing},
    };

    fn job() -> Arc<Job> {
        Arc::new(Job {
            files: [DataFile { path: "f".into(), number: 0, bytes: 1 << 20 }].into(),
            seed: 1,
            block_bytes: BLOCK_BYTES,
            depth: 2,
            pattern: Pattern::Sequential,
            cache: Cache::Warm,
            order_seed: 1,
            heatmap: false,
            interrupt: Arc::default(),
            failed: false.into(),
            latency: Record::default(),
        })
    }

    fn lane(extent: Extent) -> Lane {
        let timing = Timing { warm_up: Duration::from_nanos(100), extent };
        Lane::new(&job(), Window::beginning_now(timing), 0, 1)
    }

    fn content(request: Request) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        Stamp { seed: 1, file: 0, block: request.offset / BLOCK_BYTES as u64 }.fill(&mut bytes);
        bytes
    }

    #[test]
    fn only_the_window_counts() {
        let mut lane = lane(Extent::Time(Duration::from_nanos(1000)));
        for (began, ended) in [(0, 50), (60, 160), (200, 300), (1050, 1150)] {
            let request = lane.next_request().unwrap();
            lane.begin(1, began);
            lane.complete(request, began, ended, &content(request)).unwrap();
        }
        assert_eq!(lane.next_request(), None);
        let job = lane.job.clone();
        let counts = lane.into_counts();
        assert_eq!((counts.issued, counts.completed, counts.operations), (4, 4, 2));
        assert_eq!(job.latency.take().count(), 2);
        // 60 of the second, 100 of the third, 50 of the last.
        assert_eq!((counts.in_flight_ns, counts.edge_ns), (210, 40 - 50));
        assert_eq!(counts.slices, [1, 0, 1, 0, 0, 0, 0, 0, 0, 0][..].to_vec());
    }

    #[test]
    fn what_is_in_flight_is_integrated() {
        let mut lane = lane(Extent::Time(Duration::from_nanos(1000)));
        let (first, second) = (lane.next_request().unwrap(), lane.next_request().unwrap());
        lane.begin(2, 100);
        lane.complete(second, 100, 300, &content(second)).unwrap();
        lane.complete(first, 100, 600, &content(first)).unwrap();
        assert_eq!(lane.into_counts().in_flight_ns, 2 * 200 + 300);
    }

    #[test]
    fn what_begins_late_was_in_flight_since_it_came() {
        let mut lane = lane(Extent::Time(Duration::from_nanos(1000)));
        for (came, began, ended) in [(150, 200, 300), (250, 300, 400)] {
            lane.begin_late(came, began);
            lane.complete_moved(came, ended, 1);
        }
        let counts = lane.into_counts();
        assert_eq!((counts.operations, counts.in_flight_ns, counts.edge_ns), (2, 300, 0));
    }

    #[test]
    fn what_is_given_up_is_not_issued_and_in_no_average() {
        let mut lane = lane(Extent::Time(Duration::from_nanos(1000)));
        let (first, second) = (lane.next_request().unwrap(), lane.next_request().unwrap());
        assert_ne!(first, second);
        lane.begin(1, 200);
        lane.begin(1, 300);
        lane.complete(first, 200, 500, &content(first)).unwrap();
        lane.give_up(300, 1200);
        let counts = lane.into_counts();
        assert_eq!((counts.issued, counts.completed, counts.operations), (1, 1, 1));
        // Of the first 300; of the second 800 until the end, which are taken out again.
        assert_eq!((counts.in_flight_ns, counts.edge_ns), (300 + 800, -800));
    }

    #[test]
    fn a_quota_is_met_exactly() {
        let mut lane = lane(Extent::Operations(3));
        let warm = lane.next_request().unwrap();
        lane.begin(1, 10);
        lane.complete(warm, 10, 20, &content(warm)).unwrap();
        let mut now = 200;
        while let Some(request) = lane.next_request() {
            lane.begin(1, now);
            lane.complete(request, now, now + 10, &content(request)).unwrap();
            now += 20;
        }
        let counts = lane.into_counts();
        assert_eq!((counts.operations, counts.completed), (3, 4));
        assert_eq!(counts.end_ns, 250);
    }

    #[test]
    fn wrong_and_short_data_are_failures() {
        let mut lane = lane(Extent::Operations(3));
        let request = lane.next_request().unwrap();
        lane.begin(3, 0);
        let other = content(Request { file: 0, offset: 8192 });
        let wrong = lane.complete(request, 0, 1, &other).unwrap_err();
        assert!(matches!(wrong, Failure::Mismatch(_)));
        let short = lane.complete(request, 0, 1, &content(request)[..512]).unwrap_err();
        assert!(short.to_string().contains("changed during the run"), "{short}");
    }

    #[test]
    fn the_stop_flag_ends_a_lane() {
        let mut lane = lane(Extent::Operations(3));
        lane.job.interrupt.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(lane.next_request(), None);
    }
}
