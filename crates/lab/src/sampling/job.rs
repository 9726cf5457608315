//! What one sample asks of an engine, and the agreement on when it begins and ends.
//!
//! The controller (`sample`) and the engine run in different threads, so that the controller can
//! read clocks and counters at the edges of the measured time while the engine works. An engine
//! opens what it needs, says that it is ready, is told the window, and works until its lanes say
//! that it is over.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use rustix::fs::Advice;
use serde::{Deserialize, Serialize};

use crate::{
    dataset::{DataFile, block::Mismatch},
    error::plain,
    sampling::record::Record,
};

/// Through the page cache or past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Through the page cache.
    Buffered,
    /// Past it, with O_DIRECT.
    Direct,
}

/// In which order the blocks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One after the other, through all files, and again from the start.
    #[serde(rename = "seq")]
    Sequential,
    /// Any block, each as likely as another.
    Random,
}

/// What of the files is in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// All of it.
    Warm,
    /// None of it when a sample begins; each block is read once.
    Cold,
    /// It is not asked: reads are direct.
    Bypassed,
    /// As much as a memory cgroup lets it have, which is less than the files.
    Bounded,
}

impl Cache {
    /// What the page cache is for a read, in a sentence.
    pub fn short(self) -> &'static str {
        match self {
            Cache::Warm => "cached",
            Cache::Cold => "cold cache",
            Cache::Bypassed => "O_DIRECT",
            Cache::Bounded => "bounded cache",
        }
    }
}

/// What one sample reads, and how.
#[derive(Debug)]
pub struct Job {
    /// The files, all of one length.
    pub files: Arc<[DataFile]>,
    /// The seed of their content.
    pub seed: u64,
    /// Bytes per read.
    pub block_bytes: usize,
    /// Reads kept in flight.
    pub depth: usize,
    /// In which order.
    pub pattern: Pattern,
    /// Through the page cache, or past it.
    pub cache: Cache,
    /// The seed of the random order, another one for each sample.
    pub order_seed: u64,
    /// Whether to record when which latencies came, for a drawing.
    pub heatmap: bool,
    /// Set by a signal: all lanes of all samples stop.
    pub interrupt: Arc<AtomicBool>,
    /// Set when a lane fails: the others of the sample stop.
    pub failed: AtomicBool,
    /// Latencies of all lanes of the sample.
    pub latency: Record,
}

impl Job {
    /// How many blocks there are to read.
    pub fn blocks(&self) -> u64 {
        self.blocks_per_file() * self.files.len() as u64
    }

    /// How many blocks there are in each file.
    pub fn blocks_per_file(&self) -> u64 {
        self.files[0].bytes / self.block_bytes as u64
    }

    /// Opens all files as the job says, with the same advice to the kernel for every engine.
    ///
    /// # Errors
    ///
    /// [`Failure::Io`] for a file that cannot be opened or is no longer as long as it was.
    pub fn open(&self) -> Result<Vec<File>, Failure> {
        self.files.iter().map(|file| self.open_one(file)).collect()
    }

    fn open_one(&self, file: &DataFile) -> Result<File, Failure> {
        let fail = |error: io::Error| Failure::on("opening", file, &error);
        let flags = if self.cache == Cache::Bypassed { libc::O_DIRECT } else { 0 };
        let opened =
            OpenOptions::new().read(true).custom_flags(flags).open(&file.path).map_err(fail)?;
        if opened.metadata().map_err(fail)?.len() != file.bytes {
            return Err(Failure::changed(file));
        }
        self.advise(&opened).map_err(fail)?;
        Ok(opened)
    }

    /// Gives the kernel the advice of [`Job::open`] on a file that an engine has opened by itself.
    ///
    /// # Errors
    ///
    /// What posix_fadvise(2) reports.
    pub fn advise(&self, file: impl AsFd) -> io::Result<()> {
        match self.pattern {
            Pattern::Random => Ok(rustix::fs::fadvise(file, 0, None, Advice::Random)?),
            Pattern::Sequential => Ok(()),
        }
    }

    /// The failure of a read, for an engine to return.
    pub fn read_failed(&self, request: Request, error: &io::Error) -> Failure {
        let what = format!("reading at {} of", request.offset);
        Failure::on(&what, &self.files[request.file], error)
    }

    /// Whether the sample is to end before its time.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.interrupt.load(Ordering::Relaxed)
    }
}

/// One block to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Index into [`Job::files`].
    pub file: usize,
    /// Where in the file, a multiple of the block.
    pub offset: u64,
}

/// Why an engine did not do its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The engine cannot run here at all, or not as it was asked to; the reason is for the table.
    Unavailable(String),
    /// A block had other content than was written: the result is excluded.
    Mismatch(Mismatch),
    /// A system call failed that has to work, or a file is gone; ends the run.
    Io(String),
}

/// What a reason begins with if no run on this machine could measure the result.
pub const NOT_HERE: &str = "not measurable here: ";

impl Failure {
    fn on(what: &str, file: &DataFile, error: &io::Error) -> Failure {
        Failure::Io(format!("{what} {}: {}", file.path.display(), plain(error)))
    }

    /// A file is not as long as it was laid out.
    pub fn changed(file: &DataFile) -> Failure {
        let path = file.path.display();
        Failure::Io(format!("{path} changed during the run: expected {} bytes", file.bytes))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unavailable(reason) | Failure::Io(reason) => f.write_str(reason),
            Failure::Mismatch(mismatch) => write!(f, "verification failed: {mismatch}"),
        }
    }
}

/// When a sample is measured. All times are nanoseconds since its epoch.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    epoch: Instant,
    /// Operations that complete earlier are warm-up.
    pub from_ns: u64,
    /// When it is over.
    pub until: Until,
}

/// When a sample is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// At a time.
    Time {
        /// Nanoseconds since the epoch.
        ns: u64,
    },
    /// When so many operations have completed after the warm-up.
    Operations {
        /// How many, over all lanes.
        count: u64,
    },
}

/// How long a sample takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Not measured.
    pub warm_up: Duration,
    /// How much is measured.
    pub extent: Extent,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All that completes within a time.
    Time(Duration),
    /// A number of operations, however long they take.
    Operations(u64),
}

impl Window {
    /// A window that begins, warm-up first, now.
    pub fn beginning_now(timing: Timing) -> Window {
        let from_ns = nanoseconds(timing.warm_up);
        let until = match timing.extent {
            Extent::Time(time) => Until::Time { ns: from_ns.saturating_add(nanoseconds(time)) },
            Extent::Operations(count) => Until::Operations { count },
        };
        Window { epoch: Instant::now(), from_ns, until }
    }

    /// Now, in nanoseconds since the epoch.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        nanoseconds(self.epoch.elapsed())
    }

    /// The moment a time is.
    pub fn instant(&self, ns: u64) -> Instant {
        self.epoch + Duration::from_nanos(ns)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}

/// An engine's end of the agreement: say ready, be told the window.
#[derive(Debug)]
pub struct Start {
    ready: mpsc::Sender<()>,
    window: mpsc::Receiver<Window>,
}

/// The controller's end.
#[derive(Debug)]
pub struct StartControl {
    ready: mpsc::Receiver<()>,
    window: mpsc::Sender<Window>,
}

impl Start {
    /// Both ends.
    pub fn pair() -> (Start, StartControl) {
        let (ready, is_ready) = mpsc::channel();
        let (window, told) = mpsc::channel();
        (Start { ready, window: told }, StartControl { ready: is_ready, window })
    }

    /// Everything is open: waits for the window.
    ///
    /// # Errors
    ///
    /// [`Failure::Io`] where the controller has given up.
    pub fn ready(self) -> Result<Window, Failure> {
        let given_up = || Failure::Io("the sample was given up".to_owned());
        self.ready.send(()).map_err(|_| given_up())?;
        self.window.recv().map_err(|_| given_up())
    }
}

impl StartControl {
    /// Waits until the engine is ready. None where it failed before.
    pub fn wait(&self) -> Option<()> {
        self.ready.recv().ok()
    }

    /// Tells the engine to begin now. None where it has failed.
    pub fn begin(&self, timing: Timing) -> Option<Window> {
        let window = Window::beginning_now(timing);
        self.tell(window)?;
        Some(window)
    }

    /// Tells the engine a window that has begun. None where it has failed.
    pub fn tell(&self, window: Window) -> Option<()> {
        self.window.send(window).ok()
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
