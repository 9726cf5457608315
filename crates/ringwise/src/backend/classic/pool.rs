//! A bounded pool of threads that make calls and hand back results.
//!
//! For a slot, a thread of this pool is like the kernel: it follows the call's addresses until the
//! result is out. Threads start when there is more work than idle threads, and end after ten idle
//! seconds, so a loop that stops costs nothing. In a runtime the threads hand out their results
//! themselves, and so use the loop and run users' code ([`HandOut`]). Calls that may wait forever
//! (on a pipe) should not come here: they wait in `readiness.rs` until their file is ready.
//!
//! # Safety
//!
//! Calls are sent to other threads with the addresses in them. That is sound because the
//! operation stays in its slot until the result is taken (invariant 1), and because a pool that
//! is dropped with calls running leaves its loop to leak the slots (invariant 7).
#![allow(unsafe_code)]

#[cfg(feature = "tokio")]
use std::sync::OnceLock;
use std::{
    collections::VecDeque,
    fmt, io,
    os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Wake, Waker},
    thread,
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, epoll::EventFlags, eventfd},
    fs::{OFlags, fcntl_getfl},
};

use crate::{
    backend::Cqe,
    descriptor::Blocking,
    flight::call::{Call, File},
    sync::lock,
    sys::{
        perform::{perform, perform_cached, perform_stream, timeout_of},
        socket::receive_chosen,
    },
};

/// How long an idle thread stays. This is twice as long as the kernel keeps its own idle workers
/// (five seconds, `WORKER_IDLE_TIMEOUT` in io_uring/io-wq.c), since starting a thread costs more
/// here.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// The stack of a thread. Calls are shallow, and the standard library's 2 MiB would waste address
/// space.
const STACK_BYTES: usize = 128 << 10;
/// The stack of a thread that hands out results: wakers and drops of buffers run users' code.
#[cfg(feature = "tokio")]
const USERS_STACK_BYTES: usize = 2 << 20;

/// A call on its way to a thread.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) user_data: u64,
    pub(crate) call: Call,
    pub(crate) blocking: Blocking,
}

// SAFETY: the addresses are valid on any thread until the result is taken; see the header.
unsafe impl Send for Job {}

/// A socket's number, and its descriptor's serial, which distinguishes it from an earlier socket
/// with the same number.
#[derive(Clone, Copy)]
pub(crate) struct SocketName {
    pub(crate) fd: RawFd,
    pub(crate) serial: u64,
}

/// The event that a call waits for: a descriptor becomes readable, or writable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) fd: RawFd,
    pub(crate) reads: bool,
}

impl Stream {
    pub(super) fn events(self) -> EventFlags {
        if self.reads { EventFlags::IN } else { EventFlags::OUT }
    }
}

/// The result of a call that must not block.
pub(crate) enum Attempt {
    Done(Cqe),
    NotReady,
    /// A call on its file may block.
    MustBlock,
}

impl Job {
    /// Makes the call on this thread, however long it takes.
    pub(crate) fn run(&self) -> Cqe {
        if let Call::ReceiveMulti { file: File::Fd(fd), group, .. } = self.call {
            // SAFETY: as below.
            let chosen = unsafe { receive_chosen(fd, group, 0) };
            return self.done_with(chosen.result, chosen.buffer);
        }
        // SAFETY: invariant 1: the operation is in its slot until this result is taken.
        let result = unsafe {
            match self.stream() {
                Some(_) => perform_stream(&self.call, 0),
                None => perform(&self.call),
            }
        };
        self.done(result)
    }

    /// Makes a call on a stream on this thread, if that needs no waiting.
    pub(crate) fn attempt(&self) -> Attempt {
        // SAFETY: as in `run`.
        let mut code = unsafe { perform_stream(&self.call, libc::RWF_NOWAIT) };
        if code == -libc::EOPNOTSUPP {
            if !self.is_nonblocking() {
                return Attempt::MustBlock;
            }
            // SAFETY: as in `run`. The file's own flag keeps it from blocking.
            code = unsafe { perform_stream(&self.call, 0) };
        }
        if code == -libc::EAGAIN { Attempt::NotReady } else { Attempt::Done(self.done(code)) }
    }

    fn is_nonblocking(&self) -> bool {
        let Some(Stream { fd, .. }) = self.stream() else { return false };
        // SAFETY: as in `run`; the operation holds the descriptor.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
    }

    /// Returns what a call waits for, if it may wait forever.
    pub(crate) fn stream(&self) -> Option<Stream> {
        if !matches!(self.blocking, Blocking::Unbounded | Blocking::Socket { .. }) {
            return None;
        }
        match self.call {
            Call::Read { file: File::Fd(fd), .. }
            | Call::ReadVectored { file: File::Fd(fd), .. } => Some(Stream { fd, reads: true }),
            Call::Write { file: File::Fd(fd), .. }
            | Call::WriteVectored { file: File::Fd(fd), .. } => Some(Stream { fd, reads: false }),
            _ => None,
        }
    }

    /// Returns the socket that it works on, if any.
    pub(crate) fn socket(&self) -> Option<SocketName> {
        let serial = match self.blocking {
            Blocking::Socket { serial } => serial,
            // The call is made all the same: the kernel gives the answer.
            _ if self.call.is_on_socket() => 0,
            _ => return None,
        };
        let fd = match self.call {
            Call::Accept { file: File::Fd(fd), .. }
            | Call::Connect { file: File::Fd(fd), .. }
            | Call::Receive { file: File::Fd(fd), .. }
            | Call::ReceiveMulti { file: File::Fd(fd), .. }
            | Call::ReceiveMessage { file: File::Fd(fd), .. }
            | Call::Send { file: File::Fd(fd), .. }
            | Call::SendMessage { file: File::Fd(fd), .. } => fd,
            _ => self.stream()?.fd,
        };
        Some(SocketName { fd, serial })
    }

    /// Makes the call on this thread if that needs no waiting for a device.
    pub(crate) fn run_cached(&self) -> Option<Cqe> {
        // SAFETY: as in `run`.
        let result = unsafe { perform_cached(&self.call, self.blocking) };
        result.map(|result| self.done(result))
    }

    /// Returns the time that this job waits, if it is a timeout.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let Call::Timeout { after } = self.call else { return None };
        // SAFETY: as in `run`.
        Some(unsafe { timeout_of(after) })
    }

    pub(crate) fn done(&self, result: i32) -> Cqe {
        Cqe::by_thread(self.user_data, result)
    }

    pub(crate) fn done_with(&self, result: i32, buffer: Option<u16>) -> Cqe {
        let cqe = self.done(result);
        buffer.map_or(cqe, |index| cqe.with_buffer(index))
    }
}

/// The pool, owned by one loop.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    shared: Arc<Shared>,
    threads_max: usize,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    wake: OwnedFd,
    /// Hands out results on the thread that made the call, if any thread may use the loop. Returns
    /// false if somebody else uses the loop.
    #[cfg(feature = "tokio")]
    hand_out: OnceLock<HandOut>,
}

/// See [`WorkerPool::hand_out_by`].
#[cfg(feature = "tokio")]
pub(crate) type HandOut = Box<dyn Fn() -> bool + Send + Sync>;

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Job>,
    /// The numbers of the calls that threads are making.
    running: Vec<u64>,
    done: Vec<Cqe>,
    threads: usize,
    idle: usize,
    /// Whether the loop sleeps, or is about to: then the next result has to wake it.
    loop_sleeps: bool,
    /// Whether somebody asked the loop to look again.
    is_nudged: bool,
    closed: bool,
}

/// Wakes the loop from another thread, so that it looks again at its parked operations.
impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.lock();
        state.is_nudged = true;
        if std::mem::take(&mut state.loop_sleeps) {
            signal(&self.wake);
        }
    }
}

impl WorkerPool {
    pub(crate) fn new(threads_max: usize) -> io::Result<WorkerPool> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            wake,
            #[cfg(feature = "tokio")]
            hand_out: OnceLock::new(),
        };
        Ok(WorkerPool { shared: Arc::new(shared), threads_max })
    }

    /// From now on a thread whose result would wake the loop calls `hand_out` instead, without a
    /// lock. It wakes the loop only if `hand_out` returns false.
    #[cfg(feature = "tokio")]
    pub(crate) fn hand_out_by(&self, hand_out: HandOut) {
        // Only the first call counts, since a loop has one driver.
        let _ = self.shared.hand_out.set(hand_out);
    }

    /// Queues a job and makes sure that a thread will take it.
    pub(crate) fn send(&self, job: Job) {
        let mut state = self.shared.lock();
        state.queue.push_back(job);
        if state.idle >= state.queue.len() {
            self.shared.work.notify_one();
        } else if state.threads < self.threads_max {
            self.start(&mut state);
        }
    }

    /// Starts a thread. If this fails, the queue waits for the running threads. If there are none
    /// at all, [`run_one_if_deserted`](Self::run_one_if_deserted) is the way out.
    fn start(&self, state: &mut State) {
        let shared = Arc::clone(&self.shared);
        let spawned = thread::Builder::new()
            .name("ringwise-worker".into())
            .stack_size(shared.stack_bytes())
            .spawn(move || shared.work());
        if spawned.is_ok() {
            state.threads += 1;
        }
    }

    /// Makes one queued call on the calling thread, if the pool has no thread because none could be
    /// started.
    pub(crate) fn run_one_if_deserted(&self) -> Option<Cqe> {
        let mut state = self.shared.lock();
        if state.threads > 0 {
            return None;
        }
        let job = state.queue.pop_front()?;
        drop(state);
        Some(job.run())
    }

    /// Moves the results out.
    pub(crate) fn take_done(&self, into: &mut impl Extend<Cqe>) {
        into.extend(self.shared.lock().done.drain(..));
    }

    /// Promises that the loop will sleep on [`wake`](Self::wake). Returns false, without a promise,
    /// if a result is there already.
    pub(crate) fn prepare_sleep(&self) -> bool {
        let mut state = self.shared.lock();
        state.loop_sleeps = state.done.is_empty() && !state.is_nudged;
        state.loop_sleeps
    }

    /// Returns a waker with which other threads wake the loop. It keeps nothing alive but the
    /// pool's state.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.shared))
    }

    /// Returns whether somebody nudged the loop since the last call.
    pub(crate) fn take_nudge(&self) -> bool {
        std::mem::take(&mut self.shared.lock().is_nudged)
    }

    /// Returns the descriptor that becomes readable when a result wakes a sleeping loop.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Notes that the loop no longer sleeps, although the eventfd did not wake it.
    pub(crate) fn end_sleep(&self) {
        self.shared.lock().loop_sleeps = false;
    }

    /// Resets the eventfd after it woke the loop.
    pub(crate) fn clear_wake(&self) {
        self.end_sleep();
        let _ = rustix::io::read(&self.shared.wake, &mut [0_u8; 8]);
    }

    /// Cancels the call with this number. Returns 0 if it will end as cancelled, the negated error
    /// number if it will not, and nothing if the pool does not have it.
    pub(crate) fn cancel(&self, user_data: u64) -> Option<i32> {
        let mut state = self.shared.lock();
        if let Some(at) = state.queue.iter().position(|job| job.user_data == user_data) {
            let job = state.queue.remove(at).expect("found just now");
            state.done.push(Cqe::cancelled(job.user_data));
            return Some(0);
        }
        state.running.contains(&user_data).then_some(-libc::EALREADY)
    }
}

impl Drop for WorkerPool {
    /// Ends idle threads. A running call ends by itself, and its result goes nowhere.
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn stack_bytes(&self) -> usize {
        #[cfg(feature = "tokio")]
        if self.hand_out.get().is_some() {
            return USERS_STACK_BYTES;
        }
        STACK_BYTES
    }

    /// Runs a thread of the pool.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                state = self.make(state, &job);
                continue;
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let (woken, wait) =
                self.work.wait_timeout(state, IDLE_TIME).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if wait.timed_out() && state.queue.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Makes one call without holding the lock, and reports its result.
    fn make<'a>(&'a self, mut state: MutexGuard<'a, State>, job: &Job) -> MutexGuard<'a, State> {
        state.running.push(job.user_data);
        drop(state);
        let cqe = job.run();
        let mut state = self.lock();
        state.running.retain(|running| *running != job.user_data);
        state.done.push(cqe);
        if !std::mem::take(&mut state.loop_sleeps) {
            return state;
        }
        drop(state);
        if !self.hands_out() {
            signal(&self.wake);
        }
        self.lock()
    }

    /// Returns whether this thread has handed out the results.
    fn hands_out(&self) -> bool {
        #[cfg(feature = "tokio")]
        return self.hand_out.get().is_some_and(|hand_out| hand_out());
        #[cfg(not(feature = "tokio"))]
        false
    }
}

fn signal(eventfd: &OwnedFd) {
    // The only possible error is a full counter, which wakes the loop as well.
    let _ = rustix::io::write(eventfd, &1_u64.to_ne_bytes());
}
