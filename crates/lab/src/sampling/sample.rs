//! One sample: an engine does its job in a thread, while this one reads clocks and counters at the
//! edges of the measured time.

use std::{
    sync::{Arc, atomic::Ordering},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use ringwise_measure::{
    Fact, Latency, Sources,
    counters::{Counters, Event},
    cpu::{
        CpuSnapshot, CpuSplit, ForeignUse, IdleBaseline, KernelThreads, SystemCpu, process_cpu_ns,
    },
    device::DeviceCounters,
    process::ProcessIo,
    reclaim::KswapdPages,
};

use crate::{
    checks::warmth::Warmth,
    engine::{Engine, ForeignSplit, Tally},
    sampling::job::{Extent, Failure, Job, Start, Timing, Until},
};

/// How often a waiting controller looks whether it is needed.
const WATCH: Duration = Duration::from_millis(10);

/// What is read around a sample.
#[derive(Clone, Debug)]
pub struct Instruments {
    /// Where the kernel's files are.
    pub sources: Sources,
    /// The device under the files, `MAJOR:MINOR`, if there is one.
    pub device_number: Option<String>,
    /// What the machine does without the lab.
    pub idle: Option<IdleBaseline>,
}

impl Instruments {
    /// How hot the processors and the device are.
    pub(crate) fn warmth(&self) -> Warmth {
        Warmth::read(&self.sources, self.device_number.as_deref())
    }

    /// What the device has done so far.
    pub(crate) fn device(&self) -> Option<DeviceCounters> {
        let number = self.device_number.as_ref()?;
        DeviceCounters::read(&self.sources, number).known().cloned()
    }
}

/// What one sample showed.
#[derive(Clone, Debug)]
pub struct Sample {
    /// What the engine counted.
    pub tally: Tally,
    /// CPU time of all threads, kernel workers included, per operation.
    pub cpu_ns_per_operation: f64,
    /// The same in user mode and in the kernel, and interrupts, per operation. None where another
    /// process did it that could not be looked at.
    pub split: Option<Split>,
    /// CPU time of the rest of the machine above its idle baseline (interrupts, write-back), per
    /// operation.
    pub other_cpu_ns_per_operation: Option<f64>,
    /// What share of the bytes came from a device, by the process's account. None where another
    /// process read.
    pub device_share: Option<f64>,
    /// Requests in the device's queue on average.
    pub device_queue_depth: Option<f64>,
    /// Bytes that the device wrote for each operation, other programs' included.
    pub device_written_bytes_per_op: Option<f64>,
    /// Flushes of the device's cache in the whole run, other programs' included.
    pub device_flushes: Option<u64>,
    /// Pages that kswapd looked through in the whole run.
    pub kswapd_pages: Option<u64>,
}

/// CPU time per operation, as the clocks at the edges of a sample tell it apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// The process in user mode.
    pub user_ns: f64,
    /// The process in the kernel, its workers and pollers included.
    pub system_ns: f64,
    /// Interrupts and soft interrupts, of the machine or of a server's processor, where the kernel
    /// tells them apart.
    pub interrupt_ns: f64,
}

/// CPU time of kernel threads over that of the process, seen in a pass of its own: their files cannot be
/// read at the edges of a sample, since a ring's threads end with it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KernelShares {
    /// The process's io-wq workers, which its own time has in it.
    pub io_workers: f64,
    /// The process's submission pollers, which its own time has in it.
    pub sqpoll: f64,
    /// Write-back, the journal and what else the kernel's own threads do, beside it.
    pub write_back: f64,
}

/// What was counted in a pass of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// Whose CPU time it was.
    pub shares: Option<KernelShares>,
    /// System calls per operation.
    pub system_calls: Fact<f64>,
    /// Operations that a kernel worker had to do, per operation.
    pub worker_punts: Fact<f64>,
}

impl Counted {
    /// What is counted.
    pub const EVENTS: [Event; 2] = [Event::SystemCalls, Event::WorkerPunts];

    /// What counters of these events show of so many operations; `otherwise` is why there are none.
    pub fn of(counters: Option<Counters>, operations: u64, otherwise: &str) -> Counted {
        let mut counters = counters.ok_or(otherwise);
        let mut per_operation = |event| match &mut counters {
            Err(reason) => Fact::Unknown((*reason).to_owned()),
            Ok(_) if operations == 0 => Fact::Unknown("no operation completed".to_owned()),
            Ok(counters) => counters.count(event).map(|count| count as f64 / operations as f64),
        };
        Counted {
            shares: None,
            system_calls: per_operation(Event::SystemCalls),
            worker_punts: per_operation(Event::WorkerPunts),
        }
    }
}

/// Takes one sample.
///
/// # Errors
///
/// What the engine reports.
pub fn take(
    engine: &dyn Engine,
    job: &Arc<Job>,
    timing: Timing,
    instruments: &Instruments,
) -> Result<Sample, Failure> {
    let is_measured_at_once = timing.warm_up.is_zero();
    let mut readings = Vec::with_capacity(2);
    let mut accounts = Vec::with_capacity(2);
    let tally = run(engine, job, timing, &mut |edge| {
        if matches!(edge, Edge::Ready | Edge::Done) {
            accounts.push(Account::take(instruments));
        }
        // Without warm-up the measured time begins before this thread hears of it.
        let start = if is_measured_at_once { Edge::Ready } else { Edge::Start };
        if edge == start || edge == Edge::End {
            readings.push(Reading::take(instruments, edge));
        }
    })?;
    let device_share = device_share(&tally, &accounts, job.block_bytes);
    let written = written_bytes_per_op(&tally, &accounts);
    let (device_flushes, kswapd_pages) = (flushes(&tally, &accounts), kswapd_pages(&accounts));
    match &readings[..] {
        [start, end] => {
            let sample = Sample::of(tally, start, end, timing, instruments);
            Ok(Sample {
                device_share,
                device_written_bytes_per_op: written,
                device_flushes,
                kswapd_pages,
                ..sample
            })
        }
        // Only an engine that never began has no edges, and that is a failure.
        _ => Err(Failure::Io("a sample had no time".to_owned())),
    }
}

/// The share of the bytes of all reads of the run, warm-up included, that came from a device: exact
/// where the edges of the measured time are not.
fn device_share(tally: &Tally, accounts: &[Account], block_bytes: usize) -> Option<f64> {
    let [before, after] = accounts else { return None };
    let read_bytes = after.process.known()?.since(before.process.known()?).read_bytes;
    let bytes = tally.counts.completed.checked_mul(block_bytes as u64)?;
    (tally.foreign_cpu_ns.is_none() && bytes > 0 && tally.counts.bytes > 0)
        .then(|| read_bytes as f64 / bytes as f64)
}

/// What the device wrote for each operation of the whole run, exact as above: what was made durable
/// within the run was written within it.
fn written_bytes_per_op(tally: &Tally, accounts: &[Account]) -> Option<f64> {
    let [before, after] = accounts else { return None };
    let used = after.device.as_ref()?.since(before.device.as_ref()?);
    let is_own = tally.foreign_cpu_ns.is_none() && tally.counts.completed > 0;
    is_own.then(|| used.written_bytes as f64 / tally.counts.completed as f64)
}

/// How often the device's cache was flushed, exact as above.
fn flushes(tally: &Tally, accounts: &[Account]) -> Option<u64> {
    let [before, after] = accounts else { return None };
    let used = after.device.as_ref()?.since(before.device.as_ref()?);
    used.flushes.filter(|_| tally.foreign_cpu_ns.is_none())
}

fn kswapd_pages(accounts: &[Account]) -> Option<u64> {
    let [before, after] = accounts else { return None };
    Some(after.kswapd.known()?.since(*before.kswapd.known()?))
}

/// What the process and the device have moved, and what kswapd has looked through.
struct Account {
    process: Fact<ProcessIo>,
    device: Option<DeviceCounters>,
    kswapd: Fact<KswapdPages>,
}

impl Account {
    fn take(instruments: &Instruments) -> Account {
        let sources = &instruments.sources;
        Account {
            kswapd: KswapdPages::read(sources),
            process: ProcessIo::read(sources),
            device: instruments.device(),
        }
    }
}

/// Runs the engine once more, to count events of the kernel, which slows it down.
///
/// # Errors
///
/// What the engine reports.
pub fn count(
    engine: &dyn Engine,
    job: &Arc<Job>,
    timing: Timing,
    sources: &Sources,
) -> Result<Counted, Failure> {
    let enough = COUNTED_EACH_MIN * job.depth as u64;
    let (mut most, mut counted) = count_once(engine, job, timing, sources)?;
    for _ in 1..COUNTS_MAX {
        if most >= enough || job.interrupt.load(Ordering::Relaxed) {
            break;
        }
        let (operations, other) = count_once(engine, job, timing, sources)?;
        if operations > most {
            (most, counted) = (operations, other);
        }
    }
    Ok(counted)
}

/// Operations of each in flight that a count is good for: where a device stalls, what threads call to
/// begin and to end is more than what they do.
const COUNTED_EACH_MIN: u64 = 8;

/// Counts until the best of them is taken.
const COUNTS_MAX: usize = 3;

/// A count, and of how many operations.
fn count_once(
    engine: &dyn Engine,
    job: &Arc<Job>,
    timing: Timing,
    sources: &Sources,
) -> Result<(u64, Counted), Failure> {
    let mut counters = Counters::open(sources, &Counted::EVENTS);
    // All of the run is counted, warm-up included: the edges of the measured time are not exact
    // enough where many threads keep the controller from its processor.
    let tally = run(engine, job, timing, &mut |edge| match edge {
        Edge::Ready => counters.start(),
        Edge::Done => counters.stop(),
        Edge::Start | Edge::End => {}
    })?;
    let counters = tally.foreign_cpu_ns.is_none().then_some(counters);
    let operations = tally.counts.completed;
    Ok((operations, Counted::of(counters, operations, "another process reads")))
}

/// Runs the engine once more, to see what the kernel's threads take of its time. Not in the pass
/// that counts system calls: to look takes hundreds. None where another process works.
///
/// # Errors
///
/// What the engine reports.
pub fn kernel_shares(
    engine: &dyn Engine,
    job: &Arc<Job>,
    timing: Timing,
    sources: &Sources,
) -> Result<Option<KernelShares>, Failure> {
    let mut shares = None;
    let tally = run(engine, job, timing, &mut |edge| {
        if edge == Edge::Start {
            shares = KernelShares::see(sources, timing);
        }
    })?;
    Ok(shares.filter(|_| tally.foreign_cpu_ns.is_none()))
}

/// What part of the measured time is looked at: the rest is for reading files, while the engine is
/// still at work.
const SEEN_PART: f64 = 0.7;

impl KernelShares {
    /// Of another process that used this, while the kernel's own threads took `kernel_ns`.
    pub fn of_server(used: &ForeignUse, kernel_ns: &Fact<u64>) -> Option<KernelShares> {
        let all_ns = used.cpu_ns.known().copied().filter(|&ns| ns > 0)? as f64;
        Some(KernelShares {
            io_workers: used.io_worker_ns as f64 / all_ns,
            sqpoll: used.sqpoll_ns as f64 / all_ns,
            write_back: kernel_ns.known().copied().unwrap_or(0) as f64 / all_ns,
        })
    }

    /// Looks at all threads now and again after most of the measured time.
    fn see(sources: &Sources, timing: Timing) -> Option<KernelShares> {
        let Extent::Time(time) = timing.extent else { return None };
        let read = || (KernelThreads::read(sources), CpuSnapshot::take(sources));
        let (kernel_before, before) = read();
        thread::sleep(time.mul_f64(SEEN_PART));
        // The process first this time: what it takes to read the kernel's threads is not to count.
        let used = CpuSnapshot::take(sources).since(&before);
        let kernel_after = KernelThreads::read(sources);
        let kernel = kernel_after.zip(&kernel_before).map(|(after, before)| after.since_ns(before));
        let share = |ns: &Fact<u64>| {
            ns.known().copied().unwrap_or(0) as f64 / used.process_ns.max(1) as f64
        };
        Some(KernelShares {
            io_workers: share(&used.io_worker_ns),
            sqpoll: share(&used.sqpoll_ns),
            write_back: share(&kernel),
        })
    }
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    /// All is open and nothing has begun.
    Ready,
    /// The measured time begins.
    Start,
    /// The measured time ends.
    End,
    /// The engine has ended.
    Done,
}

/// Runs an engine and calls `at` at each edge.
fn run(
    engine: &dyn Engine,
    job: &Arc<Job>,
    timing: Timing,
    at: &mut dyn FnMut(Edge),
) -> Result<Tally, Failure> {
    let (start, control) = Start::pair();
    thread::scope(|scope| {
        let worker = scope.spawn(|| engine.run(job, start));
        // None: the engine failed before it was ready, which its result tells.
        let is_ready = control.wait().is_some();
        if is_ready {
            at(Edge::Ready);
        }
        if let Some(window) = is_ready.then(|| control.begin(timing)).flatten() {
            sleep_until(Some(window.instant(window.from_ns)), &worker, job);
            at(Edge::Start);
            let end = match window.until {
                Until::Time { ns } => Some(window.instant(ns)),
                Until::Operations { .. } => None,
            };
            sleep_until(end, &worker, job);
            at(Edge::End);
        }
        let ended = worker.join();
        at(Edge::Done);
        ended.unwrap_or_else(|_| Err(Failure::Io("an engine panicked".to_owned())))
    })
}

/// Sleeps until a time, or for ever; in any case not longer than there is something to measure.
fn sleep_until(
    end: Option<Instant>,
    worker: &ScopedJoinHandle<'_, Result<Tally, Failure>>,
    job: &Job,
) {
    loop {
        let left = end.map_or(WATCH, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() || worker.is_finished() || job.interrupt.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(left.min(WATCH));
    }
}

/// All instruments at one moment.
struct Reading {
    taken_at: Instant,
    process_cpu_ns: u64,
    split: CpuSplit,
    system_cpu: Fact<SystemCpu>,
    device: Option<DeviceCounters>,
}

impl Reading {
    /// Reading files costs time that is not to be measured: the clocks come last at the start, and
    /// first at the end.
    fn take(instruments: &Instruments, edge: Edge) -> Reading {
        let clocks = || (Instant::now(), process_cpu_ns(), CpuSplit::own());
        let sources = &instruments.sources;
        let early = (edge == Edge::End).then(clocks);
        let device = instruments.device();
        let system_cpu = SystemCpu::read(sources);
        let (taken_at, process_cpu_ns, split) = early.unwrap_or_else(clocks);
        Reading { taken_at, process_cpu_ns, split, system_cpu, device }
    }
}

impl Sample {
    fn of(
        tally: Tally,
        start: &Reading,
        end: &Reading,
        timing: Timing,
        instruments: &Instruments,
    ) -> Sample {
        let elapsed = end.taken_at.saturating_duration_since(start.taken_at);
        // The readings are some microseconds off the window, or as late as the watch is slow.
        let is_timed = matches!(timing.extent, Extent::Time(_)) && !tally.counts.exhausted;
        let scale = match is_timed {
            true => elapsed.as_nanos() as f64 / tally.elapsed_ns.max(1) as f64,
            false => 1.0,
        };
        let operations = (tally.counts.operations as f64 * scale).max(1.0);
        let process_ns = end.process_cpu_ns.saturating_sub(start.process_cpu_ns);
        let own_ns = match tally.foreign_cpu_ns {
            Some(foreign_ns) => foreign_ns as f64 * scale,
            None => process_ns as f64,
        };
        let system = end.system_cpu.zip(&start.system_cpu).map(|(end, start)| end.since(start));
        let other_ns = instruments.idle.zip(system.known().copied()).map(|(idle, used)| {
            let above_ns = idle.above_ns(&used, elapsed.as_nanos() as u64) as f64;
            (above_ns - own_ns).max(0.0)
        });
        let is_own = tally.foreign_cpu_ns.is_none();
        let own_split = || ForeignSplit {
            process: end.split.since(&start.split),
            interrupt_ns: system.known().map_or(0, SystemCpu::interrupt_ns),
        };
        let (split, split_scale) = match tally.foreign_split {
            None => (is_own.then(own_split), 1.0),
            some => (some, scale),
        };
        let per_operation = |ns: u64| ns as f64 * split_scale / operations;
        let device = end.device.as_ref().zip(start.device.as_ref());
        let device = device.filter(|_| is_own).map(|(end, start)| end.since(start));
        Sample {
            cpu_ns_per_operation: own_ns / operations,
            split: split.map(|split| Split {
                user_ns: per_operation(split.process.user_ns),
                system_ns: per_operation(split.process.system_ns),
                interrupt_ns: per_operation(split.interrupt_ns),
            }),
            other_cpu_ns_per_operation: other_ns.filter(|_| is_own).map(|ns| ns / operations),
            device_share: None,
            device_queue_depth: device.map(|used| used.queue_depth_mean),
            device_written_bytes_per_op: None,
            device_flushes: None,
            kswapd_pages: None,
            tally,
        }
    }

    /// Operations per second.
    pub fn operations_per_second(&self) -> f64 {
        self.tally.operations_per_second()
    }

    /// Their latencies.
    pub fn latency(&self) -> &Latency {
        &self.tally.latency
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::{
        sampling::lane::Counts,
        testing::{self, Mock},
    };

    #[test]
    fn a_count_of_few_operations_is_taken_again() {
        let job = Arc::new(testing::job());
        let timing = Timing { warm_up: Duration::ZERO, extent: Extent::Operations(1) };
        for (completed, wanted) in [([7, 100, 5], 2), ([7, 9, 5], 3), ([64, 0, 0], 1)] {
            let runs = AtomicU64::new(0);
            let engine = Mock(|_: &Arc<Job>, _| {
                let run = runs.fetch_add(1, Ordering::Relaxed) as usize;
                let counts = Counts { completed: completed[run], ..Counts::default() };
                Ok(Tally { counts, ..Tally::default() })
            });
            count(&engine, &job, timing, &Sources::default()).unwrap();
            assert_eq!(runs.load(Ordering::Relaxed), wanted, "{completed:?}");
        }
    }
}
