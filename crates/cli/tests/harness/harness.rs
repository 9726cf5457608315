//! What several tests share: servers and load generators as processes, disks that fail, and checks of JSON by its schema.

// No program of tests uses all of it.
#![allow(dead_code)]

pub mod browser;
pub mod conform;
pub mod daemon;
#[path = "../../../ringwise/tests/shared/deaf.rs"]
pub mod deaf;
pub mod disk;
pub mod lab_results;
pub mod load;
pub mod siege;
