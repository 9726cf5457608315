//! What the client's threads and its callers share: the session behind a lock, and who waits for what.
//!
//! The driver's thread waits for lines to send; callers wait for room and for acknowledgements, as threads or as
//! tasks of any executor. No callback runs under the lock.

use std::{
    collections::BTreeMap,
    net::{Shutdown, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use crate::{
    backlog::PushError,
    error::{Failure, SendError, Unacknowledged},
    event::{Event, Stats},
    line,
    session::Session,
};

/// What a call does when there is no room for its line.
///
/// # Examples
///
/// ```
/// use ringwise_log::{AtLimit, Client, SendError};
///
/// # // Nobody answers at this address.
/// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// # let address = listener.local_addr()?.to_string();
/// let client = Client::builder(address).memory(2 << 20).at_limit(AtLimit::Refuse).start()?;
/// let line = format!("{:?}", "x".repeat(900_000));
/// client.send(&line)?;
/// client.send(&line)?;
/// // The daemon has acknowledged nothing.
/// assert!(matches!(client.send(&line), Err(SendError::Full)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtLimit {
    /// Waits for room. A daemon that is away makes the program wait.
    #[default]
    Wait,
    /// Returns [`SendError::Full`], and counts the line.
    Refuse,
    /// Drops the line, and counts it ([`Stats::dropped_lines`](crate::Stats::dropped_lines)).
    Drop,
}

/// Takes events.
pub(crate) type Listener = Box<dyn Fn(&Event) + Send + Sync>;

pub(crate) struct Shared {
    state: Mutex<State>,
    /// The driver waits here.
    work: Condvar,
    /// Callers wait here.
    progress: Condvar,
    listener: Option<Listener>,
    line_max: usize,
}

/// Whether lines are taken.
#[derive(Clone, Debug)]
pub(crate) enum Life {
    Running,
    /// No new lines; those that wait are sent.
    Closing,
    Ended(Option<Failure>),
}

pub(crate) struct State {
    /// Nothing once the client has ended, so that another client can have the spool.
    session: Option<Session>,
    last_stats: Stats,
    pub(crate) life: Life,
    /// Of the futures that wait for progress, by their numbers: who came first is woken first.
    wakers: BTreeMap<u64, Waker>,
    /// How many futures have waited so far.
    waiters: u64,
    /// Why there is no connection, until there is one.
    failure: Option<Failure>,
    /// What the thread that receives found.
    pub(crate) broken: Option<Failure>,
    /// The connection, to end it from outside.
    pub(crate) socket: Option<TcpStream>,
    /// TLS has something to send that is no line.
    pub(crate) is_tls_waiting: bool,
    /// When something came last, or when the daemon began to owe an answer.
    pub(crate) heard: Instant,
    is_driver_waiting: bool,
    /// What came last is being told to the program.
    pub(crate) is_telling: bool,
}

impl State {
    /// The session of a client that has not ended.
    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        self.session.as_mut()
    }

    fn waiting(&self) -> u64 {
        self.session.as_ref().map_or(self.last_stats.waiting_lines, |s| s.places().waiting())
    }

    fn is_acknowledged(&self, line: u64) -> bool {
        let is_there = match &self.session {
            Some(session) => session.places().acknowledged >= line,
            None => self.last_stats.waiting_lines == 0,
        };
        is_there && !self.is_telling
    }

    pub(crate) fn count_dropped(&mut self) {
        match &mut self.session {
            Some(session) => session.count_dropped(),
            None => self.last_stats.dropped_lines += 1,
        }
    }

    /// The future is polled again at the next progress. Gives back the waker of another task that polled it before:
    /// whoever drops it must not have the lock, because that may drop other futures of this client.
    fn remember(&mut self, number: &mut Option<u64>, waker: &Waker) -> Option<Waker> {
        let number = *number.get_or_insert_with(|| {
            self.waiters += 1;
            self.waiters
        });
        match self.wakers.get(&number) {
            Some(known) if known.will_wake(waker) => None,
            _ => self.wakers.insert(number, waker.clone()),
        }
    }

    fn unacknowledged(&self, line: u64) -> Unacknowledged {
        let lines = match &self.session {
            Some(session) => line.saturating_sub(session.places().acknowledged),
            None => self.waiting(),
        };
        let ended = match &self.life {
            Life::Ended(failure) => failure.clone(),
            Life::Running | Life::Closing => None,
        };
        Unacknowledged { lines, cause: ended.or_else(|| self.failure.clone()) }
    }
}

/// A future that tries again at each progress. Its waker goes with it.
struct Attempts<'a, F> {
    shared: &'a Shared,
    /// None until it has waited.
    number: Option<u64>,
    attempt: F,
}

impl<T, F: FnMut(&mut State) -> Poll<T> + Unpin> Future for Attempts<'_, F> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Attempts { shared, number, attempt } = self.get_mut();
        let mut state = shared.lock();
        let done = attempt(&mut state);
        if done.is_pending() {
            let replaced = state.remember(number, context.waker());
            drop(state);
            drop(replaced);
        }
        done
    }
}

impl<F> Drop for Attempts<'_, F> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // It is dropped after the lock is free.
            let waker = self.shared.lock().wakers.remove(&number);
            drop(waker);
        }
    }
}

impl Shared {
    pub(crate) fn new(session: Session, listener: Option<Listener>, line_max: usize) -> Shared {
        Shared {
            state: Mutex::new(State {
                last_stats: session.stats(),
                session: Some(session),
                life: Life::Running,
                wakers: BTreeMap::new(),
                waiters: 0,
                failure: None,
                broken: None,
                socket: None,
                is_tls_waiting: false,
                heard: Instant::now(),
                is_driver_waiting: false,
                is_telling: false,
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
            listener,
            line_max,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tries to take a line once; nothing if there is no room.
    fn try_push(&self, state: &mut State, line: &[u8]) -> Result<Option<u64>, SendError> {
        match &state.life {
            Life::Running => {}
            Life::Closing | Life::Ended(None) => return Err(SendError::Closed),
            Life::Ended(Some(failure)) => return Err(SendError::Ended(failure.clone())),
        }
        let Some(session) = &mut state.session else { return Err(SendError::Closed) };
        let pushed = match session.push(line) {
            Ok(number) => Ok(Some(number)),
            Err(PushError::Full) => Ok(None),
            #[cfg(feature = "spool")]
            Err(PushError::Spool(error)) => Err(SendError::Spool(error)),
        };
        if state.is_driver_waiting && pushed.is_ok() {
            self.work.notify_one();
        }
        pushed
    }

    /// Counts a line that nobody will take.
    fn give_up(state: &mut State, at_limit: AtLimit) -> Result<Option<u64>, SendError> {
        state.count_dropped();
        if at_limit == AtLimit::Drop { Ok(None) } else { Err(SendError::Full) }
    }

    pub(crate) fn check(&self, line: &[u8]) -> Result<(), SendError> {
        line::check(line, self.line_max).map_err(|error| {
            if let Some(session) = self.lock().session() {
                session.count_invalid();
            }
            SendError::Line(error)
        })
    }

    /// Takes a line; gives its number, or nothing if it was dropped. Without room it waits for `patience`, or without
    /// an end, and then does what `at_limit` says.
    pub(crate) fn push(
        &self,
        line: &[u8],
        at_limit: AtLimit,
        patience: Option<Duration>,
    ) -> Result<Option<u64>, SendError> {
        self.check(line)?;
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        let mut state = self.lock();
        loop {
            if let Some(number) = self.try_push(&mut state, line)? {
                return Ok(Some(number));
            }
            if at_limit != AtLimit::Wait && until.is_none_or(|until| Instant::now() >= until) {
                return Shared::give_up(&mut state, at_limit);
            }
            state = self.wait_for_progress(state, until);
        }
    }

    fn attempts<T, F>(&self, attempt: F) -> Attempts<'_, F>
    where
        F: FnMut(&mut State) -> Poll<T> + Unpin,
    {
        Attempts { shared: self, number: None, attempt }
    }

    /// The same for a task.
    pub(crate) async fn push_async(
        &self,
        line: &[u8],
        at_limit: AtLimit,
    ) -> Result<Option<u64>, SendError> {
        self.check(line)?;
        self.attempts(|state| match self.try_push(state, line) {
            Ok(None) if at_limit == AtLimit::Wait => Poll::Pending,
            Ok(None) => Poll::Ready(Shared::give_up(state, at_limit)),
            done => Poll::Ready(done),
        })
        .await
    }

    /// The last line that was taken.
    pub(crate) fn last(&self) -> u64 {
        self.lock().session().map_or(0, |session| session.places().last)
    }

    /// Waits until the lines up to this one are acknowledged.
    pub(crate) fn flush(&self, line: u64, patience: Duration) -> Result<(), Unacknowledged> {
        let until = Instant::now().checked_add(patience);
        let mut state = self.lock();
        loop {
            if state.is_acknowledged(line) {
                return Ok(());
            }
            let is_over = until.is_some_and(|until| Instant::now() >= until);
            if is_over || matches!(state.life, Life::Ended(_)) {
                return Err(state.unacknowledged(line));
            }
            state = self.wait_for_progress(state, until);
        }
    }

    /// The same for a task.
    pub(crate) async fn flush_async(&self, line: u64) -> Result<(), Unacknowledged> {
        self.attempts(|state| match &state.life {
            _ if state.is_acknowledged(line) => Poll::Ready(Ok(())),
            Life::Ended(_) => Poll::Ready(Err(state.unacknowledged(line))),
            Life::Running | Life::Closing => Poll::Pending,
        })
        .await
    }

    fn wait_for_progress<'a>(
        &self,
        state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        match until {
            None => self.progress.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                let waited = self.progress.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Wakes whoever waits for room or for acknowledgements.
    pub(crate) fn progressed(&self, mut state: MutexGuard<'_, State>) {
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.progress.notify_all();
        wakers.into_values().for_each(Waker::wake);
    }

    /// The driver waits until there is something to do, until a time at most.
    pub(crate) fn wait_for_work<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        // New lines end no pause.
        state.is_driver_waiting = until.is_none();
        state = match until {
            None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                let waited = self.work.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.is_driver_waiting = false;
        state
    }

    /// Wakes the driver.
    pub(crate) fn notify_driver(&self) {
        self.work.notify_all();
    }

    /// Takes no new lines.
    pub(crate) fn stop_taking(&self) {
        let mut state = self.lock();
        if matches!(state.life, Life::Running) {
            state.life = Life::Closing;
        }
        self.progressed(state);
    }

    /// Ends the client at once. The spool is free for another one when this returns.
    pub(crate) fn end(&self, failure: Option<Failure>) {
        let mut state = self.lock();
        if matches!(state.life, Life::Ended(_)) {
            return;
        }
        state.life = Life::Ended(failure);
        if let Some(session) = state.session.take() {
            state.last_stats = Stats { is_connected: false, ..session.stats() };
        }
        if let Some(socket) = state.socket.take() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        self.notify_driver();
        self.progressed(state);
    }

    pub(crate) fn stats(&self) -> Stats {
        let state = self.lock();
        state.session.as_ref().map_or(state.last_stats, Session::stats)
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        let state = self.lock();
        match &state.life {
            Life::Ended(Some(failure)) => Some(failure.clone()),
            _ => state.failure.clone(),
        }
    }

    /// The connection is gone, or could not be made.
    pub(crate) fn note_failure(&self, failure: Failure) {
        let mut state = self.lock();
        if let Some(session) = &mut state.session {
            session.disconnected();
        }
        (state.failure, state.socket) = (Some(failure), None);
    }

    /// The daemon takes lines.
    pub(crate) fn note_connection(&self) {
        self.lock().failure = None;
        self.notify_driver();
    }

    /// Tells the user. A panic of the callback ends nothing: its message is on standard error.
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(listener) = &self.listener {
            let _ = catch_unwind(AssertUnwindSafe(|| listener(event)));
        }
    }
}
