//! Compares Vortex's own reader of files with this one.
//!
//! ```text
//! cargo run --release -p ringwise-vortex --example compare -- DIRECTORY [ROUNDS [ROW...]]
//! ```
//!
//! A sample opens the file, scans it and decodes all that it asked for, in a task of a multi-threaded runtime,
//! which also drives the ring. The samples of all readers alternate. The number of rows, and the sum of all
//! numbers, are verified. CPU time is that of the whole process, with the kernel's threads for the ring and without
//! interrupts.
//!
//! The directory needs room for 240 MB. Rows are named by their first words; without names, all are run.

use std::{
    error::Error,
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{TryStreamExt, future::try_join_all};
use ringwise::{Descriptor, Ring, drop_page_cache};
use ringwise_vortex::FileSource;
use rustix::time::{ClockId, clock_gettime};
use vortex_array::{
    ArrayRef, IntoArray, VortexSessionExecute, array_session,
    arrays::{ChunkedArray, PrimitiveArray, StructArray, struct_::StructArrayExt},
    dtype::FieldName,
    expr::{root, select},
};
use vortex_buffer::Buffer;
use vortex_error::VortexResult;
use vortex_file::{
    OpenOptionsSessionExt, VortexFile, WriteOptionsSessionExt, register_default_encodings,
};
use vortex_io::session::{RuntimeSession, RuntimeSessionExt};
use vortex_layout::{scan::scan_builder::ScanBuilder, session::LayoutSession};
use vortex_scan::strict_sorted_buffer::StrictSortedBuffer;
use vortex_session::VortexSession;

const NAME: &str = "numbers.vortex";
const COLUMNS: usize = 20;
const ROWS_OF_CHUNK: u64 = 1 << 17;
const CHUNKS: u64 = 16;
const ROWS: u64 = CHUNKS * ROWS_OF_CHUNK;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Clone, Copy, Debug)]
enum Reader {
    Own,
    Ring,
}

const READERS: [(&str, Reader); 2] = [("open_path", Reader::Own), ("FileSource", Reader::Ring)];

/// The rows of the table that a scan reads.
#[derive(Clone, Copy, Debug)]
enum Rows {
    All,
    /// So many in random places, in one scan.
    Spread(u64),
    /// So many ranges in random places, each of so many rows: a scan for each, all of them at once.
    Ranges(u64, u64),
    /// So many in random places: a scan for each, one after the other.
    OneByOne(u64),
}

struct Row {
    name: &'static str,
    columns: Range<usize>,
    rows: Rows,
    /// The page cache has nothing of the file before a sample.
    is_cold: bool,
    /// Scans of a sample.
    scans: u32,
}

const ALL: Range<usize> = 0..COLUMNS;
const SOME: Range<usize> = 8..11;

const fn row(name: &'static str, columns: Range<usize>, rows: Rows, scans: u32) -> Row {
    Row { name, columns, rows, is_cold: false, scans }
}

const fn cold(name: &'static str, columns: Range<usize>, rows: Rows) -> Row {
    Row { is_cold: true, ..row(name, columns, rows, 1) }
}

static MEASURED: [Row; 10] = [
    cold("all columns, not cached", ALL, Rows::All),
    row("all columns, cached", ALL, Rows::All, 1),
    cold("3 columns, not cached", SOME, Rows::All),
    row("3 columns, cached", SOME, Rows::All, 4),
    cold("256 spread rows, not cached", ALL, Rows::Spread(256)),
    row("256 spread rows, cached", ALL, Rows::Spread(256), 2),
    cold("32 ranges of rows, not cached", SOME, Rows::Ranges(32, 1000)),
    row("32 ranges of rows, cached", SOME, Rows::Ranges(32, 1000), 4),
    cold("one row at a time, not cached", SOME, Rows::OneByOne(32)),
    row("one row at a time, cached", SOME, Rows::OneByOne(32), 4),
];

/// What a scan took.
#[derive(Clone, Copy)]
struct Sample {
    wall_ms: f64,
    cpu_ms: f64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: compare DIRECTORY [ROUNDS [ROW...]]";
    let path = PathBuf::from(arguments.next().ok_or(usage)?).join(NAME);
    let rounds: usize = arguments.next().map_or(Ok(7), |text| text.parse())?;
    let chosen: Vec<String> = arguments.collect();
    let session = array_session().with::<LayoutSession>().with::<RuntimeSession>().with_tokio();
    register_default_encodings(&session);
    prepare(&session, &path).await?;
    let (ring, file) = (Ring::new()?, Descriptor::from(File::open(&path)?));
    println!("{:<30} {:<11} {:>24} {:>24}", "", "", "ms (min..max)", "CPU ms (min..max)");
    for row in &MEASURED {
        if !chosen.is_empty() && !chosen.iter().any(|name| row.name.starts_with(name)) {
            continue;
        }
        let expected = expected(row);
        let mut samples = READERS.map(|_| Vec::new());
        // The first round warms all of them up.
        for round in 0..=rounds {
            for turn in 0..READERS.len() {
                let which = (round + turn) % READERS.len();
                if row.is_cold {
                    drop_page_cache(&file, 0, 0)?;
                }
                let place =
                    Place { session: session.clone(), ring: ring.clone(), path: path.clone() };
                let sample =
                    tokio::spawn(measure(READERS[which].1, row, place, expected)).await??;
                if round > 0 {
                    samples[which].push(sample);
                }
            }
        }
        report(row, &samples);
    }
    Ok(())
}

/// A number that depends on all bits of another (splitmix64).
fn mixed(mut number: u64) -> u64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Nothing makes the numbers of an even column shorter. Those of an odd one have 20 bits.
fn value(row: u64, column: usize) -> u64 {
    let number = mixed(row * COLUMNS as u64 + column as u64);
    if column.is_multiple_of(2) { number } else { number >> 44 }
}

/// Writes the file, unless an earlier run has.
async fn prepare(session: &VortexSession, path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Ok(());
    }
    let chunk = |number: u64| -> VortexResult<ArrayRef> {
        let rows = number * ROWS_OF_CHUNK..(number + 1) * ROWS_OF_CHUNK;
        let column = |column: usize| {
            let values: Buffer<u64> = rows.clone().map(|row| value(row, column)).collect();
            (name(column), values.into_array())
        };
        Ok(StructArray::from_fields(&ALL.map(column).collect::<Vec<_>>())?.into_array())
    };
    let chunks = (0..CHUNKS).map(chunk).collect::<VortexResult<Vec<_>>>()?;
    let table = ChunkedArray::from_iter(chunks).into_array();
    let mut bytes = Vec::new();
    let options = session.write_options().disable_editions();
    options.write(&mut bytes, table.to_array_stream()).await?;
    let unfinished = path.with_extension("unfinished");
    std::fs::write(&unfinished, bytes)?;
    File::open(&unfinished)?.sync_all()?;
    std::fs::rename(unfinished, path)?;
    Ok(())
}

fn name(column: usize) -> String {
    format!("column {column}")
}

/// The first rows of the ranges that a row reads, in ascending order, each range of `len` rows.
fn starts(count: u64, len: u64) -> impl Iterator<Item = u64> + Clone {
    let distance = ROWS / count;
    (0..count).map(move |number| number * distance + mixed(number) % (distance - len))
}

/// The number of rows that a scan must give, and the sum of all their numbers.
fn expected(row: &Row) -> (usize, u64) {
    let rows: Vec<u64> = match row.rows {
        Rows::All => (0..ROWS).collect(),
        Rows::Spread(count) | Rows::OneByOne(count) => starts(count, 1).collect(),
        Rows::Ranges(count, len) => {
            starts(count, len).flat_map(|start| start..start + len).collect()
        }
    };
    let numbers = rows
        .iter()
        .flat_map(|number| row.columns.clone().map(move |column| value(*number, column)));
    (rows.len(), numbers.fold(0, u64::wrapping_add))
}

/// What a sample needs.
struct Place {
    session: VortexSession,
    ring: Ring,
    path: PathBuf,
}

/// Makes a sample.
async fn measure(
    reader: Reader,
    row: &Row,
    place: Place,
    expected: (usize, u64),
) -> Result<Sample, Failure> {
    let (begin, cpu_begin) = (Instant::now(), process_cpu());
    for _ in 0..row.scans {
        let options = place.session.open_options();
        let file = match reader {
            Reader::Own => options.open_path(&place.path).await?,
            Reader::Ring => {
                let source = FileSource::open(&place.ring, &place.path).await?;
                options.open(Arc::new(source)).await?
            }
        };
        assert_eq!(read(&file, row).await?, expected, "{reader:?}: wrong rows");
    }
    let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(row.scans);
    Ok(Sample { wall_ms: each(begin.elapsed()), cpu_ms: each(process_cpu() - cpu_begin) })
}

/// Reads rows, and gives their number and the sum of all their numbers.
async fn read(file: &VortexFile, row: &Row) -> VortexResult<(usize, u64)> {
    let names: Vec<FieldName> = row.columns.clone().map(|column| name(column).into()).collect();
    let columns = select(names.as_slice(), root()).bind(file.dtype())?.optimize_recursive()?;
    let scan = || file.scan().map(|scan| scan.with_projection(columns.clone()));
    match row.rows {
        Rows::All => summed(scan()?).await,
        Rows::Spread(count) => {
            let indices = StrictSortedBuffer::try_new(starts(count, 1).collect())?;
            summed(scan()?.with_row_indices(indices)).await
        }
        Rows::Ranges(count, len) => {
            let scans = starts(count, len)
                .map(|start| Ok(scan()?.with_row_range(start..start + len)))
                .collect::<VortexResult<Vec<_>>>()?;
            Ok(total(try_join_all(scans.into_iter().map(summed)).await?))
        }
        Rows::OneByOne(count) => {
            let mut sums = Vec::new();
            for start in starts(count, 1) {
                sums.push(summed(scan()?.with_row_range(start..start + 1)).await?);
            }
            Ok(total(sums))
        }
    }
}

fn total(sums: Vec<(usize, u64)>) -> (usize, u64) {
    sums.into_iter()
        .fold((0, 0), |(rows, sum), (more, other)| (rows + more, sum.wrapping_add(other)))
}

/// Decodes all that a scan gives, in the tasks of the scan.
async fn summed(scan: ScanBuilder<ArrayRef>) -> VortexResult<(usize, u64)> {
    let session = scan.session().clone();
    let scan = scan.map(move |chunk| {
        let mut context = session.create_execution_ctx();
        let table = chunk.execute::<StructArray>(&mut context)?;
        let mut sum = 0;
        for column in table.iter_unmasked_fields() {
            let numbers = column.clone().execute::<PrimitiveArray>(&mut context)?;
            sum = numbers.as_slice::<u64>().iter().fold(sum, |sum: u64, n| sum.wrapping_add(*n));
        }
        Ok((table.len(), sum))
    });
    Ok(total(scan.into_stream()?.try_collect().await?))
}

fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn report(row: &Row, samples: &[Vec<Sample>]) {
    let name = row.name;
    let wall = |sample: &Sample| sample.wall_ms;
    let cpu = |sample: &Sample| sample.cpu_ms;
    let base = (median(&samples[0], wall), median(&samples[0], cpu));
    for ((reader, _), samples) in READERS.iter().zip(samples) {
        let speed = base.0 / median(samples, wall);
        let share = median(samples, cpu) / base.1;
        println!(
            "{name:<30} {reader:<11} {:>24} {:>24} {speed:>6.2} times, CPU {share:.2}",
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
    format!("{:.2} ({:.2}..{:.2})", median(samples, of), values[0], values[values.len() - 1])
}
