//! The benchmark lab: measures engines side by side on this machine and says which one pays.
#![deny(unsafe_code)]

mod accesses;
pub mod dataset;
pub mod engine;
pub mod error;
pub mod job;
pub mod lane;

#[cfg(test)]
mod testing;
