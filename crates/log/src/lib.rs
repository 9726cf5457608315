//! A client for [`ringwise logd`](https://github.com/ringwise/ringwise), the log daemon that acknowledges a line when
//! it is stored.
//!
//! ```no_run
//! use std::time::Duration;
//! use ringwise_log::Client;
//!
//! let client = Client::builder("127.0.0.1:9000").name("web-1").start()?;
//! client.send(r#"{"level":"info","message":"hello"}"#)?;
//! client.flush(Duration::from_secs(5))?; // it is on the daemon's disk
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! For this example, start the daemon with `ringwise logd --names anyone`. Without that option, it refuses a name
//! (`E 1 identity`) unless the client has a tenant: by a token ([`Builder::token`]), a certificate or its address.
//!
//! - A client keeps a line until the daemon has acknowledged it. If the connection breaks, the client connects again
//!   and sends what the daemon does not have.
//! - A client with a **name** ([`Builder::name`]) stores each line once, and in order. Without one, lines may be
//!   stored twice when a connection breaks.
//! - Lines take bounded memory ([`Builder::memory`]). At the limit, calls wait, fail, or drop the line and count it
//!   ([`AtLimit`]).
//! - With a **spool** ([`Spool`], feature `spool`), lines wait on disk. They survive the end of the program, and with
//!   [`Spool::sync`] a power cut.
//! - [`Builder::on_event`] reports lost connections and rejected lines, [`Client::stats`] counts them, and
//!   [`Client::failure`] says why there is no connection.
//!
//! # Which method to call
//!
//! | in | to send | to wait for the daemon |
//! |---|---|---|
//! | threads | [`Client::send`], [`Client::send_json`] | [`Client::flush`], [`Client::close`] |
//! | tasks of tokio or of another executor | [`Client::send_async`] | [`Client::flush_async`], [`Client::close_async`] |
//! | programs with `tracing` | a [`Layer`] | [`Client::close`] at the end |
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `spool` | [`Spool`]: lines wait on disk |
//! | `tls` | [`Tls`], by rustls with the provider ring |
//! | `tracing` | [`Layer`] |
//!
//! # Threads and limits
//!
//! A client has a thread that connects and sends, and a second one while it has a connection. They use the sockets of
//! the standard library. Clients do not share connections. The daemon has to take lines by their ends, which is its
//! default (`--framing lines`).
//!
//! If the daemon refuses the client for what its operator can mend, such as a token, the client tries again after
//! each pause. It ends if going on would do harm ([`Failure::is_final`]): a newer connection has its name, or the name
//! has expired.
//!
//! [`Spool`]: struct.Spool.html
//! [`Spool::sync`]: struct.Spool.html#method.sync
//! [`Layer`]: struct.Layer.html
//! [`Tls`]: struct.Tls.html

#![forbid(unsafe_code)]

mod backlog;
mod client;
mod driver;
mod error;
mod event;
#[cfg(fuzzing)]
pub mod fuzzing;
#[cfg(feature = "tracing")]
mod layer;
mod line;
#[cfg(feature = "tracing")]
mod recursion;
mod session;
mod shared;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "spool")]
pub use backlog::spool::Spool;
pub use client::{Builder, Client, Guarantee};
pub use error::{Failure, LineError, Refusal, SendError, SetupError, Unacknowledged};
pub use event::{Event, Stats};
#[cfg(feature = "tracing")]
pub use layer::Layer;
pub use shared::AtLimit;
#[cfg(feature = "tls")]
pub use tls::Tls;

/// The programs of the how-to page, as doctests.
#[cfg(all(doctest, feature = "spool", feature = "tls", feature = "tracing"))]
#[doc = include_str!("../../../docs/how-to/send-logs.md")]
struct HowTo;
