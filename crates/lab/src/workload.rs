//! Workloads, a file or a directory each, the form that they fill in, and what servers share.

pub mod chain;
pub mod copy;
pub mod echo;
pub mod form;
pub mod http;
pub mod latency;
pub mod log;
pub mod nop;
pub mod objects;
pub mod read;
pub mod scale;
pub mod stat;
mod under_load;

use self::form::Entry;

/// How many of [`ALL`] make up the suite: the first ones. Others run only by name.
pub const SUITE: usize = 10;

/// All workloads, in the order of the suite.
pub static ALL: [&Entry; 11] = [
    &read::ENTRY,
    &latency::ENTRY,
    &nop::ENTRY,
    &chain::ENTRY,
    &stat::ENTRY,
    &echo::ENTRY,
    &http::ENTRY,
    &objects::ENTRY,
    &copy::ENTRY,
    &log::ENTRY,
    &scale::ENTRY,
];
