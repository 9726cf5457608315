//! The errors: of a line, of sending, of a connection, of a setup.
//!
//! A connection that fails is no error of a call: the client connects again. [`Failure`] says why it did, to the
//! callback for events and in the errors of calls that waited in vain.

use std::{error::Error, fmt, io, path::PathBuf, sync::Arc, time::Duration};

/// Why a line was not taken.
///
/// # Examples
///
/// ```
/// use ringwise_log::{Client, LineError, SendError};
///
/// let client = Client::builder("127.0.0.1:1").line_max(64 << 10).start()?; // nobody listens there
/// let error = client.send("x".repeat(100_000)).unwrap_err();
/// let SendError::Line(error) = error else { panic!("{error}") };
/// assert_eq!(error, LineError::TooLong { bytes: 100_000, limit: 65_536 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineError {
    /// It has no bytes. The daemon leaves out empty lines.
    Empty,
    /// It has a line feed or a carriage return.
    LineEnd,
    /// It is longer than the client's limit.
    TooLong {
        /// Its length.
        bytes: usize,
        /// The limit ([`Builder::line_max`](crate::Builder::line_max)).
        limit: usize,
    },
    /// It is not UTF-8.
    Utf8,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineError::Empty => f.write_str("the line is empty: send one JSON value"),
            LineError::LineEnd => f.write_str("the line has a line end within: escape it (\\n)"),
            LineError::TooLong { bytes, limit } => {
                write!(f, "the line has {bytes} bytes, and may have {limit}: raise line_max")
            }
            LineError::Utf8 => f.write_str("the line is not UTF-8: send JSON in UTF-8"),
        }
    }
}

impl Error for LineError {}

/// Why a line was not accepted.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ringwise_log::{Client, SendError};
///
/// let client = Client::builder("127.0.0.1:1").start()?; // nobody listens there
/// assert!(matches!(client.send(""), Err(SendError::Line(_))));
/// client.close(Duration::ZERO)?; // no line waits
/// assert!(matches!(client.send("17"), Err(SendError::Closed)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum SendError {
    /// It is no line.
    Line(LineError),
    /// It cannot be written as JSON.
    Json(serde_json::Error),
    /// The lines that wait for their acknowledgement have the memory, or the spool.
    Full,
    /// The line could not be written to the spool.
    Spool(io::Error),
    /// The client was closed.
    Closed,
    /// The client has ended, because the daemon does not take lines from it.
    Ended(Failure),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Line(error) => error.fmt(f),
            SendError::Json(error) => write!(f, "no line of JSON can be made of it: {error}"),
            SendError::Full => f.write_str(
                "too many lines wait for the daemon: send again later, or raise the limit",
            ),
            SendError::Spool(error) => write!(f, "the spool: {error}; look at its file system"),
            SendError::Closed => f.write_str("the client was closed: start another one"),
            SendError::Ended(failure) => write!(f, "the client has ended: {failure}"),
        }
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SendError::Line(error) => Some(error),
            SendError::Json(error) => Some(error),
            SendError::Spool(error) => Some(error),
            SendError::Ended(failure) => Some(failure),
            SendError::Full | SendError::Closed => None,
        }
    }
}

/// Lines that were not acknowledged in time.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ringwise_log::Client;
///
/// let client = Client::builder("127.0.0.1:1").start()?; // nobody listens there
/// client.send("17")?;
/// let late = client.flush(Duration::from_millis(500)).unwrap_err();
/// assert_eq!(late.lines, 1);
/// println!("{late}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unacknowledged {
    /// How many there are.
    pub lines: u64,
    /// Why the last connection failed or could not be made, if one did and none was made since.
    pub cause: Option<Failure>,
}

impl fmt::Display for Unacknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines are not acknowledged", self.lines)?;
        match &self.cause {
            Some(cause) => write!(f, ": {cause}"),
            None => f.write_str(": the daemon stores too slowly, or not at all; look at its log"),
        }
    }
}

impl Error for Unacknowledged {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as &dyn Error)
    }
}

/// Why there is no connection.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ringwise_log::{Client, Failure};
///
/// let client = Client::builder("127.0.0.1:1").start()?; // nobody listens there
/// client.send("17")?;
/// client.flush(Duration::from_millis(500)).unwrap_err();
/// let failure = client.failure().unwrap();
/// assert!(matches!(failure, Failure::Connect(_)));
/// assert!(!failure.is_final()); // the client tries again
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// No connection could be made.
    Connect(Arc<io::Error>),
    /// The connection broke.
    Connection(Arc<io::Error>),
    /// The daemon closed the connection.
    Closed,
    /// The daemon did not answer for so long.
    Silent(Duration),
    /// The daemon refused the greeting, or took the name away.
    Refused(Refusal),
    /// What came is no answer, or none that can be true. It has what came.
    Protocol(String),
    /// The daemon has lines of this name that this client did not send. Another program uses the name.
    NameShared,
    /// The spool could not be read or written.
    Spool(Arc<io::Error>),
    /// A thread of the client panicked, which is a bug of the client.
    Panicked,
}

impl Failure {
    /// Returns whether the client ends, because another connection would go the same way or do harm.
    pub fn is_final(&self) -> bool {
        match self {
            Failure::NameShared | Failure::Panicked => true,
            Failure::Refused(refusal) => refusal.is_final(),
            _ => false,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Connect(error) => {
                write!(f, "no connection: {error}; is the daemon there, and the address right?")
            }
            Failure::Connection(error) => write!(f, "the connection broke: {error}"),
            Failure::Closed => f.write_str(
                "the daemon closed the connection: if it does so each time, look at its log",
            ),
            Failure::Silent(time) => write!(f, "the daemon did not answer for {time:?}"),
            Failure::Refused(refusal) => refusal.fmt(f),
            Failure::Protocol(answer) => {
                write!(f, "what answers is no ringwise logd ({answer}): is it the port for lines?")
            }
            Failure::NameShared => f.write_str(
                "the daemon has lines of this name from another program: give each a name of its own",
            ),
            Failure::Spool(error) => write!(f, "the spool: {error}; look at its file system"),
            Failure::Panicked => f.write_str("a bug: a thread of the client panicked; report it"),
        }
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Failure::Connect(error) | Failure::Connection(error) | Failure::Spool(error) => {
                Some(&**error)
            }
            _ => None,
        }
    }
}

/// Why the daemon refused a client: the words of its answers, as `docs/reference/logd.md` has them.
///
/// # Examples
///
/// ```no_run
/// use ringwise_log::{Client, Event, Failure, Refusal};
///
/// let client = Client::builder("127.0.0.1:9000").token("secret").on_event(|event| match event {
///     Event::Disconnected { failure: Failure::Refused(Refusal::Token), .. } => {
///         eprintln!("the daemon does not know the token: add it to the file of its --tokens");
///     }
///     _ => {}
/// });
/// let client = client.start()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Earlier lines of the name are still being stored; or, with `--ack replicated`, not all lines from before the
    /// daemon's start are in Kafka. The client tries again, first after milliseconds.
    Busy,
    /// A newer connection has the name. The client ends, because both would take it from each other.
    Taken,
    /// The name was not used for too long, and its number is forgotten. The client ends.
    Expired,
    /// The name is no name. The client ends.
    Name,
    /// The daemon does not know the greeting. The client ends.
    Unknown,
    /// A client without a tenant may not have a name, or may not send lines (`--senders tenants`).
    Identity,
    /// There are as many names as the daemon remembers.
    Names,
    /// The token is not known.
    Token,
    /// The token came in plain from another machine.
    Transport,
    /// The daemon promises less than was asked for. It has the daemon's guarantee.
    Weaker(String),
    /// Another word.
    Other(String),
}

impl Refusal {
    /// What stands after `E 1 `.
    pub(crate) fn read(text: &str) -> Refusal {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "busy" => Refusal::Busy,
            "taken" => Refusal::Taken,
            "expired" => Refusal::Expired,
            "name" => Refusal::Name,
            "unknown" => Refusal::Unknown,
            "identity" => Refusal::Identity,
            "names" => Refusal::Names,
            "token" => Refusal::Token,
            "transport" => Refusal::Transport,
            "weaker" => Refusal::Weaker(rest.to_owned()),
            _ => Refusal::Other(text.to_owned()),
        }
    }

    /// The others an operator can mend while the client waits.
    fn is_final(&self) -> bool {
        matches!(self, Refusal::Taken | Refusal::Expired | Refusal::Name | Refusal::Unknown)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the daemon refused: ")?;
        match self {
            Refusal::Busy => f.write_str(
                "busy: earlier lines of the name are being stored, or, with --ack replicated, not all \
                 lines from before the daemon's start are in Kafka; wait, or look at the daemon's log",
            ),
            Refusal::Taken => f.write_str(
                "taken: a newer connection has the name; give each program a name of its own",
            ),
            Refusal::Expired => f.write_str("expired: the name is too old; take a new one"),
            Refusal::Name => f.write_str("name: it is no name"),
            Refusal::Unknown => f.write_str("unknown: the daemon is older than this client"),
            Refusal::Identity => f.write_str(
                "identity: the daemon wants a token or a certificate; see its --names and --senders",
            ),
            Refusal::Names => f.write_str("names: too many; see the daemon's --address-names"),
            Refusal::Token => f.write_str("token: it is not in the daemon's --tokens file"),
            Refusal::Transport => {
                f.write_str("transport: a token needs TLS, or the daemon's --token-transport any")
            }
            Refusal::Weaker(has) => {
                write!(f, "weaker: it promises \"{has}\"; ask for less, or see its --ack")
            }
            Refusal::Other(text) => f.write_str(text),
        }
    }
}

impl Error for Refusal {}

/// Why a client could not be started.
///
/// # Examples
///
/// ```
/// use ringwise_log::{Client, SetupError};
///
/// let error = Client::builder("127.0.0.1:9000").name("web 1").start().unwrap_err();
/// assert!(matches!(error, SetupError::Setting("name", _)));
/// println!("{error}");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// A setting cannot be right. It has the setting and why.
    Setting(&'static str, String),
    /// A file of certificates, or a certificate, cannot be used.
    Tls(String),
    /// The spool's directory cannot be used.
    Spool(PathBuf, io::Error),
    /// Another client has the spool.
    SpoolInUse(PathBuf),
    /// A file of the spool is not as it was written.
    SpoolDamaged(PathBuf, String),
    /// The thread could not be started.
    Thread(io::Error),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::Setting(name, why) => write!(f, "{name}: {why}"),
            SetupError::Tls(why) => write!(f, "TLS: {why}"),
            SetupError::Spool(path, error) => write!(f, "the spool {}: {error}", path.display()),
            SetupError::SpoolInUse(path) => write!(
                f,
                "the spool {} belongs to a client that runs: give each one a directory of its own",
                path.display()
            ),
            SetupError::SpoolDamaged(path, why) => {
                write!(f, "{}: {why}; move the spool's directory away", path.display())
            }
            SetupError::Thread(error) => {
                write!(
                    f,
                    "no thread can be started: {error}; raise the limit of processes (ulimit -u)"
                )
            }
        }
    }
}

impl Error for SetupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            SetupError::Spool(_, error) | SetupError::Thread(error) => Some(error),
            _ => None,
        }
    }
}
