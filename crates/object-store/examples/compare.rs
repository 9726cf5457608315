//! Compares this store with `LocalFileSystem`: reads of ranges, whole objects, writes and listings.
//!
//! ```text
//! cargo run --release -p ringwise-object-store --example compare -- DIRECTORY [PAIRS [ROW...]]
//! ```
//!
//! A sample is a number of calls from a task of a multi-threaded runtime. The samples of both stores
//! alternate and make the same calls. All bytes that are read are verified, outside of the measured time.
//! CPU time is that of the whole process, with the kernel's threads for the ring and without interrupts.
//!
//! The directory needs room for 2.3 GiB. Rows are named by their first words; without names, all are run.

#[cfg(feature = "object_store_0_13")]
extern crate object_store_0_13 as object_store;

use std::{
    error::Error,
    fs::File,
    io::{BufWriter, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, future::try_join_all};
use object_store::{
    ObjectStore, ObjectStoreExt, PutPayload, local::LocalFileSystem, path::Path as Location,
};
use ringwise::{Descriptor, drop_page_cache};
use ringwise_object_store::RingFileSystem;
use rustix::time::{ClockId, clock_gettime};

const LARGE: &str = "large";
const LARGE_BYTES: u64 = 2 << 30;
const MEDIUM: &str = "medium";
const MEDIUM_BYTES: u64 = 64 << 20;
const MANY: u64 = 10_000;

type Failure = Box<dyn Error + Send + Sync>;
type Store = Arc<dyn ObjectStore>;

/// What a call does.
#[derive(Clone, Copy)]
enum Call {
    /// `get_ranges` of so many ranges of so many bytes.
    Ranges(u64, u64),
    /// `get_range` of so many bytes.
    Range(u64),
    /// `get` of the medium object, as one buffer.
    Whole,
    /// The same, as a stream.
    Stream,
    Head,
    /// `put` of so many bytes.
    Put(usize),
    /// An upload of so many parts of so many bytes, all written together.
    Upload(usize, usize),
    List,
}

struct Row {
    name: &'static str,
    call: Call,
    /// Calls of a sample.
    calls: u64,
    /// The page cache has none of the objects before a sample.
    is_cold: bool,
    /// The ring's store makes direct reads.
    is_direct: bool,
}

const fn row(name: &'static str, call: Call, calls: u64) -> Row {
    Row { name, call, calls, is_cold: false, is_direct: false }
}

const fn cold(name: &'static str, call: Call, calls: u64) -> Row {
    Row { name, call, calls, is_cold: true, is_direct: false }
}

const fn direct(name: &'static str, call: Call, calls: u64) -> Row {
    Row { name, call, calls, is_cold: true, is_direct: true }
}

const ROWS: [Row; 17] = [
    cold("64 ranges of 64 KiB, not cached", Call::Ranges(64, 64 << 10), 8),
    direct("64 ranges of 64 KiB, direct", Call::Ranges(64, 64 << 10), 8),
    row("64 ranges of 64 KiB, cached", Call::Ranges(64, 64 << 10), 64),
    cold("8 ranges of 1 MiB, not cached", Call::Ranges(8, 1 << 20), 8),
    direct("8 ranges of 1 MiB, direct", Call::Ranges(8, 1 << 20), 8),
    row("8 ranges of 1 MiB, cached", Call::Ranges(8, 1 << 20), 64),
    cold("1 range of 4 KiB, not cached", Call::Range(4 << 10), 200),
    row("1 range of 4 KiB, cached", Call::Range(4 << 10), 4000),
    cold("64 MiB as one buffer, not cached", Call::Whole, 1),
    row("64 MiB as one buffer, cached", Call::Whole, 4),
    cold("64 MiB as a stream, not cached", Call::Stream, 1),
    row("64 MiB as a stream, cached", Call::Stream, 4),
    row("head", Call::Head, 4000),
    row("put of 4 KiB", Call::Put(4 << 10), 500),
    row("put of 8 MiB", Call::Put(8 << 20), 8),
    row("upload of 8 parts of 4 MiB", Call::Upload(8, 4 << 20), 2),
    row("list of 10,000 objects", Call::List, 4),
];

/// What a call took.
#[derive(Clone, Copy)]
struct Sample {
    wall_us: f64,
    cpu_us: f64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let directory =
        PathBuf::from(arguments.next().ok_or("usage: compare DIRECTORY [PAIRS [ROW...]]")?);
    let pairs: u64 = arguments.next().map_or(Ok(7), |text| text.parse())?;
    let chosen: Vec<String> = arguments.collect();
    let files = [
        prepare(&directory.join(LARGE), LARGE_BYTES)?,
        prepare(&directory.join(MEDIUM), MEDIUM_BYTES)?,
    ];
    for number in 0..MANY {
        let above = directory.join(format!("many/{}", number % 16));
        std::fs::create_dir_all(&above)?;
        std::fs::write(above.join(number.to_string()), "")?;
    }
    let ring = RingFileSystem::new_with_prefix(&directory)?;
    let direct: Store = Arc::new(ring.clone().with_direct_reads(true));
    let ring: Store = Arc::new(ring);
    let local: Store = Arc::new(LocalFileSystem::new_with_prefix(&directory)?);
    println!("{:<33} {:<16} {:>25} {:>25}", "", "", "us (min..max)", "CPU us (min..max)");
    for row in &ROWS {
        if !chosen.is_empty() && !chosen.iter().any(|name| row.name.starts_with(name)) {
            continue;
        }
        if !row.is_cold {
            for name in [LARGE, MEDIUM] {
                std::io::copy(&mut File::open(directory.join(name))?, &mut std::io::sink())?;
            }
        }
        let stores = [&local, if row.is_direct { &direct } else { &ring }];
        let mut samples = [Vec::new(), Vec::new()];
        for pair in 0..=pairs {
            // Every other pair begins with the other store.
            for which in [pair as usize % 2, 1 - pair as usize % 2] {
                for (file, len) in files.iter().zip([LARGE_BYTES, MEDIUM_BYTES]) {
                    if row.is_cold {
                        drop_page_cache(file, 0, len)?;
                    }
                }
                let sample = measure(stores[which].clone(), row.call, pair, row.calls);
                let sample = tokio::spawn(sample).await??;
                // The first pair warms both up.
                if pair > 0 {
                    samples[which].push(sample);
                }
            }
        }
        report(row.name, &samples);
    }
    Ok(())
}

/// Makes a file, unless an earlier run has, and opens it.
fn prepare(path: &Path, len: u64) -> Result<Descriptor, Failure> {
    if !path.metadata().is_ok_and(|about| about.len() == len) {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        for offset in (0..len).step_by(8) {
            file.write_all(&word(offset))?;
        }
        file.flush()?;
        file.get_ref().sync_all()?;
    }
    Ok(Descriptor::from(File::open(path)?))
}

/// The bytes at an offset that is a multiple of eight.
fn word(offset: u64) -> [u8; 8] {
    mixed(offset).to_le_bytes()
}

/// A number that depends on all bits of another (splitmix64).
fn mixed(mut number: u64) -> u64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Makes a sample.
async fn measure(store: Store, call: Call, seed: u64, calls: u64) -> Result<Sample, Failure> {
    let (mut wall, mut cpu) = (Duration::ZERO, Duration::ZERO);
    for number in 0..calls {
        let seed = seed << 32 | number << 16;
        let start = |at: u64, len: u64| mixed(seed | at) % (LARGE_BYTES - len) / 4096 * 4096;
        let ranges: Vec<Range<u64>> = match call {
            Call::Ranges(count, len) => {
                (0..count).map(|at| start(at, len)..start(at, len) + len).collect()
            }
            Call::Range(len) => vec![start(0, len)..start(0, len) + len; 1],
            Call::Whole | Call::Stream => vec![0..MEDIUM_BYTES; 1],
            _ => Vec::new(),
        };
        let payload = match call {
            Call::Put(len) | Call::Upload(_, len) => vec![seed as u8; len].into(),
            _ => PutPayload::new(),
        };
        let (begin, cpu_begin) = (Instant::now(), process_cpu());
        let read = make(&store, call, &ranges, payload).await?;
        wall += begin.elapsed();
        cpu += process_cpu() - cpu_begin;
        verify(&ranges, &read);
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / calls as f64;
    Ok(Sample { wall_us: each(wall), cpu_us: each(cpu) })
}

/// Makes a call, and gives what it read.
async fn make(
    store: &Store,
    call: Call,
    ranges: &[Range<u64>],
    payload: PutPayload,
) -> Result<Vec<Vec<bytes::Bytes>>, Failure> {
    let (large, medium) = (Location::from(LARGE), Location::from(MEDIUM));
    let written = Location::from("written");
    let read = match call {
        Call::Ranges(..) => {
            let read = store.get_ranges(&large, ranges).await?;
            return Ok(read.into_iter().map(|bytes| vec![bytes]).collect());
        }
        Call::Range(_) => vec![store.get_range(&large, ranges[0].clone()).await?],
        Call::Whole => vec![store.get(&medium).await?.bytes().await?],
        Call::Stream => store.get(&medium).await?.into_stream().try_collect().await?,
        Call::Head => {
            assert_eq!(store.head(&large).await?.size, LARGE_BYTES);
            Vec::new()
        }
        Call::Put(_) => {
            store.put(&written, payload).await?;
            Vec::new()
        }
        Call::Upload(parts, _) => {
            let mut upload = store.put_multipart(&written).await?;
            try_join_all((0..parts).map(|_| upload.put_part(payload.clone()))).await?;
            upload.complete().await?;
            Vec::new()
        }
        Call::List => {
            let listed = store.list(Some(&Location::from("many"))).count().await as u64;
            assert_eq!(listed, MANY);
            Vec::new()
        }
    };
    Ok(vec![read])
}

/// Checks every byte that was read.
fn verify(ranges: &[Range<u64>], read: &[Vec<bytes::Bytes>]) {
    for (range, chunks) in ranges.iter().zip(read) {
        let mut offset = range.start;
        for chunk in chunks {
            for part in chunk.chunks(8) {
                assert!(part == word(offset), "wrong bytes at {offset}");
                offset += 8;
            }
        }
        assert_eq!(offset, range.end, "the wrong number of bytes");
    }
}

fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn report(name: &str, samples: &[Vec<Sample>; 2]) {
    let wall = |sample: &Sample| sample.wall_us;
    let cpu = |sample: &Sample| sample.cpu_us;
    for (store, samples) in ["LocalFileSystem", "RingFileSystem"].iter().zip(samples) {
        let (wall, cpu) = (spread(samples, wall), spread(samples, cpu));
        println!("{name:<33} {store:<16} {wall:>25} {cpu:>25}");
    }
    let [local, ring] = samples;
    let speed = median(local, wall) / median(ring, wall);
    let cpu = median(ring, cpu) / median(local, cpu);
    println!("{name:<33} {:<16} {speed:>19.2} times {cpu:>19.2} times", "-> speed, CPU");
}

fn sorted(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = samples.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let values = sorted(samples, of);
    values[values.len() / 2]
}

fn spread(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> String {
    let values = sorted(samples, &of);
    format!("{:.0} ({:.0}..{:.0})", median(samples, of), values[0], values[values.len() - 1])
}
