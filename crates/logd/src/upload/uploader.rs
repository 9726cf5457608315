//! The thread that uploads.
//!
//! It works on one segment at a time, the oldest first, and after a failure it waits and goes on with another. It ends
//! between two requests: what is not uploaded then is uploaded after the next start.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ringwise_serve::ServeError;
use tokio::runtime::Runtime;

use super::{
    copy::{Copied, copy},
    place::{Connect, Place},
    progress::Uploads,
    record,
    remote::{Bounds, Remote},
};
use crate::{
    disk::{
        identity,
        keeper::NICENESS,
        segment::format::name::{Part, Stream},
    },
    error::LogdError,
    monitoring::log,
    ship::destination::Trouble,
};

/// How often the thread looks for segments.
const LOOK_TIME: Duration = Duration::from_secs(1);
/// How long the thread waits after a failure, at first and at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a segment that cannot be uploaded is left alone.
const REST_TIME: Duration = Duration::from_secs(600);
/// How long the end of the daemon waits for the thread.
const END_TIME: Duration = Duration::from_millis(500);
/// How often it is looked whether the thread has ended.
const END_LOOK_TIME: Duration = Duration::from_millis(5);
/// Threads for syscalls on a directory and for names of hosts. They hang with a file system that hangs.
const BLOCKING_MAX: usize = 16;

type Segment = (Stream, u64);

/// What is uploaded where, before the thread runs.
pub(crate) struct Uploading {
    work: Work,
}

impl Uploading {
    /// Checks the place, and which segments it has.
    ///
    /// # Errors
    ///
    /// The store cannot be built, or the directory cannot be read.
    pub(crate) fn new(directory: &Path, place: &Place) -> Result<Uploading, LogdError> {
        let id = identity::of(directory)?;
        let connect = place.connect(Some(&id));
        let connect = connect
            .map_err(|Trouble(why)| LogdError::Failed(format!("--upload {place}: {why}")))?;
        let work = Work::new(directory, (format!("{place}/{id}"), connect), Bounds::default())?;
        Ok(Uploading { work })
    }

    /// What is uploaded.
    pub(crate) fn uploads(&self) -> Arc<Uploads> {
        self.work.uploads.clone()
    }

    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// It cannot start.
    pub(crate) fn start(self) -> Result<Uploader, LogdError> {
        Uploader::start(self.work)
    }
}

/// The running thread.
pub(crate) struct Uploader {
    thread: JoinHandle<()>,
    end: Arc<AtomicBool>,
}

impl Uploader {
    pub(super) fn start(work: Work) -> Result<Uploader, LogdError> {
        let end = work.end.clone();
        let thread = thread::Builder::new().name("logd-upload".to_owned()).spawn(|| work.run());
        let thread = thread.map_err(|error| ServeError::of_thread("that uploads", &error))?;
        Ok(Uploader { thread, end })
    }

    /// Ends the thread, if there is one. If it waits for the store it is left, and ends with the process.
    pub(crate) fn finish(uploader: Option<Uploader>) {
        let Some(uploader) = uploader else { return };
        uploader.end.store(true, Ordering::Relaxed);
        uploader.thread.thread().unpark();
        let end = Instant::now() + END_TIME;
        while !uploader.thread.is_finished() && Instant::now() < end {
            thread::sleep(END_LOOK_TIME);
        }
    }
}

/// What a turn did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It worked on a segment.
    Worked,
    /// Nothing is to be uploaded.
    Idle,
    /// The next turn should be so much later.
    Failed(Duration),
}

pub(super) struct Work {
    directory: PathBuf,
    /// With the name of the directory.
    place: String,
    connect: Connect,
    bounds: Bounds,
    pub(super) uploads: Arc<Uploads>,
    end: Arc<AtomicBool>,
    runtime: Runtime,
    /// How often the upload of a segment failed. One that always fails does not hold up the others.
    failures: HashMap<Segment, u32>,
    /// The sizes of segments that were copied, and whose records could not be written.
    unrecorded: HashMap<Segment, u64>,
    /// Segments that cannot be uploaded, and until when they are left alone.
    resting: HashMap<Segment, Instant>,
    pause: Duration,
}

impl Work {
    pub(super) fn new(
        directory: &Path,
        (place, connect): (String, Connect),
        bounds: Bounds,
    ) -> Result<Work, LogdError> {
        record::remove_stale(directory, &place)?;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(BLOCKING_MAX).build();
        Ok(Work {
            directory: directory.to_owned(),
            place,
            connect,
            bounds,
            uploads: Arc::default(),
            end: Arc::default(),
            runtime: runtime.map_err(|error| LogdError::Failed(format!("the runtime: {error}")))?,
            failures: HashMap::new(),
            unrecorded: HashMap::new(),
            resting: HashMap::new(),
            pause: PAUSE_MIN,
        })
    }

    fn run(mut self) {
        // Packing takes processor time, and threads that take lines go first.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        while !self.has_to_end() {
            match self.turn() {
                Turn::Worked => {}
                Turn::Idle => thread::park_timeout(LOOK_TIME),
                Turn::Failed(pause) => thread::park_timeout(pause),
            }
        }
        // A thread in a syscall on a file system that hangs would hold this up.
        self.runtime.shutdown_background();
    }

    fn has_to_end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }

    /// Uploads the next segment, if there is one.
    pub(super) fn turn(&mut self) -> Turn {
        let Some(segment) = self.next() else { return Turn::Idle };
        match self.upload(segment) {
            Ok(Copied::Done(bytes)) => self.done(segment, bytes),
            Ok(Copied::Empty) => {}
            // The keeper still lists it.
            Ok(Copied::Gone) => self.rest(segment),
            Ok(Copied::Refused(why)) => {
                self.uploads.troubles.note(&why);
                let name = name(segment);
                log::remark("upload", format_args!("{}: not uploaded: {why}", name.display()));
                self.rest(segment);
            }
            Err(_) if self.has_to_end() => {}
            Err(trouble) => return self.fail(segment, &trouble),
        }
        Turn::Worked
    }

    /// Chooses the oldest of the segments that failed least often.
    fn next(&mut self) -> Option<Segment> {
        let waiting = self.uploads.waiting();
        let is_waiting = |segment: &Segment| waiting.iter().any(|one| one.segment == *segment);
        self.failures.retain(|segment, _| is_waiting(segment));
        self.unrecorded.retain(|segment, _| is_waiting(segment));
        self.resting.retain(|_, until| *until > Instant::now());
        let ready = waiting.iter().filter(|one| {
            // The list may be older than the record.
            let is_new = || !record::exists(&self.directory, one.segment);
            one.is_ready && !self.resting.contains_key(&one.segment) && is_new()
        });
        let order = ready.min_by_key(|one| {
            let failures = self.failures.get(&one.segment).copied().unwrap_or(0);
            (failures, one.ended_ms, one.segment)
        });
        order.map(|one| one.segment)
    }

    fn upload(&mut self, segment: Segment) -> Result<Copied, Trouble> {
        // On a full disk only the record is tried again, and not the whole copy.
        let copied = match self.unrecorded.remove(&segment) {
            Some(bytes) => Copied::Done(bytes),
            None => self.copy(segment)?,
        };
        if let Copied::Done(_) | Copied::Empty = copied {
            let kept = record::keep(&self.directory, segment, &self.place);
            if let (Err(_), Copied::Done(bytes)) = (&kept, &copied) {
                self.unrecorded.insert(segment, *bytes);
            }
            kept.map_err(|error| Trouble(error.to_string()))?;
        }
        Ok(copied)
    }

    fn copy(&self, segment: Segment) -> Result<Copied, Trouble> {
        let connect = self.connect.clone();
        let connecting =
            async { self.bounds.within(tokio::task::spawn_blocking(move || connect())).await };
        let store = self.runtime.block_on(connecting)??;
        let remote = Remote { store, bounds: self.bounds, end: self.end.clone() };
        self.runtime.block_on(copy(&remote, &self.directory, segment))
    }

    fn done(&mut self, segment: Segment, bytes: u64) {
        self.pause = PAUSE_MIN;
        let name = name(segment);
        log::remark("upload", format_args!("{}: uploaded, {bytes} bytes", name.display()));
        if self.uploads.succeed(segment, bytes) {
            log::remark("upload", format_args!("{}: it works again", self.place));
        }
    }

    fn rest(&mut self, segment: Segment) {
        self.resting.insert(segment, Instant::now() + REST_TIME);
    }

    fn fail(&mut self, segment: Segment, Trouble(why): &Trouble) -> Turn {
        *self.failures.entry(segment).or_default() += 1;
        if self.uploads.troubles.fail(why) {
            let remedy = "segments stay here, and logd tries again";
            log::remark("upload", format_args!("{}: {why}; {remedy}", self.place));
        }
        let pause = self.pause;
        self.pause = PAUSE_MAX.min(pause * 2);
        Turn::Failed(pause)
    }
}

/// The name of a segment, for people.
fn name((stream, serial): Segment) -> PathBuf {
    stream.file(serial, Part::Data)
}
