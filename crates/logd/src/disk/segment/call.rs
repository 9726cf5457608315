//! Blocking syscalls on a loop of their own. An interrupted syscall is repeated, and a short read or write is continued
//! to its end.

use std::path::Path;

use ringwise::{Completion, Descriptor, ErrorKind, Local, OpenOptions, Operation};
use rustix::io::Errno;

/// Bytes of one read.
const CHUNK_BYTES: usize = 1 << 20;

/// Runs an operation, and repeats it if it was interrupted.
pub(crate) fn run(
    local: &mut Local,
    mut operation: impl FnMut() -> Operation,
) -> Result<Completion, ringwise::Error> {
    loop {
        let done = local.run(operation())?;
        match done.result() {
            Ok(_) => return Ok(done),
            Err(error) if is_transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes all bytes.
pub(crate) fn write_all(
    local: &mut Local,
    file: &Descriptor,
    bytes: &[u8],
    offset: u64,
) -> Result<(), ringwise::Error> {
    let mut done = 0;
    while done < bytes.len() {
        let write = || Operation::write_at(file, bytes[done..].to_vec(), offset + done as u64);
        done += run(local, write)?.result()?;
    }
    Ok(())
}

pub(crate) fn sync(local: &mut Local, file: &Descriptor) -> Result<(), ringwise::Error> {
    run(local, || Operation::sync_all(file)).map(drop)
}

/// Opens a file.
pub(super) fn open(
    local: &mut Local,
    path: &Path,
    options: OpenOptions,
) -> Result<Descriptor, ringwise::Error> {
    run(local, || Operation::open(path, options))?.into_descriptor()
}

/// Opens a directory, to sync the names in it.
pub(crate) fn open_directory(
    local: &mut Local,
    path: &Path,
) -> Result<Descriptor, ringwise::Error> {
    open(local, path, OpenOptions::new().read(true))
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(local: &mut Local, path: &Path) -> Result<(), ringwise::Error> {
    let directory = open_directory(local, path)?;
    sync(local, &directory)
}

/// Removes a file if it exists.
pub(super) fn unlink(local: &mut Local, path: &Path) -> Result<(), ringwise::Error> {
    match run(local, || Operation::unlink(path)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates a file for lines, with direct I/O if it is wanted and possible. Returns whether the file is direct.
pub(super) fn open_data(
    local: &mut Local,
    path: &Path,
    new: OpenOptions,
    is_direct: bool,
) -> Result<(Descriptor, bool), ringwise::Error> {
    match open(local, path, new.direct(is_direct)) {
        // The kernel creates the file before it refuses the flag: open(2).
        Err(error) if is_direct && is_invalid(&error) => {
            let _ = unlink(local, path);
            Ok((open(local, path, new)?, false))
        }
        opened => Ok((opened?, is_direct)),
    }
}

/// Reads from `start` to `end`, or to the end of the file. Returns the number of bytes.
pub(crate) fn read(
    local: &mut Local,
    file: &Descriptor,
    start: u64,
    end: u64,
    mut take: impl FnMut(&[u8]),
) -> Result<u64, ringwise::Error> {
    let (mut at, mut buffer) = (start, vec![0; CHUNK_BYTES]);
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let mut given = Some(buffer);
        let read = || {
            let bytes = given.take().unwrap_or_else(|| vec![0; CHUNK_BYTES]);
            Operation::read_at(file, ringwise::Buffer::from(bytes).slice(..len), at)
        };
        let done = run(local, read)?;
        let count = done.result()?;
        let Some(Ok(bytes)) = done.into_buffer().map(ringwise::Buffer::into_vec) else { break };
        buffer = bytes;
        if count == 0 {
            break;
        }
        take(&buffer[..count]);
        at += count as u64;
    }
    Ok(at - start)
}

/// Reads all bytes from `start` to `end`, or to the end of the file.
pub(super) fn read_all(
    local: &mut Local,
    file: &Descriptor,
    start: u64,
    end: u64,
) -> Result<Vec<u8>, ringwise::Error> {
    let mut bytes = Vec::new();
    read(local, file, start, end, |more| bytes.extend_from_slice(more))?;
    Ok(bytes)
}

fn is_one_of(error: &ringwise::Error, errnos: &[Errno]) -> bool {
    errnos.iter().any(|errno| errno.raw_os_error() == error.errno())
}

pub(crate) fn is_transient(error: &ringwise::Error) -> bool {
    error.kind() == ErrorKind::Interrupted || is_one_of(error, &[Errno::AGAIN])
}

/// Whether there is no space or no quota. Nothing was lost, and the error may pass.
pub(crate) fn is_space(error: &ringwise::Error) -> bool {
    is_one_of(error, &[Errno::NOSPC, Errno::DQUOT])
}

/// Describes an error that may pass, with a remedy for the operator.
pub(crate) fn passing(error: &ringwise::Error) -> String {
    match is_space(error) {
        true => format!("{error}; free some space, or keep less (--retain-size)"),
        false => error.to_string(),
    }
}

/// Whether no descriptor is free. Nothing was lost, and others will be closed, such as those of sealed segments.
pub(crate) fn is_descriptors(error: &ringwise::Error) -> bool {
    is_one_of(error, &[Errno::MFILE, Errno::NFILE])
}

/// Whether the file has reached its size limit (`RLIMIT_FSIZE` in setrlimit(2), or the limit of the file system).
pub(crate) fn is_too_large(error: &ringwise::Error) -> bool {
    is_one_of(error, &[Errno::FBIG])
}

/// Whether this is the error of a refused direct I/O.
pub(crate) fn is_invalid(error: &ringwise::Error) -> bool {
    is_one_of(error, &[Errno::INVAL])
}

/// Whether the kernel cancelled the operation: it has no thread for it, or an operation before it in the link failed.
pub(crate) fn is_cancelled(error: &ringwise::Error) -> bool {
    is_one_of(error, &[Errno::CANCELED])
}
