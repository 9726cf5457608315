//! One sample in a process of its own: what the parent asks, what the child answers.
//!
//! The child takes the sample as the lab does, so that the CPU time is that of the whole process:
//! the runtime's threads and the kernel's workers for its rings. The parent keeps out of the way
//! until the child has answered or its time is long over.

use std::{
    env,
    io::{Read, Write},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use ringwise_lab::{
    LabError,
    dataset::{DataFile, block::BLOCK_BYTES},
    engine::Tally,
    error::plain,
    sampling::job::{Cache, Extent, Failure, Job, Pattern, Timing},
    sampling::lane::{Counts, Record},
    sampling::sample::{self, Instruments, Sample},
};
use ringwise_measure::{Latency, Sources, quantity::duration_text};
use serde::{Deserialize, Serialize};

use crate::peer::{Choice, TOKIO_WORKERS, panic_text};

/// How much longer than its measured time a child may take before it is ended.
const GRACE: Duration = Duration::from_secs(60);
/// How long a child may take that has a number of reads and no time.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often the waiting parent looks whether a signal came: seldom, not to disturb.
const WATCH: Duration = Duration::from_millis(250);

/// What the child is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    engine: String,
    file: std::path::PathBuf,
    bytes: u64,
    seed: u64,
    depth: usize,
    cache: Cache,
    order_seed: u64,
    warm_up_ns: u64,
    measured: Measured,
    device_number: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Measured {
    Nanoseconds(u64),
    Reads(u64),
}

/// Why there is no sample.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoSample {
    /// The engine is not to be had here, or not for this.
    Unavailable(String),
    /// A block was wrong, a read failed or the engine crashed.
    Failed(String),
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Sample(Box<Figures>),
    None(NoSample),
}

/// A [`Sample`] as it travels.
#[derive(Serialize, Deserialize)]
struct Figures {
    operations: u64,
    bytes: u64,
    /// Latencies in nanoseconds, and how many there were of each.
    latency_ns: Vec<(u64, u64)>,
    issued: u64,
    completed: u64,
    in_flight_ns: u64,
    edge_ns: i64,
    end_ns: u64,
    exhausted: bool,
    slices: Vec<u64>,
    elapsed_ns: u64,
    submitted: Option<u64>,
    system_calls: Option<u64>,
    detail: Option<String>,
    foreign_cpu_ns: Option<u64>,
    cpu_ns_per_operation: f64,
    device_share: Option<f64>,
    device_queue_depth: Option<f64>,
}

impl Order {
    /// The order to do a job with one file.
    pub fn new(engine: Choice, job: &Job, timing: Timing, device_number: Option<&str>) -> Order {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Order {
            engine: engine.to_string(),
            file: job.files[0].path.clone(),
            bytes: job.files[0].bytes,
            seed: job.seed,
            depth: job.depth,
            cache: job.cache,
            order_seed: job.order_seed,
            warm_up_ns: nanoseconds(timing.warm_up),
            measured: match timing.extent {
                Extent::Time(time) => Measured::Nanoseconds(nanoseconds(time)),
                Extent::Operations(count) => Measured::Reads(count),
            },
            device_number: device_number.map(str::to_owned),
        }
    }

    fn timing(&self) -> Timing {
        Timing {
            warm_up: Duration::from_nanos(self.warm_up_ns),
            extent: match self.measured {
                Measured::Nanoseconds(time) => Extent::Time(Duration::from_nanos(time)),
                Measured::Reads(count) => Extent::Operations(count),
            },
        }
    }

    fn job(&self) -> Job {
        let file = DataFile { path: self.file.clone(), number: 0, bytes: self.bytes };
        Job {
            files: [file].into(),
            seed: self.seed,
            block_bytes: BLOCK_BYTES,
            depth: self.depth,
            pattern: Pattern::Random,
            cache: self.cache,
            order_seed: self.order_seed,
            heatmap: false,
            interrupt: Arc::default(),
            failed: false.into(),
            latency: Record::default(),
        }
    }

    fn time_max(&self) -> Duration {
        match self.measured {
            Measured::Nanoseconds(time) => Duration::from_nanos(self.warm_up_ns + time) + GRACE,
            Measured::Reads(_) => PATIENCE,
        }
    }

    /// Has a child take the sample.
    ///
    /// # Errors
    ///
    /// [`NoSample`], with the reason in one line.
    pub fn run(&self, interrupt: &AtomicBool) -> Result<Sample, NoSample> {
        let failed = |text: String| NoSample::Failed(text);
        let this = env::current_exe().map_err(|error| failed(plain(&error)))?;
        let order = serde_json::to_string(self).map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(this);
        command.args(["sample", &order]).env("TOKIO_WORKER_THREADS", TOKIO_WORKERS);
        let (status, out, errors) =
            output_within(command, self.time_max(), interrupt).map_err(failed)?;
        match serde_json::from_str(&out) {
            Ok(Answer::Sample(figures)) => Ok((*figures).into()),
            Ok(Answer::None(reason)) => Err(reason),
            Err(_) => {
                let line = errors.lines().find(|line| !line.trim().is_empty());
                let line = line.map_or(String::new(), |line| format!(": {}", line.trim()));
                Err(failed(format!("its process ended without an answer ({status}){line}")))
            }
        }
    }
}

/// Runs a command to its end, or ends it when its time is over or a signal came.
fn output_within(
    mut command: Command,
    time_max: Duration,
    interrupt: &AtomicBool,
) -> Result<(ExitStatus, String, String), String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("its process: {}", plain(&error)))?;
    let (mut out, mut errors) = (child.stdout.take(), child.stderr.take());
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let out = scope.spawn(move || {
            let text = text(&mut out);
            // Nobody listens any more when the time is over.
            let _ = tell.send(());
            text
        });
        let errors = scope.spawn(move || text(&mut errors));
        let is_over = wait(&told, time_max, interrupt);
        if !is_over {
            // It may have ended just now.
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| format!("its process: {}", plain(&error)))?;
        if !is_over {
            let after = duration_text(time_max);
            return Err(format!("its process was ended: it had not answered after {after}"));
        }
        let join = |reader: thread::ScopedJoinHandle<'_, String>| reader.join().unwrap_or_default();
        Ok((status, join(out), join(errors)))
    })
}

/// Waits for the end of a child. False where its time is over first, or a signal comes.
fn wait(ended: &mpsc::Receiver<()>, time_max: Duration, interrupt: &AtomicBool) -> bool {
    let start = Instant::now();
    loop {
        let left = time_max.saturating_sub(start.elapsed());
        if ended.recv_timeout(left.min(WATCH)).is_ok() {
            return true;
        }
        if left.is_zero() || interrupt.load(Ordering::Relaxed) {
            return false;
        }
    }
}

fn text(from: &mut Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // What came before an error is told; an answer cut short is not understood, and said so.
        let _ = from.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The child's part: takes the sample and prints the answer.
///
/// # Errors
///
/// The order is not understood, or the answer cannot be written.
pub fn take(order: &str, out: &mut dyn Write) -> Result<(), LabError> {
    let order: Order =
        serde_json::from_str(order).map_err(|error| LabError::Usage(format!("sample: {error}")))?;
    let engine = Choice::parse(&order.engine)
        .ok_or_else(|| LabError::Usage(format!("sample: no engine {:?}", order.engine)))?;
    let panics = panics();
    let instruments = Instruments {
        sources: Sources::default(),
        device_number: order.device_number.clone(),
        idle: None,
    };
    let (timing, job) = (order.timing(), Arc::new(order.job()));
    let taken = sample::take(&*engine.engine(timing), &job, timing, &instruments);
    let panicked = panics.lock().ok().and_then(|mut panic| panic.take());
    let answer = match (taken, panicked) {
        (Err(Failure::Unavailable(reason)), _) => Answer::None(NoSample::Unavailable(reason)),
        (_, Some(panic)) => Answer::None(NoSample::Failed(panic)),
        (Ok(sample), None) => Answer::Sample(Box::new(sample.into())),
        (Err(failure), None) => Answer::None(NoSample::Failed(failure.to_string())),
    };
    let text = serde_json::to_string(&answer)
        .map_err(|error| LabError::Failed(format!("sample: {error}")))?;
    writeln!(out, "{text}").map_err(|error| LabError::output(&error))
}

/// Where the first panic of any thread is told, in one line.
fn panics() -> &'static Mutex<Option<String>> {
    static FIRST: OnceLock<Mutex<Option<String>>> = OnceLock::new();
    let first = FIRST.get_or_init(Mutex::default);
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut first) = first.lock() {
            first.get_or_insert_with(|| panic_text(info.payload()));
        }
    }));
    first
}

impl From<Sample> for Figures {
    fn from(sample: Sample) -> Figures {
        let Tally { counts, latency, .. } = sample.tally;
        let bins = latency.bins();
        Figures {
            operations: counts.operations,
            bytes: counts.bytes,
            latency_ns: bins.iter().map(|bin| (bin.latency_ns, bin.count)).collect(),
            issued: counts.issued,
            completed: counts.completed,
            in_flight_ns: counts.in_flight_ns,
            edge_ns: counts.edge_ns,
            end_ns: counts.end_ns,
            exhausted: counts.exhausted,
            slices: counts.slices,
            elapsed_ns: sample.tally.elapsed_ns,
            submitted: sample.tally.submitted,
            system_calls: sample.tally.system_calls,
            detail: sample.tally.detail,
            foreign_cpu_ns: sample.tally.foreign_cpu_ns,
            cpu_ns_per_operation: sample.cpu_ns_per_operation,
            device_share: sample.device_share,
            device_queue_depth: sample.device_queue_depth,
        }
    }
}

impl From<Figures> for Sample {
    fn from(figures: Figures) -> Sample {
        let mut latency = Latency::new();
        figures.latency_ns.iter().for_each(|&(ns, count)| latency.record_many_ns(ns, count));
        let counts = Counts {
            operations: figures.operations,
            bytes: figures.bytes,
            issued: figures.issued,
            completed: figures.completed,
            in_flight_ns: figures.in_flight_ns,
            edge_ns: figures.edge_ns,
            end_ns: figures.end_ns,
            exhausted: figures.exhausted,
            slices: figures.slices,
            heat: None,
        };
        Sample {
            tally: Tally {
                counts,
                latency,
                elapsed_ns: figures.elapsed_ns,
                submitted: figures.submitted,
                system_calls: figures.system_calls,
                detail: figures.detail,
                foreign_cpu_ns: figures.foreign_cpu_ns,
                ..Tally::default()
            },
            cpu_ns_per_operation: figures.cpu_ns_per_operation,
            split: None,
            other_cpu_ns_per_operation: None,
            device_flushes: None,
            kswapd_pages: None,
            device_share: figures.device_share,
            device_queue_depth: figures.device_queue_depth,
            device_written_bytes_per_op: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_travels_whole() {
        let mut latency = Latency::new();
        [900, 1000, 123_456].iter().for_each(|&ns| latency.record_ns(ns));
        let counts = Counts { operations: 3, edge_ns: -7, slices: vec![1, 2], ..Counts::default() };
        let sample = Sample {
            tally: Tally { counts, latency, elapsed_ns: 9, submitted: Some(3), ..Tally::default() },
            cpu_ns_per_operation: 1.5,
            split: None,
            other_cpu_ns_per_operation: None,
            device_flushes: None,
            kswapd_pages: None,
            device_share: Some(1.0),
            device_queue_depth: None,
            device_written_bytes_per_op: None,
        };
        let percentiles = sample.latency().percentiles();
        let text = serde_json::to_string(&Figures::from(sample)).unwrap();
        let back: Sample = serde_json::from_str::<Figures>(&text).unwrap().into();
        assert_eq!((back.tally.counts.operations, back.tally.counts.edge_ns), (3, -7));
        assert_eq!((back.tally.elapsed_ns, back.tally.submitted), (9, Some(3)));
        assert_eq!((back.cpu_ns_per_operation, back.device_share), (1.5, Some(1.0)));
        let again = back.latency().percentiles();
        assert_eq!((again.p50, again.p99_9), (percentiles.p50, percentiles.p99_9));
    }

    #[test]
    fn a_child_that_hangs_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        let time_max = Duration::from_millis(20);
        let error = output_within(command, time_max, &AtomicBool::new(false)).unwrap_err();
        assert!(error.contains("had not answered after 20ms"), "{error}");
    }
}
