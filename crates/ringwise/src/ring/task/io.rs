//! A runtime's epoll, where it has one: descriptors that wake a task.
//!
//! Tokio has no way to ask whether a runtime has I/O. It panics where it has none, so that is tried
//! once for each ring, with the panic caught and not printed.
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

/// Whether a runtime without I/O can be told from one with it, and not end the process.
pub(super) const CAN_BE_TRIED: bool = cfg!(panic = "unwind");

thread_local! {
    static IS_TRYING: Cell<bool> = const { Cell::new(false) };
}

/// Has the runtime watch a descriptor. Nothing where it does no I/O, or there is none to spare.
pub(super) fn watch(descriptor: BorrowedFd<'_>) -> Option<AsyncFd<OwnedFd>> {
    let descriptor = descriptor.try_clone_to_owned().ok()?;
    // SAFETY: the descriptor is owned by what is returned, and stays open as long as it.
    let register = || unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) };
    quietly(|| catch_unwind(AssertUnwindSafe(register))).ok()?.ok()
}

/// Keeps a panic of this thread from being printed. Others are told as before: what prints them is
/// called for all but the one that is looked for.
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
