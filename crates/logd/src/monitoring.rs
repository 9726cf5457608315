//! Remarks, figures and pages of the daemon. It decides nothing.

pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod monitor;
pub(crate) mod stats;
