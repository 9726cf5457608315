//! Linux AIO as the queue of a replay.

use ringwise::{AlignedBuf, Descriptor};

use super::{Completed, Queue, Spent, Wait};
use crate::{
    engine::aio::context::{Command, Context},
    error::plain,
    program::replay::script::{Step, StepKind},
    sampling::job::Failure,
};

/// A context with its files.
pub(crate) struct Aio {
    context: Context,
    files: Vec<Descriptor>,
}

impl Queue for Aio {
    type Buffer = AlignedBuf;

    fn new(files: &[Descriptor], entries: usize) -> Result<Aio, Failure> {
        Ok(Aio { context: Context::new(entries)?, files: files.to_vec() })
    }

    fn push(
        &mut self,
        tag: usize,
        step: &Step,
        buffer: impl FnOnce() -> AlignedBuf,
    ) -> Result<(), Failure> {
        // A sync is of the whole file: Linux AIO refuses one with an offset.
        let (command, at) = match step.kind {
            StepKind::Read => (Command::Read, (step.offset, Some(buffer()))),
            StepKind::Write => (Command::Write, (step.offset, Some(buffer()))),
            StepKind::Sync => (Command::Sync, (0, None)),
            StepKind::DataSync => (Command::DataSync, (0, None)),
        };
        self.context.push((tag, command), &self.files[step.handle], at);
        Ok(())
    }

    fn submit(&mut self, wait: Wait) -> Result<(), Failure> {
        match wait {
            Wait::No => self.context.submit_and_wait(0, None),
            Wait::Completion => self.context.submit_and_wait(1, None),
            Wait::AtMost(timeout) => self.context.submit_and_wait(1, Some(timeout)),
        }
    }

    fn next(&mut self) -> Option<Completed<AlignedBuf>> {
        let done = self.context.next()?;
        let moved = done.result.map_err(|error| plain(&error));
        Some(Completed { tag: done.tag, moved, buffer: done.buffer })
    }

    fn spent(&mut self) -> Spent {
        let Context { system_calls, submitted, .. } = self.context;
        Spent { system_calls, submitted, fallbacks: 0 }
    }
}
