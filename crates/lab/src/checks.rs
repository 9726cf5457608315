//! What makes a figure untrustworthy: gates exclude results, suspicions are told beside them, and the lab measures
//! itself.

pub mod gates;
pub mod self_check;
pub mod suspicions;
