//! The reader as its users see it: tables beside those of parquet's own reader, ranges beside the bytes of
//! the file, the metadata cache, files that change, and what is refused.

#![expect(clippy::single_range_in_vec_init, reason = "a request for one range is a list of one")]

mod ahead;
mod cache;
mod changes;
mod ranges;
mod refusals;
mod table;
mod tables;

use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use ringwise::{BackendChoice, Builder, Ring};
use ringwise_parquet::{Error, ParquetFile, ParquetFileOptions};
use tempfile::TempDir;

const BACKENDS: [BackendChoice; 2] = [BackendChoice::Auto, BackendChoice::Classic];

fn ring(choice: BackendChoice) -> Ring {
    Builder::default().backend(choice).build_ring().unwrap()
}

/// A directory on a disk, and a path in it.
fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("table.parquet");
    (directory, path)
}

/// Opens a file for direct reads. Tells so if its file system has none.
async fn open_direct(ring: &Ring, path: &Path) -> Option<ParquetFile> {
    match ParquetFileOptions::new().direct(true).open(ring, path).await {
        Ok(file) => Some(file),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "skipped: no direct reads: {error}");
            println!("skipped: no direct reads: {error}");
            None
        }
    }
}

/// The crate's own error, in that of parquet.
#[track_caller]
fn own<T>(result: Result<T, ParquetError>) -> Error {
    match result.err().expect("it is refused") {
        ParquetError::External(error) => *error.downcast::<Error>().expect("it is the crate's own"),
        error => panic!("an error of parquet: {error}"),
    }
}
