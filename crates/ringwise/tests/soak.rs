//! Eight tasks on one file against a model: random reads, writes, cuts, holes and syncs, for
//! seconds here and for as long as `RINGWISE_SOAK_SECONDS` says elsewhere.
//!
//! Each task owns a region and knows what it holds. The last one's is the file's end, which it cuts and
//! lengthens while the others are at work; a cut through all of them is made between rounds, where the
//! whole file is compared as well. After fsx (the file system exerciser of Apple and xfstests).

#[path = "shared/rings.rs"]
mod rings;

use std::{
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use futures::future::join_all;
use rings::{read_write, skip};
use ringwise::{
    AlignedBuf, AllocateMode, BackendChoice, BufResult, Buffer, Builder, Local, Ring,
    fs::{self, File},
    sim::{Fault, Simulation, When},
};

const TASKS: usize = 8;
/// Not a multiple of a page, so that tasks share pages.
const REGION_BYTES: usize = 50_000;
const STEPS: usize = 40;
/// How long each way takes in the tests.
const SECONDS: f64 = 2.0;

fn seconds() -> Duration {
    let asked = std::env::var("RINGWISE_SOAK_SECONDS").ok();
    let seconds = asked.map(|text| text.parse().expect("RINGWISE_SOAK_SECONDS is a number"));
    Duration::from_secs_f64(seconds.unwrap_or(SECONDS))
}

fn seed() -> u64 {
    let asked = std::env::var("RINGWISE_SEED").ok();
    asked.map(|text| text.parse().expect("RINGWISE_SEED is a number")).unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        now.as_nanos() as u64
    })
}

/// A task's region, and what it holds.
struct Region {
    start: usize,
    content: Vec<u8>,
    random: fastrand::Rng,
}

impl Region {
    /// A random part of it, now and then one that is aligned.
    fn part(&mut self) -> (usize, usize) {
        let unit = if self.random.u8(..4) == 0 { 4096 } else { 1 };
        let first = self.start.next_multiple_of(unit);
        let end = self.start + self.content.len();
        let at = (first + self.random.usize(..REGION_BYTES)) / unit * unit;
        let at = at.clamp(self.start, end);
        let len = self.random.usize(..20_000) / unit * unit;
        (at - self.start, len.min(end - at))
    }

    async fn step(&mut self, file: &File) {
        let (at, len) = self.part();
        let offset = (self.start + at) as u64;
        match self.random.u8(..16) {
            0..5 => self.write(file, at, len, offset).await,
            5..7 => self.write_vectored(file, at, len, offset).await,
            7 => {
                if len > 0 {
                    let mode = AllocateMode::PunchHole;
                    file.allocate(mode, offset, len as u64).await.unwrap();
                    self.content[at..at + len].fill(0);
                }
            }
            8 if self.is_last() => self.cut(file, at).await,
            8 => file.sync_data().await.unwrap(),
            9 => file.sync_all().await.unwrap(),
            10..12 => {
                let half = len / 2;
                let parts = vec![vec![1; half], vec![2; len - half]];
                let BufResult(count, parts) = file.read_vectored_at(parts, offset).await;
                self.agrees(at, count.unwrap(), &parts.concat());
            }
            12 => {
                // Not asked to be whole, and at another address.
                let buffer = Buffer::from(AlignedBuf::zeroed(len + 3, 4096)).slice(3..);
                let BufResult(count, buffer) = file.read_at(buffer, offset).await;
                self.agrees(at, count.unwrap(), buffer.selected());
            }
            _ => {
                let BufResult(read, bytes) = file.read_exact_at(vec![1; len], offset).await;
                read.unwrap();
                self.agrees(at, len, &bytes);
            }
        }
    }

    fn is_last(&self) -> bool {
        self.start == (TASKS - 1) * REGION_BYTES
    }

    /// Cuts the file in this region and lengthens it again: what was beyond the cut is zeros.
    async fn cut(&mut self, file: &File, at: usize) {
        let end = self.start + at;
        file.set_len(end as u64).await.unwrap();
        let BufResult(count, bytes) = file.read_at(vec![1; at + 100], self.start as u64).await;
        assert!(count.as_ref().is_ok_and(|count| *count <= at), "past the end: {count:?}");
        self.agrees(0, count.unwrap(), &bytes);
        file.set_len((TASKS * REGION_BYTES) as u64).await.unwrap();
        self.content[at..].fill(0);
    }

    fn fresh(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.random.fill(&mut bytes);
        bytes
    }

    async fn write(&mut self, file: &File, at: usize, len: usize, offset: u64) {
        let bytes = self.fresh(len);
        self.content[at..at + len].copy_from_slice(&bytes);
        let BufResult(written, back) = file.write_all_at(bytes, offset).await;
        written.unwrap();
        assert!(back == self.content[at..at + len], "the buffer came back changed");
    }

    async fn write_vectored(&mut self, file: &File, at: usize, len: usize, offset: u64) {
        let bytes = self.fresh(len);
        let (left, right) = bytes.split_at(len / 3);
        let parts = vec![left.to_vec(), right.to_vec()];
        let BufResult(count, _) = file.write_vectored_at(parts, offset).await;
        let count = count.unwrap();
        self.content[at..at + count].copy_from_slice(&bytes[..count]);
    }

    fn agrees(&self, at: usize, count: usize, bytes: &[u8]) {
        let wrong = (0..count).find(|&index| self.content[at + index] != bytes[index]);
        assert!(wrong.is_none(), "byte {} is wrong", self.start + at + wrong.unwrap_or(0));
    }
}

/// Runs rounds on one file until the time is over; gives how many steps were made.
async fn soak(ring: &Ring, path: &Path, seed: u64, time: Duration) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let file = File::open(ring, path, read_write().create(true).truncate(true)).await.unwrap();
    let len = TASKS * REGION_BYTES;
    file.set_len(len as u64).await.unwrap();
    let mut regions: Vec<Region> = (0..TASKS)
        .map(|task| Region {
            start: task * REGION_BYTES,
            content: vec![0; REGION_BYTES],
            random: random.fork(),
        })
        .collect();
    let start = Instant::now();
    let mut steps = 0;
    while start.elapsed() < time {
        let rounds = regions.iter_mut().map(|region| {
            let file = file.clone();
            async move {
                for _ in 0..STEPS {
                    region.step(&file).await;
                }
            }
        });
        join_all(rounds).await;
        steps += (TASKS * STEPS) as u64;
        // Nobody is at work: the whole is what all think it is, by this file and by a new one.
        let expected: Vec<u8> = regions.iter().flat_map(|region| region.content.clone()).collect();
        assert!(file.read_to_end().await.unwrap() == expected, "the whole file differs");
        assert!(fs::read(ring, path).await.unwrap() == expected, "a new look differs");
        cut(&file, &mut regions, random.usize(..len + 1), len).await;
    }
    drop(file);
    fs::remove_file(ring, path).await.unwrap();
    steps
}

/// Cuts the file and lengthens it again: what was beyond the cut is zeros.
async fn cut(file: &File, regions: &mut [Region], at: usize, len: usize) {
    file.set_len(at as u64).await.unwrap();
    assert_eq!(file.metadata().await.unwrap().len(), at as u64);
    let BufResult(count, _) = file.read_at(vec![0; 100], at as u64).await;
    assert_eq!(count.unwrap(), 0, "past the end");
    file.set_len(len as u64).await.unwrap();
    for region in regions {
        let kept = at.saturating_sub(region.start).min(REGION_BYTES);
        region.content[kept..].fill(0);
    }
}

/// Soaks a ring in each directory.
fn in_directories(name: &str, builder: Builder) {
    let ring = match builder.build_ring() {
        Ok(ring) => ring,
        Err(error) => return skip(&error.to_string()),
    };
    let directories = [
        tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
        match tempfile::tempdir_in("/dev/shm") {
            Ok(directory) => directory,
            Err(error) => return skip(&format!("/dev/shm: {error}")),
        },
    ];
    for directory in &directories {
        let seed = seed();
        println!("{name} in {}: RINGWISE_SEED={seed}", directory.path().display());
        let path = directory.path().join("file");
        let steps = futures::executor::block_on(soak(&ring, &path, seed, seconds() / 2));
        println!("{steps} steps");
    }
    futures::executor::block_on(ring.shutdown(Duration::from_secs(10))).unwrap();
}

#[test]
fn on_a_ring() {
    let builder = Local::builder().entries(8).backend(BackendChoice::Uring);
    in_directories("uring", builder.driver_thread(true));
}

#[test]
fn on_classic_calls() {
    in_directories("classic", Local::builder().entries(64).backend(BackendChoice::Classic));
}

#[cfg(feature = "tokio")]
#[test]
fn on_rings_that_a_runtime_drives() {
    for choice in [BackendChoice::Auto, BackendChoice::Classic] {
        driven_by_a_runtime(choice, seconds() / 2);
    }
}

/// Its tasks, too, are those of the runtime.
#[cfg(feature = "tokio")]
fn driven_by_a_runtime(choice: BackendChoice, time: Duration) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    let seed = seed();
    println!("runtime, {choice:?}: RINGWISE_SEED={seed}");
    let steps = runtime.block_on(async {
        let ring = Local::builder().entries(16).backend(choice).build_ring().unwrap();
        let soaked = tokio::spawn(async move { soak(&ring, &path, seed, time).await });
        soaked.await.unwrap()
    });
    println!("{steps} steps");
}

/// Where transfers are short as often as not, and come in any order.
#[test]
fn on_a_simulated_machine() {
    let seed = seed();
    println!("simulated: RINGWISE_SEED={seed}");
    let simulation = Simulation::builder(seed)
        .fault(Fault::ShortRead, When::rate(0.3))
        .fault(Fault::ShortWrite, When::rate(0.3))
        .fault(Fault::Delay, When::rate(0.5))
        .fault(Fault::PartialSubmit, When::rate(0.3))
        .fault(Fault::SubmitRefused, When::rate(0.05))
        .latency(Duration::from_micros(50))
        .build();
    let ring = Local::builder().entries(8).simulation(&simulation).build_ring().unwrap();
    let steps = futures::executor::block_on(soak(&ring, Path::new("/file"), seed, seconds()));
    println!("{steps} steps");
}
