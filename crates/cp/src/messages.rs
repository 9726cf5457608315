//! What a run tells: lines and errors, JSON events, and the progress. It decides nothing.

pub(crate) mod events;
pub(crate) mod progress;
pub(crate) mod quoting;
pub(crate) mod report;
