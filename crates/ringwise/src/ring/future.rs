//! The futures of a ring: one operation, several results of one, a time limit, a registration.
//!
//! They own no memory that the kernel may touch. They talk to the hub, and never to the loop.

pub(crate) mod boxed;
pub(crate) mod flow;
pub(crate) mod overseen;
pub(crate) mod pending;
#[cfg(feature = "tracing")]
pub(crate) mod span;
mod submit;
pub(crate) mod timer;
mod visit;
