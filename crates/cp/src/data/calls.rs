//! Ordinary syscalls: copy_file_range(2), and read and write through a buffer.
//!
//! Other ways begin again with these when something does not go as it should, because these say what
//! is wrong as GNU cp says it. Nothing here chooses a way.

use rustix::{
    fs::{self, SeekFrom},
    io::{self, Errno},
};

use super::verify::Checksums;
use crate::{
    job::Job,
    messages::report::Line,
    names::place::{retry, set_direct},
    way,
};

/// GNU's, and where larger ones stop to pay on the machines that it was measured on
/// (coreutils, src/ioblksize.h).
pub(crate) const BLOCK_BYTES: usize = 256 << 10;

/// A call's worth of copy_file_range: short enough that a signal need not wait.
const RANGE_BYTES: usize = 64 << 20;

/// Within the kernel, or through a buffer where these files cannot or each byte is to be seen.
pub(super) fn range_or_plain(job: &Job, sums: &mut Option<Checksums>) -> Result<(), Line> {
    if sums.is_some() || !range(job)? {
        plain(job, sums)?;
    }
    Ok(())
}

/// Begins a copy again from the start, after another way failed.
pub(crate) fn copy_again(job: &Job) -> Result<(), Line> {
    let cut = || fs::ftruncate(&job.copy, 0);
    set_direct(&job.copy, false)
        .and_then(|()| retry(cut))
        .map_err(|errno| job.write_error(errno))?;
    fs::seek(&job.source, SeekFrom::Start(0)).map_err(|errno| job.read_error(errno))?;
    range_or_plain(job, &mut None)
}

/// Reads the source of a copy that shares its blocks.
pub(super) fn checksum(job: &Job, sums: &mut Checksums) -> Result<(), Line> {
    let mut buffer = vec![0; BLOCK_BYTES];
    loop {
        match read(job, &mut buffer)? {
            0 => return Ok(()),
            count => sums.add(&buffer[..count]),
        }
    }
}

/// Within the kernel. False where these files cannot, and nothing was moved.
fn range(job: &Job) -> Result<bool, Line> {
    let mut moved = 0_u64;
    let size = u64::try_from(job.source_stat.st_size).unwrap_or(0);
    loop {
        let copied = retry(|| fs::copy_file_range(&job.source, None, &job.copy, None, RANGE_BYTES));
        match copied {
            // Nothing at all may be a file of /proc, which has no size and yet content.
            Ok(0) => return Ok(moved > 0),
            Ok(count) => {
                moved += count as u64;
                job.meter.add_bytes(count as u64);
                // Less than there was room for, and all that it had: its end.
                if moved >= size && count < RANGE_BYTES {
                    return Ok(true);
                }
            }
            Err(errno) if moved == 0 && way::is_refusal(errno) => return Ok(false),
            Err(errno) => {
                let names = [&job.source_path[..], &job.copy_path];
                return Err(job.text("error copying %s to %s", &names, errno));
            }
        }
    }
}

/// Read and write, from the current positions to the source's end.
pub(super) fn plain(job: &Job, sums: &mut Option<Checksums>) -> Result<(), Line> {
    let block = job.options.block_bytes.unwrap_or(BLOCK_BYTES);
    let is_regular = fs::FileType::from_raw_mode(job.source_stat.st_mode).is_file();
    let size = usize::try_from(job.source_stat.st_size).unwrap_or(0);
    // Room for one byte more than a small file has: it ends where less comes.
    let known = if is_regular { size } else { 0 };
    let mut buffer = vec![0; if known > 0 { block.min(known.saturating_add(1)) } else { block }];
    let mut moved = 0;
    loop {
        let count = read(job, &mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        if let Some(sums) = sums {
            sums.add(&buffer[..count]);
        }
        write_all(job, &buffer[..count])?;
        moved += count;
        if known > 0 && moved >= known && count < buffer.len() {
            return Ok(());
        }
    }
}

pub(super) fn read(job: &Job, buffer: &mut [u8]) -> Result<usize, Line> {
    retry(|| io::read(&job.source, &mut buffer[..])).map_err(|errno| job.read_error(errno))
}

pub(super) fn write_all(job: &Job, mut bytes: &[u8]) -> Result<(), Line> {
    while !bytes.is_empty() {
        match retry(|| io::write(&job.copy, bytes)) {
            Ok(0) => return Err(job.write_error(Errno::NOSPC)),
            Ok(count) => {
                job.meter.add_bytes(count as u64);
                bytes = &bytes[count..];
            }
            Err(errno) => return Err(job.write_error(errno)),
        }
    }
    Ok(())
}
