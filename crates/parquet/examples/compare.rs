//! Compares this reader with those that programs use for local Parquet files: parquet's own for
//! `tokio::fs::File`, and one over `object_store`'s `LocalFileSystem`.
//!
//! ```text
//! cargo run --release -p ringwise-parquet --example compare -- DIRECTORY [ROUNDS [ROW...]]
//! ```
//!
//! A sample opens the file, reads its metadata and reads rows to the end, in a task of a multi-threaded
//! runtime. The samples of all readers alternate. The number of rows, and the sum of a column, are verified.
//! CPU time is that of the whole process, with the kernel's threads for the ring and without interrupts.
//!
//! The directory needs room for 180 MB. Rows are named by their first words; without names, all are run.

use std::{
    error::Error,
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, cast::AsArray, types::Int64Type};
use bytes::Bytes;
use futures::{FutureExt, TryFutureExt, TryStreamExt, future::BoxFuture};
use object_store::{ObjectStore, ObjectStoreExt, local::LocalFileSystem, path::Path as Location};
use parquet::{
    arrow::{
        ArrowWriter, ParquetRecordBatchStreamBuilder, ProjectionMask,
        arrow_reader::{ArrowReaderOptions, RowSelection, RowSelector},
        async_reader::AsyncFileReader,
    },
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader},
        properties::WriterProperties,
    },
};
use ringwise::{Descriptor, Ring, drop_page_cache};
use ringwise_parquet::{ParquetFile, ParquetFileOptions};
use rustix::time::{ClockId, clock_gettime};

const NAME: &str = "numbers.parquet";
const COLUMNS: usize = 20;
const ROWS_OF_GROUP: usize = 1 << 17;
const GROUPS: usize = 8;
const ROWS: usize = GROUPS * ROWS_OF_GROUP;
const ROWS_OF_PAGE: usize = 1024;
/// Of the rows that are read with the index of pages, each is so far behind the last.
const STRIDE: usize = 10_000;
/// The same, with one page in three and one in ten: there are 16 KiB or 72 KiB between two pages that are read.
const THIRD: usize = 3 * ROWS_OF_PAGE;
const TENTH: usize = 10 * ROWS_OF_PAGE;

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Clone, Copy, Debug)]
enum Reader {
    Tokio,
    Store,
    Ring,
    Direct,
    /// A ring, with another gap up to which ranges become one read.
    Gap(u64),
}

type Readers = &'static [(&'static str, Reader)];

const READERS: Readers = &[
    ("tokio::fs::File", Reader::Tokio),
    ("LocalFileSystem", Reader::Store),
    ("ParquetFile", Reader::Ring),
    ("ParquetFile, direct", Reader::Direct),
];

const GAPS: Readers = &[
    ("gap 0", Reader::Gap(0)),
    ("gap 4 KiB", Reader::Gap(4 << 10)),
    ("gap 32 KiB", Reader::Gap(32 << 10)),
    ("gap 128 KiB", Reader::Gap(128 << 10)),
];

struct Row {
    name: &'static str,
    /// The first of them is verified.
    columns: &'static [usize],
    /// Only one row in each stride of so many, by the index of pages.
    stride: Option<usize>,
    /// The page cache has nothing of the file before a sample.
    is_cold: bool,
    /// Scans of a sample.
    scans: u32,
    readers: Readers,
}

const ALL: &[usize] = &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19];
const SOME: &[usize] = &[2, 9, 16];

const fn row(name: &'static str, columns: &'static [usize], scans: u32) -> Row {
    Row { name, columns, stride: None, is_cold: false, scans, readers: READERS }
}

const fn cold(name: &'static str, columns: &'static [usize]) -> Row {
    Row { is_cold: true, ..row(name, columns, 1) }
}

static MEASURED: [Row; 10] = [
    cold("all columns, not cached", ALL),
    row("all columns, cached", ALL, 1),
    cold("3 columns, not cached", SOME),
    row("3 columns, cached", SOME, 4),
    Row { stride: Some(STRIDE), ..cold("spread rows, not cached", SOME) },
    Row { stride: Some(STRIDE), ..row("spread rows, cached", SOME, 8) },
    Row { stride: Some(THIRD), readers: GAPS, ..cold("gaps of 16 KiB, not cached", SOME) },
    Row { stride: Some(THIRD), readers: GAPS, ..row("gaps of 16 KiB, cached", SOME, 4) },
    Row { stride: Some(TENTH), readers: GAPS, ..cold("gaps of 72 KiB, not cached", SOME) },
    Row { stride: Some(TENTH), readers: GAPS, ..row("gaps of 72 KiB, cached", SOME, 8) },
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
    prepare(&path)?;
    let (ring, file) = (Ring::new()?, Descriptor::from(File::open(&path)?));
    println!("{:<26} {:<20} {:>22} {:>22}", "", "", "ms (min..max)", "CPU ms (min..max)");
    for row in &MEASURED {
        if !chosen.is_empty() && !chosen.iter().any(|name| row.name.starts_with(name)) {
            continue;
        }
        let readers = row.readers;
        let mut samples = vec![Vec::new(); readers.len()];
        // The first round warms all of them up.
        for round in 0..=rounds {
            for turn in 0..readers.len() {
                let which = (round + turn) % readers.len();
                if row.is_cold {
                    drop_page_cache(&file, 0, 0)?;
                }
                let (ring, path) = (ring.clone(), path.clone());
                let sample = measure(readers[which].1, row, ring, path);
                let sample = tokio::spawn(sample).await??;
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
fn mixed(mut number: u64) -> i64 {
    number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (number ^ (number >> 31)) as i64
}

fn value(row: usize, column: usize) -> i64 {
    mixed((row * COLUMNS + column) as u64)
}

/// Writes the file, unless an earlier run has.
fn prepare(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Ok(());
    }
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_max_row_group_row_count(Some(ROWS_OF_GROUP))
        .set_data_page_row_count_limit(ROWS_OF_PAGE)
        .set_write_batch_size(ROWS_OF_PAGE)
        .build();
    let group = |number: usize| {
        let rows = number * ROWS_OF_GROUP..(number + 1) * ROWS_OF_GROUP;
        let column = |column: usize| -> (String, ArrayRef) {
            let values = rows.clone().map(|row| value(row, column));
            (format!("column {column}"), Arc::new(Int64Array::from_iter_values(values)))
        };
        RecordBatch::try_from_iter((0..COLUMNS).map(column))
    };
    let unfinished = path.with_extension("unfinished");
    let file = File::create(&unfinished)?;
    let mut writer = ArrowWriter::try_new(file, group(0)?.schema(), Some(properties))?;
    for number in 0..GROUPS {
        writer.write(&group(number)?)?;
    }
    writer.into_inner()?.sync_all()?;
    std::fs::rename(unfinished, path)?;
    Ok(())
}

/// Makes a sample.
async fn measure(reader: Reader, row: &Row, ring: Ring, path: PathBuf) -> Result<Sample, Failure> {
    let stride = row.stride.unwrap_or(1);
    let numbers = || (0..ROWS).filter(move |row| row % stride == stride - 1);
    let sum = numbers().fold(0, |sum, number| value(number, row.columns[0]).wrapping_add(sum));
    let expected = (numbers().count(), sum);
    let (begin, cpu_begin) = (Instant::now(), process_cpu());
    for _ in 0..row.scans {
        let read = match reader {
            Reader::Tokio => scan(tokio::fs::File::open(&path).await?, row).await?,
            Reader::Store => scan(StoreReader::open(&path).await?, row).await?,
            Reader::Ring => scan(ParquetFile::open(&ring, &path).await?, row).await?,
            Reader::Direct => {
                let options = ParquetFileOptions::new().direct(true);
                scan(options.open(&ring, &path).await?, row).await?
            }
            Reader::Gap(bytes) => {
                let options = ParquetFileOptions::new().gap(bytes);
                scan(options.open(&ring, &path).await?, row).await?
            }
        };
        assert_eq!(read, expected, "{reader:?}: wrong rows");
    }
    let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(row.scans);
    Ok(Sample { wall_ms: each(begin.elapsed()), cpu_ms: each(process_cpu() - cpu_begin) })
}

/// Reads rows, and gives their number and the sum of the first column.
async fn scan(
    reader: impl AsyncFileReader + Unpin + 'static,
    row: &Row,
) -> Result<(usize, i64), Failure> {
    let policy = match row.stride {
        Some(_) => PageIndexPolicy::Required,
        None => PageIndexPolicy::Skip,
    };
    let options = ArrowReaderOptions::new().with_page_index_policy(policy);
    let builder = ParquetRecordBatchStreamBuilder::new_with_options(reader, options).await?;
    let columns = ProjectionMask::roots(builder.parquet_schema(), row.columns.iter().copied());
    let mut builder = builder.with_projection(columns).with_batch_size(8192);
    if let Some(stride) = row.stride {
        let one = [RowSelector::skip(stride - 1), RowSelector::select(1)];
        let selectors = one.into_iter().cycle().take(2 * (ROWS / stride)).collect::<Vec<_>>();
        builder = builder.with_row_selection(RowSelection::from(selectors));
    }
    let mut stream = builder.build()?;
    let (mut rows, mut sum) = (0, 0_i64);
    while let Some(batch) = stream.try_next().await? {
        let first = batch.column(0).as_primitive::<Int64Type>();
        rows += first.len();
        sum = first.values().iter().fold(sum, |sum, value| sum.wrapping_add(*value));
    }
    Ok((rows, sum))
}

/// A reader over a store, as the documentation of parquet's trait has it.
struct StoreReader {
    store: Arc<dyn ObjectStore>,
    location: Location,
    len: u64,
}

impl StoreReader {
    async fn open(path: &Path) -> Result<StoreReader, Failure> {
        let directory = path.parent().ok_or("a path without a directory")?;
        let store = Arc::new(LocalFileSystem::new_with_prefix(directory)?);
        let location = Location::from(NAME);
        let len = store.head(&location).await?.size;
        Ok(StoreReader { store, location, len })
    }
}

fn external(error: object_store::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

impl AsyncFileReader for StoreReader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.store.get_range(&self.location, range).map_err(external).boxed()
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        async move { self.store.get_ranges(&self.location, &ranges).map_err(external).await }
            .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let len = self.len;
            let reader = ParquetMetaDataReader::new().with_arrow_reader_options(options);
            // As much at first as this crate reads.
            let reader = reader.with_prefetch_hint(Some(64 << 10));
            reader.load_and_finish(self, len).await.map(Arc::new)
        }
        .boxed()
    }
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
    for ((reader, _), samples) in row.readers.iter().zip(samples) {
        let speed = base.0 / median(samples, wall);
        let share = median(samples, cpu) / base.1;
        println!(
            "{name:<26} {reader:<20} {:>22} {:>22} {speed:>6.2} times, CPU {share:.2}",
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
