//! What a buffered write costs inside tokio: as tokio's own files make it (a blocking thread calls
//! pwrite), through the handle on a ring (a worker of the kernel makes it where the file system
//! cannot write without waiting), and through the handle on classic calls (a thread of its pool).
//!
//! The same pages are written again and again, so nothing waits for the device. The ways take
//! turns, in blocks; printed are the median rate, its ratio to tokio's and the CPU time of the whole
//! process. `cargo bench -p ringwise-lab --bench writes [-- DIR]`; it asserts nothing.

use std::{
    fs::File as StdFile,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use ringwise::{BackendChoice, Local, OpenOptions, fs::File};
use ringwise_measure::{cpu::process_cpu_ns, quantity::bytes_text, statistics::quartiles};

const BLOCKS: usize = 7;
const SAMPLE: Duration = Duration::from_millis(150);
const TASKS: [usize; 3] = [1, 8, 64];
const SIZES: [usize; 6] = [512, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20];
/// What is written in all; small enough to stay in the page cache unwritten for a while.
const SPAN: usize = 256 << 20;
const WAYS: [&str; 3] = ["tokio", "ring", "classic"];

/// The file as each way has it.
#[derive(Clone)]
enum Target {
    Tokio(Arc<StdFile>),
    Ringwise(File),
}

fn main() -> io::Result<()> {
    // `cargo bench` adds an option of its own.
    let directory = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let directory = directory.map_or_else(std::env::temp_dir, PathBuf::from);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(compare(&directory))
}

async fn compare(directory: &Path) -> io::Result<()> {
    let file = tempfile::NamedTempFile::new_in(directory)?;
    lay_out(file.as_file())?;
    let targets = [
        Target::Tokio(Arc::new(file.reopen()?)),
        Target::Ringwise(open(file.path(), BackendChoice::Uring).await?),
        Target::Ringwise(open(file.path(), BackendChoice::Classic).await?),
    ];
    println!("buffered writes, two workers, medians of {BLOCKS} blocks: MiB/s, (ratio), CPU us");
    for tasks in TASKS {
        for size in SIZES {
            let mut samples = vec![(Vec::new(), Vec::new()); WAYS.len()];
            for block in 0..BLOCKS {
                for turn in 0..WAYS.len() {
                    // Each way comes first as often as last.
                    let at = if block % 2 == 0 { turn } else { WAYS.len() - 1 - turn };
                    let (rate, cpu_ns) = measure(&targets[at], tasks, size).await?;
                    samples[at].0.push(rate);
                    samples[at].1.push(cpu_ns);
                }
            }
            print_row(tasks, size, &samples);
        }
    }
    Ok(())
}

fn print_row(tasks: usize, size: usize, samples: &[(Vec<f64>, Vec<f64>)]) {
    let median = |samples: &[f64]| quartiles(samples).expect("there are blocks").median;
    let base = median(&samples[0].0);
    print!("{tasks:3} tasks {:>9}", bytes_text(size as u64));
    for (way, (rates, cpu)) in WAYS.into_iter().zip(samples) {
        let rate = median(rates);
        let mebibytes = rate * size as f64 / f64::from(1 << 20);
        let cpu_us = median(cpu) / 1_000.0;
        print!("  {way:8}{mebibytes:8.1} ({:4.2}) {cpu_us:8.1}", rate / base);
    }
    println!();
}

/// Written in full, so that no write has to find space.
fn lay_out(mut file: &StdFile) -> io::Result<()> {
    let piece = vec![0x5a; 1 << 20];
    for _ in 0..SPAN / piece.len() {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

async fn open(path: &Path, choice: BackendChoice) -> io::Result<File> {
    let ring = Local::builder().backend(choice).build_ring().map_err(io::Error::other)?;
    Ok(File::open(&ring, path, OpenOptions::new().read(true).write(true)).await?)
}

/// Writes for a while; gives writes per second, and CPU time of one in nanoseconds.
async fn measure(target: &Target, tasks: usize, size: usize) -> io::Result<(f64, f64)> {
    let (began, began_cpu_ns) = (Instant::now(), process_cpu_ns());
    let writers = (0..tasks).map(|task| {
        let target = target.clone();
        tokio::spawn(async move {
            let mut buffer = vec![task as u8; size];
            let (mut made, places) = (0, SPAN / size);
            while began.elapsed() < SAMPLE {
                // Each task has places of its own as long as there are enough.
                let place = (made * tasks + task) % places;
                buffer = target.write(buffer, (place * size) as u64).await?;
                made += 1;
            }
            io::Result::Ok(made)
        })
    });
    let mut made = 0;
    for writer in writers.collect::<Vec<_>>() {
        made += writer.await.map_err(io::Error::other)??;
    }
    let elapsed_s = began.elapsed().as_secs_f64();
    let cpu_ns = process_cpu_ns() - began_cpu_ns;
    Ok((made as f64 / elapsed_s, cpu_ns as f64 / made as f64))
}

impl Target {
    async fn write(&self, buffer: Vec<u8>, offset: u64) -> io::Result<Vec<u8>> {
        match self {
            Target::Tokio(file) => {
                let file = file.clone();
                let made = tokio::task::spawn_blocking(move || {
                    file.write_all_at(&buffer, offset).map(|()| buffer)
                });
                made.await.map_err(io::Error::other)?
            }
            Target::Ringwise(file) => {
                let (result, buffer) = file.write_all_at(buffer, offset).await;
                result?;
                Ok(buffer)
            }
        }
    }
}
