//! Steps on one file, each done in full before the next. Nothing here does I/O.
//!
//! This is the one place that decides what follows a short write. [`fs::Chain`](crate::fs::Chain)
//! runs on it, and so can the owner of a [`Local`](crate::Local). It submits nothing and does not
//! judge errors: the caller decides whether a failed step may be tried again.

use std::ops::Range;

use crate::{
    buf::{Buffer, OwnedBuffer, OwnedBufferMut},
    descriptor::Descriptor,
    error::Error,
    flight::completion::Completion,
    op::{Opcode, Operation},
};

/// Writes, reads and syncs of one file, each of which starts when the one before is done in full.
///
/// A short write breaks the link between operations, but it is no error. The rest of the write is
/// then written, and the later steps that the kernel cancelled run after that. A sync that ran
/// before the writes in front of it were complete proves nothing, so it runs again.
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, Local, Steps, Turn};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("log");
/// let mut local = Local::new()?;
/// let file = Descriptor::from(std::fs::File::create(&path)?);
/// let mut steps = Steps::default().write_at(b"a record".to_vec(), 0).sync_data();
/// let mut turn = Turn::Again;
/// while let Turn::Again | Turn::Waits = turn {
///     if let Turn::Again = turn {
///         let operations = steps.operations(&file);
///         local.push_linked(operations.into_iter().map(|(place, operation)| (operation, place)).collect())?;
///     }
///     local.submit_and_wait(1)?;
///     while let Some(done) = local.next_completion() {
///         turn = steps.take(done.tag(), done);
///     }
/// }
/// assert!(matches!(turn, Turn::Done), "durable");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Steps {
    steps: Vec<Step>,
    /// The first step that is not done.
    at: usize,
    /// The steps that were handed over last, and how many of them have not come back.
    handed: Range<usize>,
    in_flight: usize,
    /// The rest of a short write begins at a multiple of this many bytes; 0 is as good as 1.
    alignment: usize,
}

/// The next thing to do for [`Steps`].
///
/// # Examples
///
/// ```
/// use ringwise::{Descriptor, Local, Steps, Turn};
///
/// let mut local = Local::new()?;
/// let file = Descriptor::from(std::fs::File::open("/dev/null")?);
/// let mut steps = Steps::default().read_at(vec![0; 8], 0);
/// let (place, read) = steps.operations(&file).remove(0);
/// match steps.take(place, local.run(read)?) {
///     Turn::Ended => assert_eq!(steps.moved(), 0),
///     turn => panic!("an empty file ends at once: {turn:?}"),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "it says whether the steps are done"]
pub enum Turn {
    /// Wait for the completions of other operations that were handed over.
    Waits,
    /// Hand over more operations, since a step was not done in full.
    Again,
    /// Nothing: all steps are done.
    Done,
    /// Nothing: a read met the end of the file, and the steps after it did not run.
    Ended,
    /// The step at this place failed, and the steps after it did not run. If the caller knows that
    /// the step may be tried again, [`Steps::operations`] goes on with it.
    Failed(u64, Error),
}

#[derive(Debug)]
struct Step {
    kind: Kind,
    /// The buffer of a read or write, unless an operation has it.
    buffer: Option<Buffer>,
    /// The part of the buffer that is to be moved.
    whole: Range<usize>,
    offset: u64,
    /// Bytes moved so far.
    done: usize,
    /// The result of its operation, until all operations handed over with it have one.
    result: Option<Result<usize, Error>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Read,
    Sync { data_only: bool },
}

impl Steps {
    /// Makes the rest of a short write begin at a multiple of `bytes`, as direct files need.
    pub fn aligned(mut self, bytes: usize) -> Steps {
        self.alignment = bytes;
        self
    }

    /// Adds a write of all of the buffer at `offset` bytes.
    pub fn write_at<B: OwnedBuffer>(self, buffer: B, offset: u64) -> Steps {
        self.add(Kind::Write, Some(buffer.into_buffer()), offset)
    }

    /// Adds a read at `offset` bytes that is to fill the buffer.
    pub fn read_at<B: OwnedBufferMut>(self, buffer: B, offset: u64) -> Steps {
        self.add(Kind::Read, Some(buffer.into_buffer_mut()), offset)
    }

    /// Adds a sync of the data, and of what is needed to read it back.
    pub fn sync_data(self) -> Steps {
        self.add(Kind::Sync { data_only: true }, None, 0)
    }

    /// Adds a sync of the data and all metadata.
    pub fn sync_all(self) -> Steps {
        self.add(Kind::Sync { data_only: false }, None, 0)
    }

    fn add(mut self, kind: Kind, buffer: Option<Buffer>, offset: u64) -> Steps {
        let whole = buffer.as_ref().map_or(0..0, Buffer::range);
        self.steps.push(Step { kind, buffer, whole, offset, done: 0, result: None });
        self
    }

    /// Returns the operations of all steps that are not done, each with its place, to be
    /// [linked](crate::Local::push_linked) in this order.
    ///
    /// # Panics
    ///
    /// If operations from an earlier call have not all completed.
    pub fn operations(&mut self, file: &Descriptor) -> Vec<(u64, Operation)> {
        let operations = self.hand_over(self.steps.len(), file);
        (self.handed.start as u64..).zip(operations).collect()
    }

    /// Returns the operations of the steps before `end`.
    pub(crate) fn hand_over(&mut self, end: usize, file: &Descriptor) -> Vec<Operation> {
        assert_eq!(self.in_flight, 0, "each operation is handed over once");
        self.handed = self.at..end;
        self.in_flight = end - self.at;
        self.steps[self.handed.clone()].iter_mut().map(|step| step.operation(file)).collect()
    }

    /// Takes the completion of the step at `place`. Completions may come in any order.
    ///
    /// # Panics
    ///
    /// If no operation of that step is in flight.
    pub fn take(&mut self, place: u64, completion: Completion) -> Turn {
        let result = completion.result();
        self.take_as(place as usize, completion, result)
    }

    /// Does the same with a result that replaces the completion's own.
    pub(crate) fn take_as(
        &mut self,
        place: usize,
        completion: Completion,
        result: Result<usize, Error>,
    ) -> Turn {
        let step = &mut self.steps[place];
        assert!(self.in_flight > 0 && step.result.is_none(), "it was handed over");
        if let Some(buffer) = completion.take_buffer() {
            step.buffer = Some(buffer);
        }
        step.result = Some(result);
        self.in_flight -= 1;
        if self.in_flight > 0 {
            return Turn::Waits;
        }
        let results: Vec<_> = self.steps[self.handed.clone()]
            .iter_mut()
            .filter_map(|step| step.result.take())
            .collect();
        // Each step after one that is not whole was cancelled, or ran before its turn and proves
        // nothing. It runs again in its turn.
        for result in results {
            if let Some(turn) = self.advance(result) {
                return turn;
            }
        }
        if self.at == self.steps.len() { Turn::Done } else { Turn::Again }
    }

    /// Takes the result of the first step that is not done. Returns nothing if the step is done
    /// now.
    pub(crate) fn advance(&mut self, result: Result<usize, Error>) -> Option<Turn> {
        let count = match result {
            Ok(count) => count,
            Err(error) => return Some(Turn::Failed(self.at as u64, error)),
        };
        let step = &mut self.steps[self.at];
        step.done += count;
        if step.done == step.whole.len() {
            self.at += 1;
            return None;
        }
        let unit = self.alignment.max(1);
        if step.kind == Kind::Write {
            // A block that was not written whole is written again.
            step.done -= step.done % unit;
        }
        match step.kind {
            _ if count > 0 => Some(Turn::Again),
            Kind::Read => {
                self.at += 1;
                Some(Turn::Ended)
            }
            // It moved nothing and had no reason not to. Going on would never end.
            kind => {
                let errno = crate::error::Errno(libc::EIO);
                Some(Turn::Failed(self.at as u64, Error::new(kind.opcode(), errno)))
            }
        }
    }

    /// Returns the bytes that the steps moved, including those of a step that is not done.
    pub fn moved(&self) -> u64 {
        self.steps.iter().map(|step| step.done as u64).sum()
    }

    /// Returns the buffers of all steps, in their order.
    ///
    /// # Panics
    ///
    /// If operations have not completed yet, since they have the buffers.
    pub fn into_buffers(self) -> Vec<Option<Buffer>> {
        assert_eq!(self.in_flight, 0, "the operations have the buffers");
        self.steps.into_iter().map(Step::into_buffer).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Returns the place of the first step that is not done.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn opcode(&self, place: usize) -> Opcode {
        self.steps[place].kind.opcode()
    }

    /// Returns the range of the file that a step has still to change.
    pub(crate) fn changes(&self, place: usize) -> Range<u64> {
        let step = &self.steps[place];
        match step.kind {
            Kind::Write => {
                let end = step.offset.saturating_add(step.whole.len() as u64);
                step.next_offset()..end
            }
            Kind::Read | Kind::Sync { .. } => 0..0,
        }
    }

    /// Returns the buffer of a read, and the offset at which it goes on.
    pub(crate) fn read(&self, place: usize) -> Option<(&Buffer, u64)> {
        let step = &self.steps[place];
        let buffer = step.buffer.as_ref().filter(|_| step.kind == Kind::Read)?;
        Some((buffer, step.next_offset()))
    }

    /// Takes the rest of the first read that is not done, to be read in another way, and the offset
    /// at which it goes on.
    pub(crate) fn take_read(&mut self) -> (Buffer, u64) {
        let step = &mut self.steps[self.at];
        (step.take_rest(), step.next_offset())
    }

    /// Ends a read that [`take_read`](Self::take_read) took.
    pub(crate) fn give_read(
        &mut self,
        buffer: Buffer,
        result: Result<usize, Error>,
    ) -> Option<Turn> {
        self.steps[self.at].buffer = Some(buffer);
        self.advance(result)
    }

    /// Returns each step's opcode, bytes moved, and buffer.
    pub(crate) fn into_parts(self) -> impl Iterator<Item = (Opcode, usize, Option<Buffer>)> {
        let part = |step: Step| (step.kind.opcode(), step.done, step.into_buffer());
        self.steps.into_iter().map(part)
    }
}

impl Kind {
    fn opcode(self) -> Opcode {
        match self {
            Kind::Write => Opcode::Write,
            Kind::Read => Opcode::Read,
            Kind::Sync { .. } => Opcode::Sync,
        }
    }
}

impl Step {
    fn next_offset(&self) -> u64 {
        self.offset.saturating_add(self.done as u64)
    }

    /// Takes the buffer, with the rest that is to be moved selected.
    fn take_rest(&mut self) -> Buffer {
        let buffer = self.buffer.take().expect("the operation before gave it back");
        buffer.selecting(self.whole.start + self.done..self.whole.end)
    }

    /// Returns the operation for the rest of the step.
    fn operation(&mut self, file: &Descriptor) -> Operation {
        let offset = self.next_offset();
        match self.kind {
            Kind::Write => Operation::write_at(file, self.take_rest(), offset),
            Kind::Read => Operation::read_at(file, self.take_rest(), offset),
            Kind::Sync { data_only: true } => Operation::sync_data(file),
            Kind::Sync { data_only: false } => Operation::sync_all(file),
        }
    }

    fn into_buffer(self) -> Option<Buffer> {
        let whole = self.whole;
        self.buffer.map(|buffer| buffer.selecting(whole).given_back())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{buf::AlignedBuf, flight::slot::Ticket};

    fn completed(operation: Operation, result: i32) -> Completion {
        Completion::new(Ticket::NONE, 0, result, operation)
    }

    fn file() -> Descriptor {
        Descriptor::from(std::fs::File::open("/dev/null").unwrap())
    }

    /// The results of a kernel that does not break the link at a short write, or that took the
    /// chain in two parts.
    #[test]
    fn a_sync_that_ran_before_its_turn_is_not_believed() {
        let file = file();
        let mut steps =
            Steps::default().write_at(vec![1; 10], 0).sync_data().write_at(vec![2; 4], 10);
        let operations = steps.operations(&file);
        let mut turn = Turn::Again;
        // Completions may come in any order.
        for ((place, operation), result) in operations.into_iter().zip([7, 0, 4]).rev() {
            turn = steps.take(place, completed(operation, result));
        }
        assert!(matches!(turn, Turn::Again));
        assert_eq!(steps.moved(), 7);
        let rest: Vec<_> = steps.operations(&file);
        assert_eq!(rest.len(), 3);
        let (place, write) = rest.into_iter().next().unwrap();
        assert_eq!((place, write.offset()), (0, Some(7)));
        assert_eq!(write.into_buffer().unwrap().selected().len(), 3);
    }

    /// A direct file refuses a rest that begins within a block.
    #[test]
    fn the_rest_of_an_aligned_write_begins_with_a_block() {
        let file = file();
        let buffer = AlignedBuf::zeroed(3 * 512, 512);
        let mut steps = Steps::default().aligned(512).write_at(buffer, 4096).sync_data();
        let mut rests = Vec::new();
        for (write_result, sync_result) in [(700, -libc::ECANCELED), (100, -libc::ECANCELED)] {
            for (place, operation) in steps.operations(&file) {
                let result = if place == 0 { write_result } else { sync_result };
                let turn = steps.take(place, completed(operation, result));
                assert!(matches!(turn, Turn::Waits | Turn::Again), "{turn:?}");
            }
            rests.push((steps.changes(0), steps.moved()));
        }
        assert_eq!(rests, [(4608..5632, 512), (4608..5632, 512)]);
    }

    #[test]
    fn a_step_that_failed_can_be_tried_again_and_others_wait_for_it() {
        let file = file();
        let mut steps = Steps::default().write_at(vec![1; 4], 0).sync_all();
        let mut turn = Turn::Again;
        for (place, operation) in steps.operations(&file) {
            let result = if place == 0 { -libc::ENOSPC } else { -libc::ECANCELED };
            turn = steps.take(place, completed(operation, result));
        }
        assert!(matches!(turn, Turn::Failed(0, _)), "{turn:?}");
        for (place, operation) in steps.operations(&file) {
            turn = steps.take(place, completed(operation, if place == 0 { 4 } else { 0 }));
        }
        assert!(matches!(turn, Turn::Done), "{turn:?}");
        let buffers = steps.into_buffers();
        assert!(buffers[0].is_some() && buffers[1].is_none());
    }
}
