//! Moves the content of one file by system calls, and reads it back where that was asked for.
//!
//! Every way here writes from the start to the end, so a copy that was interrupted is a beginning
//! of its source and shorter, or (through a pipe, for a moment) longer: it never looks whole. The ways themselves are chosen in `way.rs`.

pub(crate) mod ahead;
pub(crate) mod direct;
mod pipe;
mod piped;
mod spliced;
pub(crate) mod verify;

use ringwise::Descriptor;
use rustix::{
    fs::{self, SeekFrom},
    io::{self, Errno},
};

use crate::{
    job::Job,
    place::retry,
    report::Line,
    way::{self, Way},
};
use verify::Checksums;

/// GNU's, and where larger ones stop to pay on the machines that it was measured on
/// (coreutils, src/ioblksize.h).
pub(crate) const BLOCK_BYTES: usize = 256 << 10;

/// A call's worth of copy_file_range: short enough that a signal need not wait.
const RANGE_BYTES: usize = 64 << 20;

/// Moves the content.
pub(crate) fn copy(job: &Job, way: Way) -> Result<(), Line> {
    if !job.options.data {
        return Ok(());
    }
    let mut sums = job.options.verify.then(Checksums::default);
    if job.cloned {
        return match &mut sums {
            Some(sums) => checksum(job, sums).and_then(|()| verify::compare(job, sums)),
            None => Ok(()),
        };
    }
    match way {
        // A mapped or split file comes here when it could not go that way. What is to be checked is read.
        Way::Range | Way::Mapped | Way::Split | Way::Share | Way::Direct => {
            if sums.is_some() || !range(job)? {
                plain(job, &mut sums)?;
            }
        }
        Way::Spliced => spliced::copy(job)?,
        Way::Piped => piped::copy(job)?,
        Way::Extents => extents(job, &mut sums)?,
        Way::Zeros => zeros(job, 0, u64::MAX, &mut sums).and_then(|end| extend(job, end))?,
        // A ring's job comes here only when the ring could not take it.
        Way::Plain | Way::Ring => plain(job, &mut sums)?,
    }
    match sums {
        Some(sums) => verify::compare(job, &sums),
        None => Ok(()),
    }
}

/// Reads the source of a copy that has its content already: it shares the blocks, or the device took
/// them.
fn checksum(job: &Job, sums: &mut Checksums) -> Result<(), Line> {
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
fn plain(job: &Job, sums: &mut Option<Checksums>) -> Result<(), Line> {
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
        let copied = if job.options.sparse == crate::options::Sparse::Always {
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
    let mut buffer = vec![0; block.min(usize::try_from(end - start).unwrap_or(block))];
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
        write_all(job, &buffer[..count])?;
        at += count as u64;
    }
    Ok(at)
}

/// As [`part`], with holes for blocks of zeros.
fn zeros(job: &Job, start: u64, end: u64, sums: &mut Option<Checksums>) -> Result<u64, Line> {
    let unit = usize::try_from(job.copy_stat.st_blksize).unwrap_or(4096).clamp(512, BLOCK_BYTES);
    let mut buffer = vec![0; BLOCK_BYTES / unit * unit];
    let mut at = start;
    let mut pending_hole = false;
    while at < end {
        let most = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let count = read(job, &mut buffer[..most])?;
        if count == 0 {
            break;
        }
        if let Some(sums) = sums {
            sums.add(&buffer[..count]);
        }
        for piece in buffer[..count].chunks(unit) {
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

fn read(job: &Job, buffer: &mut [u8]) -> Result<usize, Line> {
    retry(|| io::read(&job.source, &mut buffer[..])).map_err(|errno| job.read_error(errno))
}

fn write_all(job: &Job, mut bytes: &[u8]) -> Result<(), Line> {
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
