//! A ring of the library as the queue of a replay.

use ringwise::{BackendChoice, Buffer, Descriptor, Local, Operation, Target};

use super::{Completed, Queue, Spent, Wait};
use crate::{
    engine::unavailable,
    program::replay::script::{Step, StepKind},
    sampling::job::Failure,
};

/// A ring with its files.
pub(crate) struct Ring {
    local: Local,
    targets: Vec<Target>,
}

impl Queue for Ring {
    type Buffer = Buffer;

    fn new(files: &[Descriptor], entries: usize) -> Result<Ring, Failure> {
        let local = Local::builder()
            .backend(BackendChoice::Uring)
            .entries(u32::try_from(entries).unwrap_or(u32::MAX))
            .build()
            .map_err(unavailable)?;
        let targets = files.iter().cloned().map(Target::from).collect();
        Ok(Ring { local, targets })
    }

    fn push(
        &mut self,
        tag: usize,
        step: &Step,
        buffer: impl FnOnce() -> Buffer,
    ) -> Result<(), Failure> {
        let target = self.targets[step.handle].clone();
        let operation = match step.kind {
            StepKind::Read => Operation::read_at(target, buffer(), step.offset),
            StepKind::Write => Operation::write_at(target, buffer(), step.offset),
            StepKind::Sync => Operation::sync_all(target),
            StepKind::DataSync => Operation::sync_data(target),
        };
        self.local.push(operation, tag as u64).map(drop).map_err(unavailable)
    }

    fn submit(&mut self, wait: Wait) -> Result<(), Failure> {
        let submitted = match wait {
            Wait::No => self.local.submit(),
            Wait::Completion => self.local.submit_and_wait(1),
            Wait::AtMost(timeout) => self.local.submit_and_wait_timeout(1, timeout),
        };
        submitted.map(drop).map_err(|error| Failure::Io(format!("replay: {error}")))
    }

    fn next(&mut self) -> Option<Completed<Buffer>> {
        let completion = self.local.next_completion()?;
        Some(Completed {
            tag: completion.tag() as usize,
            moved: completion.result().map_err(|error| error.to_string()),
            buffer: completion.into_buffer(),
        })
    }

    fn spent(&mut self) -> Spent {
        let stats = self.local.stats();
        Spent {
            system_calls: stats.enters,
            submitted: stats.submitted,
            fallbacks: stats.fallback_operations,
        }
    }
}
