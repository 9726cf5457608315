//! What is refused, and what the errors say.

use std::{fs, io, ops::Range, process::Command, time::Duration};

use parquet::arrow::async_reader::AsyncFileReader;
use ringwise::BackendChoice;
use ringwise_parquet::{Error, ParquetFile, ParquetFileOptions};

use crate::{BACKENDS, open_direct, own, place, ring};

#[tokio::test(flavor = "multi_thread")]
async fn ranges_past_the_end_are_refused() {
    let (_directory, path) = place();
    fs::write(&path, "0123456789").unwrap();
    for choice in BACKENDS {
        let mut file = ParquetFile::open(&ring(choice), &path).await.unwrap();
        let backwards = Range { start: 5, end: 3 };
        for range in [9..11, 10..11, 11..12, 0..u64::MAX, u64::MAX - 1..u64::MAX, backwards] {
            for error in [
                own(file.get_bytes(range.clone()).await),
                own(file.get_byte_ranges(vec![0..1, range.clone()]).await),
            ] {
                let Error::OutOfFile { path: own, range: asked, len, .. } = &error else {
                    panic!("{error}");
                };
                assert_eq!((own, asked, *len), (&path, &range, 10));
            }
        }
        assert_eq!(file.get_bytes(9..10).await.unwrap(), "9");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_no_file_are_refused() {
    let (directory, path) = place();
    let ring = ring(BackendChoice::Auto);
    let error = ParquetFile::open(&ring, &path).await.unwrap_err();
    assert!(error.to_string().contains("table.parquet: No such file"), "{error}");
    let Error::Os { source, range: None, .. } = error else { panic!("{error}") };
    assert_eq!(source.kind(), io::ErrorKind::NotFound);

    let error = ParquetFile::open(&ring, &directory).await.unwrap_err();
    assert!(error.to_string().contains("it is not a regular file"), "{error}");
    let error = ParquetFile::open(&ring, "/dev/null").await.unwrap_err();
    assert!(error.to_string().starts_with("/dev/null: "), "{error}");
    assert!(error.to_string().contains("it is not a regular file"), "{error}");
}

/// The open waited for a writer.
#[tokio::test(flavor = "multi_thread")]
async fn a_fifo_is_refused_at_once() {
    let (_directory, path) = place();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    for choice in BACKENDS {
        let ring = ring(choice);
        for direct in [false, true] {
            let options = ParquetFileOptions::new().direct(direct);
            let opened = tokio::time::timeout(Duration::from_secs(10), options.open(&ring, &path));
            let error = opened.await.expect("nobody waits for a writer").unwrap_err();
            let Error::Os { source, .. } = error else { panic!("{error}") };
            assert_eq!(source.kind(), io::ErrorKind::InvalidInput, "{source}");
        }
    }
}

/// The process was aborted: memory for a range came from an allocator that cannot fail. A damaged footer may ask for all
/// of a file, and a file may be longer than memory.
#[tokio::test(flavor = "multi_thread")]
async fn ranges_that_do_not_fit_into_memory_are_errors() {
    let (_directory, path) = place();
    let file = fs::File::create(&path).unwrap();
    // More than the address space of a process.
    let len = (1_u64 << 62) - 1;
    let len = [len, 1 << 43].into_iter().find(|len| file.set_len(*len).is_ok());
    let Some(len) = len else {
        eprintln!("skipped: no file is that long");
        return;
    };
    let ring = ring(BackendChoice::Auto);
    let buffered = ParquetFile::open(&ring, &path).await.unwrap();
    for mut file in open_direct(&ring, &path).await.into_iter().chain([buffered]) {
        for range in [0..len, len - (1 << 43)..len, 4097..len - 4095] {
            let error = own(file.get_byte_ranges(vec![0..1, range.clone()]).await);
            let Error::Memory { range: refused, .. } = &error else { panic!("{error}") };
            assert!(refused.end == range.end, "{refused:?}");
            let text = error.to_string();
            assert!(text.contains("table.parquet: bytes ") && text.contains("no memory"), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_without_a_table_are_refused_by_name() {
    let (_directory, path) = place();
    let ring = ring(BackendChoice::Auto);
    let long = "x".repeat(100_000);
    for content in ["", "PAR1", "PAR1PAR1", "PAR1 and no table", &*long] {
        fs::write(&path, content).unwrap();
        let mut file = ParquetFile::open(&ring, &path).await.unwrap();
        let error = file.get_metadata(None).await.unwrap_err().to_string();
        assert!(error.contains("table.parquet: "), "{content:.20}: {error}");
    }
}
