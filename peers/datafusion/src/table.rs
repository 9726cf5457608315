//! The Parquet table that the queries read: its content follows from the number of each row.

use std::{fs::File, path::Path, sync::Arc};

use datafusion::{
    arrow::{
        array::{ArrayRef, Int64Array, RecordBatch, StringArray},
        error::ArrowError,
    },
    parquet::{
        arrow::ArrowWriter, basic::Compression, file::properties::WriterProperties,
        schema::types::ColumnPath,
    },
};

use crate::Failure;

/// The table's file.
pub const NAME: &str = "events.parquet";
/// Rows of the table, in 24 row groups.
pub const ROWS: i64 = 24 * GROUP_ROWS;
/// Columns of random numbers, `n0` and so on.
pub const NUMBERS: i64 = 10;

const GROUP_ROWS: i64 = 1 << 20;
const BATCH_ROWS: i64 = 1 << 16;

/// A number that depends on all bits of another (splitmix64).
pub fn mixed(number: i64) -> i64 {
    let mut number = (number as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (number ^ (number >> 31)) as i64
}

/// Writes the table, unless an earlier run has. It has 2.1 GB.
pub fn prepare(path: &Path) -> Result<(), Failure> {
    if path.exists() {
        return Ok(());
    }
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP_ROWS as usize));
    for column in 0..NUMBERS {
        let path = ColumnPath::from(format!("n{column}"));
        properties = properties.set_column_dictionary_enabled(path, false);
    }
    let unfinished = path.with_extension("unfinished");
    let schema = batch(0)?.schema();
    let mut writer =
        ArrowWriter::try_new(File::create(&unfinished)?, schema, Some(properties.build()))?;
    for start in (0..ROWS).step_by(BATCH_ROWS as usize) {
        writer.write(&batch(start)?)?;
    }
    writer.into_inner()?.sync_all()?;
    std::fs::rename(unfinished, path)?;
    Ok(())
}

/// Rows from `start`: their number, one of 1000 keys, one of 5000 pages, and random numbers.
fn batch(start: i64) -> Result<RecordBatch, ArrowError> {
    let rows = start..start + BATCH_ROWS;
    let page = |row| format!("https://example.org/page/{}", mixed(row).rem_euclid(5000));
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("id".into(), Arc::new(Int64Array::from_iter_values(rows.clone()))),
        ("k".into(), Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row % 1000)))),
        ("page".into(), Arc::new(StringArray::from_iter_values(rows.clone().map(page)))),
    ];
    for column in 0..NUMBERS {
        let numbers = rows.clone().map(|row| mixed(row * NUMBERS + column));
        columns.push((format!("n{column}"), Arc::new(Int64Array::from_iter_values(numbers))));
    }
    RecordBatch::try_from_iter(columns)
}
