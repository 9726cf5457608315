//! `ringwise cp` beside GNU cp: the same trees, the same flags, the same outcome.
//!
//! GNU cp on the machine is the oracle. Where there is none of version 9, that is said and the
//! comparisons are skipped. `RINGWISE_SEED` runs one random case, `RINGWISE_CASES` that many
//! new ones, and `RINGWISE_KILLS` kills that many copies of each way.

mod beyond;
mod crowds;
mod data;
mod edges;
mod failures;
#[path = "../harness/harness.rs"]
mod harness;
mod oracle;
mod reports;

use harness::{conform, disk};
