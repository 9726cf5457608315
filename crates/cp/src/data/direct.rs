//! What copies by direct writes have in common: whether the source is still what was written, and how
//! such a copy is begun again by ordinary calls, which say what is wrong as GNU cp says it.

use rustix::{
    fs::{self, SeekFrom, Stat},
    io::Errno,
};

use crate::{
    data,
    job::Job,
    place::{retry, set_direct},
    report::Line,
    way::Way,
};

/// Whether nobody changed the source since it was opened. Its length alone does not tell: where it is
/// cut and grows again, the device is given zeros that the kernel puts behind the cut, in pages which
/// are held for as long as a write takes, and which no read ever returned.
pub(crate) fn is_as_it_was(job: &Job) -> bool {
    let what = |stat: &Stat| (stat.st_size, stat.st_ctime, stat.st_ctime_nsec);
    fs::fstat(&job.source).is_ok_and(|now| what(&now) == what(&job.source_stat))
}

/// By ordinary calls, from the start.
pub(crate) fn copy_again(job: &Job) -> Result<(), Line> {
    start_again(job).map_err(|errno| job.write_error(errno))?;
    data::copy(job, Way::Range)
}

/// By ordinary calls, from where all before is written.
pub(crate) fn copy_rest(job: &Job, from: u64) -> Result<(), Line> {
    let start = SeekFrom::Start(from);
    let ready = cut(job, from).and_then(|()| fs::seek(&job.copy, start));
    ready.map_err(|errno| job.write_error(errno))?;
    fs::seek(&job.source, start).map_err(|errno| job.read_error(errno))?;
    data::copy(job, Way::Range)
}

/// Both sides as they were before.
pub(crate) fn start_again(job: &Job) -> Result<(), Errno> {
    cut(job, 0)
}

fn cut(job: &Job, len: u64) -> Result<(), Errno> {
    set_direct(&job.copy, false)?;
    retry(|| fs::ftruncate(&job.copy, len))
}
