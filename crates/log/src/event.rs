//! What a client tells: events as they happen, and counts.

use std::time::Duration;

use crate::error::Failure;

/// What happened to a client.
///
/// [`Builder::on_event`](crate::Builder::on_event) takes the callback.
///
/// # Examples
///
/// ```no_run
/// use ringwise_log::{Client, Event};
///
/// let client = Client::builder("127.0.0.1:9000").name("web-1").on_event(|event| match event {
///     Event::Disconnected { failure, pause } => eprintln!("{failure}; again in {pause:?}"),
///     Event::Rejected { line, reason } => eprintln!("line {line} is not stored: {reason}"),
///     Event::Ended { failure } => eprintln!("nothing is sent any more: {failure}"),
///     _ => {}
/// });
/// let client = client.start()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The daemon greeted, and takes lines.
    Connected {
        /// How many lines of the name are stored, if the client has a name.
        stored: Option<u64>,
    },
    /// The connection failed, or could not be made. The client tries again.
    Disconnected {
        /// Why.
        failure: Failure,
        /// How long the client waits before that.
        pause: Duration,
    },
    /// The daemon rejected a line. It keeps such a line as a dead letter, unless it refuses long lines.
    Rejected {
        /// The line's number, as [`Client::send`](crate::Client::send) gave it.
        line: u64,
        /// The daemon's word for the reason, as `syntax` or `too-long`.
        reason: String,
    },
    /// The daemon stores in another directory than before: its own is new, or this is another daemon. Lines that were
    /// not acknowledged are sent to it, also those that are perhaps in the other directory.
    Moved {
        /// How many.
        lines: u64,
    },
    /// The daemon no longer has so many lines that it had acknowledged: it stores with `--ack written` and its machine
    /// lost power, or its directory was restored from a copy.
    Forgotten {
        /// How many.
        lines: u64,
    },
    /// At the start, the daemon had so many more lines of the name than the spool knows of: a power cut took the
    /// spool's end, or another program used the name meanwhile.
    Ahead {
        /// How many.
        lines: u64,
    },
    /// The client has ended, and takes nothing more.
    Ended {
        /// Why.
        failure: Failure,
    },
}

/// What a client has done so far.
///
/// # Examples
///
/// ```
/// use ringwise_log::Client;
///
/// let client = Client::builder("127.0.0.1:1").start()?; // nobody listens there
/// client.send("17")?;
/// client.send("two\nlines").unwrap_err();
/// let stats = client.stats();
/// assert_eq!((stats.accepted_lines, stats.invalid_lines), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Lines that the client took.
    pub accepted_lines: u64,
    /// Lines that the daemon acknowledged, those that it rejected too.
    pub acknowledged_lines: u64,
    /// Lines that the daemon rejected, as far as it told ([`settled_lines`](Self::settled_lines)).
    pub rejected_lines: u64,
    /// Lines whose acknowledgement was the answer to a greeting after a lost connection. The daemon does not tell
    /// which of them it rejected.
    pub settled_lines: u64,
    /// Lines that were dropped or refused because of the limit, and events that a layer could not send.
    pub dropped_lines: u64,
    /// Lines that were no lines ([`LineError`](crate::LineError)), such as events that are too long.
    pub invalid_lines: u64,
    /// Lines that were sent again, counted each time, and lines that an earlier program left in the spool. Without a
    /// name they may be stored more than once.
    pub resent_lines: u64,
    /// Lines that the daemon had acknowledged and no longer has.
    pub forgotten_lines: u64,
    /// Lines that wait for their acknowledgement.
    pub waiting_lines: u64,
    /// What they count against the limit of the memory or of the spool.
    pub waiting_bytes: u64,
    /// Greetings that the daemon answered.
    pub connections: u64,
    /// Connections that failed, or could not be made.
    pub failures: u64,
    /// Bytes at the end of the spool that were no whole line when it was opened, and were cut.
    pub spool_cut_bytes: u64,
    /// Whether the daemon takes lines at this moment.
    pub is_connected: bool,
}
