//! The store as its users see it: object_store's own suite, what is refused, what is left behind, and
//! random programs beside the store in memory.

#![expect(clippy::single_range_in_vec_init, reason = "a request for one range is a slice of one")]

#[cfg(feature = "object_store_0_13")]
extern crate object_store_0_13 as object_store;

mod attributes;
mod direct;
mod listings;
mod model;
mod reads;
mod refusals;
mod suite;
mod uploads;
mod waits;

use object_store::{Error, ObjectStore, ObjectStoreExt, path::Path};
use ringwise::{BackendChoice, Builder};
use ringwise_object_store::RingFileSystem;
use tempfile::TempDir;

/// Says why a test cannot run here. With `CI` set, that is a failure.
fn skip(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "skipped in CI: {reason}");
    eprintln!("skipped: {reason}");
}

/// A store on a new directory, and the directory.
fn store() -> (RingFileSystem, TempDir) {
    store_on(BackendChoice::Auto)
}

fn store_on(choice: BackendChoice) -> (RingFileSystem, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let ring = Builder::default().backend(choice).build_ring().unwrap();
    (RingFileSystem::with_ring(ring, &directory).unwrap(), directory)
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

async fn content(store: &dyn ObjectStore, location: &str) -> String {
    let bytes = store.get(&path(location)).await.unwrap().bytes().await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// All names in a directory.
fn names(directory: impl AsRef<std::path::Path>) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// What an error is called. Those that have no name of their own are `Generic`.
fn kind(error: &Error) -> &'static str {
    match error {
        Error::NotFound { .. } => "NotFound",
        Error::AlreadyExists { .. } => "AlreadyExists",
        Error::Precondition { .. } => "Precondition",
        Error::NotModified { .. } => "NotModified",
        Error::InvalidPath { .. } => "InvalidPath",
        Error::PermissionDenied { .. } => "PermissionDenied",
        Error::NotImplemented { .. } => "NotImplemented",
        _ => "Generic",
    }
}

#[track_caller]
fn refused<T>(result: Result<T, Error>) -> &'static str {
    kind(&result.err().expect("it is refused"))
}
