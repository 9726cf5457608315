//! The handle of programs: it takes lines, and waits for their acknowledgements.

use std::{fmt, sync::Arc, time::Duration};

use serde::Serialize;

mod builder;

pub use builder::{Builder, Guarantee};

use crate::{
    error::{Failure, SendError, Unacknowledged},
    event::Stats,
    shared::{AtLimit, Shared},
};

/// A client of one daemon.
///
/// Threads and tasks share it by cloning. It works with every executor: the methods that end in `_async` need none
/// of their own.
///
/// When the last clone is dropped, the client ends at once and loses the lines in memory that were not acknowledged.
/// Call [`close`](Client::close) first. Lines in a spool are there for the next client.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use ringwise_log::Client;
///
/// let client = Client::builder("127.0.0.1:9000").name("web-1").start()?;
/// client.send(r#"{"level":"info","message":"hello"}"#)?;
/// client.close(Duration::from_secs(5))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client {
    handle: Arc<Handle>,
}

/// Ends the client when nobody has it any more.
struct Handle {
    shared: Arc<Shared>,
    at_limit: AtLimit,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.end(None);
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Client {
    /// Begins the settings of a client for the daemon at `HOST:PORT`.
    pub fn builder(address: impl Into<String>) -> Builder {
        Builder::new(address.into())
    }

    fn new(shared: Arc<Shared>, at_limit: AtLimit) -> Client {
        Client { handle: Arc::new(Handle { shared, at_limit }) }
    }

    /// Sends a line: one JSON value in UTF-8, without a line end. It returns when the client has the line, and not
    /// when the daemon has it ([`flush`](Client::flush)).
    ///
    /// Returns the line's number, counted by this client from 1 or by the spool's clients, or nothing if the line was
    /// dropped ([`AtLimit::Drop`]). Without room for the line it does what [`Builder::at_limit`] says, and waits if
    /// nothing was said.
    ///
    /// # Errors
    ///
    /// [`SendError`]. The line was not taken.
    pub fn send(&self, line: impl AsRef<[u8]>) -> Result<Option<u64>, SendError> {
        self.handle.shared.push(line.as_ref(), self.handle.at_limit, None)
    }

    /// Sends a value as a line of JSON, as [`send`](Client::send) does.
    ///
    /// # Errors
    ///
    /// [`SendError`], also if the value cannot be written as JSON.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # let client = ringwise_log::Client::builder("127.0.0.1:9000").start()?;
    /// #[derive(serde::Serialize)]
    /// struct Request<'a> {
    ///     path: &'a str,
    ///     status: u16,
    /// }
    ///
    /// client.send_json(&Request { path: "/", status: 200 })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_json(&self, value: &(impl Serialize + ?Sized)) -> Result<Option<u64>, SendError> {
        self.send(serde_json::to_vec(value).map_err(SendError::Json)?)
    }

    /// Sends a line as [`send`](Client::send) does, and lets the task wait instead of the thread.
    ///
    /// With a spool, the file is written within the call; with `Spool::sync` it is also synced, which takes
    /// milliseconds.
    ///
    /// # Errors
    ///
    /// [`SendError`]. The line was not taken.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the line was not taken.
    pub async fn send_async(&self, line: impl AsRef<[u8]>) -> Result<Option<u64>, SendError> {
        self.handle.shared.push_async(line.as_ref(), self.handle.at_limit).await
    }

    /// Waits until all lines that were sent before are acknowledged. Rejected lines are acknowledged too, and their
    /// [events](crate::Builder::on_event) come before this returns.
    ///
    /// # Errors
    ///
    /// [`Unacknowledged`]: lines are left after `timeout`, or the client has ended. The client goes on with them,
    /// unless it has ended.
    pub fn flush(&self, timeout: Duration) -> Result<(), Unacknowledged> {
        self.handle.shared.flush(self.handle.shared.last(), timeout)
    }

    /// Waits as [`flush`](Client::flush) does, without a time limit of its own: use that of your executor, such as
    /// `tokio::time::timeout`.
    ///
    /// # Errors
    ///
    /// [`Unacknowledged`]: the client has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn flush_async(&self) -> Result<(), Unacknowledged> {
        self.handle.shared.flush_async(self.handle.shared.last()).await
    }

    /// Takes no more lines from any clone, waits until all are acknowledged, and ends the client.
    ///
    /// # Errors
    ///
    /// [`Unacknowledged`]: lines are left after `timeout`. They are lost, or in the spool.
    pub fn close(&self, timeout: Duration) -> Result<(), Unacknowledged> {
        self.handle.shared.stop_taking();
        let flushed = self.flush(timeout);
        self.handle.shared.end(None);
        flushed
    }

    /// Closes the client as [`close`](Client::close) does, without a time limit of its own.
    ///
    /// # Errors
    ///
    /// [`Unacknowledged`]: the client had ended before.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the client takes no more lines, and still sends those it has.
    pub async fn close_async(&self) -> Result<(), Unacknowledged> {
        self.handle.shared.stop_taking();
        let flushed = self.flush_async().await;
        self.handle.shared.end(None);
        flushed
    }

    /// Returns what the client has done so far.
    pub fn stats(&self) -> Stats {
        self.handle.shared.stats()
    }

    /// Returns why there is no connection, or why the client has ended. There is no failure before the first
    /// connection fails, and none while the daemon takes lines.
    pub fn failure(&self) -> Option<Failure> {
        self.handle.shared.failure()
    }

    /// Sends a line, or drops and counts it if there is no room within this time, or no client any more.
    #[cfg(feature = "tracing")]
    pub(crate) fn send_or_drop(&self, line: &[u8], patience: Duration) {
        let shared = &self.handle.shared;
        match shared.push(line, AtLimit::Drop, Some(patience)) {
            // These are counted already.
            Ok(_) | Err(SendError::Line(_)) => {}
            Err(_) => shared.lock().count_dropped(),
        }
    }
}
