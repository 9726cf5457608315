//! Files and names, through a [`Ring`]: what most programs call.
//!
//! A [`File`] takes the cheapest way to the same result: a read that the page cache can serve, or a
//! small write that it can take, is made by the caller's own thread, and only what has to wait goes
//! through the ring. The functions beside it are for whole files and names, in the manner of
//! [`std::fs`].
//!
//! Any future here may be dropped at any moment. Of its operation that is under way then a read is
//! cancelled, a file that is being opened is closed, and everything else goes on to its end; what it
//! would have done after that (the rest of a long write, the write after an open) is not begun.

mod abandoned;
mod chain;
mod file;
mod filesystem;
mod inline;
mod nature;
mod turn;

use std::path::Path;

pub use chain::{Chain, StepOutcome};
pub use file::File;

use crate::{
    buf::{BufResult, OwnedBuffer},
    error::Error,
    metadata::Metadata,
    op::{OpenOptions, Operation},
    ring::Ring,
};

/// Reads a whole file.
///
/// # Errors
///
/// Why it could not be opened or read.
///
/// # Examples
///
/// ```
/// # futures::executor::block_on(async {
/// let ring = ringwise::Ring::new()?;
/// let name = ringwise::fs::read(&ring, "/proc/self/comm").await?;
/// assert!(name.ends_with(b"\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub async fn read(ring: &Ring, path: impl AsRef<Path>) -> Result<Vec<u8>, Error> {
    let file = File::open(ring, path, OpenOptions::new().read(true)).await?;
    file.read_to_end().await
}

/// Writes a whole file, made or cut to nothing first. Written is not durable: see
/// [`File::sync_all`].
///
/// # Errors
///
/// Why it could not be opened or written; the buffer comes back in any case.
pub async fn write<B: OwnedBuffer>(
    ring: &Ring,
    path: impl AsRef<Path>,
    buffer: B,
) -> BufResult<(), B> {
    let options = OpenOptions::new().write(true).create(true).truncate(true);
    match File::open(ring, path, options).await {
        Ok(file) => file.write_all_at(buffer, 0).await,
        Err(error) => BufResult(Err(error), buffer),
    }
}

/// Reads a name's metadata, following links.
///
/// # Errors
///
/// Why it could not be read.
pub async fn metadata(ring: &Ring, path: impl AsRef<Path>) -> Result<Metadata, Error> {
    ring.submit(Operation::statx(path)).await.metadata()
}

/// Makes a directory, with permissions 0o777 less the umask.
///
/// # Errors
///
/// Why it could not be made.
pub async fn create_dir(ring: &Ring, path: impl AsRef<Path>) -> Result<(), Error> {
    run(ring, Operation::create_dir(path, 0o777)).await
}

/// Removes a name that is not a directory.
///
/// # Errors
///
/// Why it could not be removed.
pub async fn remove_file(ring: &Ring, path: impl AsRef<Path>) -> Result<(), Error> {
    run(ring, Operation::unlink(path)).await
}

/// Removes an empty directory.
///
/// # Errors
///
/// Why it could not be removed.
pub async fn remove_dir(ring: &Ring, path: impl AsRef<Path>) -> Result<(), Error> {
    run(ring, Operation::remove_dir(path)).await
}

/// Renames, replacing what bears the new name. Durable once the directory is synced: open it as a
/// [`File`] and [`sync_all`](File::sync_all).
///
/// # Errors
///
/// Why it could not be renamed.
pub async fn rename(
    ring: &Ring,
    from: impl AsRef<Path>,
    to: impl AsRef<Path>,
) -> Result<(), Error> {
    run(ring, Operation::rename(from, to)).await
}

/// Gives a file a second name.
///
/// # Errors
///
/// Why it could not be linked.
pub async fn hard_link(
    ring: &Ring,
    existing: impl AsRef<Path>,
    new: impl AsRef<Path>,
) -> Result<(), Error> {
    run(ring, Operation::link(existing, new)).await
}

async fn run(ring: &Ring, operation: Operation) -> Result<(), Error> {
    ring.submit(operation).await.result().map(drop)
}
