//! A table, and ways to read it.

use std::{fs::File, path::Path, sync::Arc};

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    cast::AsArray, types::Int64Type,
};
use futures::TryStreamExt;
use parquet::{
    arrow::{
        ArrowWriter, ParquetRecordBatchStreamBuilder, ProjectionMask,
        arrow_reader::{
            ArrowPredicateFn, ArrowReaderOptions, RowFilter, RowSelection, RowSelector,
        },
        async_reader::AsyncFileReader,
    },
    basic::{Compression, ZstdLevel},
    errors::Result,
    file::{metadata::PageIndexPolicy, properties::WriterProperties},
};

pub(crate) const ROWS: usize = 12_000;
pub(crate) const COLUMNS: usize = 4;
const ROWS_OF_GROUP: usize = 2_500;

/// Rows that differ, and of which some have no value.
pub(crate) fn table(rows: usize) -> RecordBatch {
    let number = |row: usize| (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64;
    let numbers = Int64Array::from_iter_values(0..rows as i64);
    let mixed = Int64Array::from_iter((0..rows).map(|row| (row % 7 != 0).then(|| number(row))));
    let texts = StringArray::from_iter_values((0..rows).map(|row| format!("row {}", row % 311)));
    let fractions = Float64Array::from_iter_values((0..rows).map(|row| number(row) as f64));
    let columns: [(&str, ArrayRef); COLUMNS] = [
        ("number", Arc::new(numbers)),
        ("mixed", Arc::new(mixed)),
        ("text", Arc::new(texts)),
        ("fraction", Arc::new(fractions)),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Several row groups, each of several pages, with an index of pages.
pub(crate) fn properties(compression: Compression) -> WriterProperties {
    WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(ROWS_OF_GROUP))
        .set_data_page_row_count_limit(400)
        .set_write_batch_size(100)
        .build()
}

/// Writes a file with so many rows.
pub(crate) fn write(path: &Path, rows: usize) {
    write_with(path, rows, properties(Compression::UNCOMPRESSED));
}

pub(crate) fn write_compressed(path: &Path, rows: usize) {
    write_with(path, rows, properties(Compression::ZSTD(ZstdLevel::default())));
}

pub(crate) fn write_with(path: &Path, rows: usize, properties: WriterProperties) {
    let table = table(rows);
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, table.schema(), Some(properties)).unwrap();
    writer.write(&table).unwrap();
    writer.close().unwrap();
}

/// What to read of a table.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) columns: Vec<usize>,
    /// Row groups, or all.
    pub(crate) row_groups: Option<Vec<usize>>,
    /// Only rows with a number that is a multiple of this.
    pub(crate) filter: Option<i64>,
    /// Skipped and selected rows in turn.
    pub(crate) selection: Option<Vec<usize>>,
    pub(crate) page_index: PageIndexPolicy,
    pub(crate) batch_rows: usize,
}

impl Query {
    pub(crate) fn all() -> Query {
        Query {
            columns: (0..COLUMNS).collect(),
            row_groups: None,
            filter: None,
            selection: None,
            page_index: PageIndexPolicy::Skip,
            batch_rows: 1024,
        }
    }
}

/// Reads a table.
pub(crate) async fn read(
    reader: impl AsyncFileReader + Unpin + 'static,
    query: &Query,
) -> Result<Vec<RecordBatch>> {
    let options = ArrowReaderOptions::new().with_page_index_policy(query.page_index);
    let builder = ParquetRecordBatchStreamBuilder::new_with_options(reader, options).await?;
    let schema = builder.metadata().file_metadata().schema_descr_ptr();
    let columns = ProjectionMask::roots(&schema, query.columns.iter().copied());
    let mut builder = builder.with_projection(columns).with_batch_size(query.batch_rows);
    if let Some(row_groups) = &query.row_groups {
        builder = builder.with_row_groups(row_groups.clone());
    }
    if let Some(divisor) = query.filter {
        let is_multiple = move |batch: RecordBatch| {
            let numbers = batch.column(0).as_primitive::<Int64Type>().values();
            Ok(BooleanArray::from_iter(numbers.iter().map(|number| Some(number % divisor == 0))))
        };
        let predicate = ArrowPredicateFn::new(ProjectionMask::roots(&schema, [0]), is_multiple);
        builder = builder.with_row_filter(RowFilter::new(vec![Box::new(predicate)]));
    }
    if let Some(rows) = &query.selection {
        let selectors = rows.iter().enumerate().map(|(at, &rows)| match at % 2 {
            0 => RowSelector::skip(rows),
            _ => RowSelector::select(rows),
        });
        builder = builder.with_row_selection(RowSelection::from(selectors.collect::<Vec<_>>()));
    }
    builder.build()?.try_collect().await
}

pub(crate) fn rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// Whether batches are these rows of a table, one after the other.
pub(crate) fn are_the_table(batches: &[RecordBatch], table: &RecordBatch) -> bool {
    let mut start = 0;
    batches.iter().all(|batch| {
        let expected = table.slice(start, batch.num_rows());
        start += batch.num_rows();
        batch
            .columns()
            .iter()
            .zip(expected.columns())
            .all(|(own, other)| own.to_data() == other.to_data())
    }) && start == table.num_rows()
}
