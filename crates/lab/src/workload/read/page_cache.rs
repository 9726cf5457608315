//! Brings the page cache into the state that a run says it is in, and looks whether it is.

use std::{fs::File, io::Read};

use ringwise::Descriptor;

use crate::{
    dataset::DataFile,
    error::LabError,
    gates,
    job::{Cache, Job},
};

/// Brings the page cache into the job's state; the answer is why a sample would be void.
///
/// # Errors
///
/// What opening or reading a file, or dropping it from the cache, reports.
pub fn prepare(job: &Job) -> Result<Option<String>, LabError> {
    match job.cache {
        Cache::Bypassed => return Ok(None),
        Cache::Warm if cached_share(&job.files)?.is_none_or(|share| share < 1.0) => {
            job.files.iter().try_for_each(read_through)?;
        }
        Cache::Warm => {}
        Cache::Cold => job.files.iter().try_for_each(forget)?,
    }
    Ok(gates::page_cache(job.cache, cached_share(&job.files)?))
}

fn open(file: &DataFile) -> Result<File, LabError> {
    File::open(&file.path).map_err(|error| LabError::on("opening", &file.path, &error))
}

fn read_through(file: &DataFile) -> Result<(), LabError> {
    let mut bytes = vec![0; 1 << 20];
    let mut opened = open(file)?;
    loop {
        match opened.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
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

/// The share of the files' pages that is in the page cache. None where the kernel cannot tell
/// (before Linux 6.5).
fn cached_share(files: &[DataFile]) -> Result<Option<f64>, LabError> {
    let (mut cached, mut total) = (0, 0);
    for file in files {
        match ringwise::page_cache(&Descriptor::from(open(file)?), 0, 0) {
            Ok(state) => cached += state.cached_pages,
            Err(_) => return Ok(None),
        }
        total += file.bytes.div_ceil(rustix::param::page_size() as u64);
    }
    Ok(Some(cached as f64 / total.max(1) as f64))
}
