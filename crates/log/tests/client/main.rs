//! The client against small servers: daemons that are away, slow, silent, hostile or hard to please.
//!
//! The command's tests (`crates/cli/tests/commands/logd_client.rs`) run it against the daemon itself.

mod hostile;
#[cfg(feature = "tracing")]
mod layer;
mod limits;
mod server;
