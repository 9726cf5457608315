//! The two streams of a thread, lines and dead letters, which are committed together.
//!
//! A batch is committed when both its lines and its dead letters are committed. So no acknowledgement covers a rejected
//! line before its dead letter is stored. Ended segments go to the keeper. If less space is free than the floor, no
//! batch begins.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ringwise::{BackendChoice, Completion, Local, Operation};

use crate::{
    clients::names::Names,
    disk::{
        keeper::Tray,
        segment::{
            call::open_directory,
            format::name::{Content, Stream, parse},
            recovery::{Recovered, recover},
            writing::{
                appender::{Appender, Fatal, Given, Limits, Plan, Progress},
                commit::Retry,
            },
        },
        space::Floor,
        submission::Submission,
    },
    error::LogdError,
    guarantee::Guarantee,
    monitoring::{log, stats::Stats},
    session::connection::Batch,
    ship::progress::{Progress as ShipProgress, Streams},
};

/// How long a batch waits before it checks again whether segments were sealed.
const SEAL_WAIT_TIME: Duration = Duration::from_millis(5);

/// How long it waits before it checks again whether a batch is replicated.
const REPLICA_WAIT_TIME: Duration = Duration::from_millis(2);

/// The same while the destination is away.
const AWAY_WAIT_TIME: Duration = Duration::from_millis(50);

/// How often it checks the age of segments and the free space when nothing else happens.
const TICK_TIME: Duration = Duration::from_secs(1);

/// The tags of storage's operations. The worker passes their completions to [`Storage::take`].
pub(crate) const TAGS: [u64; 4] = [LINES, LETTERS, RETRY, TICK];
const LINES: u64 = 5 << 32;
const LETTERS: u64 = 6 << 32;
const RETRY: u64 = 7 << 32;
const TICK: u64 = 9 << 32;

/// State that the storage of all threads shares.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) directory: PathBuf,
    pub(crate) guarantee: Guarantee,
    /// Clients that named themselves.
    pub(crate) names: Arc<Names>,
    /// Takes the segments that have ended.
    pub(crate) tray: Tray,
    /// The least free space for storing.
    pub(crate) floor: Arc<Mutex<Floor>>,
    /// How far streams are shipped, if they are.
    pub(crate) shipped: Option<Arc<Streams>>,
}

/// The streams of a thread.
pub(crate) struct Storage {
    lines: Part,
    letters: Part,
    floor: Arc<Mutex<Floor>>,
    min_free: u64,
    is_low: bool,
    is_waiting: bool,
    has_stalled: bool,
    /// Lines that wait until their batch's dead letters are stored.
    next: Option<Given>,
    /// Passes ended segments to the keeper.
    tray: Tray,
    pub(crate) commits: u64,
    stalls: u64,
    /// Times that a batch waited because too many segments waited for their seal.
    seal_waits: u64,
}

struct Part {
    appender: Appender,
    /// Where it says which lines are durable, if they are shipped.
    progress: Option<Arc<ShipProgress>>,
    /// Whether a batch is committed only when it is shipped.
    must_ship: bool,
    /// Memory for the next batch.
    spare: Vec<u8>,
    state: State,
    /// Whether the log has the reason why the current batch waits.
    is_told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Going,
    /// It is stored. It is committed when all lines before this one are shipped.
    Shipping(u64),
    /// Waits until the next try.
    Stalled(Retry),
}

impl Storage {
    /// Opens the streams `number` and recovers what the last run left of them.
    pub(crate) fn open(shared: &Shared, number: u32, limits: Limits) -> Result<Storage, LogdError> {
        let directory = &shared.directory;
        let names = names(directory)?;
        let part = |content, tag| -> Result<Part, LogdError> {
            let stream = Stream { content, number };
            // A ring would cost memory for little use, and the kernel may refuse it threads.
            let aside = Local::builder().backend(BackendChoice::Classic).build();
            let mut aside = aside.map_err(LogdError::failed)?;
            let recovered = end_last(&mut aside, directory, &names, stream)?;
            let plan = Plan {
                directory: directory.clone(),
                stream,
                guarantee: shared.guarantee,
                limits,
                next_serial: recovered.next_serial,
                next_line: recovered.next_line,
                names: shared.names.clone(),
                tag,
            };
            let shipped = shared.shipped.as_ref().filter(|_| content == Content::Lines);
            let progress = shipped.map(|shipped| shipped.of(number));
            if let Some(progress) = &progress {
                progress.opened(recovered.next_line);
            }
            let handle = open_directory(&mut aside, directory).map_err(LogdError::failed)?;
            let appender = Appender::new(plan, handle, aside);
            let (spare, state, is_told) = (Vec::new(), State::Idle, false);
            let must_ship = shared.guarantee == Guarantee::Replicated;
            Ok(Part { appender, progress, must_ship, spare, state, is_told })
        };
        Ok(Storage {
            lines: part(Content::Lines, LINES)?,
            letters: part(Content::DeadLetters, LETTERS)?,
            floor: shared.floor.clone(),
            min_free: limits.min_free,
            is_low: false,
            is_waiting: false,
            has_stalled: false,
            next: None,
            tray: shared.tray.clone(),
            commits: 0,
            stalls: 0,
            seal_waits: 0,
        })
    }

    /// Starts the timer for checking ages and free space.
    pub(crate) fn watch(&self, submission: &mut dyn Submission) -> Result<(), LogdError> {
        submission.push(Operation::timeout(TICK_TIME), TICK).map_err(LogdError::Failed)
    }

    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.lines.appender.set_limits(limits);
        self.letters.appender.set_limits(limits);
        self.min_free = limits.min_free;
    }

    /// Whether a batch may begin: no other is being committed, not too many segments wait for their seal, and there is
    /// enough space.
    pub(crate) fn is_ready(&mut self, submission: &mut dyn Submission) -> Result<bool, Fatal> {
        if self.is_busy() {
            return Ok(false);
        }
        let is_full = self.tray.is_full();
        if !is_full && self.has_space() {
            return Ok(true);
        }
        if !std::mem::replace(&mut self.is_waiting, true) {
            self.seal_waits += u64::from(is_full);
            self.wake_after(
                submission,
                if is_full { SEAL_WAIT_TIME } else { Retry::Soon.after() },
            )?;
        }
        Ok(false)
    }

    /// Whether there is enough space. Logs a change.
    fn has_space(&mut self) -> bool {
        let mut floor = self.floor.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_low, has_changed) = floor.look(self.min_free);
        self.is_low = is_low;
        if has_changed {
            match is_low {
                true => log::remark(
                    "storage",
                    format_args!(
                        "less than {} bytes are free (--min-free): storing and \
                     acknowledging stop until there is more space",
                        self.min_free
                    ),
                ),
                false => log::remark(
                    "storage",
                    format_args!("there is enough free space again: storing continues"),
                ),
            }
        }
        !is_low
    }

    /// Whether there is too little space.
    pub(crate) fn is_low(&self) -> bool {
        self.is_low
    }

    /// Whether a batch is being committed.
    pub(crate) fn is_busy(&self) -> bool {
        let is_idle = self.lines.state == State::Idle && self.letters.state == State::Idle;
        !is_idle || self.next.is_some()
    }

    /// Whether storing failed and will be tried again.
    pub(crate) fn is_stalled(&self) -> bool {
        self.has_stalled
    }

    /// Adds what it counts to the counts of its thread.
    pub(crate) fn tell(&self, stats: Stats) -> Stats {
        let (lines, letters) = (self.lines.appender.counts(), self.letters.appender.counts());
        Stats {
            commits: self.commits,
            syncs: lines.syncs + letters.syncs,
            writes: lines.writes + letters.writes,
            stalls: self.stalls,
            seal_waits: self.seal_waits,
            stalled: u64::from(self.is_stalled()),
            low: u64::from(self.is_low),
            dead_segments: lines.dead_segments + letters.dead_segments,
            ..stats
        }
    }

    /// Starts to commit a batch and leaves an empty one in its place. False means that it is committed already: it had
    /// nothing to store, or the thread waited for the commit.
    pub(crate) fn begin(
        &mut self,
        submission: &mut dyn Submission,
        batch: &mut Batch,
    ) -> Result<bool, Fatal> {
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
            // Of refused lines only the clients' numbers are stored, in a batch without bytes.
            batch.lines = std::mem::take(&mut self.lines.spare);
            let given = Given {
                data: full.lines,
                lines: full.line_count,
                names: full.names.clone(),
                parts: full.parts,
            };
            if has_both && !full.names.is_empty() {
                // The client's name is stored with the lines, and it acknowledges the dead letters too. So the dead
                // letters have to be stored before.
                self.next = Some(given);
            } else {
                self.lines.begin(submission, given)?;
            }
        }
        if full.letters.is_empty() {
            batch.letters = full.letters;
        } else {
            let names = if has_both { Vec::new() } else { full.names };
            batch.letters = std::mem::take(&mut self.letters.spare);
            let (data, lines) = (full.letters, full.letter_records);
            // Each dead letter contains its sender.
            self.letters.begin(submission, Given { data, lines, names, parts: Vec::new() })?;
        }
        self.go_on(submission)?;
        self.hand_on();
        self.look(submission)?;
        Ok(self.is_busy())
    }

    /// Starts to commit the lines if their dead letters are stored.
    fn go_on(&mut self, submission: &mut dyn Submission) -> Result<(), Fatal> {
        if self.letters.state == State::Idle
            && let Some(given) = self.next.take()
        {
            self.lines.begin(submission, given)?;
        }
        Ok(())
    }

    /// Takes the completion of one of storage's operations. True means that the batch is committed.
    pub(crate) fn take(
        &mut self,
        submission: &mut dyn Submission,
        (tag, completion): (u64, Completion),
    ) -> Result<bool, Fatal> {
        let was_busy = self.is_busy();
        match tag & !u64::from(u32::MAX) {
            LINES => {
                let progress = self.lines.appender.take(submission, (tag, completion))?;
                self.lines.note(progress);
            }
            LETTERS => {
                let progress = self.letters.appender.take(submission, (tag, completion))?;
                self.letters.note(progress);
            }
            TICK => {
                for part in [&mut self.lines, &mut self.letters] {
                    part.appender.tick();
                }
                self.watch(submission).map_err(|error| Fatal(error.to_string()))?;
                // While no lines arrive, nothing else checks the space.
                if !self.is_busy() {
                    self.has_space();
                }
            }
            _ => {
                self.is_waiting = false;
                for part in [&mut self.lines, &mut self.letters] {
                    if part.retry().is_some() {
                        let progress = part.appender.retry(submission)?;
                        part.note(progress);
                    }
                }
            }
        }
        self.lines.look_at_shipping();
        self.go_on(submission)?;
        self.hand_on();
        self.look(submission)?;
        Ok(was_busy && !self.is_busy())
    }

    /// Logs when acknowledgements stop and continue, and starts the timer for the next try.
    fn look(&mut self, submission: &mut dyn Submission) -> Result<(), Fatal> {
        let retry = self.lines.retry().max(self.letters.retry());
        if retry.is_some() && !self.has_stalled {
            self.has_stalled = true;
            self.stalls += 1;
            log::remark(
                "storage",
                format_args!("storing failed: acknowledgements stop until it works again"),
            );
        }
        if self.has_stalled && !self.is_busy() {
            self.has_stalled = false;
            log::remark("storage", format_args!("storing and acknowledging again"));
        }
        let replicas = self.lines.replica_wait();
        if let Some(wait) = retry.map(Retry::after).or(replicas).filter(|_| !self.is_waiting) {
            self.is_waiting = true;
            self.wake_after(submission, wait)?;
        }
        Ok(())
    }

    fn wake_after(&self, submission: &mut dyn Submission, time: Duration) -> Result<(), Fatal> {
        submission.push(Operation::timeout(time), RETRY).map_err(Fatal)
    }

    /// Ends both segments.
    pub(crate) fn seal(&mut self) {
        for part in [&mut self.lines, &mut self.letters] {
            part.appender.seal();
        }
        self.hand_on();
    }

    /// Passes ended segments to the keeper.
    fn hand_on(&mut self) {
        for part in [&mut self.lines, &mut self.letters] {
            for segment in part.appender.ended() {
                self.tray.put(segment);
            }
        }
    }
}

impl Part {
    fn begin(&mut self, submission: &mut dyn Submission, given: Given) -> Result<(), Fatal> {
        self.state = State::Going;
        let progress = self.appender.begin(submission, given)?;
        self.note(progress);
        Ok(())
    }

    /// Returns when the next try is due, if there is one.
    fn retry(&self) -> Option<Retry> {
        match self.state {
            State::Stalled(retry) => Some(retry),
            State::Idle | State::Going | State::Shipping(_) => None,
        }
    }

    /// Says that a batch of so many bytes is stored. Returns what it waits for, if for anything.
    fn stored(&self, bytes: u64) -> State {
        let Some(progress) = &self.progress else { return State::Idle };
        let line = self.appender.next_line();
        progress.committed(line, bytes);
        if !self.must_ship || progress.acknowledged() >= line {
            return State::Idle;
        }
        progress.wake();
        State::Shipping(line)
    }

    /// Returns after what time it looks again whether its batch is shipped, if it waits for that.
    fn replica_wait(&self) -> Option<Duration> {
        let is_away = self.progress.as_ref().is_some_and(|progress| progress.troubles.is_away());
        let wait = if is_away { AWAY_WAIT_TIME } else { REPLICA_WAIT_TIME };
        matches!(self.state, State::Shipping(_)).then_some(wait)
    }

    /// Looks whether the batch that waits for it is shipped.
    fn look_at_shipping(&mut self) {
        if let (State::Shipping(line), Some(progress)) = (self.state, &self.progress)
            && progress.acknowledged() >= line
        {
            self.state = State::Idle;
        }
    }

    fn note(&mut self, progress: Progress) {
        /// The most memory that is kept for the next batch.
        const SPARE_BYTES: usize = 16 << 20;
        match progress {
            Progress::Going => {
                if self.retry().is_some() {
                    self.state = State::Going;
                }
            }
            Progress::Committed(mut spare) => {
                self.state = self.stored(spare.len() as u64);
                spare.clear();
                spare.shrink_to(SPARE_BYTES);
                self.spare = spare;
                self.is_told = false;
            }
            Progress::Stalled(why, retry) => {
                self.state = State::Stalled(retry);
                // The reason is not logged again at each try.
                if retry == Retry::Later || !std::mem::replace(&mut self.is_told, true) {
                    log::remark("storage", format_args!("{why}"));
                }
            }
        }
    }
}

/// Recovers streams that no thread has now because the last run had more threads.
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

/// Recovers a stream after the last run, and logs what an operator should know.
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
    use crate::disk::keeper::{Task, WAITING_MAX};

    /// Segments ended faster than they were sealed, and took all descriptors, also those for connections.
    #[test]
    fn no_batch_begins_while_too_many_segments_wait_for_their_seal() {
        wait_for_seals(1, u64::MAX);
    }

    /// With `--ack replicated` a batch is committed when it is shipped, and no other begins before.
    #[test]
    fn a_batch_is_committed_when_it_is_shipped_if_that_is_promised() {
        let directory = tempfile::tempdir().unwrap();
        let (tray, _asked) = Tray::new();
        let (bytes, age, min_free) = (u64::MAX, Duration::MAX, 0);
        let limits = Limits { bytes, index_bytes: bytes, age, min_free, is_direct: false };
        let streams = Arc::new(Streams::default());
        let mut shared = Shared {
            directory: directory.path().to_owned(),
            guarantee: Guarantee::Replicated,
            names: Arc::default(),
            tray,
            floor: Arc::new(Mutex::new(Floor::new(directory.path()))),
            shipped: Some(streams.clone()),
        };
        let mut local = Local::builder().backend(BackendChoice::Classic).build().unwrap();
        for (guarantee, waits) in [(Guarantee::Replicated, true), (Guarantee::Durable, false)] {
            shared.guarantee = guarantee;
            let mut storage = Storage::open(&shared, 0, limits).unwrap();
            let progress = streams.of(0);
            let before = progress.durable();
            let (lines, letters) = (b"1\n2\n".to_vec(), b"{}\n".to_vec());
            let mut batch =
                Batch { lines, line_count: 2, letters, letter_records: 1, ..Batch::default() };
            storage.begin(&mut local, &mut batch).unwrap();
            let mut is_committed = false;
            let look = |storage: &mut Storage, local: &mut Local| {
                local.submit_and_wait(1).unwrap();
                let mut is_committed = false;
                while let Some(completion) = local.next_completion() {
                    is_committed |= storage.take(local, (completion.tag(), completion)).unwrap();
                }
                is_committed
            };
            // It is stored, and can be shipped.
            while progress.durable() == before {
                is_committed |= look(&mut storage, &mut local);
            }
            for _ in 0..if waits { 5 } else { 0 } {
                is_committed |= look(&mut storage, &mut local);
                progress.acknowledge(before + 1, 1, 2);
                assert!(!is_committed && !storage.is_ready(&mut local).unwrap());
            }
            if waits {
                assert_eq!(storage.lines.replica_wait(), Some(REPLICA_WAIT_TIME));
                progress.troubles.fail("no answer");
                assert_eq!(storage.lines.replica_wait(), Some(AWAY_WAIT_TIME));
                progress.troubles.succeed();
                progress.acknowledge(before + 2, 1, 2);
            }
            while storage.is_busy() {
                is_committed |= look(&mut storage, &mut local);
            }
            assert!(is_committed, "{guarantee:?}");
            assert_eq!((progress.durable(), storage.lines.replica_wait()), (before + 2, None));
        }
    }

    /// The index of many small batches grew until no reader had memory for it.
    #[test]
    fn a_segment_ends_by_its_index_too() {
        wait_for_seals(u64::MAX, 1);
    }

    /// Each batch ends the segment before it, by its lines or by its index.
    fn wait_for_seals(bytes: u64, index_bytes: u64) {
        let directory = tempfile::tempdir().unwrap();
        let (tray, asked) = Tray::new();
        let limits =
            Limits { bytes, index_bytes, age: Duration::MAX, min_free: 0, is_direct: false };
        let shared = Shared {
            directory: directory.path().to_owned(),
            guarantee: Guarantee::Written,
            names: Arc::default(),
            tray,
            floor: Arc::new(Mutex::new(Floor::new(directory.path()))),
            shipped: None,
        };
        let mut storage = Storage::open(&shared, 0, limits).unwrap();
        let mut local = Local::builder().backend(BackendChoice::Classic).build().unwrap();
        let look = |storage: &mut Storage, local: &mut Local| {
            local.submit_and_wait(1).unwrap();
            while let Some(completion) = local.next_completion() {
                storage.take(local, (completion.tag(), completion)).unwrap();
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
            assert!(count <= WAITING_MAX + 1, "batches begin although too many segments wait");
        }
        // Each batch but the first ended the segment of the batch before it.
        assert_eq!((count, storage.seal_waits), (WAITING_MAX + 1, 1));
        assert!(!storage.is_ready(&mut local).unwrap());
        let Some(Task::Seal(segment)) = asked.next(Duration::ZERO) else {
            panic!("no segment was passed on")
        };
        drop(segment);
        asked.done();
        // It set one timer for that, and only one.
        local.submit_and_wait(1).unwrap();
        let woken = local.next_completion().unwrap();
        storage.take(&mut local, (woken.tag(), woken)).unwrap();
        assert!(storage.is_ready(&mut local).unwrap());
        commit(&mut storage, &mut local);
        assert!(!storage.is_ready(&mut local).unwrap());
        assert_eq!(storage.seal_waits, 2);
    }
}
