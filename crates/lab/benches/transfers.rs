//! What a positioned read or write costs inside tokio: as tokio's own files make it (a blocking
//! thread calls pread or pwrite), through the handle on a ring, and through the handle on classic
//! calls (a thread of its pool).
//!
//! `cargo bench -p ringwise-lab --bench transfers -- KIND... [--dir DIR]`, with the kinds
//!
//! - `write`: pages that are in the cache, again and again, so that nothing waits for the device;
//! - `read-warm`: from the page cache;
//! - `read-cold`: through a page cache that is emptied before each sample, no place twice;
//! - `read-direct`: past the cache.
//!
//! The ways take turns, in blocks of both orders; printed are the median rate, its ratio to tokio's
//! with the interval of 95 % over blocks, and the CPU time of the whole process. It asserts nothing.

use std::{
    fs::File as StdFile,
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use clap::{Parser, ValueEnum};
use ringwise::{AlignedBuf, BackendChoice, BufResult, Local, OpenOptions, fs::File};
use ringwise_measure::{
    cpu::process_cpu_ns,
    quantity::{bytes_text, parse_duration, parse_size},
    statistics::{Ratio, median, paired_log_ratios},
};
use rustix::fs::{Advice, fadvise};

/// The file's length.
const SPAN: usize = 512 << 20;
/// More is not kept in buffers; a row that asks for it is left out.
const BUFFERED_BYTES_MAX: usize = 1 << 30;
/// Of buffers, as devices with blocks of 4 KiB ask for.
const ALIGNMENT: usize = 4096;

#[derive(Parser)]
struct Args {
    #[arg(required = true)]
    kinds: Vec<Kind>,
    /// Where the file lies.
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    dir: PathBuf,
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,512")]
    tasks: Vec<usize>,
    #[arg(long, value_delimiter = ',', value_parser = parse_size, default_value = "512,4k,64k,1m,4m,16m")]
    sizes: Vec<u64>,
    #[arg(long, value_delimiter = ',', default_value = "tokio,ring,classic")]
    ways: Vec<Way>,
    #[arg(long, default_value_t = 7)]
    blocks: usize,
    /// Of a sample.
    #[arg(long, value_parser = parse_duration, default_value = "150ms")]
    duration: Duration,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Write,
    ReadWarm,
    ReadCold,
    ReadDirect,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Way {
    Tokio,
    Ring,
    Classic,
}

/// The file as each way has it.
#[derive(Clone)]
enum Target {
    Tokio(Arc<StdFile>),
    Ringwise(File),
}

/// What a row is a measurement of.
#[derive(Clone, Copy)]
struct Case {
    kind: Kind,
    tasks: usize,
    size: usize,
}

/// The samples of one way, one of each block.
#[derive(Default)]
struct Samples {
    rates: Vec<f64>,
    cpu_ns: Vec<f64>,
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(compare(&args))
}

async fn compare(args: &Args) -> io::Result<()> {
    let file = tempfile::NamedTempFile::new_in(&args.dir)?;
    lay_out(file.as_file())?;
    println!("two workers, {} blocks: MiB/s, (ratio [95 %]), CPU us", args.blocks);
    for &kind in &args.kinds {
        let mut targets = Vec::new();
        for &way in &args.ways {
            targets.push(open(file.path(), kind, way).await?);
        }
        for &tasks in &args.tasks {
            let sizes = args.sizes.iter().map(|&size| size as usize);
            for size in sizes.filter(|size| size * tasks <= BUFFERED_BYTES_MAX) {
                let case = Case { kind, tasks, size };
                let samples = sample(args, file.as_file(), &targets, case).await?;
                print_row(case, &args.ways, &samples);
            }
        }
    }
    Ok(())
}

async fn sample(
    args: &Args,
    file: &StdFile,
    targets: &[Target],
    case: Case,
) -> io::Result<Vec<Samples>> {
    let mut samples: Vec<Samples> = targets.iter().map(|_| Samples::default()).collect();
    let mut buffers: Vec<AlignedBuf> = (0..case.tasks).map(|_| touched(case.size)).collect();
    for block in 0..args.blocks {
        for turn in 0..targets.len() {
            // Each way comes first as often as last.
            let at = if block % 2 == 0 { turn } else { targets.len() - 1 - turn };
            if case.kind == Kind::ReadCold {
                fadvise(file, 0, None, Advice::DontNeed)?;
            }
            let (rate, cpu_ns) = measure(&targets[at], case, args.duration, &mut buffers).await?;
            samples[at].rates.push(rate);
            samples[at].cpu_ns.push(cpu_ns);
        }
    }
    Ok(samples)
}

fn print_row(case: Case, ways: &[Way], samples: &[Samples]) {
    let Case { kind, tasks, size } = case;
    print!("{} {tasks:3} tasks {:>9}", name(&kind), bytes_text(size as u64));
    let base = ways.iter().position(|way| *way == Way::Tokio).map(|at| &samples[at].rates);
    for (way, Samples { rates, cpu_ns }) in ways.iter().zip(samples) {
        let middle = |samples| median(samples).expect("there are blocks");
        let mebibytes = middle(rates) * size as f64 / f64::from(1 << 20);
        print!("  {} {mebibytes:8.1}", name(way));
        let ratios = base.and_then(|base| paired_log_ratios(rates, base));
        if *way != Way::Tokio
            && let Some(Ratio { low, mid, high }) =
                ratios.and_then(|ratios| Ratio::bootstrap(&ratios, 1))
        {
            print!(" ({mid:5.2} [{low:5.2}, {high:5.2}])");
        }
        print!(" {:8.1}", middle(cpu_ns) / 1_000.0);
    }
    println!();
}

/// Written in full, so that no write has to find space and no read meets a hole.
fn lay_out(mut file: &StdFile) -> io::Result<()> {
    let piece = vec![0x5a; 1 << 20];
    for _ in 0..SPAN / piece.len() {
        file.write_all(&piece)?;
    }
    file.sync_all()
}

/// A buffer whose pages are there, so that no sample pays for them.
fn touched(size: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(size, ALIGNMENT);
    buffer.fill(1);
    buffer
}

async fn open(path: &Path, kind: Kind, way: Way) -> io::Result<Target> {
    let choice = match way {
        Way::Tokio => {
            let flags = if kind == Kind::ReadDirect { libc::O_DIRECT } else { 0 };
            let file = StdFile::options().read(true).write(true).custom_flags(flags).open(path)?;
            return Ok(Target::Tokio(Arc::new(file)));
        }
        Way::Ring => BackendChoice::Uring,
        Way::Classic => BackendChoice::Classic,
    };
    let ring = Local::builder().backend(choice).build_ring().map_err(io::Error::other)?;
    let options = OpenOptions::new().read(true).write(true).direct(kind == Kind::ReadDirect);
    Ok(Target::Ringwise(File::open(&ring, path, options).await?))
}

/// Reads or writes for a while; gives transfers per second, and CPU time of one in nanoseconds.
async fn measure(
    target: &Target,
    case: Case,
    duration: Duration,
    buffers: &mut Vec<AlignedBuf>,
) -> io::Result<(f64, f64)> {
    let (began, began_cpu_ns) = (Instant::now(), process_cpu_ns());
    let begun = Arc::new(AtomicUsize::new(0));
    let places = SPAN / case.size;
    let transfers = buffers.drain(..).map(|mut buffer| {
        let (target, begun) = (target.clone(), begun.clone());
        tokio::spawn(async move {
            let mut made = 0;
            while began.elapsed() < duration {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                if case.kind == Kind::ReadCold && number >= places {
                    break;
                }
                let offset = (scattered(number, places) * case.size) as u64;
                buffer = target.transfer(case.kind, buffer, offset).await?;
                made += 1;
            }
            io::Result::Ok((made, buffer))
        })
    });
    let mut made = 0;
    for transfer in transfers.collect::<Vec<_>>() {
        let (count, buffer) = transfer.await.map_err(io::Error::other)??;
        made += count;
        buffers.push(buffer);
    }
    let elapsed_s = began.elapsed().as_secs_f64();
    let cpu_ns = process_cpu_ns() - began_cpu_ns;
    Ok((f64::from(made) / elapsed_s, cpu_ns as f64 / f64::from(made)))
}

/// A place for each number, all of them before one comes again: a sequence would be read ahead.
/// `places` is a power of two.
fn scattered(number: usize, places: usize) -> usize {
    const ODD: usize = 0x9E37_79B1;
    number.wrapping_mul(ODD) & (places - 1)
}

impl Target {
    async fn transfer(
        &self,
        kind: Kind,
        buffer: AlignedBuf,
        offset: u64,
    ) -> io::Result<AlignedBuf> {
        let BufResult(result, buffer) = match self {
            Target::Tokio(file) => {
                return by_blocking_thread(file.clone(), kind, buffer, offset).await;
            }
            Target::Ringwise(file) if kind == Kind::Write => {
                file.write_all_at(buffer, offset).await
            }
            Target::Ringwise(file) => file.read_exact_at(buffer, offset).await,
        };
        result?;
        Ok(buffer)
    }
}

async fn by_blocking_thread(
    file: Arc<StdFile>,
    kind: Kind,
    mut buffer: AlignedBuf,
    offset: u64,
) -> io::Result<AlignedBuf> {
    let made = tokio::task::spawn_blocking(move || {
        let result = match kind {
            Kind::Write => file.write_all_at(&buffer, offset),
            Kind::ReadWarm | Kind::ReadCold | Kind::ReadDirect => {
                file.read_exact_at(&mut buffer, offset)
            }
        };
        result.map(|()| buffer)
    });
    made.await.map_err(io::Error::other)?
}

/// As it is typed.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
