//! Brings the page cache into the state that a run says it is in, and looks whether it is.

use std::{fs::File, io::Read, slice};

use ringwise::Descriptor;

use crate::{
    checks::gates,
    dataset::DataFile,
    error::LabError,
    sampling::job::{Cache, Job},
};

/// Brings the page cache into the job's state. Returns the reason why samples would be excluded, if there is one.
///
/// # Errors
///
/// What opening or reading a file, or dropping it from the cache, reports.
pub fn prepare(job: &Job) -> Result<Option<String>, LabError> {
    match job.cache {
        // What a bounded one holds is its group's to say.
        Cache::Bypassed | Cache::Bounded => return Ok(None),
        Cache::Warm => warm(&job.files)?,
        Cache::Cold => job.files.iter().try_for_each(forget)?,
    }
    Ok(gates::page_cache(job.cache, cached_share(&job.files)?))
}

/// How often files are looked at and read again. A kernel that reclaims what lies idle (DAMON's
/// proactive reclaim, Linux 5.16) takes pages of one file while the next is read.
const WARMING_PASSES_MAX: usize = 4;

/// Reads those files whole of which the page cache lacks a page, or may lack one.
fn warm(files: &[DataFile]) -> Result<(), LabError> {
    for _ in 0..WARMING_PASSES_MAX {
        let mut is_settled = true;
        for file in files {
            let share = cached_share(slice::from_ref(file))?;
            if share.is_none_or(|share| share < 1.0) {
                read_through(file, u64::MAX)?;
                is_settled &= share.is_none();
            }
        }
        if is_settled {
            break;
        }
    }
    Ok(())
}

fn open(file: &DataFile) -> Result<File, LabError> {
    File::open(&file.path).map_err(|error| LabError::on("opening", &file.path, &error))
}

/// Reads a file through the page cache, from its start and not more than `most` bytes. The answer
/// is how many they were, at least one.
///
/// # Errors
///
/// What opening or reading it reports, or that there is nothing in it.
pub fn read_through(file: &DataFile, most: u64) -> Result<u64, LabError> {
    let mut bytes = vec![0; 1 << 20];
    let mut opened = open(file)?.take(most);
    let mut total = 0;
    loop {
        match opened.read(&mut bytes) {
            Ok(0) if total == 0 => {
                return Err(LabError::Failed(format!("{}: is empty", file.path.display())));
            }
            Ok(0) => return Ok(total),
            Ok(read) => total += read as u64,
            Err(error) => return Err(LabError::on("reading", &file.path, &error)),
        }
    }
}

/// Drops a file from the page cache.
///
/// # Errors
///
/// What opening it, or fdatasync(2) or posix_fadvise(2), reports.
pub fn forget(file: &DataFile) -> Result<(), LabError> {
    ringwise::drop_page_cache(&Descriptor::from(open(file)?), 0, 0)
        .map_err(|error| LabError::on("dropping from the page cache", &file.path, &error))
}

/// How much of the files the page cache holds. None where the kernel cannot tell (before Linux
/// 6.5).
///
/// # Errors
///
/// What opening a file reports.
pub fn cached_bytes(files: &[DataFile]) -> Result<Option<u64>, LabError> {
    let mut pages = 0;
    for file in files {
        match ringwise::page_cache(&Descriptor::from(open(file)?), 0, 0) {
            Ok(state) => pages += state.cached_pages,
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(pages * rustix::param::page_size() as u64))
}

/// The share of the files' pages that is in the page cache. None as above.
fn cached_share(files: &[DataFile]) -> Result<Option<f64>, LabError> {
    let page_bytes = rustix::param::page_size() as u64;
    let total: u64 = files.iter().map(|file| file.bytes.next_multiple_of(page_bytes)).sum();
    Ok(cached_bytes(files)?.map(|cached| cached as f64 / total.max(1) as f64))
}
