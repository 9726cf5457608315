//! Futures dropped at every stage, from several threads: never polled, submitted, cancelled while
//! their result comes, completed and not looked at. Nothing is lost, leaked or freed early.
//!
//! `RINGWISE_DROPS` says how many; under `AddressSanitizer` (see CONTRIBUTING.md) what the kernel
//! or another thread still uses is seen as it is freed.

#[path = "shared/rings.rs"]
mod rings;

use std::{
    collections::VecDeque,
    future::Future,
    io::Write,
    os::fd::OwnedFd,
    pin::Pin,
    sync::Arc,
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use futures::executor::block_on;
use rings::skip;
use ringwise::{
    AlignedBuf, BackendChoice, Custom, Descriptor, Local, OpenOptions, Operation, OwnedBufferMut,
    Pending, Ring, StableBytes, StableBytesMut, sim::Simulation,
};

const THREADS: u64 = 4;
/// Futures that a thread keeps at a time. Reads of pipes that wait are among them, and a ring full of
/// those has no room for what a thread waits for: so a small ring is given few.
const KEPT_MAX: usize = 24;
const KEPT_MAX_SMALL: usize = 2;

fn drops() -> u64 {
    let number = std::env::var("RINGWISE_DROPS").ok();
    number.map_or(20_000, |text| text.parse().expect("RINGWISE_DROPS is a number"))
}

struct Silent;

impl Wake for Silent {
    fn wake(self: Arc<Self>) {}
}

fn poll_once(future: &mut Pin<Box<Pending>>) -> bool {
    let waker = Waker::from(Arc::new(Silent));
    future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
}

/// Memory that tells when it was freed too early: it is overwritten then.
struct Marked(Box<[u8; 256]>);

// SAFETY: a box stays where it is when it is moved.
unsafe impl StableBytes for Marked {
    fn bytes(&self) -> &[u8] {
        &self.0[..]
    }
}

// SAFETY: the same, and nobody else has it.
unsafe impl StableBytesMut for Marked {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0[..]
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.0.fill(0xDD);
    }
}

/// What operations work on; each thread has its own.
struct Things {
    file: Descriptor,
    path: std::path::PathBuf,
    reader: Descriptor,
    writer: std::io::PipeWriter,
}

impl Things {
    fn new(directory: &std::path::Path, number: u64) -> Things {
        let path = directory.join(format!("file-{number}"));
        std::fs::write(&path, vec![0xAB; 1 << 16]).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = Descriptor::from(OwnedFd::from(reader));
        Things { file: file.into(), path, reader, writer }
    }

    /// An operation that comes to its end by itself.
    fn operation(&self, random: &mut fastrand::Rng) -> Operation {
        let offset = random.u64(..256) * 256;
        let marked = |byte| Custom(Marked(Box::new([byte; 256]))).into_buffer_mut();
        match random.u8(..10) {
            0 => Operation::nop(),
            1 => Operation::open(&self.path, OpenOptions::new().read(true)),
            2 => Operation::statx(&self.path),
            3 => Operation::sync_data(&self.file),
            4 => Operation::timeout(Duration::from_micros(random.u64(..500))),
            5 => Operation::read_vectored_at(&self.file, vec![marked(0), marked(1)], offset),
            6 => Operation::write_at(&self.file, marked(0xAB), offset),
            7 => Operation::read_at(&self.file, AlignedBuf::zeroed(512, 512), offset),
            _ => Operation::read_at(&self.file, marked(0), offset),
        }
    }

    /// A read that waits until somebody writes.
    fn wait(&self) -> Operation {
        let buffer = Custom(Marked(Box::new([0; 256]))).into_buffer_mut();
        Operation::read_at(&self.reader, buffer, 0)
    }
}

/// Makes `count` futures and drops each at some stage.
fn torment(ring: &Ring, things: &Things, count: u64, seed: u64) {
    let is_small = ring.setup().submission_entries() <= 8;
    let kept_max = if is_small { KEPT_MAX_SMALL } else { KEPT_MAX };
    let mut random = fastrand::Rng::with_seed(seed);
    let mut kept = VecDeque::new();
    for _ in 0..count {
        let waits = random.u8(..6) == 0;
        let operation = if waits { things.wait() } else { things.operation(&mut random) };
        let mut future = Box::pin(ring.submit(operation));
        match random.u8(..8) {
            0 => continue,
            1 => future = Box::pin(Pin::into_inner(future).cancel_on_drop()),
            // One that waits would, and keep its place in the ring.
            2 if !waits => future = Box::pin(Pin::into_inner(future).finish()),
            _ => {}
        }
        if poll_once(&mut future) {
            continue;
        }
        match random.u8(..8) {
            // Submitted.
            0 | 1 => drop(future),
            // Cancelled while its result is on the way.
            2 => {
                (&things.writer).write_all(b"x").unwrap();
                drop(future);
            }
            // Completed, perhaps, and not looked at.
            3 => {
                let _ = block_on(ring.submit(Operation::nop()));
                drop(future);
            }
            _ => kept.push_back(future),
        }
        while kept.len() > random.usize(..kept_max) {
            let at = random.usize(..kept.len());
            let mut future = kept.remove(at).unwrap();
            if random.bool() {
                poll_once(&mut future);
            }
        }
    }
}

fn open_descriptors() -> Vec<std::path::PathBuf> {
    let numbers = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    numbers.filter_map(|number| std::fs::read_link(number.path()).ok()).collect()
}

fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).collect()
}

/// Everything of one ring, from its making to after its end.
fn survives(name: &str, ring: impl FnOnce() -> Option<Ring>, drops: u64, seed: u64) {
    println!("{name}: {drops} futures, seed {seed}");
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (descriptors_before, threads_before) = (open_descriptors().len(), threads().len());
    let Some(ring) = ring() else { return };
    let everyones: Vec<_> =
        (0..THREADS).map(|number| Things::new(directory.path(), number)).collect();
    std::thread::scope(|scope| {
        for (things, number) in everyones.iter().zip(1..) {
            let ring = &ring;
            scope.spawn(move || torment(ring, things, drops / THREADS, seed * 1000 + number));
        }
    });
    block_on(ring.shutdown(Duration::from_secs(30))).unwrap();
    let stats = ring.stats();
    assert_eq!(stats.delivered + stats.reclaimed, stats.submitted);
    assert!(stats.submitted >= drops / 2, "{stats:?}");
    assert_eq!((stats.local.in_flight, stats.local.stale_completions), (0, 0));
    assert_eq!(stats.local.overflows, 0);
    drop(ring);
    for things in everyones {
        assert!(things.file.into_owned().is_ok(), "no operation holds it");
        assert!(things.reader.into_owned().is_ok(), "no operation holds it");
        let content = std::fs::read(things.path).unwrap();
        assert!(content.iter().all(|byte| *byte == 0xAB), "memory that was freed was written");
    }
    // A thread of the loop may still be on its way out.
    let start = Instant::now();
    while threads().len() > threads_before || open_descriptors().len() > descriptors_before {
        let (threads, descriptors) = (threads(), open_descriptors());
        let is_late = start.elapsed() > Duration::from_secs(20);
        assert!(!is_late, "left behind: threads {threads:?}, descriptors {descriptors:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    println!("all of it was gone after {:?}", start.elapsed());
}

/// One test, since it counts what the whole process has.
#[test]
fn futures_are_dropped_at_every_stage() {
    let drops = drops();
    let seed = std::env::var("RINGWISE_SEED").map_or(1, |text| text.parse().unwrap());
    let threaded = |choice, entries| {
        let builder = Local::builder().backend(choice).entries(entries).driver_thread(true);
        builder.build_ring().map_err(|error| skip(&error.to_string())).ok()
    };
    survives("uring, small", || threaded(BackendChoice::Uring, 8), drops / 2, seed);
    survives("uring", || threaded(BackendChoice::Uring, 128), drops / 2, seed);
    survives("classic", || threaded(BackendChoice::Classic, 64), drops / 4, seed);
    let simulated =
        || Local::builder().simulation(&Simulation::new(seed)).entries(64).build_ring().ok();
    survives("simulated", simulated, drops / 4, seed);
    #[cfg(feature = "tokio")]
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let driven = |choice| {
            let builder = Local::builder().entries(64).backend(choice);
            runtime.block_on(async { builder.build_ring().ok() })
        };
        survives("runtime", || driven(BackendChoice::Auto), drops / 2, seed);
        survives("classic, runtime", || driven(BackendChoice::Classic), drops / 4, seed);
    }
}
