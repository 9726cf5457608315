//! Files that change while they are open.

use std::{
    fs,
    io::Write,
    time::{Duration, SystemTime},
};

use futures::TryStreamExt;
use parquet::arrow::{ParquetRecordBatchStreamBuilder, async_reader::AsyncFileReader};
use ringwise::BackendChoice;
use ringwise_parquet::{Error, MetadataCache, ParquetFile, ParquetFileOptions};

use crate::{
    open_direct, own, place, ring,
    table::{self, Query, ROWS},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_written_anew_is_read_anew() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let mut file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    let mut other = file.clone();
    let old = file.get_metadata(None).await.unwrap();
    other.get_metadata(None).await.unwrap();

    table::write(&path, ROWS / 2);
    let error = own(other.get_bytes(4..9).await);
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert!(error.to_string().contains("table.parquet: bytes 4..9: the file was changed"));
    let new = file.get_metadata(None).await.unwrap();
    assert_eq!(old.file_metadata().num_rows(), ROWS as i64);
    assert_eq!(new.file_metadata().num_rows(), ROWS as i64 / 2);
    assert_eq!(file.len(), fs::metadata(&path).unwrap().len());
    assert_eq!((file.cache().loads(), file.cache().hits()), (2, 1));
    let batches = table::read(file, &Query::all()).await.unwrap();
    assert!(table::are_the_table(&batches, &table::table(ROWS / 2)));

    // The other handle still has the old version, until it asks for metadata too.
    assert!(matches!(own(other.get_bytes(4..9).await), Error::Changed { .. }));
    other.get_metadata(None).await.unwrap();
    assert_eq!(other.get_bytes(0..4).await.unwrap(), "PAR1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_keeps_the_length_is_seen_by_its_time() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let mut file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    file.get_metadata(None).await.unwrap();
    let before = SystemTime::UNIX_EPOCH;
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_modified(before).unwrap();
    assert!(matches!(own(file.get_bytes(0..4).await), Error::Changed { .. }));
    file.get_metadata(None).await.unwrap();
    assert_eq!(file.get_bytes(0..4).await.unwrap(), "PAR1");
    assert_eq!((file.cache().loads(), file.cache().hits()), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_replaced_is_read_as_it_was() {
    let (directory, path) = place();
    table::write(&path, ROWS);
    let (ring, cache) = (ring(BackendChoice::Auto), MetadataCache::new(10));
    let options = ParquetFileOptions::new().cache(&cache);
    let mut old = options.open(&ring, &path).await.unwrap();
    old.get_metadata(None).await.unwrap();
    let next = directory.path().join("next");
    table::write(&next, ROWS / 3);
    fs::rename(&next, &path).unwrap();

    let new = options.open(&ring, &path).await.unwrap();
    assert_eq!(table::rows(&table::read(new, &Query::all()).await.unwrap()), ROWS / 3);
    assert_eq!(table::rows(&table::read(old, &Query::all()).await.unwrap()), ROWS);
    // The change of its names may be one of its content, so it was read again.
    assert_eq!((cache.loads(), cache.hits()), (3, 0));
}

/// The metadata from before was given for the new content.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_keeps_length_and_time_is_seen_by_the_cache() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let mut file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    let old = file.get_metadata(None).await.unwrap();
    let len = file.len();
    // The time of the change comes from a clock that ticks.
    tokio::time::sleep(Duration::from_millis(50)).await;
    // The file is that of another table in all but its length.
    table::write(&path, ROWS / 2);
    let mut shorter = fs::read(&path).unwrap();
    let mut content = vec![0; len as usize - shorter.len()];
    content.append(&mut shorter);
    fs::write(&path, content).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_modified(modified).unwrap();

    let new = file.get_metadata(None).await.unwrap();
    assert_eq!((file.len(), fs::metadata(&path).unwrap().modified().unwrap()), (len, modified));
    assert_eq!(old.file_metadata().num_rows(), ROWS as i64);
    assert_eq!(new.file_metadata().num_rows(), ROWS as i64 / 2);
    assert_eq!((file.cache().loads(), file.cache().hits()), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_names_or_permissions_is_none_of_the_content() {
    let (directory, path) = place();
    table::write(&path, ROWS);
    let mut file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    file.get_metadata(None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    fs::hard_link(&path, directory.path().join("link")).unwrap();
    fs::rename(&path, directory.path().join("renamed")).unwrap();
    assert_eq!(file.get_bytes(0..4).await.unwrap(), "PAR1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_cut_is_an_error() {
    let (_directory, path) = place();
    let ring = ring(BackendChoice::Auto);
    for is_direct in [false, true] {
        table::write(&path, ROWS);
        let file = ParquetFile::open(&ring, &path).await.unwrap();
        let direct = if is_direct { open_direct(&ring, &path).await } else { None };
        let mut file = direct.unwrap_or(file);
        let len = file.len();
        let builder = ParquetRecordBatchStreamBuilder::new(file.clone()).await.unwrap();
        let mut stream = builder.build().unwrap();
        assert!(stream.try_next().await.unwrap().is_some());
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(len / 2).unwrap();

        let range = len / 2 - 10..len / 2 + 10;
        let error = own(file.get_byte_ranges(vec![0..4, range.clone()]).await);
        assert!(matches!(&error, Error::Changed { path: own, .. } if *own == path), "{error}");
        let error = own(file.get_bytes(range).await);
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        let rest: Result<Vec<_>, _> = stream.try_collect().await;
        assert!(rest.is_err_and(|error| error.to_string().contains("table.parquet: bytes ")));
        // What is left is no table.
        let error = file.get_metadata(None).await.unwrap_err().to_string();
        assert!(error.contains("table.parquet: "), "{error}");
        assert!(matches!(own(file.get_bytes(0..len).await), Error::Changed { .. }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_grows_is_another() {
    let (_directory, path) = place();
    table::write(&path, ROWS);
    let mut file = ParquetFile::open(&ring(BackendChoice::Auto), &path).await.unwrap();
    let len = file.len();
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    assert!(matches!(own(file.get_bytes(len..len + 4).await), Error::OutOfFile { .. }));
    assert!(matches!(own(file.get_bytes(0..4).await), Error::Changed { .. }));
    assert!(file.get_metadata(None).await.is_err());
    // It has no metadata of what the file is now, so it reads nothing of that.
    assert!(matches!(own(file.get_bytes(0..4).await), Error::Changed { .. }));
}
