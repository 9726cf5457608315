//! The event loop that cannot be built.

use std::time::Duration;

#[path = "../local/leaked.rs"]
mod leaked;

pub use leaked::Leaked;

use super::{
    buf::{Buffer, BufferGroup, Pool},
    error::Error,
    op::{Metadata, Operation},
};
use crate::{
    descriptor::{Descriptor, RegisteredFile},
    flight::{
        refusal::{LinkError, PushError},
        slot::Ticket,
    },
    net::Address,
    op::Opcode,
    settings::{
        failure::SetupError,
        setup::{Builder, Effect, Setup},
        stats::Stats,
    },
};

absent! {
    Local {
        self [fn setup(&self) -> &Setup]
        self [fn stats(&mut self) -> Stats]
        self [fn capacity(&self) -> usize]
        self [fn in_flight(&self) -> usize]
        self [fn supports(&self, opcode: Opcode) -> bool]
        self [fn push(&mut self, operation: Operation, tag: u64) -> Result<Ticket, PushError>]
        self [fn push_linked(&mut self, operations: Vec<(Operation, u64)>) -> Result<Vec<Ticket>, LinkError>]
        self [fn submit(&mut self) -> Result<usize, Error>]
        self [fn submit_and_wait(&mut self, want: usize) -> Result<usize, Error>]
        self [fn submit_and_wait_timeout(&mut self, want: usize, timeout: Duration) -> Result<usize, Error>]
        self [fn next_completion(&mut self) -> Option<Completion>]
        self [fn run(&mut self, operation: Operation) -> Result<Completion, Error>]
        self [fn register_file(&mut self, file: &Descriptor) -> Result<RegisteredFile, Error>]
        self [fn unregister_file(&mut self, file: RegisteredFile) -> Result<(), Error>]
        self [fn register_pool(&mut self, count: usize, buffer_bytes: usize) -> Result<Pool, Error>]
        self [fn probe_iopoll(&mut self, file: &Descriptor) -> Result<Effect, Error>]
        self [fn shutdown(self, deadline: Duration) -> Result<(), Leaked>]
    }
    Completion {
        self [fn has_more(&self) -> bool]
        self [fn tag(&self) -> u64]
        self [fn ticket(&self) -> Ticket]
        self [fn opcode(&self) -> Opcode]
        self [fn result(&self) -> Result<usize, Error>]
        self [fn raw_result(&self) -> i32]
        self [fn into_buffer(self) -> Option<Buffer>]
        self [fn into_buffers(self) -> Vec<Buffer>]
        self [fn into_descriptor(self) -> Result<Descriptor, Error>]
        self [fn into_registered(self) -> Result<RegisteredFile, Error>]
        self [fn address(&self) -> Option<Address>]
        self [fn is_truncated(&self) -> bool]
        self [fn metadata(&self) -> Result<Metadata, Error>]
    }
}

impl Local {
    /// Fails.
    ///
    /// # Errors
    ///
    /// [`SetupError::Unsupported`].
    pub fn new() -> Result<Local, SetupError> {
        Local::builder().build()
    }

    /// Settings for a loop.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Builds no loop.
    ///
    /// # Errors
    ///
    /// [`SetupError::Unsupported`].
    pub fn build(self) -> Result<Local, SetupError> {
        Err(SetupError::Unsupported)
    }
}

impl BufferGroup {
    /// A group needs a loop, and there is none.
    ///
    /// # Errors
    ///
    /// None.
    pub fn new(local: &mut Local, _count: usize, _bytes_each: usize) -> Result<BufferGroup, Error> {
        match local.0 {}
    }
}
