//! The thread that seals, packs and removes segments of all streams, so that no thread that stores waits.
//!
//! It works from what it finds in the directory. All that a restart loses is how the clock jumped (`clock`).

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

use ringwise::{BackendChoice, ErrorKind, Local};
use ringwise_serve::ServeError;

use crate::{
    clients::{names::Names, tenants::Tenants},
    disk::{
        segment::{
            call::is_descriptors,
            format::{
                entry::{ENTRY_BYTES, Ends},
                name::{Content, Part, Stream, parse},
            },
            now_ms,
            pack::{Outcome, pack},
            retention::{Kept, overdue, remove},
            scan::Scan,
            writing::unsealed::Unsealed,
        },
        space::free_bytes,
    },
    error::LogdError,
    live::Live,
    monitoring::log,
};

mod clock;
#[cfg(test)]
pub(crate) mod looks;
mod unshipped;

use clock::Clock;
pub(crate) use unshipped::Copies;
use unshipped::{find_unshipped, waiting};

/// How often it looks for segments to pack or remove.
const LOOK_TIME: Duration = Duration::from_secs(1);
/// How long it leaves a segment alone after a failure.
const REST_TIME: Duration = Duration::from_secs(60);
/// How long after the start no name expires.
const GRACE: Duration = Duration::from_secs(300);
/// Threads that take lines go first.
pub(crate) const NICENESS: i32 = 10;

/// Segments of all threads that may wait for their seal. While there are as many, no batch begins, because
/// each has two descriptors.
pub(crate) const WAITING_MAX: usize = 16;

/// What the thread is asked for.
#[derive(Debug)]
pub(crate) enum Task {
    /// To seal this segment.
    Seal(Unsealed),
    /// To end, after everything that was asked for before.
    End,
}

/// Takes ended segments from the threads.
#[derive(Clone, Debug)]
pub(crate) struct Tray {
    tasks: Sender<Task>,
    waiting: Arc<AtomicUsize>,
}

impl Tray {
    /// An empty tray, and its other end.
    pub(crate) fn new() -> (Tray, Asked) {
        let (tasks, receiver) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        (Tray { tasks, waiting: waiting.clone() }, Asked { receiver, waiting })
    }

    /// Gives a segment to be sealed.
    pub(crate) fn put(&self, segment: Unsealed) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The keeper outlives every thread that stores. Otherwise the next start would seal it.
        let _ = self.tasks.send(Task::Seal(segment));
    }

    /// Whether as many segments wait as may.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= WAITING_MAX
    }
}

/// The keeper's end of a [`Tray`].
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

    /// A segment from it is closed.
    pub(crate) fn done(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A handle to the thread.
pub(crate) struct Keeper {
    thread: JoinHandle<Result<(), LogdError>>,
    tray: Tray,
    must_end: Arc<AtomicBool>,
}

impl Keeper {
    pub(crate) fn start(
        directory: &Path,
        live: Arc<Mutex<Live>>,
        tenants: Arc<Tenants>,
        names: Arc<Names>,
        copies: Copies,
    ) -> Result<Keeper, LogdError> {
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
            let seals = Seals {
                asked,
                local: of_seals,
                later: Vec::new(),
                result: Ok(()),
                has_ended: false,
            };
            let (ends, resting) = (HashMap::new(), HashMap::new());
            let (clock, begin, must_end) = (Clock::new(now_ms()), Instant::now(), told);
            let work = Work {
                seals,
                local,
                directory,
                live,
                tenants,
                names,
                copies,
                must_end,
                ends,
                resting,
                clock,
                begin,
            };
            work.run()
        };
        let thread = std::thread::Builder::new().name("logd-keeper".to_owned()).spawn(run);
        let thread =
            thread.map_err(|error| ServeError::of_thread("that keeps segments", &error))?;
        if let Ok(why) = ready.recv() {
            return Err(LogdError::Failed(why));
        }
        Ok(Keeper { thread, tray, must_end })
    }

    /// Where ended segments go.
    pub(crate) fn tray(&self) -> Tray {
        self.tray.clone()
    }

    /// Seals what is in the tray, stops everything else, and gives the first error.
    pub(crate) fn finish(self) -> Result<(), LogdError> {
        self.must_end.store(true, Ordering::Relaxed);
        // If the thread is gone, the join says why.
        let _ = self.tray.tasks.send(Task::End);
        let panicked =
            |_| Err(LogdError::Failed("the thread that maintains segments panicked".to_owned()));
        self.thread.join().unwrap_or_else(panicked)
    }
}

/// Seals segments, also while something else takes long.
struct Seals {
    asked: Asked,
    local: Local,
    /// Those that the disk had no space for. They are tried again each time the thread looks after segments.
    later: Vec<Unsealed>,
    /// The first failure.
    result: Result<(), LogdError>,
    /// Nothing more comes.
    has_ended: bool,
}

impl Seals {
    /// Seals the next segment if one comes within a time; says whether anything came.
    fn take(&mut self, wait: Duration) -> bool {
        match self.asked.next(wait) {
            Some(Task::Seal(segment)) => self.seal(segment),
            Some(Task::End) => {
                self.has_ended = true;
                self.try_again();
            }
            None => return false,
        }
        true
    }

    /// Seals all that came.
    fn take_all(&mut self) {
        while !self.has_ended && self.take(Duration::ZERO) {}
    }

    /// Tries those again that the disk had no space for.
    fn try_again(&mut self) {
        for segment in std::mem::take(&mut self.later) {
            self.seal(segment);
        }
    }

    fn seal(&mut self, segment: Unsealed) {
        if let Err(error) = segment.seal(&mut self.local) {
            let told = format!("{}: sealing: {error}", segment.name().display());
            log::remark("segments", format_args!("{told}"));
            if error.kind() == ErrorKind::NoSpace && !self.has_ended {
                // It still counts as one that waits, because it keeps its descriptors.
                self.later.push(segment);
                return;
            }
            let failed = Err(LogdError::Failed(told));
            self.result = std::mem::replace(&mut self.result, Ok(())).and(failed);
        }
        drop(segment);
        self.asked.done();
    }
}

struct Work {
    seals: Seals,
    local: Local,
    directory: PathBuf,
    live: Arc<Mutex<Live>>,
    tenants: Arc<Tenants>,
    names: Arc<Names>,
    copies: Copies,
    must_end: Arc<AtomicBool>,
    /// What the indexes of sealed segments say, which were read once.
    ends: HashMap<(Stream, u64), Ended>,
    /// Segments after a failure, and until when they are left alone.
    resting: HashMap<(Stream, u64), Instant>,
    clock: Clock,
    begin: Instant,
}

/// A segment's files.
#[derive(Default)]
struct Files {
    bytes: u64,
    has_plain: bool,
    has_packed: bool,
    has_index: bool,
    is_uploaded: bool,
}

/// What an index says of its segment.
#[derive(Clone, Debug, Default)]
struct Ended {
    /// The number of its first line.
    first_line: Option<u64>,
    /// The number of the line after its last one, if it is sealed.
    line_end: Option<u64>,
    /// When it was sealed, in milliseconds since 1970.
    sealed_ms: Option<u64>,
    /// Whether retention recorded that its lines go.
    is_marked: bool,
    /// Bytes of lines of each tenant.
    tenants: Vec<(usize, u64)>,
}

/// A segment that is to be packed.
struct Plain {
    key: (Stream, u64),
    bytes: u64,
}

impl Work {
    fn run(mut self) -> Result<(), LogdError> {
        // Without permission it shares the processor like others.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        let mut look = Instant::now();
        // The oldest of each stream first.
        let mut to_pack = VecDeque::new();
        loop {
            let wait = match to_pack.is_empty() {
                true => look.saturating_duration_since(Instant::now()),
                false => Duration::ZERO,
            };
            // Segments to seal have descriptors, and may hold up batches: they go first.
            if !self.seals.take(wait)
                && let Some(one) = to_pack.pop_front()
            {
                self.pack(&one);
            }
            if self.seals.has_ended {
                return self.seals.result;
            }
            // Retention goes on however much there is to seal, since it may make the space for that.
            if Instant::now() >= look && !self.must_end.load(Ordering::Relaxed) {
                self.seals.try_again();
                match self.look() {
                    Ok(found) => to_pack = found,
                    Err(error) => {
                        log::remark("segments", format_args!("maintaining segments: {error}"));
                    }
                }
                look = Instant::now() + LOOK_TIME;
            }
        }
    }

    /// Removes what has expired, and finds what to pack.
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
                format_args!(
                    "the clock jumped {seconds} s forward; no segment expires earlier because of it"
                ),
            );
        }
        self.forget_names(care.forget_names);
        let gone =
            overdue(&kept, care.policy, &self.tenants, |ended_ms| self.clock.age_ms(ended_ms));
        let mut stuck = HashSet::new();
        for segment in &gone {
            // After one that could not be removed the others stay, since a gap is a loss.
            if stuck.contains(&segment.stream) || !self.remove(segment) {
                stuck.insert(segment.stream);
            }
        }
        self.tell_waiting(&all, &kept, &gone, care.pack_level.is_some());
        if care.pack_level.is_none() {
            return Ok(VecDeque::new());
        }
        let gone: HashSet<_> = gone.iter().map(|one| (one.stream, one.serial)).collect();
        let plain = all.iter().filter(|&(&key, files)| {
            // Both files are there if removing the plain one failed.
            files.has_plain
                && self.ends.contains_key(&key)
                && !self.is_resting(key)
                && !gone.contains(&key)
        });
        Ok(plain.map(|(&key, files)| Plain { key, bytes: files.bytes }).collect())
    }

    /// Tells the thread that uploads what there is for it.
    fn tell_waiting(
        &self,
        all: &BTreeMap<(Stream, u64), Files>,
        kept: &[Kept],
        gone: &[Kept],
        packs: bool,
    ) {
        let Some(uploads) = &self.copies.uploads else { return };
        let gone: HashSet<_> = gone.iter().map(|one| (one.stream, one.serial)).collect();
        let is_settled = |one: &Kept| {
            let key = (one.stream, one.serial);
            let is_packed = !packs || all.get(&key).is_some_and(|files| files.has_packed);
            self.ends.contains_key(&key) && is_packed
        };
        let mut found = waiting(kept, is_settled, |ended_ms| self.clock.age_ms(ended_ms));
        found.retain(|one| !gone.contains(&one.segment));
        uploads.found(found);
    }

    /// Lets names expire, but not right after the start: their clients have to come back first.
    fn forget_names(&self, age: Option<Duration>) {
        let Some(age) = age.filter(|age| self.begin.elapsed() >= GRACE.min(*age)) else { return };
        let is_old = |seen_ms| u128::from(self.clock.age_ms(seen_ms)) > age.as_millis();
        match self.names.expire(is_old) {
            Ok(0) => {}
            Ok(count) => {
                log::remark("names", format_args!("{count} names expired (--forget-names)"))
            }
            Err(error) => log::remark(
                "names",
                format_args!("no name expires, since it could not be recorded: {error}"),
            ),
        }
    }

    fn find(&self) -> Result<BTreeMap<(Stream, u64), Files>, LogdError> {
        let failed = |error: std::io::Error| LogdError::on(&self.directory, &error);
        let mut all: BTreeMap<(Stream, u64), Files> = BTreeMap::new();
        let mut uploaded = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Some((stream, serial, part)) = entry.file_name().to_str().and_then(parse) else {
                continue;
            };
            if part == Part::Uploaded {
                uploaded.push((stream, serial));
                continue;
            }
            // It was removed meanwhile.
            let Ok(metadata) = entry.metadata() else { continue };
            let files = all.entry((stream, serial)).or_default();
            files.bytes += metadata.len();
            match part {
                Part::Data => files.has_plain = true,
                Part::Packed => files.has_packed = true,
                Part::Index => files.has_index = true,
                Part::Torn | Part::Packing | Part::Uploaded => {}
            }
        }
        find_unlisted(&self.directory, &mut all);
        for key in uploaded {
            match all.get_mut(&key).filter(|files| files.has_plain || files.has_packed) {
                Some(files) => files.is_uploaded = true,
                // The lines were removed while they were uploaded, or a crash came before their record was removed. It
                // would look like a segment.
                None => {
                    drop(fs::remove_file(self.directory.join(key.0.file(key.1, Part::Uploaded))))
                }
            }
        }
        Ok(all)
    }

    /// What retention needs to know. The newest segment of a stream may be open unless it is sealed.
    fn kept(&mut self, all: &BTreeMap<(Stream, u64), Files>) -> Vec<Kept> {
        let (mut kept, mut lines) = (Vec::new(), Vec::new());
        let mut keys = all.iter().peekable();
        while let Some((&(stream, serial), files)) = keys.next() {
            let is_last = keys.peek().is_none_or(|((next, _), _)| *next != stream);
            let Ended { sealed_ms, is_marked, tenants, first_line, line_end } =
                self.index_says((stream, serial), files, is_last);
            lines.push((first_line, line_end));
            // A segment that was never sealed ended when it was last written to.
            let dead_ms = || (!is_last).then(|| self.modified_ms((stream, serial)));
            let has_lines = files.has_plain || files.has_packed;
            kept.push(Kept {
                stream,
                serial,
                bytes: files.bytes,
                ended_ms: sealed_ms.or_else(dead_ms),
                has_lines,
                is_marked,
                is_last,
                keeps_index: false,
                is_unshipped: false,
                is_unuploaded: has_lines && !files.is_uploaded && self.copies.uploads.is_some(),
                tenants,
            });
        }
        if let Some(shipped) = &self.copies.shipped {
            find_unshipped(&mut kept, &lines, shipped);
        }
        kept
    }

    /// Reads what an index says: whether it ends in a seal, whether its head is marked, and for a segment that
    /// is not open its tenants.
    fn index_says(&mut self, key: (Stream, u64), files: &Files, is_last: bool) -> Ended {
        if let Some(ended) = self.ends.get(&key) {
            return ended.clone();
        }
        let path = self.directory.join(key.0.file(key.1, Part::Index));
        let Some(file) = files.has_index.then(|| File::open(&path).ok()).flatten() else {
            return Ended::default();
        };
        let len = file.metadata().map_or(0, |metadata| metadata.len());
        let ends = Ends::read(len, |start| {
            let mut bytes = vec![0; ENTRY_BYTES];
            file.read_exact_at(&mut bytes, start).map(|()| bytes)
        });
        let ends = ends.unwrap_or_default();
        let is_marked = ends.is_marked();
        let sealed_ms = ends.seal.map(|seal| seal.time_ms);
        let has_lines = files.has_plain || files.has_packed;
        let is_counted = self.tenants.are_named() && key.0.content == Content::Lines && has_lines;
        let tenants = match is_counted && (sealed_ms.is_some() || !is_last) {
            true => self.tenants.shares(Scan::by_tenant(&fs::read(&path).unwrap_or_default())),
            false => Vec::new(),
        };
        let first_line = ends.head.map(|head| head.first_line);
        let line_end = ends.seal.map(|seal| seal.first_line);
        let ended = Ended { first_line, line_end, sealed_ms, is_marked, tenants };
        if sealed_ms.is_some() {
            self.ends.insert(key, ended.clone());
        }
        ended
    }

    fn modified_ms(&self, key: (Stream, u64)) -> u64 {
        let parts = [Part::Data, Part::Index].map(|part| key.0.file(key.1, part));
        let times = parts.iter().filter_map(|name| {
            let modified = fs::metadata(self.directory.join(name)).ok()?.modified().ok()?;
            let since = modified.duration_since(std::time::UNIX_EPOCH).ok()?;
            u64::try_from(since.as_millis()).ok()
        });
        // If that cannot be read, it counts as new.
        times.max().unwrap_or_else(now_ms)
    }

    fn is_resting(&self, key: (Stream, u64)) -> bool {
        self.resting.contains_key(&key)
    }

    fn rest(&mut self, key: (Stream, u64), name: &Path, why: &str) {
        log::remark("segments", format_args!("{}: {why}", name.display()));
        self.resting.insert(key, Instant::now() + REST_TIME);
    }

    /// Removes a segment; says whether it did.
    fn remove(&mut self, segment: &Kept) -> bool {
        let (key, name) = ((segment.stream, segment.serial), segment.stream);
        if self.is_resting(key) {
            return false;
        }
        // It may be uploaded since the directory was listed.
        let record = self.directory.join(name.file(segment.serial, Part::Uploaded));
        let is_unuploaded = segment.is_unuploaded && !record.exists();
        let name = name.file(segment.serial, Part::Data);
        let removed = remove(&mut self.local, &self.directory, segment);
        // The mark may be set now.
        self.ends.remove(&key);
        match &removed {
            // Its lines were removed, and reported, before.
            Ok(()) if !segment.has_lines => {}
            Ok(()) => {
                self.tenants.removed(&segment.tenants);
                log::remark("segments", format_args!("{}: removed, by retention", name.display()));
                if segment.is_unshipped {
                    tell_lost(&name, "shipped", "--retain-size");
                }
                if let Some(uploads) = self.copies.uploads.as_ref().filter(|_| is_unuploaded) {
                    uploads.lose();
                    let is_lines = segment.stream.content == Content::Lines;
                    let limit =
                        if is_lines { "--retain-size" } else { "--retain-dead or --retain-size" };
                    tell_lost(&name, "uploaded", limit);
                }
            }
            // Descriptors will be closed. A rest would keep all of the stream, and a disk full of dead letters full.
            Err(error) if is_descriptors(error) => {
                log::remark(
                    "segments",
                    format_args!("{}: cannot be removed: {error}", name.display()),
                );
            }
            Err(error) => self.rest(key, &name, &format!("cannot be removed: {error}")),
        }
        removed.is_ok()
    }

    fn pack(&mut self, &Plain { key, bytes }: &Plain) {
        let (level, min_free) = {
            let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
            (live.care.pack_level, live.segments.min_free)
        };
        let Some(level) = level else { return };
        // Packing may not bring the free space below the floor.
        let needed = min_free.saturating_add(bytes);
        let has_room = free_bytes(&self.directory).is_none_or(|free| free > needed);
        if !has_room || self.must_end.load(Ordering::Relaxed) {
            return;
        }
        let name = key.0.file(key.1, Part::Data);
        let (seals, must_end) = (&mut self.seals, &self.must_end);
        let mut must_stop = || {
            // Packing takes longer than a seal should wait.
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

fn tell_lost(name: &Path, done: &str, limit: &str) {
    let name = name.display();
    log::remark("lost", format_args!("{name}: removed before it was {done}, because of {limit}"));
}

/// Looks for files of lines that were not listed. A listing takes time, and misses some of the names that are
/// made meanwhile (readdir(3)). A new segment with only its index listed would look half removed, and the
/// rest would be removed.
fn find_unlisted(directory: &Path, all: &mut BTreeMap<(Stream, u64), Files>) {
    for (&(stream, serial), files) in all {
        if files.has_plain || files.has_packed {
            continue;
        }
        // If that cannot be read, it counts as there. In this order: the plain file is removed after the packed
        // one has its name.
        let is_there = |part| {
            let path = directory.join(stream.file(serial, part));
            path.try_exists().unwrap_or(true)
        };
        files.has_plain = is_there(Part::Data);
        files.has_packed = is_there(Part::Packed);
    }
}

#[cfg(test)]
mod tests {
    use ringwise::{
        Opcode,
        sim::{Fault, Simulation, When},
    };

    use super::*;

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

    /// A seal that fails on a full disk is made when there is space again, and is no failure then. It was one for
    /// ever: the daemon ended with status 1, weeks later.
    #[test]
    fn a_seal_waits_for_space() {
        let simulation =
            Simulation::builder(1).fault(Fault::NoSpace, When::nth(1).of(Opcode::Write)).build();
        let open = || Local::builder().simulation(&simulation).build().unwrap();
        let (tray, asked) = Tray::new();
        let (local, later) = (open(), Vec::new());
        let mut seals = Seals { asked, local, later, result: Ok(()), has_ended: false };
        tray.put(Unsealed::in_new_files(&mut open()));
        seals.take_all();
        assert_eq!((seals.later.len(), tray.waiting.load(Ordering::Relaxed)), (1, 1));
        seals.try_again();
        assert_eq!((seals.later.len(), tray.waiting.load(Ordering::Relaxed)), (0, 0));
        assert!(seals.result.is_ok());
        assert_eq!(simulation.read("/index").unwrap().len(), ENTRY_BYTES);
    }

    #[test]
    fn a_seal_without_space_at_the_end_is_a_failure() {
        let simulation =
            Simulation::builder(1).fault(Fault::NoSpace, When::always().of(Opcode::Write)).build();
        let open = || Local::builder().simulation(&simulation).build().unwrap();
        let (tray, asked) = Tray::new();
        let (local, later) = (open(), Vec::new());
        let mut seals = Seals { asked, local, later, result: Ok(()), has_ended: false };
        tray.put(Unsealed::in_new_files(&mut open()));
        tray.tasks.send(Task::End).unwrap();
        seals.take_all();
        assert!(seals.has_ended && seals.result.is_err());
        assert_eq!(tray.waiting.load(Ordering::Relaxed), 0);
    }
}
