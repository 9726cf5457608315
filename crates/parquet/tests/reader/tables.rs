//! Tables, beside those that parquet's own reader gets from `tokio::fs::File`.

use std::path::Path;

use parquet::file::metadata::PageIndexPolicy;
use proptest::prelude::*;
use ringwise::BackendChoice;
use ringwise_parquet::{ParquetFile, ParquetFileOptions};

use crate::{
    BACKENDS, open_direct, place, ring,
    table::{self, COLUMNS, Query, ROWS},
};

/// Reads a table by this crate and by parquet's own reader, which have to agree. Gives the number of rows.
async fn compare(file: ParquetFile, query: &Query) -> usize {
    let path = file.path().to_owned();
    let theirs = tokio::fs::File::open(path).await.unwrap();
    let theirs = table::read(theirs, query).await.unwrap();
    let ours = table::read(file, query).await.unwrap();
    assert_eq!(ours, theirs, "{query:?}");
    table::rows(&ours)
}

/// Queries of every kind, each with the number of its rows.
fn queries() -> [(Query, usize); 6] {
    let all = Query::all();
    let page_index = PageIndexPolicy::Required;
    [
        (all.clone(), ROWS),
        (Query { columns: vec![1, 3], ..all.clone() }, ROWS),
        (Query { row_groups: Some(vec![3, 1]), columns: vec![2], ..all.clone() }, 5_000),
        (Query { filter: Some(100), columns: vec![0, 2], ..all.clone() }, 120),
        (Query { filter: Some(1_000), page_index, ..all.clone() }, 12),
        (Query { selection: Some(vec![4_000, 10, 5_000, 20]), page_index, ..all }, 30),
    ]
}

async fn compare_all(path: &Path) {
    for choice in BACKENDS {
        let ring = ring(choice);
        for (query, rows) in queries() {
            let file = ParquetFile::open(&ring, path).await.unwrap();
            assert_eq!(compare(file, &query).await, rows, "{query:?}");
            let apart = ParquetFileOptions::new().gap(0).open(&ring, path).await.unwrap();
            compare(apart, &query).await;
            if let Some(direct) = open_direct(&ring, path).await {
                compare(direct, &query).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_those_of_the_own_reader() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    compare_all(&path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_tables_are_those_of_the_own_reader() {
    let (_directory, path) = place();
    table::write_compressed(&path, ROWS);
    compare_all(&path).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_what_was_written() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    let batches = table::read(file, &Query::all()).await.unwrap();
    assert!(batches.len() > 1);
    assert!(table::are_the_table(&batches, &table::table(ROWS)));
}

#[tokio::test]
async fn a_runtime_of_one_thread_is_enough() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    assert_eq!(compare(file, &Query::all()).await, ROWS);
}

#[test]
fn no_runtime_is_needed() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let ring = ring(BackendChoice::Auto);
    let read = async {
        let file = ParquetFile::open(&ring, &path).await.unwrap();
        table::read(file, &Query::all()).await.unwrap()
    };
    assert_eq!(table::rows(&futures::executor::block_on(read)), ROWS);
}

#[tokio::test(flavor = "multi_thread")]
async fn clones_read_at_the_same_time() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    let tasks = (0..5).map(|row_group| {
        let query = Query { row_groups: Some(vec![row_group]), ..Query::all() };
        let file = file.clone();
        tokio::spawn(async move { table::rows(&table::read(file, &query).await.unwrap()) })
    });
    let read = futures::future::try_join_all(tasks).await.unwrap();
    assert_eq!(read, [2_500, 2_500, 2_500, 2_500, 2_000]);
    // One of them has read the metadata for all.
    assert_eq!((file.cache().loads(), file.cache().hits()), (1, 4));
}

fn query() -> impl Strategy<Value = Query> {
    let columns = prop::collection::btree_set(0..COLUMNS, 1..=COLUMNS);
    let row_groups = prop::option::of(prop::sample::subsequence(vec![0, 1, 2, 3, 4], 0..=5));
    let filter = prop::option::of(1..3_000_i64);
    let selection = prop::option::of(prop::collection::vec(0..2_000_usize, 0..6));
    let page_index = prop_oneof![
        Just(PageIndexPolicy::Skip),
        Just(PageIndexPolicy::Optional),
        Just(PageIndexPolicy::Required)
    ];
    (columns, row_groups, filter, selection, page_index, 1..3_000_usize).prop_map(
        |(columns, row_groups, filter, selection, page_index, batch_rows)| Query {
            columns: columns.into_iter().collect(),
            // A selection is of the rows of all row groups.
            row_groups: row_groups.filter(|_| selection.is_none()),
            filter,
            selection,
            page_index,
            batch_rows,
        },
    )
}

#[test]
fn random_queries_are_answered_as_by_the_own_reader() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (_directory, path) = place();
    table::write_compressed(&path, ROWS);
    let _entered = runtime.enter();
    let ring = ring(BackendChoice::Auto);
    let file = runtime.block_on(ParquetFile::open(&ring, &path)).unwrap();
    proptest!(ProptestConfig::with_cases(64), |(query in query())| {
        runtime.block_on(compare(file.clone(), &query));
    });
}
