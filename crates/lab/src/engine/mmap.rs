//! `mmap`: the files mapped, and touched page by page.
//!
//! What is timed is the touch, one byte of each page: that is where the kernel reads. There is no
//! copy, unlike in all other engines, and the verification that follows reads the mapping itself.
//!
//! # Safety
//!
//! A mapping is unsound while somebody else changes the file. The lab holds the lock of its own
//! directory, opens the files for reading only and checks their length before each sample. A file
//! that is cut short by a stranger meanwhile ends the process with SIGBUS.
#![allow(unsafe_code)]

use std::{fs::File, hint::black_box, sync::Arc};

use memmap2::{Advice, Mmap};

use super::{Engine, Tally};
use crate::{
    error::plain,
    job::{Failure, Job, Pattern, Start},
    lane::Lane,
};

/// The smallest page of any machine that Linux runs on.
const PAGE_BYTES: usize = 4096;

/// The engine. It has no depth but 1: a thread that touches a page waits for it.
#[derive(Debug)]
pub struct Mapped;

impl Engine for Mapped {
    fn run(&self, job: &Arc<Job>, start: Start) -> Result<Tally, Failure> {
        let maps: Vec<Mmap> =
            job.open()?.iter().map(|file| map(job, file)).collect::<Result<_, _>>()?;
        let window = start.ready()?;
        let mut lane = Lane::new(job, window, 0, 1);
        while let Some(request) = lane.next_request() {
            let at = request.offset as usize;
            let bytes = &maps[request.file][at..at + job.block_bytes];
            let began_ns = lane.clock();
            lane.begin(1, began_ns);
            bytes.iter().step_by(PAGE_BYTES).for_each(|byte| {
                black_box(byte);
                black_box(*byte);
            });
            let ended_ns = lane.clock();
            lane.complete(request, began_ns, ended_ns, bytes)?;
        }
        Ok(Tally { system_calls: Some(0), ..Tally::of(&window, [lane.into_counts()]) })
    }
}

fn map(job: &Job, file: &File) -> Result<Mmap, Failure> {
    let failed = |error: std::io::Error| Failure::Unavailable(format!("mmap: {}", plain(&error)));
    // SAFETY: nothing in the lab writes to a laid-out file while a sample runs; strangers are kept
    // out by the directory's mark and lock (see the contract above).
    let map = unsafe { Mmap::map(file) }.map_err(failed)?;
    let advice = match job.pattern {
        Pattern::Random => Advice::Random,
        Pattern::Sequential => Advice::Sequential,
    };
    map.advise(advice).map_err(failed)?;
    Ok(map)
}
