//! The metadata cache: when it serves, and when it does not.

use std::{fs, sync::Arc, time::Duration};

use parquet::{
    arrow::{arrow_reader::ArrowReaderOptions, async_reader::AsyncFileReader},
    basic::Compression,
    encryption::{decrypt::FileDecryptionProperties, encrypt::FileEncryptionProperties},
    file::{
        metadata::{ColumnChunkMask, PageIndexPolicy, ParquetMetaData},
        properties::WriterProperties,
    },
};
use ringwise::BackendChoice;
use ringwise_parquet::{MetadataCache, ParquetFile, ParquetFileOptions};

use crate::{
    open_direct, place, ring,
    table::{self, ROWS},
};

/// Loads and hits.
fn counts(cache: &MetadataCache) -> (u64, u64) {
    (cache.loads(), cache.hits())
}

/// Whether a column has a column index and an offset index.
fn indexes(metadata: &ParquetMetaData, column: usize) -> (bool, bool) {
    let of_group = metadata.page_index_for_row_group(0);
    (of_group.column_index(column).is_some(), of_group.offset_index(column).is_some())
}

fn with_index(policy: PageIndexPolicy) -> ArrowReaderOptions {
    ArrowReaderOptions::new().with_page_index_policy(policy)
}

#[tokio::test(flavor = "multi_thread")]
async fn clones_share_metadata() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let mut file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    let mut clone = file.clone();
    let first = file.get_metadata(None).await.unwrap();
    let second = clone.get_metadata(Some(&ArrowReaderOptions::new())).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(counts(file.cache()), (1, 1));

    // Another opening has a cache of its own.
    let mut other = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &other.get_metadata(None).await.unwrap()));
    assert_eq!((counts(file.cache()), counts(other.cache())), ((1, 1), (1, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_of_pages_are_there_if_they_are_asked_for() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let mut file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    for round in 0..2 {
        let plain = file.get_metadata(None).await.unwrap();
        assert_eq!(indexes(&plain, 0), (false, false));
        let both = file.get_metadata(Some(&with_index(PageIndexPolicy::Required))).await.unwrap();
        assert_eq!(indexes(&both, 0), (true, true));
        let offsets = ArrowReaderOptions::new().with_offset_index_policy(PageIndexPolicy::Optional);
        let offsets = file.get_metadata(Some(&offsets)).await.unwrap();
        assert_eq!(indexes(&offsets, 0), (false, true));
        assert_eq!(counts(file.cache()), (3, 3 * round));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_for_one_request_is_not_kept() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let mut file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    let some =
        with_index(PageIndexPolicy::Required).with_page_index_mask(ColumnChunkMask::columns([1]));
    for loads in 1..=2 {
        let metadata = file.get_metadata(Some(&some)).await.unwrap();
        assert_eq!([indexes(&metadata, 0), indexes(&metadata, 1)], [(false, false), (true, true)]);
        assert_eq!(counts(file.cache()), (loads, 0));
    }
    let all = file.get_metadata(Some(&with_index(PageIndexPolicy::Required))).await.unwrap();
    assert_eq!(indexes(&all, 0), (true, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_asked_for_each_time() {
    let (_directory, path) = place();
    let key = b"sixteen byte key".to_vec();
    let keys = FileEncryptionProperties::builder(key.clone()).build().unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .with_file_encryption_properties(keys)
        .build();
    table::write_with(&path, ROWS, properties);
    let key = FileDecryptionProperties::builder(key).build().unwrap();
    let with_key = ArrowReaderOptions::new().with_file_decryption_properties(key);
    let mut file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    for _ in 0..2 {
        let metadata = file.get_metadata(Some(&with_key)).await.unwrap();
        assert_eq!(metadata.file_metadata().num_rows(), ROWS as i64);
        assert!(file.get_metadata(None).await.is_err());
    }
    assert_eq!(counts(file.cache()), (4, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_cache_keeps_the_files_that_were_used_last() {
    let (directory, _) = place();
    let (ring, cache) = (ring(BackendChoice::Auto), MetadataCache::new(2));
    let options = ParquetFileOptions::new().cache(&cache);
    let rows = |name: &'static str| {
        let (ring, options, path) = (&ring, &options, directory.path().join(name));
        async move {
            let mut file = options.open(ring, path).await.unwrap();
            file.get_metadata(None).await.unwrap().file_metadata().num_rows()
        }
    };
    for (name, count) in [("a", 10), ("b", 20), ("c", 30)] {
        table::write(&directory.path().join(name), count);
    }
    assert_eq!((rows("a").await, rows("b").await, rows("a").await), (10, 20, 10));
    assert_eq!(counts(&cache), (2, 1));
    // It takes the place of `b`.
    assert_eq!((rows("c").await, rows("a").await), (30, 10));
    assert_eq!(counts(&cache), (3, 2));
    assert_eq!(rows("b").await, 20);
    assert_eq!(counts(&cache), (4, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_task_reads_for_all_that_wait() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    let tasks = (0..20).map(|_| {
        let mut file = file.clone();
        tokio::spawn(async move { file.get_metadata(None).await.unwrap() })
    });
    let read = futures::future::try_join_all(tasks).await.unwrap();
    assert!(read.iter().all(|metadata| Arc::ptr_eq(metadata, &read[0])));
    assert_eq!(counts(file.cache()), (1, 19));
}

/// The second waited until somebody polled the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_on_while_nobody_polls_the_one_that_reads() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let cache = MetadataCache::new(1);
    let options = ParquetFileOptions::new().cache(&cache).direct(true);
    let rings = [ring(BackendChoice::Auto), ring(BackendChoice::Classic)];
    let Ok(mut first) = options.open(&rings[0], &path).await else {
        assert!(std::env::var_os("CI").is_none(), "skipped: no direct reads");
        println!("skipped: no direct reads");
        return;
    };
    let mut clone = first.clone();
    let mut other = options.open(&rings[1], &path).await.unwrap();
    let mut begun = first.get_metadata(None);
    assert!(futures::poll!(&mut begun).is_pending(), "the device takes its time");
    for waits in [&mut clone, &mut other] {
        let waits = tokio::time::timeout(Duration::from_secs(10), waits.get_metadata(None));
        waits.await.expect("it goes on by itself").unwrap();
    }
    begun.await.unwrap();
    assert_eq!(first.get_metadata(None).await.unwrap().file_metadata().num_rows(), ROWS as i64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_on_when_the_one_that_reads_is_dropped() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let Some(file) = open_direct(&ring(BackendChoice::Auto), &path).await else { return };
    let (mut first, mut second) = (file.clone(), file.clone());
    let mut begun = first.get_metadata(None);
    assert!(futures::poll!(&mut begun).is_pending(), "the device takes its time");
    let mut waits = second.get_metadata(None);
    assert!(futures::poll!(&mut waits).is_pending());
    drop(begun);
    tokio::time::timeout(Duration::from_secs(10), waits).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_not_kept() {
    let (_directory, path) = place();
    fs::write(&path, "PAR1, but no table").unwrap();
    let mut file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    assert!(file.get_metadata(None).await.is_err());
    assert!(file.get_metadata(None).await.is_err());
    assert_eq!(counts(file.cache()), (2, 0));
    table::write(&path, ROWS);
    assert_eq!(file.get_metadata(None).await.unwrap().file_metadata().num_rows(), ROWS as i64);
    assert_eq!(counts(file.cache()), (3, 0));
}
