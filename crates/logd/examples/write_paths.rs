//! Ways to append batches and make them durable, measured side by side on this disk: what
//! docs/notes/library/appends.md shows, and by what the log daemon's way was chosen.
//!
//! `cargo run --release -p ringwise-logd --example write_paths -- DIR [BATCH [TOTAL [REPEATS]]]`
//!
//! Each way writes TOTAL bytes in batches of BATCH to a new file; repeats are interleaved and the
//! medians printed. A commit's latency is from its hand-over to the moment when it may be
//! acknowledged. Nothing here is told durable by anything but a sync, or O_DSYNC. What E writes
//! beforehand is in its speed and its CPU, since somebody has to.

use std::{error::Error, fs::File, os::unix::fs::FileExt, path::Path, sync::mpsc, time::Instant};

use ringwise::{
    AlignedBuf, BackendChoice, Buffer, Descriptor, Local, OpenOptions, Operation, OwnedBuffer,
};
use ringwise_measure::{cpu::process_cpu_ns, histogram::Latency, quantity};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// What a block of direct I/O is aligned to.
const BLOCK: usize = 4096;
const DSYNC: i32 = rustix::fs::OFlags::DSYNC.bits() as i32;

/// What is measured.
#[derive(Clone, Copy, Debug)]
struct Work {
    batch: usize,
    count: u64,
}

/// A way, and what it is called.
type Way = (&'static str, fn(&Path, Work, &mut Latency) -> Fallible<()>);

const WAYS: [Way; 10] = [
    ("buffered, no sync, ring", |path, work, latency| ring(path, work, latency, 0, Sync::None)),
    ("direct, no sync, ring", |path, work, latency| {
        ring(path, work, latency, rustix::fs::OFlags::DIRECT.bits() as i32, Sync::None)
    }),
    ("A: a thread, pwrite and fdatasync", thread),
    ("B: ring, write, then fdatasync", |path, work, latency| {
        ring(path, work, latency, 0, Sync::After)
    }),
    ("C: ring, write and fdatasync linked", |path, work, latency| {
        ring(path, work, latency, 0, Sync::Linked)
    }),
    ("D: ring, writes go on, one sync in flight", flowing),
    ("E: ring, O_DIRECT and O_DSYNC on written extents", |path, work, latency| {
        write_extents(path, work)?;
        let flags = DSYNC | rustix::fs::OFlags::DIRECT.bits() as i32;
        ring(path, work, latency, flags, Sync::None)
    }),
    ("F: ring, O_DIRECT, then fdatasync", |path, work, latency| {
        ring(path, work, latency, rustix::fs::OFlags::DIRECT.bits() as i32, Sync::After)
    }),
    ("G: ring, O_DIRECT appends with O_DSYNC", |path, work, latency| {
        let flags = DSYNC | rustix::fs::OFlags::DIRECT.bits() as i32;
        ring(path, work, latency, flags, Sync::None)
    }),
    ("H: as F, each batch in 16 writes", |path, work, latency| {
        ring(path, work, latency, rustix::fs::OFlags::DIRECT.bits() as i32, Sync::AfterPieces)
    }),
];

#[derive(Clone, Copy, PartialEq)]
enum Sync {
    None,
    After,
    /// After several writes, one after the other, that make the batch.
    AfterPieces,
    Linked,
}

/// How many those are.
const PIECES: usize = 16;

fn main() -> Fallible<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: &str| {
        quantity::parse_size(arguments.get(place).map_or(default, |text| text))
    };
    let directory = arguments.first().map_or(".", |text| text);
    let batch = usize::try_from(number(1, "256k")?)?.next_multiple_of(BLOCK);
    let (total, repeats) = (number(2, "256m")?, number(3, "3")?.max(1));
    let work = Work { batch, count: total.div_ceil(batch as u64) };
    let path = Path::new(directory).join(format!("write-paths-{}", std::process::id()));
    let mut found: Vec<Vec<[f64; 4]>> = vec![Vec::new(); WAYS.len()];
    for _ in 0..repeats {
        for ((_, way), found) in WAYS.iter().zip(&mut found) {
            let mut latency = Latency::new();
            let (start, cpu) = (Instant::now(), process_cpu_ns());
            way(&path, work, &mut latency)?;
            let bytes = (work.count * work.batch as u64) as f64;
            found.push([
                bytes / start.elapsed().as_secs_f64() / 1e6,
                latency.quantile_ns(0.5) as f64 / 1e6,
                latency.quantile_ns(0.99) as f64 / 1e6,
                (process_cpu_ns() - cpu) as f64 / bytes * 1e3,
            ]);
            std::fs::remove_file(&path)?;
        }
    }
    println!("| batches of {} bytes | MB/s | p50, ms | p99, ms | CPU, ms per GB |", work.batch);
    println!("|---|---|---|---|---|");
    for ((name, _), mut rows) in WAYS.iter().zip(found) {
        let [speed, p50, p99, cpu] = [0, 1, 2, 3].map(|column| {
            rows.sort_by(|a, b| a[column].total_cmp(&b[column]));
            rows[rows.len() / 2][column]
        });
        println!("| {name} | {speed:.0} | {p50:.2} | {p99:.2} | {cpu:.0} |");
    }
    Ok(())
}

/// As the daemon does: a batch is made in memory, byte for byte, and then written.
fn fill(buffer: &mut [u8], batch: u64) {
    for (place, line) in buffer.chunks_mut(150).enumerate() {
        line.fill(b'a' + ((batch as usize + place) % 26) as u8);
    }
}

fn open(path: &Path, flags: i32) -> Fallible<(Local, Descriptor)> {
    let mut local = Local::builder().backend(BackendChoice::Auto).build()?;
    let options = OpenOptions::new().write(true).create(true).mode(0o640).custom_flags(flags);
    let file = local.run(Operation::open(path, options))?.into_descriptor()?;
    Ok((local, file))
}

/// One batch after the other.
fn ring(path: &Path, work: Work, latency: &mut Latency, flags: i32, sync: Sync) -> Fallible<()> {
    let (mut local, file) = open(path, flags)?;
    let mut memory = Some(AlignedBuf::zeroed(work.batch, BLOCK));
    for number in 0..work.count {
        let mut buffer = memory.take().expect("it came back");
        fill(&mut buffer, number);
        let start = Instant::now();
        let write = Operation::write_at(&file, buffer, number * work.batch as u64);
        if sync == Sync::Linked {
            local.push_linked(vec![(write, 1), (Operation::sync_data(&file), 2)])?;
            local.submit_and_wait(2)?;
            for _ in 0..2 {
                let done = local.next_completion().ok_or("two completions")?;
                done.result()?;
                if done.tag() == 1 {
                    memory = done.into_buffer().and_then(|b| AlignedBuf::try_from_buffer(b).ok());
                }
            }
        } else {
            memory = Some(match sync {
                Sync::AfterPieces => write_pieces(&mut local, &file, write)?,
                _ => write_whole(&mut local, write, work.batch)?,
            });
            if matches!(sync, Sync::After | Sync::AfterPieces) {
                local.run(Operation::sync_data(&file))?.result()?;
            }
        }
        latency.record_ns(start.elapsed().as_nanos() as u64);
    }
    Ok(())
}

fn write_whole(local: &mut Local, write: Operation, bytes: usize) -> Fallible<AlignedBuf> {
    let done = local.run(write)?;
    if done.result()? != bytes {
        return Err("a short write".into());
    }
    let buffer = done.into_buffer().ok_or("a write has a buffer")?;
    AlignedBuf::try_from_buffer(buffer).map_err(|_| "it was aligned".into())
}

/// Makes a write as several, each of which waits for the one before.
fn write_pieces(local: &mut Local, file: &Descriptor, write: Operation) -> Fallible<AlignedBuf> {
    let start = write.offset().ok_or("a write has a place")?;
    let buffer = write.into_buffer().ok_or("a write has a buffer")?;
    let mut memory = AlignedBuf::try_from_buffer(buffer).map_err(|_| "it is aligned")?;
    let piece = (memory.len() / PIECES).next_multiple_of(BLOCK);
    for at in (0..memory.len()).step_by(piece) {
        let end = memory.len().min(at + piece);
        let part = Buffer::from(memory).slice(at..end);
        memory = write_whole(local, Operation::write_at(file, part, start + at as u64), end - at)?;
    }
    Ok(memory)
}

/// A thread of its own, told by a channel.
fn thread(path: &Path, work: Work, latency: &mut Latency) -> Fallible<()> {
    let file = File::options().write(true).create(true).truncate(true).open(path)?;
    let (give, given) = mpsc::channel::<(Vec<u8>, u64)>();
    let (back, returned) = mpsc::channel();
    let writer = std::thread::spawn(move || -> std::io::Result<()> {
        for (buffer, offset) in given {
            file.write_all_at(&buffer, offset)?;
            file.sync_data()?;
            if back.send(buffer).is_err() {
                break;
            }
        }
        Ok(())
    });
    let mut buffer = vec![0; work.batch];
    for number in 0..work.count {
        fill(&mut buffer, number);
        let start = Instant::now();
        give.send((buffer, number * work.batch as u64))?;
        buffer = returned.recv()?;
        latency.record_ns(start.elapsed().as_nanos() as u64);
    }
    drop(give);
    writer.join().map_err(|_| "the writer panicked")??;
    Ok(())
}

/// Writes go on while a sync is in flight, which covers those that had completed before it: four
/// batches at a time at most.
fn flowing(path: &Path, work: Work, latency: &mut Latency) -> Fallible<()> {
    const AHEAD: usize = 4;
    const SYNC: u64 = u64::MAX;
    let (mut local, file) = open(path, 0)?;
    let mut spare: Vec<AlignedBuf> =
        (0..AHEAD).map(|_| AlignedBuf::zeroed(work.batch, BLOCK)).collect();
    let mut starts = vec![None; usize::try_from(work.count)?];
    let (mut next, mut done, mut written, mut covered) = (0, 0, Vec::new(), Vec::new());
    let mut is_syncing = false;
    while done < work.count {
        while next < work.count && next - done < AHEAD as u64 && !spare.is_empty() {
            let mut buffer = spare.pop().expect("it is not empty");
            fill(&mut buffer, next);
            starts[next as usize] = Some(Instant::now());
            let write = Operation::write_at(&file, Buffer::from(buffer), next * work.batch as u64);
            local.push(write, next)?;
            next += 1;
        }
        if !is_syncing && !written.is_empty() {
            is_syncing = true;
            covered = std::mem::take(&mut written);
            local.push(Operation::sync_data(&file), SYNC)?;
        }
        local.submit_and_wait(1)?;
        while let Some(completion) = local.next_completion() {
            let (tag, result) = (completion.tag(), completion.result()?);
            if tag == SYNC {
                is_syncing = false;
                done += covered.len() as u64;
                for number in covered.drain(..) {
                    let start: Option<Instant> = starts[number as usize];
                    latency.record_ns(start.expect("begun").elapsed().as_nanos() as u64);
                }
            } else {
                if result != work.batch {
                    return Err("a short write".into());
                }
                spare.extend(
                    completion.into_buffer().and_then(|b| AlignedBuf::try_from_buffer(b).ok()),
                );
                written.push(tag);
            }
        }
    }
    Ok(())
}

/// Writes all of the file once, so that what follows overwrites.
fn write_extents(path: &Path, work: Work) -> Fallible<()> {
    let file = File::create(path)?;
    let zeros = vec![0; work.batch];
    for number in 0..work.count {
        file.write_all_at(&zeros, number * work.batch as u64)?;
    }
    Ok(file.sync_all()?)
}
