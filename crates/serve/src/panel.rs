//! Requests to workers, from any thread. Each is one byte over a pair of sockets, from which the worker receives as
//! from any other socket.

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

/// How long the panel waits for statistics. A worker answers between two turns.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// A request to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Send the statistics.
    Tell,
    /// Read again the settings that may change while the worker runs.
    Reload,
    /// End: after a drain for the first request, at once for the second.
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

/// Sends requests to all workers of a server. A clone sends to the same workers.
pub struct Panel<S>(Arc<Mutex<Lines<S>>>);

/// Something beside the workers that counts: what it counted, and whether it answered until then.
type Beside<S> = Arc<dyn Fn(Instant) -> (S, bool) + Send + Sync>;

struct Lines<S> {
    lines: Vec<Line<S>>,
    beside: Vec<Beside<S>>,
    is_draining: bool,
}

/// The connection to one worker.
pub(crate) struct Line<S> {
    control: Arc<UnixStream>,
    stats: Receiver<S>,
    /// The newest statistics of the worker.
    told: S,
    /// The worker was asked for statistics and has not answered yet. It is not asked again: a worker that hangs would
    /// not read the requests, and in the end the caller would hang too.
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
        Panel(Arc::new(Mutex::new(Lines {
            lines: Vec::new(),
            beside: Vec::new(),
            is_draining: false,
        })))
    }

    pub(crate) fn add(&self, line: Line<S>) {
        self.lock().lines.push(line);
    }

    /// Adds something that counts and is no worker. It has until the given time to answer, and says whether it did. It
    /// is not told to end.
    pub fn add_beside(&self, ask: impl Fn(Instant) -> (S, bool) + Send + Sync + 'static) {
        self.lock().beside.push(Arc::new(ask));
    }

    fn lock(&self) -> MutexGuard<'_, Lines<S>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to every worker. Workers that have ended do not receive it.
    pub fn tell_all(&self, what: Request) {
        let mut lines = self.lock();
        lines.is_draining |= what == Request::Drain;
        for line in &mut lines.lines {
            let _ = (&*line.control).write_all(&[what.byte()]);
        }
    }

    /// Returns whether the workers were told to end.
    pub fn is_draining(&self) -> bool {
        self.lock().is_draining
    }

    /// Asks all workers for their statistics. For a worker that has ended, these are its final ones. For a worker that
    /// does not answer within two seconds, they are its previous ones. Those of what is no worker follow. The second
    /// value is the number of those that did not answer.
    pub fn ask(&self) -> (Vec<S>, usize) {
        let mut lines = self.lock();
        for line in &mut lines.lines {
            // Takes late answers to earlier requests.
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
        let mut all: Vec<S> = lines.lines.iter().map(|line| line.told.clone()).collect();
        for ask in &lines.beside {
            let (told, answered) = ask(until);
            all.push(told);
            silent += usize::from(!answered);
        }
        (all, silent)
    }

    /// Returns the sum of the newest statistics of all workers, without asking.
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

/// A worker's end, which receives requests.
#[derive(Debug)]
pub struct Ear {
    control: Descriptor,
    tag: u64,
}

impl Ear {
    pub(crate) fn new(control: UnixStream, tag: u64) -> Ear {
        Ear { control: Descriptor::from(OwnedFd::from(control)), tag }
    }

    /// Receives the next requests.
    ///
    /// # Errors
    ///
    /// The loop refuses the operation.
    pub fn listen(&self, local: &mut Local) -> Result<(), ServeError> {
        let receive = Operation::recv(&self.control, vec![0; 16]);
        local.push(receive, self.tag).map(drop).map_err(ServeError::new)
    }

    /// Returns the requests. There are none if the worker was only woken to [use its door](crate::Door::keep). If the
    /// panel is gone, the result is a request to drain. Call [`listen`](Ear::listen) again afterwards.
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
