//! A stream is written, restarted, packed and partly removed while a lane ships it to a destination that fails.
//!
//! Whatever fails, the destination ends with each line, in order. A line that it has twice comes with all lines after
//! it that were not acknowledged, and its number tells that it is known.

mod losses;

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::Write as _,
    os::unix::fs::FileExt as _,
    rc::Rc,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ringwise::{BackendChoice, Local};

use super::{
    cursor::Cursor,
    destination::{Destination, Reached, Trouble},
    follower::{Follower, Found},
    lane::{Lane, Turn},
    progress::{Progress, Streams},
    shipment::Shipment,
};
use crate::{
    disk::{
        keeper::{Asked, Task, Tray},
        segment::{
            format::{
                entry::{ENTRY_BYTES, Entry, Kind},
                name::{Content, Part, Stream},
                record::{Origin, Part as Sent},
            },
            pack::pack,
            reading::source::streams,
            writing::appender::Limits,
        },
        space::Floor,
        storage::{Shared, Storage},
    },
    fuzzing::index_of,
    guarantee::Guarantee,
    session::connection::Batch,
};

pub(crate) const STREAM: Stream = Stream { content: Content::Lines, number: 0 };

/// A directory, and the thread that writes to it.
pub(crate) struct World {
    pub(crate) directory: tempfile::TempDir,
    shared: Shared,
    storage: Storage,
    local: Local,
    asked: Asked,
    streams: Arc<Streams>,
    cursor: Arc<Mutex<Cursor>>,
    /// All lines that were stored.
    pub(crate) lines: Vec<Vec<u8>>,
    random: fastrand::Rng,
}

const NAMES: (&str, &str) = ("test", "another test");

fn local() -> Local {
    Local::builder().backend(BackendChoice::Classic).build().unwrap()
}

fn limits() -> Limits {
    let (bytes, age) = (600, Duration::MAX);
    Limits { bytes, index_bytes: u64::MAX, age, min_free: 0, is_direct: true }
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let directory = tempfile::tempdir().unwrap();
        let (tray, asked) = Tray::new();
        let streams = Arc::new(Streams::default());
        let shared = Shared {
            directory: directory.path().to_owned(),
            guarantee: Guarantee::Durable,
            names: Arc::default(),
            tray,
            floor: Arc::new(Mutex::new(Floor::new(directory.path()))),
            shipped: Some(streams.clone()),
        };
        let storage = Storage::open(&shared, 0, limits()).unwrap();
        let cursor = Arc::new(Mutex::new(Cursor::open(directory.path(), NAMES).unwrap()));
        let (lines, random) = (Vec::new(), fastrand::Rng::with_seed(seed));
        World { directory, shared, storage, local: local(), asked, streams, cursor, lines, random }
    }

    pub(super) fn progress(&self) -> Arc<Progress> {
        self.streams.of(0)
    }

    /// Stores a batch of up to five lines.
    pub(crate) fn write(&mut self) {
        let (mut batch, from) = (Batch::default(), self.lines.len());
        for number in from..from + self.random.usize(1..6) {
            let line = format!("[{number},\"{}\"]", "x".repeat(self.random.usize(..120)));
            let tenant = ["web", "db"][number % 2].into();
            batch.lines.extend_from_slice(line.as_bytes());
            batch.lines.push(b'\n');
            batch.line_count += 1;
            batch.parts.push(Sent {
                origin: Arc::new(Origin { peer: None, tenant: Some(tenant) }),
                lines: 1,
                bytes: line.len() as u64 + 1,
                at: Instant::now(),
            });
            self.lines.push(line.into_bytes());
        }
        self.storage.begin(&mut self.local, &mut batch).unwrap();
        while self.storage.is_busy() {
            self.local.submit_and_wait(1).unwrap();
            while let Some(completion) = self.local.next_completion() {
                self.storage.take(&mut self.local, (completion.tag(), completion)).unwrap();
            }
        }
        self.seal_ended();
    }

    fn seal_ended(&mut self) {
        while let Some(Task::Seal(segment)) = self.asked.next(Duration::ZERO) {
            segment.seal(&mut self.local).unwrap();
            self.asked.done();
        }
    }

    /// Ends the thread that writes without a seal, and starts another.
    pub(crate) fn restart(&mut self) {
        self.storage = Storage::open(&self.shared, 0, limits()).unwrap();
    }

    pub(crate) fn pack_all(&mut self) {
        for serial in streams(self.directory.path()).unwrap().remove(&STREAM).unwrap_or_default() {
            let one = (STREAM, serial);
            // The last segment is not sealed, and stays.
            let _ = pack(&mut self.local, self.directory.path(), one, 1, &mut || false);
        }
    }

    /// Begins to ship, where the cursor says.
    pub(super) fn lane<D: Destination>(&self, destination: D) -> Lane<D> {
        let cursor = Cursor::open(self.directory.path(), NAMES).unwrap();
        let follower = Follower::new(self.directory.path(), STREAM, cursor.line(0));
        *self.cursor.lock().unwrap() = cursor;
        Lane::new(0, follower, destination, (self.progress(), self.cursor.clone()))
    }
}

/// Ships until everything durable is acknowledged.
pub(super) fn finish<D: Destination>(lane: &mut Lane<D>) {
    for _ in 0..100_000 {
        if lane.turn(Duration::from_millis(20)) == Turn::Idle {
            return lane.keep(Duration::ZERO);
        }
    }
    panic!("it is never done");
}

/// When a destination in memory fails.
#[derive(Clone, Copy, Debug)]
enum Faults {
    At(u64),
    Every(u64),
    Random(u64),
}

/// How it fails: what it was asked for is done or not.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Before,
    After,
}

/// What a destination in memory has, which stays when a lane ends.
#[derive(Default)]
struct Store {
    /// The number, the bytes and the tenant of each line, as they came.
    lines: Vec<(u64, Vec<u8>, Option<Arc<str>>)>,
    calls: u64,
}

struct Memory {
    store: Rc<RefCell<Store>>,
    in_flight: VecDeque<u64>,
    faults: Option<(Faults, Loss)>,
}

impl Memory {
    /// Counts a call, and says whether it fails.
    fn call(&self) -> Option<Loss> {
        let calls = &mut self.store.borrow_mut().calls;
        *calls += 1;
        let (faults, loss) = self.faults?;
        let fails = match faults {
            Faults::At(place) => *calls == place,
            Faults::Every(count) => calls.is_multiple_of(count),
            // A hash of the number, so that one call in twelve fails.
            Faults::Random(seed) => {
                crc32fast::hash(&(*calls ^ seed << 32).to_le_bytes()).is_multiple_of(12)
            }
        };
        fails.then_some(loss)
    }
}

impl Destination for Memory {
    fn connect(&mut self) -> Result<Option<Reached>, Trouble> {
        self.in_flight.clear();
        self.call().map_or(Ok(None), |_| Err(Trouble("connect".to_owned())))
    }

    fn send(&mut self, shipment: &Shipment) -> Result<(), Trouble> {
        let loss = self.call();
        if !matches!(loss, Some(Loss::Before)) {
            let numbers = shipment.first_line..;
            let lines = numbers.zip(shipment.each());
            let lines =
                lines.map(|(line, (part, bytes))| (line, bytes.to_vec(), part.tenant.clone()));
            self.store.borrow_mut().lines.extend(lines);
            self.in_flight.push_back(shipment.line_end());
        }
        loss.map_or(Ok(()), |_| Err(Trouble("send".to_owned())))
    }

    fn receive(&mut self, _wait: Duration) -> Result<usize, Trouble> {
        if self.call().is_some() {
            return Err(Trouble("receive".to_owned()));
        }
        Ok(usize::from(self.in_flight.pop_front().is_some()))
    }

    fn window(&self) -> usize {
        3
    }
}

/// Checks what a destination has: each line, in order, and repeated only from a line that was not acknowledged on.
fn check(lines: &[Vec<u8>], store: &Store, what: &str) {
    let mut next = 0;
    let mut last = None;
    for (number, bytes, tenant) in &store.lines {
        assert!(*number <= next, "{what}: line {number} comes after {next} lines");
        // After a step back, which is where sending began again, nothing is left out.
        assert!(
            last.is_none_or(|last| *number <= last + 1),
            "{what}: line {number} follows line {last:?}"
        );
        assert!(*bytes == lines[*number as usize], "{what}: line {number} is another");
        assert_eq!(tenant.as_deref(), Some(["web", "db"][*number as usize % 2]), "{what}");
        next = next.max(number + 1);
        last = Some(*number);
    }
    assert_eq!(next, lines.len() as u64, "{what}: lines are missing");
}

/// A program of writes, restarts of either side and packing, with faults of the destination.
fn run(faults: Option<(Faults, Loss)>, seed: u64, has_crashes: bool) -> (World, Store) {
    let mut world = World::new(seed);
    let store = Rc::new(RefCell::new(Store::default()));
    let begin = |world: &World| {
        let memory = Memory { store: store.clone(), in_flight: VecDeque::new(), faults };
        world.lane(memory)
    };
    let mut lane = begin(&world);
    for _ in 0..30 {
        match world.random.u8(..20) {
            0..8 => world.write(),
            8 if has_crashes => lane = begin(&world),
            9 if has_crashes => world.restart(),
            10 => world.pack_all(),
            11 => lane.keep(Duration::ZERO),
            _ => drop(lane.turn(Duration::ZERO)),
        }
    }
    world.write();
    finish(&mut lane);
    let progress = world.progress();
    assert_eq!(progress.acknowledged(), world.lines.len() as u64);
    assert_eq!(progress.kept(), progress.acknowledged());
    assert_eq!((progress.lag_lines(), progress.lag_bytes()), (0, 0));
    drop((lane, begin));
    (world, Rc::into_inner(store).unwrap().into_inner())
}

/// How many random programs run: more where asked for.
pub(crate) fn seeds() -> u64 {
    std::env::var("RINGWISE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

#[test]
fn without_faults_each_line_comes_once() {
    for seed in 0..seeds() {
        let (world, store) = run(None, seed, false);
        check(&world.lines, &store, "no faults");
        assert_eq!(store.lines.len(), world.lines.len());
    }
}

/// The property: whatever call fails, before or after its effect, each line comes at least once and in order.
#[test]
fn whatever_call_fails_each_line_comes_in_order() {
    for loss in [Loss::Before, Loss::After] {
        let single = (1..40).step_by(3).map(Faults::At);
        let every = [7, 9, 13].map(Faults::Every);
        let random = (0..seeds()).map(Faults::Random);
        for (seed, faults) in single.chain(every).chain(random).enumerate() {
            let (world, store) = run(Some((faults, loss)), seed as u64, seed % 2 == 0);
            check(&world.lines, &store, &format!("{faults:?} {loss:?} {seed}"));
        }
    }
}

/// After a crash only lines that are not in the cursor come again.
#[test]
fn a_restart_repeats_only_what_the_cursor_does_not_have() {
    let mut world = World::new(5);
    let store = Rc::new(RefCell::new(Store::default()));
    let memory = || Memory { store: store.clone(), in_flight: VecDeque::new(), faults: None };
    (0..10).for_each(|_| world.write());
    let mut lane = world.lane(memory());
    finish(&mut lane);
    let kept = world.lines.len();
    (0..5).for_each(|_| world.write());
    while lane.turn(Duration::ZERO) != Turn::Idle {}
    assert_eq!(store.borrow().lines.len(), world.lines.len());
    // The cursor is older than its last acknowledgement.
    drop(lane);
    let all = world.lines.len();
    let is_kept = world.progress().kept() as usize;
    assert!(is_kept >= kept);
    finish(&mut world.lane(memory()));
    assert_eq!(store.borrow().lines.len(), all + (all - is_kept));
    check(&world.lines, &store.borrow(), "restart");
}

/// A power cut would take a line that is not durable, and give its number to another.
#[test]
fn a_line_that_is_not_durable_is_not_sent() {
    let directory = tempfile::tempdir().unwrap();
    let batches = [b"1\n2\n".to_vec(), b"3\n".to_vec(), b"4\n5\n".to_vec()];
    let index = index_of(&batches, true, false);
    let path = |part| directory.path().join(STREAM.file(0, part));
    std::fs::write(path(Part::Data), batches.concat()).unwrap();
    let mut file = File::create(path(Part::Index)).unwrap();
    let mut follower = Follower::new(directory.path(), STREAM, 0);
    let ends = [2, 3, 5];
    let (mut durable, mut read) = (0, Vec::new());
    // The index grows byte by byte, as somebody who reads it while it is written may see it.
    for (place, byte) in index.iter().enumerate() {
        file.write_all(&[*byte]).unwrap();
        // The lines are not durable as soon as their entry can be read, and a batch is not sent in part.
        let part = if durable == 0 { 1 } else { durable };
        assert!(follower.next(part).unwrap().is_none());
        let written = (place + 1) / ENTRY_BYTES;
        if (place + 1).is_multiple_of(ENTRY_BYTES) && written > 1 {
            durable = ends[written - 2];
            let Some(Found::Lines(piece)) = follower.next(durable).unwrap() else {
                panic!("batch {written} is durable, and not read")
            };
            read.push(piece.bytes);
        }
    }
    assert_eq!(read, batches);
}

/// A segment failed, and the daemon ended before it wrote the batch again. The next run gave the numbers to others.
#[test]
fn the_last_batch_of_a_failed_segment_is_not_sent() {
    let directory = tempfile::tempdir().unwrap();
    let write = |serial, index: &[u8], data: &[u8]| {
        std::fs::write(directory.path().join(STREAM.file(serial, Part::Index)), index).unwrap();
        std::fs::write(directory.path().join(STREAM.file(serial, Part::Data)), data).unwrap();
    };
    write(0, &index_of(&[b"1\n2\n".to_vec(), b"old\n".to_vec()], true, false), b"1\n2\nold\n");
    let data = b"new\n5\n";
    let head = Entry { first_line: 2, ..Entry::new(Kind::Head) };
    let (bytes, checksum) = (data.len() as u64, crc32fast::hash(data));
    let batch = Entry { bytes, lines: 2, first_line: 2, checksum, ..Entry::new(Kind::Batch) };
    write(1, &[head.encode(), batch.encode()].concat(), data);
    let mut follower = Follower::new(directory.path(), STREAM, 0);
    let mut read = Vec::new();
    while let Some(Found::Lines(piece)) = follower.next(4).unwrap() {
        read.extend(piece.bytes);
    }
    assert_eq!(read, b"1\n2\nnew\n5\n");
    assert_eq!(Follower::new(directory.path(), STREAM, 0).count_bytes(4).unwrap(), 14);
}

/// Retention removed segments, or bytes are damaged: what is lost is counted, and the rest is sent.
#[test]
fn lines_that_are_gone_are_counted_and_the_rest_is_sent() {
    let mut world = World::new(9);
    (0..30).for_each(|_| world.write());
    let mut serials = streams(world.directory.path()).unwrap().remove(&STREAM).unwrap();
    assert!(serials.len() > 6, "{serials:?}");
    let path = |serial, part| world.directory.path().join(STREAM.file(serial, part));
    // The oldest is gone, the lines of the next too; of another a byte is wrong.
    std::fs::remove_file(path(serials[0], Part::Index)).unwrap();
    std::fs::remove_file(path(serials[0], Part::Data)).unwrap();
    std::fs::remove_file(path(serials[1], Part::Data)).unwrap();
    let spoilt = File::options().read(true).write(true).open(path(serials.remove(3), Part::Data));
    spoilt.unwrap().write_all_at(b"#", 3).unwrap();
    let store = Rc::new(RefCell::new(Store::default()));
    let memory = Memory { store: store.clone(), in_flight: VecDeque::new(), faults: None };
    let mut lane = world.lane(memory);
    finish(&mut lane);
    let store = store.borrow();
    let sent: BTreeMap<u64, &Vec<u8>> =
        store.lines.iter().map(|(number, bytes, _)| (*number, bytes)).collect();
    assert!(sent.iter().all(|(number, bytes)| **bytes == world.lines[*number as usize]));
    assert_eq!(sent.len(), store.lines.len());
    let lost = world.progress().lost_lines.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(lost as usize + sent.len(), world.lines.len());
    assert!(lost > 5 && sent.len() > 40, "{lost} lost, {} sent", sent.len());
    assert_eq!(world.progress().lag_bytes(), 0);
}
