//! axum over the sockets of a [`ringwise::Ring`].
//!
//! [`RingListener`] is an [`axum::serve::Listener`]. Its connections are
//! [`Buffered`](ringwise::net::Buffered) streams, whose documentation says what goes through the ring.
//!
//! ```
//! use axum::{Router, routing::get};
//! use ringwise::{Ring, net::{ListenOptions, TcpListener}};
//! use ringwise_axum::RingListener;
//!
//! # let runtime = tokio::runtime::Runtime::new().unwrap();
//! # runtime.block_on(async {
//! let ring = Ring::new()?;
//! let listener = TcpListener::bind(&ring, &"127.0.0.1:0".parse()?, &ListenOptions::default())?;
//! let router = Router::new().route("/", get(|| async { "hello" }));
//! let server = axum::serve(RingListener::new(listener), router);
//! # let server = server.with_graceful_shutdown(async {});
//! server.await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! Build the ring within a multi-threaded tokio runtime, which then drives it.
//!
//! # Is it faster?
//!
//! No: with bodies of 1 and 64 KiB it serves about 0.8 of the requests/s that axum serves over tokio's
//! sockets (`README.md` has the comparison). If you want speed, keep tokio's sockets and read files
//! through a ring, as the how-to page `docs/how-to/axum.md` does. This crate is for programs whose I/O all
//! goes through one ring, and for tests on the simulated machine.

#![forbid(unsafe_code)]

mod listener;

pub use listener::{PeerAddress, RingListener};

/// The programs of the how-to page, as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/axum.md")]
struct HowTo;
