//! Reads a file through stream traits: `tokio::fs::File`, and `fs::Cursor` and `fs::Chunks` of a ring.
//!
//! `cargo run --release -p ringwise --features tokio --example file_streams -- FILE [PAIRS]` makes FILE if it is not
//! there, 512 MiB of lines. Each way reads it in turn, PAIRS times (5): cached, and not. Every way sums the bytes that
//! it got, and the sums have to be equal. The figures are medians. CPU time is that of the process, the kernel's workers for
//! the ring included.

use std::{
    error::Error,
    path::Path,
    time::{Duration, Instant},
};

use ringwise::{
    Descriptor, OpenOptions, Ring, drop_page_cache,
    fs::{Cursor, File},
};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

const LINE: &[u8] =
    b"2026-01-01T00:00:00Z a line of a log, as long as many of them are, give or take a few\n";
const LINES: usize = (512 << 20) / LINE.len();
/// What tokio's `ReaderStream` and many copies read at a time.
const READ_BYTES: usize = 8 << 10;

type Sum = u64;

const WAYS: [&str; 7] = [
    "tokio, 8 KiB reads",
    "Cursor, 8 KiB reads",
    "tokio, 1 MiB reads",
    "Cursor, 1 MiB reads",
    "tokio, lines",
    "Cursor, lines",
    "Chunks, 4 x 256 KiB",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which FILE?")?;
    let pairs = arguments.next().map_or(Ok(5), |text| text.parse())?;
    if !Path::new(&path).exists() {
        std::fs::write(&path, LINE.repeat(LINES))?;
        std::fs::File::open(&path)?.sync_all()?;
    }
    tokio::runtime::Runtime::new()?.block_on(compare(Path::new(&path), pairs))
}

async fn compare(path: &Path, pairs: usize) -> Result<(), Box<dyn Error>> {
    let ring = Ring::new()?;
    println!("on {}, medians of {pairs}", ring.setup().backend());
    for is_cached in [true, false] {
        let mut samples = vec![Vec::new(); WAYS.len()];
        for round in 0..pairs {
            let mut sums = Vec::new();
            for at in 0..WAYS.len() {
                let way = (at + round) % WAYS.len();
                prepare(path, is_cached)?;
                let (begin, used) = (Instant::now(), cpu_time());
                sums.push(read(WAYS[way], &ring, path).await?);
                samples[way].push((begin.elapsed(), cpu_time() - used));
            }
            assert!(sums.iter().all(|sum| *sum == sums[0]), "the ways got different bytes");
        }
        println!("{}:", if is_cached { "cached" } else { "not cached" });
        for (way, samples) in WAYS.iter().zip(&mut samples) {
            let wall = median(samples.iter().map(|sample| sample.0).collect());
            let cpu = median(samples.iter().map(|sample| sample.1).collect());
            println!("  {way:20} {:7.1} ms, {:7.1} ms of CPU", in_ms(wall), in_ms(cpu));
        }
    }
    Ok(())
}

fn prepare(path: &Path, is_cached: bool) -> Result<(), Box<dyn Error>> {
    let mut file = std::fs::File::open(path)?;
    if is_cached {
        std::io::copy(&mut file, &mut std::io::sink())?;
    } else {
        drop_page_cache(&Descriptor::from(file), 0, 0)?;
    }
    Ok(())
}

async fn read(way: &str, ring: &Ring, path: &Path) -> Result<Sum, Box<dyn Error>> {
    let file = File::open(ring, path, OpenOptions::new().read(true)).await?;
    match way {
        "tokio, 8 KiB reads" => sum(tokio::fs::File::open(path).await?, READ_BYTES).await,
        "Cursor, 8 KiB reads" => sum(Cursor::new(file), READ_BYTES).await,
        "tokio, 1 MiB reads" => sum(tokio::fs::File::open(path).await?, 1 << 20).await,
        "Cursor, 1 MiB reads" => sum(Cursor::new(file), 1 << 20).await,
        "tokio, lines" => sum_lines(BufReader::new(tokio::fs::File::open(path).await?)).await,
        "Cursor, lines" => sum_lines(Cursor::new(file)).await,
        _ => {
            let (mut chunks, mut sum) = (file.chunks(0..u64::MAX, 256 << 10, 4), 0);
            while let Some(chunk) = chunks.next().await {
                sum += add(&chunk?);
            }
            Ok(sum)
        }
    }
}

async fn sum(mut file: impl AsyncRead + Unpin, read_bytes: usize) -> Result<Sum, Box<dyn Error>> {
    let (mut buffer, mut sum) = (vec![0; read_bytes], 0);
    loop {
        let count = file.read(&mut buffer).await?;
        if count == 0 {
            return Ok(sum);
        }
        sum += add(&buffer[..count]);
    }
}

async fn sum_lines(mut file: impl AsyncBufRead + Unpin) -> Result<Sum, Box<dyn Error>> {
    let (mut line, mut sum) = (Vec::new(), 0);
    while file.read_until(b'\n', &mut line).await? > 0 {
        sum += add(&line);
        line.clear();
    }
    Ok(sum)
}

fn add(bytes: &[u8]) -> Sum {
    bytes.iter().map(|&byte| Sum::from(byte)).sum()
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

fn in_ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
