//! The source as Vortex sees it: ranges beside those of Vortex's own reader, what is refused, and whole files.

mod ranges;
mod refusals;
mod scans;

use std::path::PathBuf;

use ringwise::{BackendChoice, Builder, Ring};
use tempfile::TempDir;

const BACKENDS: [BackendChoice; 2] = [BackendChoice::Auto, BackendChoice::Classic];

fn ring(choice: BackendChoice) -> Ring {
    Builder::default().backend(choice).build_ring().unwrap()
}

/// A directory on a disk, and a path in it.
fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("table.vortex");
    (directory, path)
}
