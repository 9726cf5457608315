//! Moves the content of one file by syscalls, and reads it back where that was asked for.
//!
//! Each way writes from the start to the end, or sets the copy's length to less than the source's
//! until the last part is written. So a copy that was interrupted never looks whole. `way.rs` chooses
//! the way.

pub(crate) mod ahead;
mod calls;
mod holes;
pub(crate) mod past;
mod pipe;
pub(crate) mod verify;

use crate::{job::Job, messages::report::Line, way::Way};
pub(crate) use calls::{BLOCK_BYTES, copy_again};
use verify::Checksums;

/// Moves the content.
pub(crate) fn copy(job: &Job, way: Way) -> Result<(), Line> {
    if !job.options.data {
        return Ok(());
    }
    let mut sums = job.options.verify.then(Checksums::default);
    match way {
        _ if job.cloned => {
            if let Some(sums) = &mut sums {
                calls::checksum(job, sums)?;
            }
        }
        // A file that could not share its blocks has its new way already.
        Way::Range | Way::Share => calls::range_or_plain(job, &mut sums)?,
        Way::Past(sides) => past::copy(job, sides)?,
        Way::Holes => holes::copy(job, &mut sums)?,
        // A ring's job comes here only when the ring could not take it.
        Way::Plain | Way::Ring => calls::plain(job, &mut sums)?,
    }
    match sums {
        Some(sums) => verify::compare(job, &sums),
        None => Ok(()),
    }
}
