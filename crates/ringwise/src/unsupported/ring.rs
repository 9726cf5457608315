//! The handle that cannot be built.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

#[path = "../ring/future/boxed.rs"]
mod boxed;
#[path = "../ring/stats.rs"]
mod stats;

pub(crate) use boxed::BoxFuture;
pub use stats::RingStats;

use super::{
    buf::{BufferGroup, Pool},
    error::Error,
    local::{Completion, Leaked},
    op::Operation,
};
use crate::{
    descriptor::{Descriptor, RegisteredFile},
    settings::{
        failure::SetupError,
        setup::{Builder, Setup},
    },
};

absent! {
    Ring [Clone] {
        self [fn submit(&self, operation: Operation) -> Pending]
        self [fn submit_all(&self, operations: impl IntoIterator<Item = Operation>) -> Vec<Pending>]
        self [fn submit_linked(&self, operations: impl IntoIterator<Item = Operation>) -> Vec<Pending>]
        self [async fn within<F: Future>(&self, after: Duration, future: F) -> Result<F::Output, Error>]
        self [async fn register_pool(&self, count: usize, buffer_bytes: usize) -> Result<Pool, Error>]
        self [async fn buffer_group(&self, count: usize, bytes_each: usize) -> Result<BufferGroup, Error>]
        self [async fn register_file(&self, file: &Descriptor) -> Result<RegisteredFile, Error>]
        self [async fn unregister_file(&self, file: RegisteredFile) -> Result<(), Error>]
        self [fn setup(&self) -> &Setup]
        self [fn stats(&self) -> RingStats]
        self [async fn shutdown(&self, deadline: Duration) -> Result<(), Leaked>]
    }
    Pending {
        self [fn deadline(self, after: Duration) -> Deadline]
        self [fn finish(self) -> Pending]
        self [fn cancel_on_drop(self) -> Pending]
    }
    Deadline {}
}

impl Ring {
    /// Fails.
    ///
    /// # Errors
    ///
    /// [`SetupError::Unsupported`].
    pub fn new() -> Result<Ring, SetupError> {
        Builder::default().build_ring()
    }
}

impl Builder {
    /// Builds no ring.
    ///
    /// # Errors
    ///
    /// [`SetupError::Unsupported`].
    pub fn build_ring(self) -> Result<Ring, SetupError> {
        Err(SetupError::Unsupported)
    }
}

impl Future for Pending {
    type Output = Completion;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Completion> {
        match self.0 {}
    }
}

impl Future for Deadline {
    type Output = Completion;

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Completion> {
        match self.0 {}
    }
}
