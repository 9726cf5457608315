//! What workers are asked, from any thread: a byte each over a pair of sockets, which a worker
//! receives like everything else.

use std::{
    fmt,
    io::Write,
    iter::Sum,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use ringwise::{Completion, Descriptor, Local, Operation};

use crate::{error::ServeError, places::WAKE};

/// How long statistics are waited for: a worker answers between two turns.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// What a worker is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// What it has counted.
    Tell,
    /// To look at what may change while it runs.
    Reload,
    /// To end: gently the first time, at once the second.
    Drain,
}

impl Request {
    fn byte(self) -> u8 {
        match self {
            Request::Tell => b't',
            Request::Reload => b'r',
            Request::Drain => b'd',
        }
    }
}

/// Asks all workers of a server; a clone asks the same ones.
pub struct Panel<S>(Arc<Mutex<Lines<S>>>);

struct Lines<S> {
    lines: Vec<Line<S>>,
    is_draining: bool,
}

/// The other end of a worker.
pub(crate) struct Line<S> {
    control: Arc<UnixStream>,
    stats: Receiver<S>,
    /// The newest that it told.
    told: S,
    /// It was asked, and has not answered yet: not asked again, or a worker that hangs would at last
    /// make who asks it hang too.
    is_asked: bool,
}

impl<S> Clone for Panel<S> {
    fn clone(&self) -> Self {
        Panel(self.0.clone())
    }
}

impl<S> fmt::Debug for Panel<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Panel").finish_non_exhaustive()
    }
}

impl<S: Clone + Default + Sum> Panel<S> {
    pub(crate) fn new() -> Panel<S> {
        Panel(Arc::new(Mutex::new(Lines { lines: Vec::new(), is_draining: false })))
    }

    pub(crate) fn add(&self, line: Line<S>) {
        self.lock().lines.push(line);
    }

    fn lock(&self) -> MutexGuard<'_, Lines<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks every worker for the same thing. One that has ended does not hear it.
    pub fn tell_all(&self, what: Request) {
        let mut lines = self.lock();
        lines.is_draining |= what == Request::Drain;
        for line in &mut lines.lines {
            let _ = (&*line.control).write_all(&[what.byte()]);
        }
    }

    /// Whether workers were asked to end.
    pub fn is_draining(&self) -> bool {
        self.lock().is_draining
    }

    /// What each worker has counted: of one that has ended, in all; of one that does not answer
    /// within two seconds, when it last did. The second value is how many those are.
    pub fn ask(&self) -> (Vec<S>, usize) {
        let mut lines = self.lock();
        for line in &mut lines.lines {
            // Answers that came too late for who asked.
            line.hear();
            if !std::mem::replace(&mut line.is_asked, true) {
                let _ = (&*line.control).write_all(&[Request::Tell.byte()]);
            }
        }
        let until = Instant::now() + ANSWER_TIME;
        let mut silent = 0;
        for line in &mut lines.lines {
            match line.stats.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(told) => (line.told, line.is_asked) = (told, false),
                Err(RecvTimeoutError::Timeout) => silent += 1,
                Err(RecvTimeoutError::Disconnected) => {}
            }
        }
        (lines.lines.iter().map(|line| line.told.clone()).collect(), silent)
    }

    /// What all workers have counted and told, without asking.
    pub(crate) fn told(&self) -> S {
        let mut lines = self.lock();
        lines.lines.iter_mut().for_each(Line::hear);
        lines.lines.iter().map(|line| line.told.clone()).sum()
    }
}

impl<S: Default> Line<S> {
    pub(crate) fn new(control: Arc<UnixStream>, stats: Receiver<S>) -> Line<S> {
        Line { control, stats, told: S::default(), is_asked: false }
    }

    fn hear(&mut self) {
        if let Some(told) = self.stats.try_iter().last() {
            (self.told, self.is_asked) = (told, false);
        }
    }
}

/// A worker's end: what it is asked.
#[derive(Debug)]
pub struct Ear {
    control: Descriptor,
    tag: u64,
}

impl Ear {
    pub(crate) fn new(control: UnixStream, tag: u64) -> Ear {
        Ear { control: Descriptor::from(OwnedFd::from(control)), tag }
    }

    /// Listens for the next requests.
    ///
    /// # Errors
    ///
    /// The loop takes no operation.
    pub fn listen(&self, local: &mut Local) -> Result<(), ServeError> {
        let receive = Operation::recv(&self.control, vec![0; 16]);
        local.push(receive, self.tag).map(drop).map_err(ServeError::new)
    }

    /// What was asked: nothing where it was only woken to [look at its door](crate::Door::keep).
    /// Without anybody to ask there is nobody to serve for: that is a drain. Then
    /// [listen](Ear::listen) again.
    pub fn heard(&self, completion: Completion) -> Vec<Request> {
        let count = usize::try_from(completion.raw_result()).unwrap_or(0);
        let bytes = completion.into_buffer();
        let bytes = bytes.as_ref().map_or(&[][..], |buffer| buffer.as_slice());
        if count == 0 {
            return vec![Request::Drain];
        }
        let meant = |byte: &u8| match *byte {
            WAKE => None,
            b't' => Some(Request::Tell),
            b'r' => Some(Request::Reload),
            _ => Some(Request::Drain),
        };
        bytes[..count].iter().filter_map(meant).collect()
    }
}
