//! What reads and deadlines cost beside very many receives that wait.
//!
//! Two rings take turns at reading 4 KiB blocks of a file past the page cache: one is idle otherwise,
//! the other has COUNT receives in flight on silent sockets, as many as descriptors are allowed. Prints the median and the 99th
//! percentile of each for every pair of blocks, and how late deadlines were.
//!
//!     cargo run --release -p ringwise --features tokio --example idle_receives -- [COUNT [DIRECTORY]]

use std::{
    error::Error,
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    time::{Duration, Instant},
};

use ringwise::{AlignedBuf, BufResult, Descriptor, OpenOptions, Operation, Ring, fs::File};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 16 << 10;
const PAIRS: usize = 9;
const READS: u64 = 4000;
const TASKS: u64 = 8;

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().map_or(Ok(100_000), |count| count.parse())?;
    let directory = arguments.next().unwrap_or_else(|| ".".into());
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    let sockets = maximum.map_or(count, |maximum| count.min(maximum.saturating_sub(1000)));

    let path = std::path::Path::new(&directory).join(format!("idle-{}", std::process::id()));
    std::fs::write(&path, vec![7; BLOCK * BLOCKS as usize])?;
    let outcome = measure(count, sockets, &path).await;
    std::fs::remove_file(&path)?;
    outcome
}

async fn measure(count: u64, sockets: u64, path: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let (idle, busy) = (Ring::new()?, Ring::new()?);
    let began = Instant::now();
    let open = |_| Ok(Descriptor::from(OwnedFd::from(UnixDatagram::unbound()?)));
    let silent = (0..sockets).map(open).collect::<std::io::Result<Vec<_>>>()?;
    for socket in silent.iter().cycle().take(count as usize) {
        tokio::spawn(busy.submit(Operation::recv(socket, vec![0; 64])));
    }
    while busy.stats().submitted < count {
        tokio::task::yield_now().await;
    }
    println!("{count} receives on {sockets} sockets wait after {:.2?}", began.elapsed());
    let options = || OpenOptions::new().read(true).direct(true);
    let files =
        [File::open(&idle, path, options()).await?, File::open(&busy, path, options()).await?];
    let mut ratios = Vec::new();
    println!("median and p99 of reads, us: idle ring; beside the receives");
    for _ in 0..PAIRS {
        let (alone, beside) = (reads(&files[0]).await, reads(&files[1]).await);
        println!("{:5.0} {:5.0}; {:5.0} {:5.0}", alone.0, alone.1, beside.0, beside.1);
        ratios.push(beside.1 / alone.1);
    }
    ratios.sort_by(f64::total_cmp);
    let (low, high) = (ratios[0], ratios[PAIRS - 1]);
    println!("p99 beside, of p99 alone: {:.2} [{low:.2}, {high:.2}]", ratios[PAIRS / 2]);
    println!("deadlines of 20 ms were late by {:.2?} at most", deadlines(&busy).await);
    let stats = busy.stats();
    println!("{} wait for room; {} wait without", stats.waiting_for_room, stats.local.waiting);
    busy.shutdown(Duration::from_secs(30)).await?;
    Ok(idle.shutdown(Duration::from_secs(5)).await?)
}

/// The median and the 99th percentile, in microseconds, of reads by several tasks at once.
async fn reads(file: &File) -> (f64, f64) {
    let read = |task: u64| {
        let file = file.clone();
        tokio::spawn(async move {
            let mut buffer = AlignedBuf::zeroed(BLOCK, BLOCK);
            let mut taken = Vec::new();
            for number in 0..READS / TASKS {
                let block = (task * 7919 + number * 104_729) % BLOCKS;
                let start = Instant::now();
                let BufResult(result, back) =
                    file.read_exact_at(buffer, block * BLOCK as u64).await;
                result.expect("the file is there");
                taken.push(start.elapsed().as_secs_f64() * 1e6);
                buffer = back;
            }
            taken
        })
    };
    let tasks: Vec<_> = (0..TASKS).map(read).collect();
    let mut taken = Vec::new();
    for task in tasks {
        taken.extend(task.await.expect("it reads"));
    }
    taken.sort_by(f64::total_cmp);
    (taken[taken.len() / 2], taken[taken.len() * 99 / 100])
}

/// How late the latest of many deadlines was.
async fn deadlines(ring: &Ring) -> Duration {
    const AFTER: Duration = Duration::from_millis(20);
    let mut latest = Duration::ZERO;
    for _ in 0..200 {
        let socket = Descriptor::from(OwnedFd::from(UnixDatagram::unbound().expect("a socket")));
        let start = Instant::now();
        let receive = ring.submit(Operation::recv(socket, vec![0; 64]));
        receive.deadline(AFTER).await.result().expect_err("nobody sends");
        latest = latest.max(start.elapsed().saturating_sub(AFTER));
    }
    latest
}
