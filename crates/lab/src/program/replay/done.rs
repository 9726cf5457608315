//! What a thread of a replay did, and whether a step moved what it had moved in the recording.

use std::sync::Arc;

use super::{
    pace::Pace,
    place::Place,
    script::{Step, StepKind},
};
use crate::sampling::{
    job::{Failure, Job, Window},
    lane::Counts,
};

/// What one thread of the replay did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    pub counts: Vec<Counts>,
    pub io_ns: u64,
    pub system_calls: u64,
    pub submitted: Option<u64>,
    pub fallbacks: u64,
    /// The kernel's id of the one thread that made it, if one did.
    pub thread: Option<u32>,
}

/// What all threads of a sample share.
pub(crate) struct Shared<'a> {
    pub job: &'a Arc<Job>,
    pub window: Window,
    pub place: &'a Place,
    pub pace: Pace,
}

/// What a step is, for an error.
pub(crate) fn words(step: &Step) -> String {
    let what = match step.kind {
        StepKind::Read => "a read",
        StepKind::Write => "a write",
        StepKind::Sync | StepKind::DataSync => return "a sync".to_owned(),
    };
    format!("{what} of {} bytes at {}", step.length, step.offset)
}

/// A step has to move what it moved in the recording.
pub(crate) fn check(step: &Step, moved: usize) -> Result<(), Failure> {
    match moved == step.bytes {
        true => Ok(()),
        false => Err(Failure::Unavailable(format!(
            "{} moved {moved} bytes and not {} as in the trace: threads depend on each other, or a file was cut; use \
             --pace recorded",
            words(step),
            step.bytes
        ))),
    }
}
