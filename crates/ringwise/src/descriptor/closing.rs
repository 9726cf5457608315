//! That a descriptor closed, for those who wait to open one.
//!
//! A loop at its limit of descriptors parks what accepts connections (`local/streams.rs`), and
//! takes it up again when one of the library's descriptors closes, on whichever thread: tried
//! again in a loop or by a timer, it would cost a processor for nothing. Descriptors that were
//! taken out of the library, or never were in it, are not seen here.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
};

use crate::sync::lock;

/// Descriptors closed so far.
static CLOSED: AtomicU64 = AtomicU64::new(0);
/// Whether there is somebody to tell. Apart from the list, so that a close takes no lock.
static IS_AWAITED: AtomicBool = AtomicBool::new(false);
static WAITING: Mutex<Vec<Waker>> = Mutex::new(Vec::new());

/// Dropped right after the descriptor beside it.
#[derive(Debug)]
pub(crate) struct Notice;

impl Drop for Notice {
    fn drop(&mut self) {
        tell();
    }
}

/// A descriptor has closed.
pub(crate) fn tell() {
    CLOSED.fetch_add(1, Ordering::SeqCst);
    if IS_AWAITED.load(Ordering::SeqCst) {
        let mut waiting = lock(&WAITING);
        IS_AWAITED.store(false, Ordering::SeqCst);
        let woken = std::mem::take(&mut *waiting);
        drop(waiting);
        woken.into_iter().for_each(Waker::wake);
    }
}

/// How many have closed so far.
pub(crate) fn count() -> u64 {
    CLOSED.load(Ordering::SeqCst)
}

/// Asks for a nudge at the next close. What closed before has to be looked for after this.
pub(crate) fn await_next(waker: Waker) {
    let mut waiting = lock(&WAITING);
    // Each loop once, however often it asks.
    waiting.retain(|other| !other.will_wake(&waker));
    waiting.push(waker);
    IS_AWAITED.store(true, Ordering::SeqCst);
}
