//! One run: its needs, its suite, its progress, and signals that end it early.

pub mod interrupt;
pub(crate) mod needs;
pub(crate) mod output;
pub mod progress;
pub(crate) mod run;
pub(crate) mod suite;
