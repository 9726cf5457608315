//! Calls that a thread waits for, on a loop of its own: made again where they were interrupted, and
//! brought to their end where they were short.

use std::path::Path;

use ringwise::{Completion, Descriptor, ErrorKind, Local, OpenOptions, Operation};

/// How much is read at a time, in bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// Makes an operation, again where it was interrupted and did nothing.
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

/// Writes all of some bytes.
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

/// Opens a directory, to sync the names in it.
pub(crate) fn open_directory(
    local: &mut Local,
    path: &Path,
) -> Result<Descriptor, ringwise::Error> {
    run(local, || Operation::open(path, OpenOptions::new().read(true)))?.into_descriptor()
}

/// Makes a file for lines, past the page cache if that is wanted and can be.
pub(super) fn open_data(
    local: &mut Local,
    path: &Path,
    new: OpenOptions,
    is_direct: bool,
) -> Result<(Descriptor, bool), ringwise::Error> {
    let opened = run(local, || Operation::open(path, new.direct(is_direct)));
    match opened.and_then(Completion::into_descriptor) {
        // The file was made before it was refused: open(2).
        Err(error) if is_direct && is_invalid(&error) => {
            let _ = run(local, || Operation::unlink(path));
            let opened = run(local, || Operation::open(path, new))?;
            Ok((opened.into_descriptor()?, false))
        }
        opened => Ok((opened?, is_direct)),
    }
}

/// Reads from `start` to `end` or the end of the file; says how many bytes there were.
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

pub(crate) fn is_transient(error: &ringwise::Error) -> bool {
    use rustix::io::Errno;
    error.kind() == ErrorKind::Interrupted || error.errno() == Errno::AGAIN.raw_os_error()
}

/// No space, or no quota: nothing was lost, and it may pass.
pub(crate) fn is_space(error: &ringwise::Error) -> bool {
    use rustix::io::Errno;
    let errnos = [Errno::NOSPC, Errno::DQUOT];
    errnos.iter().any(|errno| errno.raw_os_error() == error.errno())
}

/// What may pass, with what can be done about it.
pub(crate) fn passing(error: &ringwise::Error) -> String {
    match is_space(error) {
        true => format!("{error}; free some, or keep less (--retain-size)"),
        false => error.to_string(),
    }
}

/// No descriptor is free: nothing was lost, and others close theirs, as who seals segments does.
pub(crate) fn is_descriptors(error: &ringwise::Error) -> bool {
    use rustix::io::Errno;
    let errnos = [Errno::MFILE, Errno::NFILE];
    errnos.iter().any(|errno| errno.raw_os_error() == error.errno())
}

/// A limit on the size of files (setrlimit(2), `RLIMIT_FSIZE`, or the file system's): not for a file
/// that begins.
pub(crate) fn is_too_large(error: &ringwise::Error) -> bool {
    error.errno() == rustix::io::Errno::FBIG.raw_os_error()
}

/// What direct I/O is refused with.
pub(crate) fn is_invalid(error: &ringwise::Error) -> bool {
    error.errno() == rustix::io::Errno::INVAL.raw_os_error()
}

/// It had no turn: what it was linked to did not end well.
pub(crate) fn is_cancelled(error: &ringwise::Error) -> bool {
    error.errno() == rustix::io::Errno::CANCELED.raw_os_error()
}
