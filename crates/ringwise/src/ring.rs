//! The shared handle: operations from any thread or task, each a `Send` future.
//!
//! A [`Ring`] is a loop ([`Local`](crate::Local)) behind a driver. Futures hand operations to the
//! driver, which wakes them when results are ready. They own no memory that the kernel may touch,
//! so they can be dropped at any moment (invariant 1). Any executor can poll them.

mod boxed;
mod contained;
mod driver;
mod flow;
mod handle;
mod hits;
mod hub;
mod order;
mod overseen;
mod pending;
#[cfg(feature = "tokio")]
mod portable;
#[cfg(feature = "tracing")]
pub(crate) mod span;
mod stats;
mod submit;
#[cfg(feature = "tokio")]
mod task;
mod thread;
mod timer;
mod visit;

pub(crate) use boxed::BoxFuture;
pub(crate) use contained::wake;
pub(crate) use flow::Flow;
pub use handle::Ring;
pub(crate) use overseen::oversee;
pub use pending::{Deadline, Pending};
pub use stats::RingStats;
pub(crate) use timer::Timer;
