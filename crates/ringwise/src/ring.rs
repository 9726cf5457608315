//! The shared handle: operations from any thread or task, each a `Send` future.
//!
//! A [`Ring`] is a loop ([`Local`](crate::Local)) behind a driver. Futures hand operations to the
//! driver, which wakes them when results are ready. They own no memory that the kernel may touch,
//! so they can be dropped at any moment (invariant 1). Any executor can poll them.

mod contained;
mod driver;
mod future;
mod handle;
mod hits;
mod hub;
mod stats;

pub(crate) use contained::wake;
pub use future::pending::{Deadline, Pending};
#[cfg(feature = "tracing")]
pub(crate) use future::span;
pub(crate) use future::{boxed::BoxFuture, flow::Flow, overseen::oversee, timer::Timer};
pub use handle::Ring;
pub use stats::RingStats;
