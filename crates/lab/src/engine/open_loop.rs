//! The open loop: reads that come at times of their own, whether earlier ones are done or not.
//!
//! They come as from many independent clients: gaps are exponential, so that the rate is kept on average and there are
//! moments with more. A latency counts from the time at which a read was to begin, so that a read which waits for a
//! free slot waits in its latency (no coordinated omission). What has no slot when the time is over is given up and
//! counted.

use std::{
    collections::VecDeque, fs::File, num::NonZeroU64, os::unix::fs::FileExt, sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use ringwise::AlignedBuf;
use rustix::thread::set_current_timer_slack;

use super::{
    Engine, Tally, buffer,
    rolling::{Queue, Take, TimedQueue},
    uring::Uring,
};
use crate::sampling::{
    job::{Failure, Job, Request, Start, Until, Window},
    lane::Lane,
};

/// Reads that came in the measured time.
pub const DUE: &str = "due_reads";
/// Reads that came and had no slot until the time was over.
pub const GIVEN_UP: &str = "given_up_reads";

/// The longest wait before the interrupt is looked at again.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// Keeps the arrivals apart from the order of blocks.
const ARRIVALS: u64 = 0xa5a5_a5a5_a5a5_a5a5;

/// One thread that reads through a ring of its own what comes.
#[derive(Debug)]
pub struct OpenRing {
    /// How much comes.
    pub rate_per_s: f64,
}

impl Engine for OpenRing {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        Uring::default().run_by(job, start, &|queue, window, lane, job| {
            let load = Load { rate_per_s: self.rate_per_s, slots: job.depth };
            drive(queue, window, lane, job, load)
        })
    }
}

/// One thread that reads by pread(2) what comes, one after the other.
#[derive(Debug)]
pub struct OpenSync {
    /// How much comes.
    pub rate_per_s: f64,
}

impl Engine for OpenSync {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let files = job.open()?;
        let mut queue = Blocking { job, files, bytes: buffer(job), done: None };
        let window = start.ready()?;
        let lane = Lane::new(job, window, 0, 1);
        let load = Load { rate_per_s: self.rate_per_s, slots: 1 };
        let tally = drive(&mut queue, &window, lane, job, load)?;
        Ok(Tally { system_calls: Some(tally.counts.completed), ..tally })
    }
}

/// A queue of one: a read is done when it is pushed.
struct Blocking<'a> {
    job: &'a Job,
    files: Vec<File>,
    bytes: AlignedBuf,
    done: Option<(usize, usize)>,
}

impl Queue for Blocking<'_> {
    fn push(&mut self, slot: usize, request: Request) -> Result<(), Failure> {
        let read = self.files[request.file].read_at(&mut self.bytes, request.offset);
        let read = read.map_err(|error| self.job.read_failed(request, &error))?;
        self.done = Some((slot, read));
        Ok(())
    }

    fn submit(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn submit_and_wait(&mut self, _want: usize) -> Result<(), Failure> {
        Ok(())
    }

    fn reap(&mut self, take: &mut Take<'_>) -> Result<(), Failure> {
        match self.done.take() {
            Some((slot, read)) => take(slot, &self.bytes[..read]),
            None => Ok(()),
        }
    }
}

impl TimedQueue for Blocking<'_> {
    fn submit_and_wait_for(&mut self, _timeout: Duration) -> Result<(), Failure> {
        Ok(())
    }
}

/// When reads come.
struct Arrivals {
    random: Rng,
    mean_ns: f64,
    next_ns: f64,
}

impl Arrivals {
    fn new(rate_per_s: f64, seed: u64) -> Arrivals {
        let mut all = Arrivals {
            random: Rng::with_seed(seed ^ ARRIVALS),
            mean_ns: 1e9 / rate_per_s,
            next_ns: 0.0,
        };
        all.pass();
        all
    }

    /// Goes on to the next one.
    fn pass(&mut self) {
        // Never the logarithm of zero: a random number is below one.
        self.next_ns -= self.mean_ns * (1.0 - self.random.f64()).ln();
    }

    fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }
}

/// What one thread is offered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// How much comes.
    rate_per_s: f64,
    /// How much can be in flight.
    slots: usize,
}

/// Drives a lane with reads that come at a rate. What finds no slot waits for one.
pub(crate) fn drive(
    queue: &mut impl TimedQueue,
    window: &Window,
    lane: Lane,
    job: &Job,
    Load { rate_per_s, slots }: Load,
) -> Result<Tally, Failure> {
    // The kernel may let a sleeper wait 50 us longer (PR_SET_TIMERSLACK(2const)). A thread that may not ask for less is
    // late by that, which latencies show.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let mut open = Open {
        job,
        lane,
        until_ns: match window.until {
            Until::Time { ns } => ns,
            Until::Operations { .. } => u64::MAX,
        },
        window,
        arrivals: Arrivals::new(rate_per_s, job.order_seed),
        waiting: VecDeque::new(),
        slots: vec![(Request::default(), 0); slots],
        free: (0..slots).collect(),
        is_over: false,
        due: 0,
        given_up: 0,
    };
    loop {
        let now_ns = queue.now_ns(window);
        open.let_in(now_ns);
        open.take_all(queue, now_ns)?;
        open.hand_over(queue)?;
        if open.is_over && open.free.len() == slots && open.waiting.is_empty() {
            break;
        }
        open.wait(queue)?;
    }
    let figures = [(DUE, open.due as f64), (GIVEN_UP, open.given_up as f64)].into();
    Ok(Tally { figures, ..Tally::of(job, window, [open.lane.into_counts()]) })
}

struct Open<'a> {
    job: &'a Job,
    lane: Lane,
    window: &'a Window,
    until_ns: u64,
    arrivals: Arrivals,
    /// What has come and has no slot yet, each with the time at which it came.
    waiting: VecDeque<(Request, u64)>,
    slots: Vec<(Request, u64)>,
    free: Vec<usize>,
    is_over: bool,
    due: u64,
    given_up: u64,
}

impl Open<'_> {
    /// Lets in what has come until now, each at its time.
    fn let_in(&mut self, now_ns: u64) {
        while !self.is_over && self.arrivals.next_ns() <= now_ns {
            let came_ns = self.arrivals.next_ns();
            let request = (came_ns < self.until_ns).then(|| self.lane.next_request()).flatten();
            let Some(request) = request else {
                self.is_over = true;
                break;
            };
            self.lane.begin(1, came_ns);
            self.due += u64::from(came_ns >= self.window.from_ns);
            self.waiting.push_back((request, came_ns));
            self.arrivals.pass();
        }
        if now_ns >= self.until_ns || self.job.is_stopped() {
            self.is_over = true;
            self.give_up(now_ns);
        }
    }

    /// What has no slot when the time is over is given up. A number of reads is made to the last.
    fn give_up(&mut self, now_ns: u64) {
        for (_, came_ns) in self.waiting.drain(..) {
            self.lane.give_up(came_ns, now_ns);
            self.given_up += 1;
        }
    }

    fn take_all(&mut self, queue: &mut impl Queue, now_ns: u64) -> Result<(), Failure> {
        loop {
            let mut done = None;
            let (lane, slots) = (&mut self.lane, &self.slots);
            queue.reap(&mut |slot, bytes| {
                done = Some(slot);
                let (request, came_ns) = slots[slot];
                lane.complete(request, came_ns, now_ns, bytes)
            })?;
            let Some(slot) = done else { return Ok(()) };
            self.free.push(slot);
        }
    }

    fn hand_over(&mut self, queue: &mut impl Queue) -> Result<(), Failure> {
        while !self.waiting.is_empty()
            && let Some(slot) = self.free.pop()
            && let Some((request, came_ns)) = self.waiting.pop_front()
        {
            self.slots[slot] = (request, came_ns);
            queue.push(slot, request)?;
        }
        Ok(())
    }

    /// Waits for a completion, or until the next read comes if there is a slot for it.
    fn wait(&self, queue: &mut impl TimedQueue) -> Result<(), Failure> {
        if self.free.is_empty() || self.is_over {
            return queue.submit_and_wait(1);
        }
        let next_ns = self.arrivals.next_ns().min(self.until_ns);
        let left_ns = next_ns.saturating_sub(queue.now_ns(self.window));
        let left = Duration::from_nanos(left_ns).min(WAIT_MAX);
        // A queue with nothing in flight has nothing to wait for.
        if self.free.len() == self.slots.len() {
            queue.sleep(left);
            return Ok(());
        }
        match left_ns {
            0 => queue.submit(),
            _ => queue.submit_and_wait_for(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dataset::DataFile,
        sampling::job::{Extent, Timing},
        testing,
    };

    /// A simulated device with its own clock, which serves one read after the other, each in the same time.
    struct Slow {
        now_ns: u64,
        service_ns: u64,
        pending: VecDeque<(usize, u64)>,
        free_from_ns: u64,
        bytes: Vec<u8>,
    }

    impl Slow {
        fn next_ns(&self) -> Option<u64> {
            self.pending.front().map(|&(_, ns)| ns)
        }
    }

    impl Queue for Slow {
        fn push(&mut self, slot: usize, request: Request) -> Result<(), Failure> {
            crate::dataset::block::Stamp { seed: 1, file: 0, block: request.offset / 4096 }
                .fill(&mut self.bytes);
            self.free_from_ns = self.free_from_ns.max(self.now_ns) + self.service_ns;
            self.pending.push_back((slot, self.free_from_ns));
            Ok(())
        }

        fn submit(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        fn submit_and_wait(&mut self, _want: usize) -> Result<(), Failure> {
            self.now_ns = self.now_ns.max(self.next_ns().unwrap_or(0));
            Ok(())
        }

        fn reap(&mut self, take: &mut Take<'_>) -> Result<(), Failure> {
            match self.pending.front() {
                Some(&(slot, ns)) if ns <= self.now_ns => {
                    self.pending.pop_front();
                    take(slot, &self.bytes)
                }
                _ => Ok(()),
            }
        }
    }

    impl TimedQueue for Slow {
        fn submit_and_wait_for(&mut self, timeout: Duration) -> Result<(), Failure> {
            let until_ns = self.now_ns + timeout.as_nanos() as u64;
            self.now_ns = until_ns.min(self.next_ns().unwrap_or(u64::MAX)).max(self.now_ns);
            Ok(())
        }

        fn sleep(&mut self, time: Duration) {
            self.now_ns += time.as_nanos() as u64;
        }

        fn now_ns(&self, _window: &Window) -> u64 {
            self.now_ns
        }
    }

    /// Reads of 1 ms each at a rate, one at a time.
    fn run(rate_per_s: f64, extent: Extent) -> Tally {
        // A file of one block: what the device gives is always the right one.
        let files = [DataFile { path: "f".into(), number: 0, bytes: 4096 }].into();
        let job = Arc::new(Job { files, depth: 1, ..testing::job() });
        let window = Window::beginning_now(Timing { warm_up: Duration::from_millis(20), extent });
        let mut queue = Slow {
            now_ns: 0,
            service_ns: 1_000_000,
            pending: VecDeque::new(),
            free_from_ns: 0,
            bytes: vec![0; 4096],
        };
        let load = Load { rate_per_s, slots: 1 };
        drive(&mut queue, &window, Lane::new(&job, window, 0, 1), &job, load).unwrap()
    }

    #[test]
    fn the_rate_is_kept_below_what_the_device_can_do_and_waiting_counts_above() {
        let time = Extent::Time(Duration::from_millis(400));
        let calm = run(200.0, time);
        let due = calm.figures[DUE];
        assert!((40.0..130.0).contains(&due), "80 on average: {due}");
        assert!(calm.counts.operations as f64 >= due - 6.0, "{:?}", calm.figures);
        assert_eq!(calm.counts.issued, calm.counts.completed);
        // Twice as much as it can do: half of it waits until the end, and longer and longer.
        let busy = run(2000.0, time);
        let served = busy.counts.operations as f64;
        assert!(busy.figures[GIVEN_UP] > 200.0, "{:?}", busy.figures);
        assert!(served < 0.7 * busy.figures[DUE], "{served} of {:?}", busy.figures);
        assert!(busy.latency.percentiles().p99 > 100_000_000, "{:?}", busy.latency.percentiles());
        assert_eq!(busy.counts.issued, busy.counts.completed, "what is given up was not issued");
        for tally in [calm, busy] {
            let implied = tally.operations_per_second() * tally.latency.mean_ns() / 1e9;
            let counted = tally.counted_in_flight_mean();
            assert!((implied / counted - 1.0).abs() < 0.02, "{implied} {counted}");
        }
    }

    /// Eight blocks in a file that is in the page cache.
    fn on_file(run: impl FnOnce(&Arc<Job>)) {
        use crate::{
            dataset::{Directory, Layout, Size},
            sampling::job::Cache,
        };
        let parent = testing::directory();
        let directory = Directory::open(parent.path(), false).unwrap();
        let layout = Layout { set: "open", files: 1, size: Size::exactly(1 << 20), seed: 1 };
        let files = layout.lay(&directory, &mut |_| true).unwrap().into();
        run(&Arc::new(Job { files, cache: Cache::Warm, ..testing::job() }));
    }

    /// Between two reads a processor is others'.
    #[test]
    fn who_waits_for_the_next_read_takes_no_cpu_time() {
        use rustix::time::{ClockId, clock_gettime};
        let extent = Extent::Time(Duration::from_millis(300));
        let timing = Timing { warm_up: Duration::ZERO, extent };
        let engines: [Box<dyn Engine>; 2] =
            [Box::new(OpenRing { rate_per_s: 100.0 }), Box::new(OpenSync { rate_per_s: 100.0 })];
        on_file(|job| {
            for engine in engines {
                let (start, control) = Start::pair();
                let (engine, job) = (&engine, job);
                let used = std::thread::scope(|scope| {
                    let thread = scope.spawn(move || {
                        engine.run(job, start)?;
                        Ok(clock_gettime(ClockId::ThreadCPUTime))
                    });
                    if control.wait().is_some() {
                        control.begin(timing);
                    }
                    thread.join().unwrap()
                });
                match used {
                    Ok(used) => assert!((used.tv_sec, used.tv_nsec) < (0, 100_000_000), "{used:?}"),
                    Err(Failure::Unavailable(reason)) => println!("skipped: {reason}"),
                    Err(failure) => panic!("{failure}"),
                }
            }
        });
    }

    /// However much a ring has in flight, a thread that blocks has one.
    #[test]
    fn a_thread_that_blocks_reads_one_after_the_other() {
        use crate::sampling::sample::{self, Instruments};
        let sources = ringwise_measure::Sources::below("/nonexistent");
        let instruments = Instruments { sources, device_number: None, idle: None };
        let timing = Timing { warm_up: Duration::ZERO, extent: Extent::Operations(500) };
        // Several come while one is read.
        let engine = OpenSync { rate_per_s: 1e7 };
        on_file(|job| {
            assert_eq!(job.depth, 8);
            let sample = sample::take(&engine, job, timing, &instruments).unwrap();
            let counts = &sample.tally.counts;
            assert_eq!((counts.operations, counts.issued, counts.completed), (500, 500, 500));
        });
    }

    #[test]
    fn a_number_of_reads_is_made_to_the_last() {
        let tally = run(500.0, Extent::Operations(20));
        assert_eq!((tally.counts.operations, tally.figures[GIVEN_UP]), (20, 0.0));
    }

    #[test]
    fn arrivals_have_the_rate_on_average_and_are_not_even() {
        let mut arrivals = Arrivals::new(1e6, 7);
        let mut times = Vec::new();
        for _ in 0..20_000 {
            times.push(arrivals.next_ns());
            arrivals.pass();
        }
        let mean = *times.last().unwrap() as f64 / 20_000.0;
        assert!((970.0..1030.0).contains(&mean), "{mean}");
        let long = times.windows(2).filter(|pair| pair[1] - pair[0] > 3000).count();
        // A share of e^-3, which is 0.0498.
        assert!((900..1100).contains(&long), "{long}");
    }
}
