//! Files and names, through a [`Ring`]: what most programs call.
//!
//! A [`File`] chooses the cheapest way. If the page cache can serve a read, or take a write of at most 1 MiB,
//! without waiting, the polling thread makes the syscall. The ring or a thread makes all others. The other
//! functions are for whole files and names, as in [`std::fs`]; docs/reference/fs.md says who makes each syscall.
//!
//! # Cancel safety
//!
//! Every future may be dropped. A read under way is cancelled, and a file that is being opened is closed.
//! Any other operation goes on to its end. Later parts (the rest of a long write, the write after an open)
//! do not begin.

mod abandoned;
mod chain;
mod chunks;
mod cursor;
mod directory;
mod file;
#[cfg(feature = "futures-io")]
mod futures_io;
mod inline;
mod journal;
mod nature;
mod regular;
#[cfg(feature = "tokio")]
mod tokio;
mod turn;

use std::{fs::Permissions, os::unix::fs::PermissionsExt, path::Path};

pub use chain::{Chain, StepOutcome};
pub use chunks::Chunks;
pub use cursor::Cursor;
pub use directory::{
    DirEntry, ReadDir, canonicalize, create_dir_all, read_dir, read_link, remove_dir_all,
};
pub use file::File;
pub use journal::{Journal, JournalOptions, Record, Records, Recovery, TornTail};
pub use nature::locality::is_local;

use crate::{
    buf::{BufResult, OwnedBuffer},
    error::{Errno, Error, ErrorKind},
    op::{Opcode, OpenOptions, Operation, metadata::Metadata},
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

/// Writes a whole file. It creates the file, or cuts it to nothing first. The data is not durable before
/// [`File::sync_all`].
///
/// # Errors
///
/// Why it could not be opened or written. The buffer comes back in any case.
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

/// Renames a file, and replaces one that has the new name. The rename is durable once the directory is
/// synced: open it as a [`File`] and call [`sync_all`](File::sync_all).
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

/// Makes a symbolic link at `path` that leads to `target`.
///
/// # Errors
///
/// Why it could not be made.
pub async fn symlink(
    ring: &Ring,
    target: impl AsRef<Path>,
    path: impl AsRef<Path>,
) -> Result<(), Error> {
    run(ring, Operation::symlink(target, path)).await
}

/// Reads a name's metadata, without following a link in its last part.
///
/// # Errors
///
/// Why it could not be read.
pub async fn symlink_metadata(ring: &Ring, path: impl AsRef<Path>) -> Result<Metadata, Error> {
    ring.submit(Operation::statx_link(path)).await.metadata()
}

/// Tells whether a path leads to something, following links.
///
/// # Errors
///
/// Why that could not be found out. A missing name is no error.
pub async fn try_exists(ring: &Ring, path: impl AsRef<Path>) -> Result<bool, Error> {
    match metadata(ring, path).await {
        Ok(_) => Ok(true),
        Err(error) if error.errno() == libc::ENOENT => Ok(false),
        Err(error) => Err(error),
    }
}

/// Sets a file's permission bits, following links. A thread makes the syscall.
///
/// # Errors
///
/// Why they could not be set.
pub async fn set_permissions(
    ring: &Ring,
    path: impl AsRef<Path>,
    permissions: Permissions,
) -> Result<(), Error> {
    run(ring, Operation::set_mode(path, permissions.mode())).await
}

/// Reads a whole file of UTF-8.
///
/// # Errors
///
/// Why it could not be opened or read; `EILSEQ` if its bytes are not UTF-8.
pub async fn read_to_string(ring: &Ring, path: impl AsRef<Path>) -> Result<String, Error> {
    let path = path.as_ref();
    String::from_utf8(read(ring, path).await?).map_err(|_| {
        Error::new(Opcode::Read, Errno(libc::EILSEQ)).on_path(path).advise("it is not UTF-8")
    })
}

/// Copies a regular file's content and permission bits to another name, and gives the number of bytes. It
/// creates the new file, or cuts it to nothing first. It reads up to 1 MiB, writes it, and then reads the
/// next part.
///
/// # Errors
///
/// Why a part of it failed. `EINVAL` if the source is no regular file, or both names lead to the same
/// file.
///
/// # Cancel safety
///
/// If the future is dropped, the new file has a part of the content.
pub async fn copy(ring: &Ring, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64, Error> {
    const STEP_BYTES: usize = 1 << 20;
    let (from, to) = (from.as_ref(), to.as_ref());
    let source = File::open(ring, from, OpenOptions::new().read(true)).await?;
    let about = source.metadata().await?;
    let identity = |about: &Metadata| (about.device(), about.inode());
    let is_same = match metadata(ring, to).await {
        Ok(there) => identity(&there) == identity(&about),
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    if is_same || !about.is_file() {
        let advice = match is_same {
            true => "both names lead to the same file: name another destination",
            false => "it is not a regular file",
        };
        return Err(Error::new(Opcode::Open, Errno(libc::EINVAL)).advise(advice).on_path(from));
    }
    let mode = about.mode() & 0o7777;
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(mode);
    let copy = File::open(ring, to, options).await?;
    // Before the content, so that nobody reads more than of the source. A device or a pipe keeps its permissions, which
    // are those of all its users.
    if copy.metadata().await?.is_file() {
        copy.set_permissions(about.permissions()).await?;
    }
    let (mut buffer, mut done) = (vec![0; STEP_BYTES], 0);
    loop {
        let count;
        (count, buffer) = source.read_at(buffer, done).await.into_result()?;
        if count == 0 {
            return Ok(done);
        }
        buffer.truncate(count);
        buffer = copy.write_all_at(buffer, done).await.into_buffer()?;
        buffer.resize(STEP_BYTES, 0);
        done += count as u64;
    }
}

async fn run(ring: &Ring, operation: Operation) -> Result<(), Error> {
    ring.submit(operation).await.result().map(drop)
}
