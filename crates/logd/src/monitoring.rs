//! What the daemon tells of itself: remarks, figures and pages. It decides nothing.

pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod monitor;
pub(crate) mod stats;
