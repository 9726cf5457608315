//! The lock of what is tried in every order in which threads can meet: the standard library's, and
//! loom's in its tests (`--cfg ringwise_loom`, see CONTRIBUTING.md).

use std::sync::{Mutex as StandardMutex, MutexGuard as StandardGuard, PoisonError};

#[cfg(not(all(ringwise_loom, test)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(all(ringwise_loom, test))]
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// Locks what a panic of another thread leaves as it should be.
pub(crate) fn lock<T>(mutex: &StandardMutex<T>) -> StandardGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
