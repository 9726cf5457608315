//! A thread's two streams, lines and dead letters, committed together: a batch is done when both
//! parts of it are, so that no acknowledgement covers a rejected line before its letter is stored.
//!
//! Segments that end go to the keeper, by age also when no line comes. Below the floor of free space
//! no batch begins.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ringwise::{BackendChoice, Completion, Local, Operation};

use crate::{
    connection::Batch,
    error::LogdError,
    guarantee::Guarantee,
    keeper::Tray,
    log,
    names::Names,
    segment::{
        appender::{Appender, Fatal, Given, Limits, Plan, Progress},
        call::open_directory,
        name::{Content, Stream, parse},
        recovery::{Recovered, recover},
    },
    space::Floor,
};

/// How long to wait before a commit that failed is tried again.
const RETRY_TIME: Duration = Duration::from_millis(500);

/// How long to wait before it is looked again whether segments were sealed.
const SEAL_WAIT_TIME: Duration = Duration::from_millis(5);

/// How often it looks at ages and at space when nothing happens.
const TICK_TIME: Duration = Duration::from_secs(1);

/// What storage's operations are tagged with; the worker gives it all completions of these.
pub(crate) const TAGS: [u64; 4] = [LINES, LETTERS, RETRY, TICK];
const LINES: u64 = 5 << 32;
const LETTERS: u64 = 6 << 32;
const RETRY: u64 = 7 << 32;
const TICK: u64 = 9 << 32;

/// A thread's streams.
pub(crate) struct Storage {
    lines: Part,
    letters: Part,
    floor: Arc<Mutex<Floor>>,
    min_free: u64,
    is_low: bool,
    is_waiting: bool,
    has_stalled: bool,
    /// Lines that wait for their batch's dead letters to be stored.
    next: Option<Given>,
    /// To who seals segments.
    tray: Tray,
    pub(crate) commits: u64,
    pub(crate) stalls: u64,
    /// Times that a batch waited for segments to be sealed.
    pub(crate) seal_waits: u64,
}

struct Part {
    appender: Appender,
    /// Memory to fill.
    spare: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Going,
    Stalled,
}

impl Storage {
    /// Opens the streams `number` of a directory and ends what the last run left.
    pub(crate) fn open(
        directory: &Path,
        number: u32,
        guarantee: Guarantee,
        limits: Limits,
        tray: Tray,
        clients: &Arc<Names>,
        floor: Arc<Mutex<Floor>>,
    ) -> Result<Storage, LogdError> {
        let names = names(directory)?;
        let part = |content, tag| -> Result<Part, LogdError> {
            let stream = Stream { content, number };
            // Seldom asked: a ring for it would be memory for nothing, and may have no threads for it.
            let aside = Local::builder().backend(BackendChoice::Classic).build();
            let mut aside = aside.map_err(LogdError::failed)?;
            let recovered = end_last(&mut aside, directory, &names, stream)?;
            let plan = Plan {
                directory: directory.to_owned(),
                stream,
                guarantee,
                limits,
                next_serial: recovered.next_serial,
                next_line: recovered.next_line,
                names: clients.clone(),
                is_direct: limits.is_direct,
                tag,
            };
            let handle = open_directory(&mut aside, directory).map_err(LogdError::failed)?;
            let appender = Appender::new(plan, handle, aside);
            Ok(Part { appender, spare: Vec::new(), state: State::Idle })
        };
        Ok(Storage {
            lines: part(Content::Lines, LINES)?,
            letters: part(Content::DeadLetters, LETTERS)?,
            floor,
            min_free: limits.min_free,
            is_low: false,
            is_waiting: false,
            has_stalled: false,
            next: None,
            tray,
            commits: 0,
            stalls: 0,
            seal_waits: 0,
        })
    }

    /// Begins to look at ages and at space every now and then.
    pub(crate) fn watch(&self, local: &mut Local) -> Result<(), LogdError> {
        local.push(Operation::timeout(TICK_TIME), TICK).map(drop).map_err(LogdError::failed)
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.lines.appender.set_limits(limits);
        self.letters.appender.set_limits(limits);
        self.min_free = limits.min_free;
    }

    /// Whether a batch may begin: none is on its way, no more segments wait for their seal than may,
    /// and there is space.
    pub(crate) fn is_ready(&mut self, local: &mut Local) -> Result<bool, Fatal> {
        if self.is_busy() {
            return Ok(false);
        }
        if self.tray.is_full() {
            if !std::mem::replace(&mut self.is_waiting, true) {
                self.seal_waits += 1;
                self.wake_after(local, SEAL_WAIT_TIME)?;
            }
            return Ok(false);
        }
        Ok(self.has_space())
    }

    /// Whether there is space; told where that changes.
    fn has_space(&mut self) -> bool {
        let mut floor = self.floor.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_low, has_changed) = floor.look(self.min_free);
        self.is_low = is_low;
        if has_changed {
            match is_low {
                true => log::remark(
                    "storage",
                    format_args!(
                        "less than {} bytes are free (--min-free): nothing more is \
                     stored and acknowledged until there are",
                        self.min_free
                    ),
                ),
                false => {
                    log::remark("storage", format_args!("there is space again: storing goes on"))
                }
            }
        }
        !is_low
    }

    /// Whether there is less space than there has to be.
    pub(crate) fn is_low(&self) -> bool {
        self.is_low
    }

    /// Segments that failed and are not written to any more.
    pub(crate) fn dead_segments(&self) -> u64 {
        self.lines.appender.dead_segments + self.letters.appender.dead_segments
    }

    /// Whether a batch is on its way.
    pub(crate) fn is_busy(&self) -> bool {
        let is_idle = self.lines.state == State::Idle && self.letters.state == State::Idle;
        !is_idle || self.next.is_some()
    }

    /// Whether it waits for something to be mended.
    pub(crate) fn is_stalled(&self) -> bool {
        self.has_stalled
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.lines.appender.syncs + self.letters.appender.syncs
    }

    pub(crate) fn writes(&self) -> u64 {
        self.lines.appender.writes + self.letters.appender.writes
    }

    /// Sends a batch on its way; leaves an empty one. False: it is committed already, since there was
    /// nothing in it to store, or the thread waited for what stores it.
    pub(crate) fn begin(&mut self, local: &mut Local, batch: &mut Batch) -> Result<bool, Fatal> {
        let full = std::mem::take(batch);
        let is_refused = full.lines.is_empty() && full.letters.is_empty();
        if is_refused && full.names.is_empty() {
            (batch.lines, batch.letters) = (full.lines, full.letters);
            return Ok(false);
        }
        self.commits += 1;
        let has_both = !full.lines.is_empty() && !full.letters.is_empty();
        if full.lines.is_empty() && !is_refused {
            batch.lines = full.lines;
        } else {
            // Lines that were refused have their clients' numbers to store: a batch without a byte.
            batch.lines = std::mem::take(&mut self.lines.spare);
            let given = Given {
                data: full.lines,
                lines: full.line_count,
                names: full.names.clone(),
                cuts: full.line_cuts,
            };
            if has_both && !full.names.is_empty() {
                // A client is told of its lines by what is stored with them: its dead letters have to
                // be there before.
                self.next = Some(given);
            } else {
                self.lines.begin(local, given)?;
            }
        }
        if full.letters.is_empty() {
            batch.letters = full.letters;
        } else {
            let names = if has_both { Vec::new() } else { full.names };
            batch.letters = std::mem::take(&mut self.letters.spare);
            let (data, lines) = (full.letters, full.letter_count);
            self.letters.begin(local, Given { data, lines, names, cuts: full.letter_cuts })?;
        }
        self.go_on(local)?;
        self.hand_on();
        self.look(local)?;
        Ok(self.is_busy())
    }

    /// Begins the lines whose dead letters are stored.
    fn go_on(&mut self, local: &mut Local) -> Result<(), Fatal> {
        if self.letters.state == State::Idle
            && let Some(given) = self.next.take()
        {
            self.lines.begin(local, given)?;
        }
        Ok(())
    }

    /// Takes a completion of its own. True: the batch is committed.
    pub(crate) fn take(
        &mut self,
        local: &mut Local,
        completion: Completion,
    ) -> Result<bool, Fatal> {
        let was_busy = self.is_busy();
        match completion.tag() & !u64::from(u32::MAX) {
            LINES => {
                let progress = self.lines.appender.take(local, completion)?;
                self.lines.note(progress);
            }
            LETTERS => {
                let progress = self.letters.appender.take(local, completion)?;
                self.letters.note(progress);
            }
            TICK => {
                for part in [&mut self.lines, &mut self.letters] {
                    part.appender.tick();
                }
                self.watch(local).map_err(|error| Fatal(error.to_string()))?;
                // Without lines nobody asks, and who asks for the state wants to know.
                if !self.is_busy() {
                    self.has_space();
                }
            }
            _ => {
                self.is_waiting = false;
                for part in [&mut self.lines, &mut self.letters] {
                    if part.state == State::Stalled {
                        let progress = part.appender.retry(local)?;
                        part.note(progress);
                    }
                }
            }
        }
        self.go_on(local)?;
        self.hand_on();
        self.look(local)?;
        Ok(was_busy && !self.is_busy())
    }

    /// Says when acknowledgements stop and go on, and asks to be woken for another attempt.
    fn look(&mut self, local: &mut Local) -> Result<(), Fatal> {
        let is_stalled = [&self.lines, &self.letters].iter().any(|p| p.state == State::Stalled);
        if is_stalled && !self.has_stalled {
            self.has_stalled = true;
            self.stalls += 1;
            log::remark("storage", format_args!("nothing is acknowledged until it can be stored"));
        }
        if self.has_stalled && !self.is_busy() {
            self.has_stalled = false;
            log::remark("storage", format_args!("storing and acknowledging again"));
        }
        if is_stalled && !self.is_waiting {
            self.is_waiting = true;
            self.wake_after(local, RETRY_TIME)?;
        }
        Ok(())
    }

    fn wake_after(&self, local: &mut Local, time: Duration) -> Result<(), Fatal> {
        let pushed = local.push(Operation::timeout(time), RETRY);
        pushed.map(drop).map_err(|error| Fatal(error.to_string()))
    }

    /// Ends both segments.
    pub(crate) fn seal(&mut self) {
        for part in [&mut self.lines, &mut self.letters] {
            part.appender.seal();
        }
        self.hand_on();
    }

    /// Gives segments that ended to who seals them.
    fn hand_on(&mut self) {
        for part in [&mut self.lines, &mut self.letters] {
            for segment in part.appender.ended() {
                self.tray.put(segment);
            }
        }
    }
}

impl Part {
    fn begin(&mut self, local: &mut Local, given: Given) -> Result<(), Fatal> {
        self.state = State::Going;
        let progress = self.appender.begin(local, given)?;
        self.note(progress);
        Ok(())
    }

    fn note(&mut self, progress: Progress) {
        /// Memory that is kept for the next batch at most.
        const SPARE_BYTES: usize = 16 << 20;
        match progress {
            Progress::Going => {
                if self.state == State::Stalled {
                    self.state = State::Going;
                }
            }
            Progress::Committed(mut spare) => {
                spare.clear();
                spare.shrink_to(SPARE_BYTES);
                self.spare = spare;
                self.state = State::Idle;
            }
            Progress::Stalled(why) => {
                self.state = State::Stalled;
                log::remark("storage", format_args!("{why}"));
            }
        }
    }
}

/// Ends what the last run left of streams that no thread has any more: it had more of them.
pub(crate) fn end_others(directory: &Path, threads: u32) -> Result<(), LogdError> {
    let names = names(directory)?;
    let streams = names.iter().filter_map(|name| parse(name)).map(|(stream, _, _)| stream);
    let others: BTreeSet<Stream> = streams.filter(|stream| stream.number >= threads).collect();
    let local = Local::builder().backend(BackendChoice::Classic).build();
    let mut local = local.map_err(LogdError::failed)?;
    for stream in others {
        end_last(&mut local, directory, &names, stream)?;
    }
    Ok(())
}

/// Ends what the last run left of a stream, and says what an operator should know.
fn end_last(
    local: &mut Local,
    directory: &Path,
    names: &[String],
    stream: Stream,
) -> Result<Recovered, LogdError> {
    let mut recovered = recover(local, directory, names, stream)?;
    for remark in recovered.remarks.drain(..) {
        log::remark("storage", format_args!("{remark}"));
    }
    Ok(recovered)
}

fn names(directory: &Path) -> Result<Vec<String>, LogdError> {
    let entries = std::fs::read_dir(directory).map_err(|error| LogdError::on(directory, &error))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| LogdError::on(directory, &error))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::{Task, WAITING_MAX};

    /// Segments that end faster than they are sealed took descriptors until none was left, also for
    /// connections.
    #[test]
    fn no_batch_begins_while_as_many_segments_as_may_wait_for_their_seal() {
        let directory = tempfile::tempdir().unwrap();
        let (tray, asked) = Tray::new();
        let limits = Limits { bytes: 1, age: Duration::MAX, min_free: 0, is_direct: false };
        let path = directory.path();
        let floor = Arc::new(Mutex::new(Floor::new(path)));
        let mut storage =
            Storage::open(path, 0, Guarantee::Written, limits, tray, &Arc::default(), floor)
                .unwrap();
        let mut local = Local::builder().backend(BackendChoice::Classic).build().unwrap();
        let look = |storage: &mut Storage, local: &mut Local| {
            local.submit_and_wait(1).unwrap();
            while let Some(completion) = local.next_completion() {
                storage.take(local, completion).unwrap();
            }
        };
        let commit = |storage: &mut Storage, local: &mut Local| {
            let lines = b"1\n".to_vec();
            let mut batch = Batch { lines, line_count: 1, ..Batch::default() };
            storage.begin(local, &mut batch).unwrap();
            while storage.is_busy() {
                look(storage, local);
            }
        };
        let mut count = 0;
        while storage.is_ready(&mut local).unwrap() {
            commit(&mut storage, &mut local);
            count += 1;
            assert!(count <= WAITING_MAX + 1, "it goes on");
        }
        // Each but the first ended the segment of the one before.
        assert_eq!((count, storage.seal_waits), (WAITING_MAX + 1, 1));
        assert!(!storage.is_ready(&mut local).unwrap());
        let Some(Task::Seal(segment)) = asked.next(Duration::ZERO) else { panic!("none came") };
        drop(segment);
        asked.done();
        // It asked to be woken for that, and only once.
        local.submit_and_wait(1).unwrap();
        let woken = local.next_completion().unwrap();
        storage.take(&mut local, woken).unwrap();
        assert!(storage.is_ready(&mut local).unwrap());
        commit(&mut storage, &mut local);
        assert!(!storage.is_ready(&mut local).unwrap());
        assert_eq!(storage.seal_waits, 2);
    }
}
