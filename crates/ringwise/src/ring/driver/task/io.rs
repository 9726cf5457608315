//! Descriptors that wake a task through the runtime's epoll, if it has one.
//!
//! Tokio cannot tell whether a runtime has I/O: it panics if there is none. So each ring tries
//! once, and catches the panic without printing it.
//!
//! # Safety
//!
//! The runtime watches a descriptor by its number: it is owned by the watch itself.
#![allow(unsafe_code)]

use std::{
    cell::Cell,
    os::fd::{BorrowedFd, OwnedFd},
    panic::{self, AssertUnwindSafe, catch_unwind},
    sync::Once,
};

use tokio::io::{Interest, unix::AsyncFd};

/// Whether a ring may try a runtime that may have no I/O, without ending the process.
pub(super) const CAN_BE_TRIED: bool = cfg!(panic = "unwind");

thread_local! {
    static IS_TRYING: Cell<bool> = const { Cell::new(false) };
}

/// Lets the runtime watch a descriptor. Returns nothing if the runtime does no I/O, or if there is
/// no descriptor to spare.
pub(super) fn watch(descriptor: BorrowedFd<'_>) -> Option<AsyncFd<OwnedFd>> {
    let descriptor = descriptor.try_clone_to_owned().ok()?;
    // SAFETY: the descriptor is owned by what is returned, and stays open as long as it.
    let register = || unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    quietly(|| catch_unwind(AssertUnwindSafe(register))).ok()?.ok()
}

/// Keeps a panic of this attempt from being printed. The earlier hook still prints all other
/// panics.
fn quietly<T>(attempt: impl FnOnce() -> T) -> T {
    static FILTER: Once = Once::new();
    if !std::thread::panicking() {
        FILTER.call_once(|| {
            let print = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if !IS_TRYING.get() {
                    print(info);
                }
            }));
        });
    }
    IS_TRYING.set(true);
    let outcome = attempt();
    IS_TRYING.set(false);
    outcome
}
