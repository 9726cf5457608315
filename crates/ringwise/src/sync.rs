//! The lock of what is tried in every order in which threads can meet: the standard library's, and
//! loom's in its tests (`--cfg ringwise_loom`, see CONTRIBUTING.md).

#[cfg(not(all(ringwise_loom, test)))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(all(ringwise_loom, test))]
pub(crate) use loom::sync::{Mutex, MutexGuard};
