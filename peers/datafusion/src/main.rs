//! Compares queries of DataFusion over `LocalFileSystem` and over `RingFileSystem`, on one table of 2.1 GB.
//!
//! ```text
//! cargo run --release --manifest-path peers/datafusion/Cargo.toml -- DIRECTORY [ROUNDS [STORES [ROW...]]]
//! ```
//!
//! A sample makes a session, registers the table, and then measures the queries of one row. The samples of
//! all stores alternate. All answers to a row have to be the same. CPU time is that of the whole process, with
//! the kernel's threads for the ring and without interrupts.
//!
//! STORES is a list such as `local,ring,ring:65536,direct`. The number is the gap up to which ranges become one read,
//! in bytes; `direct` reads past the page cache. Rows are named by their first words; without names, all are run.

mod table;

use std::{
    error::Error,
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use datafusion::{
    arrow::util::pretty::pretty_format_batches,
    prelude::{ParquetReadOptions, SessionConfig, SessionContext},
};
use object_store::{ObjectStore, local::LocalFileSystem};
use ringwise::{Descriptor, drop_page_cache};
use ringwise_object_store::RingFileSystem;
use rustix::time::{ClockId, clock_gettime};
use table::{NAME, NUMBERS, ROWS, mixed};
use url::Url;

type Failure = Box<dyn Error + Send + Sync>;

/// A store, and what the program calls it.
#[derive(Clone)]
struct Store {
    name: String,
    store: Arc<dyn ObjectStore>,
}

struct Row {
    name: &'static str,
    queries: Vec<String>,
}

/// What a sample took.
#[derive(Clone, Copy)]
struct Sample {
    wall_ms: f64,
    cpu_ms: f64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: ringwise-datafusion DIRECTORY [ROUNDS [STORES [ROW...]]]";
    let directory = PathBuf::from(arguments.next().ok_or(usage)?);
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let names = arguments.next().unwrap_or_else(|| "local,ring".into());
    let stores =
        names.split(',').map(|name| store(name, &directory)).collect::<Result<Vec<_>, _>>()?;
    let chosen: Vec<String> = arguments.collect();
    let path = directory.join(NAME);
    table::prepare(&path)?;
    let file = Arc::new(Descriptor::from(File::open(&path)?));
    println!("{} bytes", path.metadata()?.len());
    println!("{:<31} {:<16} {:>22} {:>22}", "", "", "ms (min..max)", "CPU ms (min..max)");
    for is_cold in [true, false] {
        for row in rows() {
            let name = format!("{}, {}", row.name, if is_cold { "not cached" } else { "cached" });
            if !chosen.is_empty() && !chosen.iter().any(|own| name.starts_with(own)) {
                continue;
            }
            let cold = is_cold.then(|| file.clone());
            report(&name, &stores, &compare(&stores, Arc::new(row), rounds, cold).await?);
        }
    }
    Ok(())
}

/// Makes a store of the list.
fn store(name: &str, directory: &Path) -> Result<Store, Failure> {
    let store: Arc<dyn ObjectStore> = match name.split_once(':') {
        None if name == "local" => Arc::new(LocalFileSystem::new_with_prefix(directory)?),
        None if name == "ring" => Arc::new(RingFileSystem::new_with_prefix(directory)?),
        None if name == "direct" => {
            Arc::new(RingFileSystem::new_with_prefix(directory)?.with_direct_reads(true))
        }
        Some(("ring", gap)) => {
            Arc::new(RingFileSystem::new_with_prefix(directory)?.with_gap(gap.parse()?))
        }
        _ => return Err(format!("no store is called {name}").into()),
    };
    Ok(Store { name: name.to_owned(), store })
}

/// What is measured.
fn rows() -> Vec<Row> {
    let sums: Vec<String> = (0..NUMBERS).map(|column| format!("sum(n{column})")).collect();
    let row = |name, query: String| Row { name, queries: vec![query] };
    // One row in 100,000, anywhere in the table.
    let least = i64::MIN + (u64::MAX / 100_000) as i64;
    let lookup = |number: i64| {
        let id = mixed(number).rem_euclid(ROWS);
        format!("SELECT id, k, page, n0, n9 FROM events WHERE id = {id}")
    };
    vec![
        row(
            "wide scan",
            format!("SELECT sum(id), sum(k), max(page), {} FROM events", sums.join(", ")),
        ),
        row("two columns", "SELECT k, sum(n0) FROM events GROUP BY k ORDER BY k LIMIT 9".into()),
        row(
            "selective filter",
            format!("SELECT sum(n1), sum(n2), max(page) FROM events WHERE n0 < {least}"),
        ),
        row(
            "near rows",
            "SELECT sum(n1), sum(n2) FROM events WHERE id BETWEEN 9000000 AND 9200000".into(),
        ),
        Row { name: "64 point lookups", queries: (0..64).map(lookup).collect() },
    ]
}

/// Samples a row over all stores, in turn.
async fn compare(
    stores: &[Store],
    row: Arc<Row>,
    rounds: usize,
    cold: Option<Arc<Descriptor>>,
) -> Result<Vec<Vec<Sample>>, Failure> {
    let mut samples = vec![Vec::new(); stores.len()];
    let mut expected: Option<String> = None;
    // The first round warms all of them up.
    for round in 0..=rounds {
        for turn in 0..stores.len() {
            let which = (round + turn) % stores.len();
            let (store, row, cold) = (stores[which].store.clone(), row.clone(), cold.clone());
            let sample = tokio::spawn(async move { measure(store, &row, cold.as_deref()).await });
            let (sample, answer) = sample.await??;
            assert_eq!(expected.get_or_insert(answer.clone()), &answer, "{}", stores[which].name);
            if round > 0 {
                samples[which].push(sample);
            }
        }
    }
    Ok(samples)
}

/// Makes a sample, and gives the answers to the queries. The cache has nothing of a `cold` file then.
async fn measure(
    store: Arc<dyn ObjectStore>,
    row: &Row,
    cold: Option<&Descriptor>,
) -> Result<(Sample, String), Failure> {
    let context = SessionContext::new_with_config(
        SessionConfig::new()
            .with_target_partitions(std::thread::available_parallelism()?.get())
            .set_bool("datafusion.execution.parquet.pushdown_filters", true),
    );
    context.register_object_store(&Url::parse("compared://store")?, store);
    let location = format!("compared://store/{NAME}");
    context.register_parquet("events", location, ParquetReadOptions::default()).await?;
    if let Some(file) = cold {
        drop_page_cache(file, 0, 0)?;
    }
    let (begin, cpu_begin) = (Instant::now(), process_cpu());
    let mut answers = Vec::new();
    for query in &row.queries {
        answers.push(context.sql(query).await?.collect().await?);
    }
    let (wall, cpu) = (begin.elapsed(), process_cpu() - cpu_begin);
    let mut text = String::new();
    for answer in &answers {
        text += &pretty_format_batches(answer)?.to_string();
    }
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok((Sample { wall_ms: ms(wall), cpu_ms: ms(cpu) }, text))
}

fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Prints a line for each store, with its speed and its share of CPU time in terms of the first.
fn report(name: &str, stores: &[Store], samples: &[Vec<Sample>]) {
    let wall = |sample: &Sample| sample.wall_ms;
    let cpu = |sample: &Sample| sample.cpu_ms;
    let base = (median(&samples[0], wall), median(&samples[0], cpu));
    for (store, samples) in stores.iter().zip(samples) {
        let speed = base.0 / median(samples, wall);
        let share = median(samples, cpu) / base.1;
        println!(
            "{name:<31} {:<16} {:>22} {:>22} {speed:>6.2} times, CPU {share:.2}",
            store.name,
            spread(samples, wall),
            spread(samples, cpu)
        );
    }
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
