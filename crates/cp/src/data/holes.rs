//! Copies of files with holes: only what is no hole is written.
//!
//! The source's file system tells where data is (`SEEK_DATA`). Where it does not, or with
//! `--sparse=always`, blocks of zeros become holes.

use ringwise::Descriptor;
use rustix::{
    fs::{self, SeekFrom},
    io::Errno,
};

use super::{
    calls::{BLOCK_BYTES, read, write_all},
    verify::Checksums,
};
use crate::{command::options::Sparse, job::Job, messages::report::Line, names::place::retry, way};

/// Moves the content of a regular file.
pub(super) fn copy(job: &Job, sums: &mut Option<Checksums>) -> Result<(), Line> {
    let tells_extents = way::looks_sparse(&job.source_stat)
        && matches!(fs::seek(&job.source, SeekFrom::Data(0)), Ok(_) | Err(Errno::NXIO));
    // The question may have moved it.
    let _ = fs::seek(&job.source, SeekFrom::Start(0));
    if tells_extents {
        return extents(job, sums);
    }
    zeros(job, 0, u64::MAX, sums).and_then(|end| extend(job, end))
}

/// Only what the source's file system has blocks for; the rest becomes holes.
fn extents(job: &Job, sums: &mut Option<Checksums>) -> Result<(), Line> {
    let mut at = 0;
    let seek_error = |errno| job.text("cannot lseek %s", &[&job.source_path], errno);
    let length = || fs::seek(&job.source, SeekFrom::End(0)).map_err(seek_error);
    loop {
        let before = length()?;
        let start = match fs::seek(&job.source, SeekFrom::Data(at)) {
            Ok(start) => start,
            // No data behind here (lseek(2)): what was there before is a hole, and no more is, since
            // somebody may write to it or cut it meanwhile.
            Err(Errno::NXIO) => {
                let end = before.min(length()?).max(at);
                if let Some(sums) = sums {
                    sums.add_zeros(end - at);
                }
                return extend(job, end);
            }
            Err(errno) => return Err(seek_error(errno)),
        };
        let end = fs::seek(&job.source, SeekFrom::Hole(start)).map_err(seek_error)?;
        if let Some(sums) = sums {
            sums.add_zeros(start - at);
        }
        seek(&job.source, start).map_err(seek_error)?;
        seek(&job.copy, start)
            .map_err(|errno| job.text("cannot lseek %s", &[&job.copy_path], errno))?;
        let copied = if job.options.sparse == Sparse::Always {
            zeros(job, start, end, sums)?
        } else {
            part(job, start, end, sums)?
        };
        at = copied.max(start);
        if copied < end {
            // It was cut short meanwhile.
            return extend(job, copied);
        }
    }
}

/// The bytes between two offsets, where both files are. Gives where it ended.
fn part(job: &Job, start: u64, end: u64, sums: &mut Option<Checksums>) -> Result<u64, Line> {
    let block = job.options.block_bytes.unwrap_or(BLOCK_BYTES);
    let buffer = vec![0; block.min(usize::try_from(end - start).unwrap_or(block))];
    blocks(job, (start, end), sums, buffer, |_, block| write_all(job, block))
}

/// As [`part`], with holes for blocks of zeros.
fn zeros(job: &Job, start: u64, end: u64, sums: &mut Option<Checksums>) -> Result<u64, Line> {
    let unit = usize::try_from(job.copy_stat.st_blksize).unwrap_or(4096).clamp(512, BLOCK_BYTES);
    let buffer = vec![0; BLOCK_BYTES / unit * unit];
    let mut pending_hole = false;
    blocks(job, (start, end), sums, buffer, |mut at, block| {
        for piece in block.chunks(unit) {
            if piece.iter().all(|byte| *byte == 0) {
                pending_hole = true;
            } else {
                if std::mem::take(&mut pending_hole) {
                    seek(&job.copy, at)
                        .map_err(|errno| job.text("cannot lseek %s", &[&job.copy_path], errno))?;
                }
                write_all(job, piece)?;
            }
            at += piece.len() as u64;
        }
        Ok(())
    })
}

/// Reads the bytes between two offsets, by as many as the buffer holds, and hands each block on with its offset.
/// Gives where the source ended.
fn blocks(
    job: &Job,
    (start, end): (u64, u64),
    sums: &mut Option<Checksums>,
    mut buffer: Vec<u8>,
    mut put: impl FnMut(u64, &[u8]) -> Result<(), Line>,
) -> Result<u64, Line> {
    let mut at = start;
    while at < end {
        let most = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let count = read(job, &mut buffer[..most])?;
        if count == 0 {
            break;
        }
        if let Some(sums) = sums {
            sums.add(&buffer[..count]);
        }
        put(at, &buffer[..count])?;
        at += count as u64;
    }
    Ok(at)
}

/// Gives the copy its length where it ends in a hole.
fn extend(job: &Job, len: u64) -> Result<(), Line> {
    let failed = |errno| job.text("failed to extend %s", &[&job.copy_path], errno);
    let now = fs::fstat(&job.copy).map_err(failed)?;
    if u64::try_from(now.st_size).is_ok_and(|now| now < len) {
        retry(|| fs::ftruncate(&job.copy, len)).map_err(failed)?;
    }
    Ok(())
}

fn seek(file: &Descriptor, offset: u64) -> Result<(), Errno> {
    fs::seek(file, SeekFrom::Start(offset)).map(|_| ())
}
