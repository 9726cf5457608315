//! Measures durable appends of many tasks, with one sync for each and with a journal:
//! `cargo run --release -p ringwise --example journal -- DIR [MILLISECONDS]`.
//!
//! Each task appends records of 100 bytes, one after the other, and waits until each is durable. With `each` every
//! record is a `write_durable_at` of its own to one file, and with `journal` they go to a `fs::Journal`. Both run
//! in turns, five times for MILLISECONDS (500 unless given) with each number of tasks. The figures are medians.
//! Files are made in DIR and removed again.

use std::{
    error::Error,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use ringwise::{
    OpenOptions, Ring,
    fs::{self, File, Journal, JournalOptions},
};

const RECORD_BYTES: usize = 100;
const ROUNDS: usize = 5;
const TASKS: [usize; 4] = [1, 16, 256, 1024];

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args_os().skip(1);
    let Some(directory) = arguments.next() else {
        return Err("usage: journal DIR [MILLISECONDS]".into());
    };
    let time = match arguments.next() {
        Some(text) => text.to_string_lossy().parse()?,
        None => 500,
    };
    let directory = Path::new(&directory).join(format!("journal-{}", std::process::id()));
    let ring = Ring::new()?;
    fs::create_dir(&ring, &directory).await?;
    let measured = measure(&ring, &directory, Duration::from_millis(time)).await;
    fs::remove_dir_all(&ring, &directory).await?;
    measured
}

async fn measure(ring: &Ring, directory: &Path, time: Duration) -> Result<(), Failure> {
    println!("durable appends a second, {}", ring.setup().backend());
    println!("{:>6} {:>10} {:>10} {:>7}", "tasks", "each", "journal", "ratio");
    for tasks in TASKS {
        let (mut each, mut together) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let options = OpenOptions::new().write(true).create(true).truncate(true);
            let file = File::open(ring, directory.join("file"), options).await?;
            each.push(run(Way::Each(file, Arc::default()), tasks, time).await?);

            let segments = directory.join(format!("{tasks}-{round}"));
            fs::create_dir(ring, &segments).await?;
            let (journal, _) = Journal::open(ring, &segments, JournalOptions::default()).await?;
            together.push(run(Way::Journal(journal.clone()), tasks, time).await?);
            journal.close().await?;
            fs::remove_dir_all(ring, &segments).await?;
        }
        let (each, together) = (median(each), median(together));
        println!("{tasks:>6} {each:>10.0} {together:>10.0} {:>7.2}", together / each);
    }
    Ok(())
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// How a record is appended.
#[derive(Clone)]
enum Way {
    /// To the end of a file, with a sync of its own.
    Each(File, Arc<AtomicU64>),
    Journal(Journal),
}

impl Way {
    async fn append(&self) -> Result<(), ringwise::Error> {
        match self {
            Way::Each(file, end) => {
                let offset = end.fetch_add(RECORD_BYTES as u64, Relaxed);
                file.write_durable_at(vec![1; RECORD_BYTES], offset).await.into_buffer().map(drop)
            }
            Way::Journal(journal) => journal.append([1; RECORD_BYTES]).await.map(drop),
        }
    }
}

/// Appends from so many tasks for this time. Gives how many records were durable in a second.
async fn run(way: Way, tasks: usize, time: Duration) -> Result<f64, Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (way, is_over) = (way.clone(), is_over.clone());
            tokio::spawn(async move {
                let mut count = 0;
                while !is_over.load(Relaxed) {
                    way.append().await?;
                    count += 1;
                }
                Ok::<u64, ringwise::Error>(count)
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    is_over.store(true, Relaxed);
    let mut count = 0;
    for task in tasks {
        count += task.await??;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
