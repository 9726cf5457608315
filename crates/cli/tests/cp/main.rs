//! `ringwise cp` beside GNU cp: the same trees, the same flags, the same outcome.
//!
//! GNU cp on the machine is the oracle. Where there is none of version 9, that is said and the
//! comparisons are skipped. `RINGWISE_SEED` runs one random case, `RINGWISE_CASES` that many
//! new ones, and `RINGWISE_KILLS` kills that many copies of each way.

mod atomic;
mod beyond;
mod cold;
mod crowds;
mod direct;
mod durable;
mod edges;
mod faults;
#[path = "../harness/harness.rs"]
mod harness;
mod kills;
mod machine;
mod meanwhile;
mod oracle;
mod piped;
mod random;
mod reports;
mod resumed;
mod scripts;
mod shared;
mod snapshot;
mod swapped;
mod to_device;
mod trees_to_device;
mod world;

use harness::{conform, disk};
