//! One run from its begin to its end: what it needs, its suite, its progress, and what ends it early.

pub mod interrupt;
pub(crate) mod needs;
pub(crate) mod output;
pub mod progress;
pub(crate) mod run;
pub(crate) mod suite;
