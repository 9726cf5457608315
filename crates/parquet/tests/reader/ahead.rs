//! Read-ahead: which requests cause it, how far it goes, and that its bytes are those of the file.

use std::{ops::Range, path::Path};

use parquet::arrow::async_reader::AsyncFileReader;
use ringwise::{BackendChoice, Ring};
use ringwise_parquet::{ParquetFile, ParquetFileOptions};

use crate::{open_direct, own, place, ring, table};

/// The bytes of whole columns of a row group.
async fn columns(file: &mut ParquetFile, group: usize, columns: &[usize]) -> Vec<Range<u64>> {
    let metadata = file.get_metadata(None).await.unwrap();
    let group = metadata.row_group(group);
    let range = |column: &usize| {
        let (start, len) = group.column(*column).byte_range();
        start..start + len
    };
    columns.iter().map(range).collect()
}

/// Requests columns of a row group, checks their bytes, and returns how many operations began meanwhile.
async fn request(file: &mut ParquetFile, ring: &Ring, group: usize, wanted: &[usize]) -> u64 {
    let ranges = columns(file, group, wanted).await;
    let before = ring.stats().submitted;
    let read = file.get_byte_ranges(ranges.clone()).await.unwrap();
    let bytes = std::fs::read(file.path()).unwrap();
    for (read, range) in read.iter().zip(&ranges) {
        assert!(*read == bytes[range.start as usize..range.end as usize], "{range:?}");
    }
    ring.stats().submitted - before
}

/// A file of five row groups whose columns are far apart, without the page cache.
async fn open(path: &Path) -> Option<(Ring, ParquetFile)> {
    table::write(path, table::ROWS);
    let ring = ring(BackendChoice::Auto);
    let file = ParquetFileOptions::new().gap(0).direct(true);
    open_direct(&ring, path).await?;
    let file = file.open(&ring, path).await.unwrap();
    Some((ring, file))
}

const WANTED: &[usize] = &[0, 3];

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_reads_the_next_row_group_ahead() {
    let (_directory, path) = place();
    let Some((ring, mut file)) = open(&path).await else { return };
    assert_eq!(request(&mut file, &ring, 0, WANTED).await, 4, "two columns of two row groups");
    for group in 1..4 {
        assert_eq!(
            request(&mut file, &ring, group, WANTED).await,
            2,
            "those of row group {group} + 1"
        );
    }
    assert_eq!(request(&mut file, &ring, 4, WANTED).await, 0, "it is the last");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_that_begins_elsewhere_is_seen_with_its_second_row_group() {
    let (_directory, path) = place();
    let Some((ring, mut file)) = open(&path).await else { return };
    assert_eq!(request(&mut file, &ring, 1, WANTED).await, 2);
    assert_eq!(request(&mut file, &ring, 2, WANTED).await, 4);
    assert_eq!(request(&mut file, &ring, 3, WANTED).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_requests_read_nothing_ahead() {
    let (_directory, path) = place();
    let Some((ring, mut file)) = open(&path).await else { return };
    for (group, wanted) in [(1, WANTED), (3, WANTED), (2, WANTED), (3, &[0]), (4, WANTED)] {
        let count = request(&mut file, &ring, group, wanted).await;
        assert_eq!(count, wanted.len() as u64, "{wanted:?} of row group {group}");
    }
    // A part of a column.
    let whole = columns(&mut file, 0, &[0]).await.remove(0);
    let before = ring.stats().submitted;
    file.get_bytes(whole.start..whole.end - 1).await.unwrap();
    file.get_byte_ranges(vec![whole.start + 1..whole.end]).await.unwrap();
    assert_eq!(ring.stats().submitted - before, 2);
    // What was read ahead of another request is not used.
    assert_eq!(request(&mut file, &ring, 0, WANTED).await, 4);
    assert_eq!(request(&mut file, &ring, 1, &[1]).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_counts_bytes_and_the_rest_is_read_when_it_is_wanted() {
    let (_directory, path) = place();
    let Some((ring, mut file)) = open(&path).await else { return };
    let next = columns(&mut file, 1, WANTED).await;
    let first = next[0].end - next[0].start;
    for (limit, ahead) in [(0, 0), (first - 1, 0), (first, 1), (u64::MAX, 2)] {
        let options = ParquetFileOptions::new().gap(0).direct(true).read_ahead(limit);
        let mut file = options.open(&ring, &path).await.unwrap();
        assert_eq!(request(&mut file, &ring, 0, WANTED).await, 2 + ahead, "limit {limit}");
        assert_eq!(request(&mut file, &ring, 1, &WANTED[..2]).await, 2, "limit {limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cached_data_is_not_read_ahead() {
    let (_directory, path) = place();
    table::write(&path, table::ROWS);
    let ring = ring(BackendChoice::Auto);
    let mut file = ParquetFile::open(&ring, &path).await.unwrap();
    for group in 0..5 {
        let before = ring.stats();
        request(&mut file, &ring, group, WANTED).await;
        assert_eq!(ring.stats().submitted, before.submitted, "row group {group}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_ahead_of_another_version_is_refused() {
    let (_directory, path) = place();
    let Some((ring, mut file)) = open(&path).await else { return };
    assert_eq!(request(&mut file, &ring, 0, WANTED).await, 4);
    let ranges = columns(&mut file, 1, WANTED).await;
    table::write(&path, table::ROWS + 1);
    let error = own(file.get_byte_ranges(ranges).await);
    assert!(matches!(error, ringwise_parquet::Error::Changed { .. }), "{error}");
    assert_eq!(request(&mut file, &ring, 0, WANTED).await, 4, "the new version is read");
}
