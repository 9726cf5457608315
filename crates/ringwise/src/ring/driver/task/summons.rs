//! The wake-up of the driver's task.
//!
//! The worker thread that takes an event from the runtime's epoll keeps the driver's task in its
//! LIFO slot, and no other thread can take the task from there. Every few tasks, the worker first
//! takes one from the runtime's global queue (`next_task` in tokio's multi_thread/worker.rs). If
//! that task computes, the driver's task waits for it, and so does every user of the ring. So the
//! lookout watches each wake-up, and takes the turns of the driver while its task does not run.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    task::{Wake, Waker},
};

use super::lookout::Lookout;
use crate::{
    ring::{contained::wake, hub::Hub},
    sync::lock,
    sys::fork::ProcessMark,
};

/// The driver's task has run since the last wake-up.
const FOLLOWED: u8 = 0;
/// The task was woken and has not run since.
const WOKEN: u8 = 1;
/// The lookout has seen that the task was woken and has not run.
const SEEN: u8 = 2;

/// The state of the last wake-up.
#[derive(Default)]
pub(super) struct Summons(AtomicU8);

impl Summons {
    /// Notes that the driver's task is woken.
    fn begin(&self) {
        // A wake-up that the lookout has seen stays seen.
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.0.compare_exchange(FOLLOWED, WOKEN, success, failure);
    }

    /// Notes that the driver's task runs.
    pub(super) fn follow(&self) {
        self.0.store(FOLLOWED, Ordering::Release);
    }

    /// Looks at the wake-up.
    pub(super) fn look(&self) -> Coming {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        match self.0.compare_exchange(WOKEN, SEEN, success, failure) {
            Ok(_) => Coming::Soon,
            Err(SEEN) => Coming::Late,
            Err(_) => Coming::Not,
        }
    }
}

/// Whether the driver's task is about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coming {
    /// It was not woken since it last ran.
    Not,
    /// It was woken since the last look.
    Soon,
    /// An earlier look has seen the same wake-up.
    Late,
}

/// Wakes the driver's task, and lets the lookout watch whether it comes.
pub(super) struct Caller {
    task: Mutex<Option<Waker>>,
    lookout: Arc<Lookout>,
    hub: Arc<Hub>,
    process: Arc<ProcessMark>,
}

impl Caller {
    pub(super) fn new(lookout: Arc<Lookout>, hub: Arc<Hub>, process: Arc<ProcessMark>) -> Caller {
        Caller { task: Mutex::default(), lookout, hub, process }
    }

    /// Notes that the task runs, and how to wake it the next time.
    pub(super) fn follow(&self, waker: &Waker) {
        self.lookout.summons.follow();
        let mut task = lock(&self.task);
        if !task.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A forked process that drops its copy of the runtime comes here too. It has no ring, and no
        // thread may take turns in it.
        if !self.process.is_foreign() {
            self.lookout.summons.begin();
            self.lookout.look(&self.hub);
        }
        let task = lock(&self.task).clone();
        wake(task);
    }
}

#[cfg(all(not(ringwise_loom), test))]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_that_two_looks_have_seen_is_late() {
        let summons = Summons::default();
        assert_eq!(summons.look(), Coming::Not);
        summons.begin();
        assert_eq!(summons.look(), Coming::Soon);
        summons.begin();
        assert_eq!(summons.look(), Coming::Late);
        assert_eq!(summons.look(), Coming::Late, "it has not run yet");
        summons.follow();
        assert_eq!(summons.look(), Coming::Not);
        summons.begin();
        assert_eq!(summons.look(), Coming::Soon);
    }
}
