//! Checks of the results: gates exclude them, suspicions are remarks beside them, and the lab measures itself.

pub mod gates;
pub mod self_check;
pub mod suspicions;
pub mod warmth;
