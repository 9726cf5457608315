//! `ringwise logd`: newline-delimited JSON over TCP, validated, appended, durable, acknowledged.
//!
//! It exists because an acknowledgement is worth what stands behind it: here, that the line is on
//! stable storage. What it does not do: change a line, or answer a client that did not ask.
//!
//! Reading order: `json` (what a line has to be), `segment` (where lines are kept).

#![forbid(unsafe_code)]

mod error;
mod guarantee;
pub mod json;
mod segment;

pub use error::LogdError;
pub use guarantee::Guarantee;
