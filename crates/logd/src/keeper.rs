//! What becomes of segments that nothing is written to any more: they are sealed, packed, and
//! removed when they are old or too much. A thread for all streams, so that none of them waits.
//!
//! It goes by what it finds in the directory, and knows nothing that a restart would lose but how
//! the clock jumped (`clock`).

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use ringwise::{BackendChoice, Local};
use ringwise_serve::ServeError;

use crate::{
    error::LogdError,
    log,
    segment::{
        entry::{ENTRY_BYTES, Entry, Kind, REMOVED},
        name::{Part, Stream, parse},
        pack::{Outcome, pack},
        retention::{Kept, Policy, overdue, remove},
        unsealed::Unsealed,
    },
    space::free_bytes,
    worker::Live,
};

mod clock;

use clock::Clock;

/// How often it looks around.
const LOOK_TIME: Duration = Duration::from_secs(1);
/// How long it leaves alone what failed.
const REST_TIME: Duration = Duration::from_secs(60);
/// Those who take lines go first.
const NICENESS: i32 = 10;

/// What is done with segments that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Care {
    pub(crate) policy: Policy,
    /// How hard to pack, by zstd's levels; not at all where nothing is set.
    pub(crate) pack_level: Option<i32>,
}

/// Segments that may wait for their seal before no batch begins any more, of all threads. Each has two
/// descriptors.
pub(crate) const WAITING_MAX: usize = 16;

/// What the thread is asked for.
#[derive(Debug)]
pub(crate) enum Task {
    /// Nothing is written to this segment any more.
    Seal(Unsealed),
    /// To end, when all is done that was asked for before.
    End,
}

/// Where segments go that have ended.
#[derive(Clone, Debug)]
pub(crate) struct Tray {
    tasks: Sender<Task>,
    waiting: Arc<AtomicUsize>,
}

impl Tray {
    /// An empty one, and what takes from it.
    pub(crate) fn new() -> (Tray, Asked) {
        let (tasks, receiver) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        (Tray { tasks, waiting: waiting.clone() }, Asked { receiver, waiting })
    }

    /// Gives a segment to be sealed.
    pub(crate) fn put(&self, segment: Unsealed) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Who takes from it outlives every thread that stores. Were it gone, the next start would seal.
        let _ = self.tasks.send(Task::Seal(segment));
    }

    /// Whether as many wait as may.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= WAITING_MAX
    }
}

/// What is asked for, as who does it sees it.
pub(crate) struct Asked {
    receiver: Receiver<Task>,
    waiting: Arc<AtomicUsize>,
}

impl Asked {
    pub(crate) fn next(&self, wait: Duration) -> Option<Task> {
        match self.receiver.recv_timeout(wait) {
            Err(RecvTimeoutError::Disconnected) => Some(Task::End),
            asked => asked.ok(),
        }
    }

    /// A segment that came from it is closed.
    pub(crate) fn done(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The thread, as its owner sees it.
pub(crate) struct Keeper {
    thread: JoinHandle<Result<(), LogdError>>,
    tray: Tray,
    must_end: Arc<AtomicBool>,
}

impl Keeper {
    pub(crate) fn start(directory: &Path, live: Arc<Mutex<Live>>) -> Result<Keeper, LogdError> {
        let (tray, asked) = Tray::new();
        let must_end = Arc::new(AtomicBool::new(false));
        let (directory, told) = (directory.to_owned(), must_end.clone());
        let (send_ready, ready) = channel();
        let run = move || {
            let local = || Local::builder().backend(BackendChoice::Classic).build();
            let locals = local().and_then(|first| Ok((first, local()?))).map_err(LogdError::failed);
            let Ok((local, of_seals)) =
                locals.inspect_err(|error| drop(send_ready.send(error.to_string())))
            else {
                return Ok(());
            };
            drop(send_ready);
            let seals = Seals { asked, local: of_seals, result: Ok(()), has_ended: false };
            let (ends, resting) = (HashMap::new(), HashMap::new());
            let clock = Clock::new(now_ms());
            Work { seals, local, directory, live, must_end: told, ends, resting, clock }.run()
        };
        let thread = std::thread::Builder::new().name("logd-keeper".to_owned()).spawn(run);
        let thread =
            thread.map_err(|error| ServeError::of_thread("that keeps segments", &error))?;
        if let Ok(why) = ready.recv() {
            return Err(LogdError::Failed(why));
        }
        Ok(Keeper { thread, tray, must_end })
    }

    /// Where segments go that have ended.
    pub(crate) fn tray(&self) -> Tray {
        self.tray.clone()
    }

    /// Seals what it was given, stops everything else, and says what failed.
    pub(crate) fn finish(self) -> Result<(), LogdError> {
        self.must_end.store(true, Ordering::Relaxed);
        // Were it gone, the wait for it would tell.
        let _ = self.tray.tasks.send(Task::End);
        let panicked = |_| Err(LogdError::Failed("the thread of segments panicked".to_owned()));
        self.thread.join().unwrap_or_else(panicked)
    }
}

/// Seals what comes, also while something else takes long.
struct Seals {
    asked: Asked,
    local: Local,
    /// Of the first that failed.
    result: Result<(), LogdError>,
    /// Nothing more comes.
    has_ended: bool,
}

impl Seals {
    /// Seals the next if it comes within a time; says whether anything came.
    fn take(&mut self, wait: Duration) -> bool {
        match self.asked.next(wait) {
            Some(Task::Seal(segment)) => {
                let sealed = self.seal(&segment);
                self.result = std::mem::replace(&mut self.result, Ok(())).and(sealed);
                drop(segment);
                self.asked.done();
            }
            Some(Task::End) => self.has_ended = true,
            None => return false,
        }
        true
    }

    /// Seals all that came.
    fn take_all(&mut self) {
        while !self.has_ended && self.take(Duration::ZERO) {}
    }

    fn seal(&mut self, segment: &Unsealed) -> Result<(), LogdError> {
        segment.seal(&mut self.local).map_err(|error| {
            let told = format!("{}: sealing: {error}", segment.name().display());
            log::remark("segments", format_args!("{told}"));
            LogdError::Failed(told)
        })
    }
}

struct Work {
    seals: Seals,
    local: Local,
    directory: PathBuf,
    live: Arc<Mutex<Live>>,
    must_end: Arc<AtomicBool>,
    /// When segments ended, and whether retention recorded that they go, where that was read once.
    ends: HashMap<(Stream, u64), (u64, bool)>,
    /// Those that something failed on, and until when they are left alone.
    resting: HashMap<(Stream, u64), Instant>,
    clock: Clock,
}

/// A segment's files.
#[derive(Default)]
struct Files {
    bytes: u64,
    has_plain: bool,
    has_packed: bool,
    has_index: bool,
}

/// A segment that is to be packed.
struct Plain {
    key: (Stream, u64),
    bytes: u64,
}

impl Work {
    fn run(mut self) -> Result<(), LogdError> {
        // Without leave to do so it shares the processor as others do.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        let mut look = Instant::now();
        // The oldest of each stream first.
        let mut to_pack = VecDeque::new();
        loop {
            let wait = match to_pack.is_empty() {
                true => look.saturating_duration_since(Instant::now()),
                false => Duration::ZERO,
            };
            // What is to be sealed has descriptors, and may hold up batches: it goes first.
            if !self.seals.take(wait)
                && let Some(one) = to_pack.pop_front()
            {
                self.pack(&one);
            }
            if self.seals.has_ended {
                return self.seals.result;
            }
            // However much there is to seal, what retention has to remove may be what space is for.
            if Instant::now() >= look && !self.must_end.load(Ordering::Relaxed) {
                match self.look() {
                    Ok(found) => to_pack = found,
                    Err(error) => {
                        log::remark("segments", format_args!("looking after segments: {error}"));
                    }
                }
                look = Instant::now() + LOOK_TIME;
            }
        }
    }

    /// Removes what is to be, and finds what is to be packed.
    fn look(&mut self) -> Result<VecDeque<Plain>, LogdError> {
        let care = self.live.lock().unwrap_or_else(PoisonError::into_inner).care;
        let all = self.find()?;
        self.ends.retain(|segment, _| all.contains_key(segment));
        self.resting.retain(|_, until| *until > Instant::now());
        let kept = self.kept(&all);
        if let Some(jump) = self.clock.look(now_ms()) {
            let seconds = jump.as_secs();
            log::remark(
                "segments",
                format_args!("the clock went {seconds} s forward: no segment is older for that"),
            );
        }
        let gone = overdue(&kept, care.policy, |ended_ms| self.clock.age_ms(ended_ms));
        let mut stuck = HashSet::new();
        for segment in &gone {
            // What comes after one that did not go stays, or there were a gap.
            if stuck.contains(&segment.stream) || !self.remove(segment) {
                stuck.insert(segment.stream);
            }
        }
        if care.pack_level.is_none() {
            return Ok(VecDeque::new());
        }
        let gone: HashSet<_> = gone.iter().map(|one| (one.stream, one.serial)).collect();
        let plain = all.iter().filter(|&(&key, files)| {
            // Both are there where the plain one was to go and did not.
            files.has_plain
                && self.ends.contains_key(&key)
                && !self.is_resting(key)
                && !gone.contains(&key)
        });
        Ok(plain.map(|(&key, files)| Plain { key, bytes: files.bytes }).collect())
    }

    fn find(&self) -> Result<BTreeMap<(Stream, u64), Files>, LogdError> {
        let failed = |error: std::io::Error| LogdError::on(&self.directory, &error);
        let mut all: BTreeMap<(Stream, u64), Files> = BTreeMap::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Some((stream, serial, part)) = entry.file_name().to_str().and_then(parse) else {
                continue;
            };
            // One that went meanwhile takes no space.
            let Ok(metadata) = entry.metadata() else { continue };
            let files = all.entry((stream, serial)).or_default();
            files.bytes += metadata.len();
            match part {
                Part::Data => files.has_plain = true,
                Part::Packed => files.has_packed = true,
                Part::Index => files.has_index = true,
                Part::Torn | Part::Packing => {}
            }
        }
        find_unlisted(&self.directory, &mut all);
        Ok(all)
    }

    /// What retention needs to know. The newest of a stream may be written to unless it is sealed.
    fn kept(&mut self, all: &BTreeMap<(Stream, u64), Files>) -> Vec<Kept> {
        let mut kept = Vec::new();
        let mut keys = all.iter().peekable();
        while let Some((&(stream, serial), files)) = keys.next() {
            let is_last = keys.peek().is_none_or(|((next, _), _)| *next != stream);
            let (sealed_ms, is_marked) = self.index_says((stream, serial), files);
            // One that was never sealed ended when it was last written to.
            let dead_ms = || (!is_last).then(|| self.modified_ms((stream, serial)));
            kept.push(Kept {
                stream,
                serial,
                bytes: files.bytes,
                ended_ms: sealed_ms.or_else(dead_ms),
                has_lines: files.has_plain || files.has_packed,
                is_marked,
                is_last,
            });
        }
        kept
    }

    /// When a segment was sealed, if it was: its index ends in a seal. And whether the head says that
    /// its lines go.
    fn index_says(&mut self, key: (Stream, u64), files: &Files) -> (Option<u64>, bool) {
        if let Some((ended_ms, is_marked)) = self.ends.get(&key) {
            return (Some(*ended_ms), *is_marked);
        }
        let path = self.directory.join(key.0.file(key.1, Part::Index));
        let Some(file) = files.has_index.then(|| File::open(path).ok()).flatten() else {
            return (None, false);
        };
        let entry = |start: u64, kind| {
            let mut bytes = [0; ENTRY_BYTES];
            file.read_exact_at(&mut bytes, start).ok()?;
            Entry::decode(&bytes).filter(|entry| entry.kind == kind)
        };
        let is_marked = entry(0, Kind::Head).is_some_and(|head| head.flags & REMOVED != 0);
        let len = file.metadata().map_or(0, |metadata| metadata.len());
        let last = len.checked_sub(ENTRY_BYTES as u64);
        let Some(seal) = last.and_then(|start| entry(start, Kind::Seal)) else {
            return (None, is_marked);
        };
        self.ends.insert(key, (seal.time_ms, is_marked));
        (Some(seal.time_ms), is_marked)
    }

    fn modified_ms(&self, key: (Stream, u64)) -> u64 {
        let parts = [Part::Data, Part::Index].map(|part| key.0.file(key.1, part));
        let times = parts.iter().filter_map(|name| {
            let modified = fs::metadata(self.directory.join(name)).ok()?.modified().ok()?;
            let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
            u64::try_from(since.as_millis()).ok()
        });
        // What cannot be asked is new.
        times.max().unwrap_or_else(now_ms)
    }

    fn is_resting(&self, key: (Stream, u64)) -> bool {
        self.resting.contains_key(&key)
    }

    fn rest(&mut self, key: (Stream, u64), name: &Path, why: &str) {
        log::remark("segments", format_args!("{}: {why}", name.display()));
        self.resting.insert(key, Instant::now() + REST_TIME);
    }

    /// Removes a segment, and says whether it did.
    fn remove(&mut self, segment: &Kept) -> bool {
        let (key, name) = ((segment.stream, segment.serial), segment.stream);
        if self.is_resting(key) {
            return false;
        }
        let name = name.file(segment.serial, Part::Data);
        let removed = remove(&mut self.local, &self.directory, segment);
        // Its head may have changed.
        self.ends.remove(&key);
        match &removed {
            // The index of one whose lines went before is nothing to tell of.
            Ok(()) if !segment.has_lines => {}
            Ok(()) => {
                log::remark("segments", format_args!("{}: removed, by retention", name.display()))
            }
            Err(error) => self.rest(key, &name, &format!("to be removed: {error}")),
        }
        removed.is_ok()
    }

    fn pack(&mut self, &Plain { key, bytes }: &Plain) {
        let (level, min_free) = {
            let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            (live.care.pack_level, live.segments.min_free)
        };
        let Some(level) = level else { return };
        // It may not make the space low that lines are taken by.
        let needed = min_free.saturating_add(bytes);
        let has_room = free_bytes(&self.directory).is_none_or(|free| free > needed);
        if !has_room || self.must_end.load(Ordering::Relaxed) {
            return;
        }
        let name = key.0.file(key.1, Part::Data);
        let (seals, must_end) = (&mut self.seals, &self.must_end);
        let mut must_stop = || {
            // To pack one takes longer than anybody should wait for a seal.
            seals.take_all();
            seals.has_ended || must_end.load(Ordering::Relaxed)
        };
        match pack(&mut self.local, &self.directory, key, level, &mut must_stop) {
            Ok(Outcome::Packed { from, into }) => log::remark(
                "segments",
                format_args!("{}: packed, {from} bytes into {into}", name.display()),
            ),
            Ok(Outcome::Stopped) => {}
            Ok(Outcome::Refused) => self.rest(key, &name, "not packed: it is damaged"),
            Err(error) => self.rest(key, &name, &format!("not packed: {error}")),
        }
    }
}

/// Asks by their names for lines that were not listed. A listing takes time, and has of the names
/// that are made meanwhile some and not others (readdir(3)): without this a new segment whose index
/// alone was listed would look like one that was half removed, and be removed to its end.
fn find_unlisted(directory: &Path, all: &mut BTreeMap<(Stream, u64), Files>) {
    for (&(stream, serial), files) in all {
        if files.has_plain || files.has_packed {
            continue;
        }
        // What cannot be asked is taken to be there. In this order: the plain one goes when the
        // packed one has its name.
        let is_there = |part| {
            let path = directory.join(stream.file(serial, part));
            path.try_exists().unwrap_or(true)
        };
        files.has_plain = is_there(Part::Data);
        files.has_packed = is_there(Part::Packed);
    }
}

fn now_ms() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::name::Content;

    /// Lines that were acknowledged went, with no retention asked for: a listing of many names had
    /// the index of a new segment and not its lines, which were made before it.
    #[test]
    fn a_segment_that_was_listed_in_part_is_no_half_removed_one() {
        let directory = tempfile::tempdir().unwrap();
        let stream = Stream { content: Content::Lines, number: 0 };
        let indexed = || Files { has_index: true, ..Files::default() };
        let mut all: BTreeMap<(Stream, u64), Files> =
            (0..4).map(|serial| ((stream, serial), indexed())).collect();
        for (serial, part) in [(0, Part::Data), (1, Part::Packed)] {
            File::create(directory.path().join(stream.file(serial, part))).unwrap();
        }
        find_unlisted(directory.path(), &mut all);
        let found: Vec<_> = all.values().map(|files| (files.has_plain, files.has_packed)).collect();
        assert_eq!(found, [(true, false), (false, true), (false, false), (false, false)]);
    }
}
