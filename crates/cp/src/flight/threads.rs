//! Threads that copy files by system calls: a large one each, small ones in batches.
//!
//! To wake a thread costs as much as to copy a small file, so those go over by the dozen, and
//! where the threads have enough to do, whoever brings more does it. Bounded: a few large files
//! wait for each thread, and are read ahead meanwhile; who brings one more waits.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
};

use crate::{
    bundle::Bundle,
    data,
    job::{Job, Outcome},
    way::{self, SMALL_BYTES, Way},
};

/// Small files that are handed over at once, where descriptors allow it. docs/notes/cp/small-files.md has what
/// was tried.
const BATCH_FILES_MAX: usize = 16;

/// Bytes that are handed over at once: below that many a thread is woken more often than it pays.
const BATCH_BYTES: u64 = 2 << 20;

/// Batches of small files that threads have or that wait for one, for each thread.
const BATCHES_EACH: usize = 2;

/// The same where they are larger files, or one.
const LARGE_EACH: usize = 4;

/// Threads where the device is waited for, for sources that are not in memory and copies that are read
/// back: while some wait others do not. docs/notes/cp/cold-files.md has what was tried.
const WAITING_MAX: usize = 6;

type Batch = Vec<(Job, Way)>;

/// What a thread gets at a time.
#[derive(Debug)]
enum Load {
    Files(Batch),
    Names(Bundle),
}

impl Load {
    fn run(self) -> Vec<Outcome> {
        match self {
            Load::Files(batch) => copy(batch),
            Load::Names(bundle) => vec![bundle.run()],
        }
    }
}

/// What came of a load, or the panic that it ended in: nobody may wait for it then.
type Done = thread::Result<Vec<Outcome>>;

/// The threads. They end when this is dropped, after the jobs that they have.
#[derive(Debug)]
pub(crate) struct Threads {
    most: usize,
    large_max: usize,
    started: usize,
    /// Loads that threads have.
    busy: usize,
    batch_files: usize,
    /// Files until there are enough of them.
    gathered: Batch,
    gathered_bytes: u64,
    loads: Sender<Load>,
    queue: Arc<Mutex<Receiver<Load>>>,
    done: Receiver<Done>,
    done_sender: Sender<Done>,
}

impl Threads {
    /// At most so many threads, and no more files open at a time than `files_max`.
    pub(crate) fn new(most: usize, files_max: usize) -> Threads {
        let (loads, queue) = mpsc::channel();
        let (done_sender, done) = mpsc::channel();
        let most = most.min(files_max);
        Threads {
            most,
            large_max: (LARGE_EACH * most).min(files_max),
            started: 0,
            busy: 0,
            batch_files: (files_max / (LARGE_EACH * most + 1)).clamp(1, BATCH_FILES_MAX),
            gathered: Vec::new(),
            gathered_bytes: 0,
            loads,
            queue: Arc::new(Mutex::new(queue)),
            done,
            done_sender,
        }
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Lets there be more of them, for sources that have to be waited for.
    pub(crate) fn widen(&mut self, files_max: usize) {
        self.most = self.most.max(WAITING_MAX.min(files_max));
    }

    /// Whether something waits for each of them too.
    fn have_enough(&self) -> bool {
        self.busy >= self.large_max
    }

    /// Takes a job in; gives what ended meanwhile.
    pub(crate) fn start(&mut self, job: Job, way: Way) -> Vec<Outcome> {
        // What is read from the device is begun as early as can be.
        let goes_alone = job.size() > SMALL_BYTES && job.is_cold();
        // What shares blocks is as little work as a small file.
        self.gathered_bytes += if way == Way::Share { 0 } else { job.size() };
        self.gathered.push((job, way));
        let is_full = self.gathered.len() >= self.batch_files || self.gathered_bytes >= BATCH_BYTES;
        if !goes_alone && !is_full {
            return Vec::new();
        }
        let are_small = self.gathered_bytes <= SMALL_BYTES * self.gathered.len() as u64;
        let batch = self.gather();
        let mut ended = self.take();
        if are_small && self.busy >= BATCHES_EACH * self.most {
            ended.extend(copy(batch));
            return ended;
        }
        self.hand_over_in_turn(Load::Files(batch), &mut ended);
        ended
    }

    /// The same for names. Where threads have enough of them, whoever brings more waits: one more
    /// who makes names than there are processors costs more than it does (docs/notes/cp/other-programs.md).
    pub(crate) fn start_bundle(&mut self, bundle: Bundle) -> Vec<Outcome> {
        let mut ended = self.take();
        self.hand_over_in_turn(Load::Names(bundle), &mut ended);
        ended
    }

    fn hand_over_in_turn(&mut self, load: Load, ended: &mut Vec<Outcome>) {
        while self.have_enough() {
            ended.extend(self.receive());
        }
        ended.extend(self.hand_over(load));
    }

    /// Waits until at least one job ended, or does what nobody has begun.
    pub(crate) fn wait(&mut self) -> Vec<Outcome> {
        if !self.gathered.is_empty() {
            return copy(self.gather());
        }
        let mut ended = if self.busy > 0 { self.receive() } else { Vec::new() };
        ended.extend(self.take());
        ended
    }

    fn gather(&mut self) -> Batch {
        self.gathered_bytes = 0;
        std::mem::take(&mut self.gathered)
    }

    /// Gives what ended at once, because no thread is to be had.
    fn hand_over(&mut self, load: Load) -> Vec<Outcome> {
        if self.started < self.most && self.started <= self.busy {
            self.start_thread();
        }
        if self.started == 0 {
            return load.run();
        }
        self.busy += 1;
        self.loads.send(load).expect("the queue is held here too");
        Vec::new()
    }

    fn receive(&mut self) -> Vec<Outcome> {
        let done = self.done.recv().expect("a sender is held here too");
        self.came_back(done)
    }

    fn came_back(&mut self, done: Done) -> Vec<Outcome> {
        self.busy -= 1;
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// What ended meanwhile.
    fn take(&mut self) -> Vec<Outcome> {
        let mut ended = Vec::new();
        while let Ok(done) = self.done.try_recv() {
            ended.extend(self.came_back(done));
        }
        ended
    }

    fn start_thread(&mut self) {
        let (queue, done) = (self.queue.clone(), self.done_sender.clone());
        let body = move || {
            loop {
                let next = queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
                let Ok(load) = next else { return };
                // It is told by the thread that it is in, and ends the run where it is waited for.
                let ended = catch_unwind(AssertUnwindSafe(|| load.run()));
                if done.send(ended).is_err() {
                    return;
                }
            }
        };
        if thread::Builder::new().name("cp".into()).spawn(body).is_ok() {
            self.started += 1;
        }
    }
}

fn copy(batch: Batch) -> Vec<Outcome> {
    let end = |(mut job, way): (Job, Way)| {
        let way = match way {
            Way::Share => {
                let (way, _) = way::share(&mut job);
                job.way = way.name();
                way
            }
            way => way,
        };
        let moved = data::copy(&job, way);
        job.end(moved)
    };
    batch.into_iter().map(end).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::OwnedFd};

    use ringwise::Descriptor;
    use rustix::fs::fstat;

    use super::*;
    use crate::{
        attributes::Caller,
        command::command_line::{Typed, read},
        messages::{progress::Meter, quoting::Locale},
    };

    /// Copies what a descriptor gives to nowhere, by blocks of so many bytes.
    fn job(block_bytes: usize, source: Descriptor) -> Job {
        let locale = Locale::from_environment();
        let words = ["-r", "a", "b"].map(Into::into).to_vec();
        let Ok(Typed::Copy(mut options, _)) = read(words, locale) else { panic!("they are good") };
        options.block_bytes = Some(block_bytes);
        let copy = nowhere();
        let stat = fstat(&copy).unwrap();
        Job {
            number: 1,
            options: Arc::new(*options),
            caller: Caller::current(),
            locale,
            source,
            source_path: b"a".to_vec(),
            found: stat,
            source_stat: stat,
            copy,
            copy_path: b"b".to_vec(),
            copy_stat: stat,
            is_new: false,
            into: None,
            mode: 0,
            omitted: 0,
            extra: 0,
            cloned: false,
            absent_pages: 0,
            way: "",
            meter: Arc::new(Meter::new()),
            temporary: None,
        }
    }

    fn nowhere() -> Descriptor {
        let file = File::options().read(true).write(true).open("/dev/null");
        Descriptor::from(OwnedFd::from(file.unwrap()))
    }

    #[test]
    #[should_panic(expected = "capacity overflow")]
    fn a_thread_that_panics_is_not_waited_for_but_ends_the_run() {
        let mut threads = Threads::new(1, 8);
        // There is not so much memory in the world.
        let impossible = job(usize::MAX, nowhere());
        assert!(threads.hand_over(Load::Files(vec![(impossible, Way::Plain)])).is_empty());
        threads.wait();
    }
}
