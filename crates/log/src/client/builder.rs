//! The settings of a client, and its start.

use std::{fmt, sync::Arc, thread, time::Duration};

use super::Client;
#[cfg(feature = "spool")]
use crate::backlog::spool;
#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::{
    backlog::{Backlog, Memory},
    driver::{self, Patience, Route},
    error::SetupError,
    event::Event,
    session::{Greeting, Session},
    shared::{AtLimit, Listener, Shared},
};

/// What the client asks the daemon to promise with an acknowledgement.
///
/// # Examples
///
/// ```no_run
/// use ringwise_log::{Client, Guarantee};
///
/// // A daemon with `--ack written` refuses this client: `Refusal::Weaker`.
/// let client = Client::builder("127.0.0.1:9000").guarantee(Guarantee::Durable).start()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guarantee {
    /// The line survives the end of the daemon.
    Written,
    /// The line survives a power cut.
    Durable,
    /// The line survives the loss of the daemon's machine, because Kafka has it too (`--ack replicated`). Dead letters
    /// are durable only. While Kafka is away nothing is acknowledged.
    Replicated,
}

/// The least memory beyond the longest line.
const MEMORY_MIN: usize = 1 << 10;
/// The longest line that can be allowed.
const LINE_MAX: usize = 1 << 30;
/// The longest name (`docs/reference/logd.md`).
const NAME_BYTES: usize = 64;

/// The settings of a client.
///
/// [`Client::builder`] makes one.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
/// use ringwise_log::{AtLimit, Client, Guarantee};
///
/// let client = Client::builder("127.0.0.1:9000")
///     .name("web-1")
///     .guarantee(Guarantee::Durable)
///     .memory(4 << 20)
///     .at_limit(AtLimit::Refuse)
///     .connect_timeout(Duration::from_secs(2))
///     .start()?;
/// client.send(r#"{"level":"info","message":"hello"}"#)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is sent before `start`"]
pub struct Builder {
    address: String,
    name: Option<String>,
    token: Option<String>,
    guarantee: Option<Guarantee>,
    memory: usize,
    line_max: usize,
    at_limit: AtLimit,
    listener: Option<Listener>,
    connect_timeout: Duration,
    patience: Patience,
    #[cfg(feature = "spool")]
    spool: Option<spool::Spool>,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token stays out of logs.
        f.debug_struct("Builder")
            .field("address", &self.address)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(address: String) -> Builder {
        Builder {
            address,
            name: None,
            token: None,
            guarantee: None,
            memory: 16 << 20,
            line_max: 1 << 20,
            at_limit: AtLimit::Wait,
            listener: None,
            connect_timeout: Duration::from_secs(10),
            patience: Patience {
                answer: Duration::from_secs(60),
                pause_least: Duration::from_millis(50),
                pause_most: Duration::from_secs(10),
            },
            #[cfg(feature = "spool")]
            spool: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Gives the client a name: 1 to 64 letters, digits, `.`, `_`, `:` and `-`. The daemon then stores each
    /// line once. Only one client at a time may use the same name.
    ///
    /// Without a name, lines that were not acknowledged when a connection broke are sent again and may be stored
    /// twice.
    pub fn name(mut self, name: impl Into<String>) -> Builder {
        self.name = Some(name.into());
        self
    }

    /// Shows a token, by which the daemon knows the client's tenant (`--tokens`). Use TLS with it.
    pub fn token(mut self, token: impl Into<String>) -> Builder {
        self.token = Some(token.into());
        self
    }

    /// Asks for at least this guarantee. Without it, what the daemon promises is enough.
    pub fn guarantee(mut self, guarantee: Guarantee) -> Builder {
        self.guarantee = Some(guarantee);
        self
    }

    /// Keeps at most so many bytes of lines in memory that are not acknowledged; the default is 16 MiB. A line costs
    /// five bytes more than it has. What is being sent, and the first and the last block of lines, come on top: about
    /// 256 KiB and two lines.
    ///
    /// With a spool the lines are on disk, and this limit does not apply.
    pub fn memory(mut self, bytes: usize) -> Builder {
        self.memory = bytes;
        self
    }

    /// Takes lines of at most so many bytes; the default is 1 MiB, as is the daemon's (`--max-line`).
    pub fn line_max(mut self, bytes: usize) -> Builder {
        self.line_max = bytes;
        self
    }

    /// Says what to do with a line for which there is no room; the default is to wait.
    pub fn at_limit(mut self, at_limit: AtLimit) -> Builder {
        self.at_limit = at_limit;
        self
    }

    /// Keeps lines in files until they are acknowledged.
    #[cfg(feature = "spool")]
    pub fn spool(mut self, spool: spool::Spool) -> Builder {
        self.spool = Some(spool);
        self
    }

    /// Speaks TLS.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Builder {
        self.tls = Some(tls);
        self
    }

    /// Calls this with what happens, on a thread of the client. Sending waits for it, so it should be short. It may
    /// use the client, but must not wait for it. A panic in it ends nothing.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Builder {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Waits between two connections for this time at first, and twice as long after each failure, up to `most`; the
    /// defaults are 50 ms and 10 s. Up to half of a pause is left out at random.
    pub fn pauses(mut self, least: Duration, most: Duration) -> Builder {
        (self.patience.pause_least, self.patience.pause_most) = (least, most);
        self
    }

    /// Waits so long for a connection, for a handshake and for the answer to the greeting; the default is 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Builder {
        self.connect_timeout = timeout;
        self
    }

    /// Connects again if the daemon acknowledges nothing for so long; the default is 60 s. A client without a name
    /// waits for ever, because it would store lines twice.
    pub fn answer_timeout(mut self, timeout: Duration) -> Builder {
        self.patience.answer = timeout;
        self
    }

    /// Starts the client, whose thread connects and sends. The daemon need not be there.
    ///
    /// # Errors
    ///
    /// [`SetupError`]: a setting that cannot be right, or a spool that cannot be opened.
    pub fn start(self) -> Result<Client, SetupError> {
        let greeting = self.greeting()?;
        self.check_limits()?;
        let session = Session::new(greeting, self.backlog()?);
        let shared = Arc::new(Shared::new(session, self.listener, self.line_max));
        let route = Route {
            address: self.address,
            timeout: self.connect_timeout,
            #[cfg(feature = "tls")]
            tls: self.tls,
        };
        let (driven, patience) = (shared.clone(), self.patience);
        let thread = thread::Builder::new().name("ringwise-log".to_owned());
        let thread = thread.spawn(move || driver::run(&driven, &route, patience));
        thread.map_err(SetupError::Thread)?;
        Ok(Client::new(shared, self.at_limit))
    }

    fn greeting(&self) -> Result<Greeting, SetupError> {
        let mut line = "LOGD 1".to_owned();
        match self.guarantee {
            None => {}
            Some(Guarantee::Written) => line += " ack=written",
            Some(Guarantee::Durable) => line += " ack=durable",
            Some(Guarantee::Replicated) => line += " ack=replicated",
        }
        if let Some(name) = &self.name {
            let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
            if name.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(is_good) {
                let why = format!("{name:?}: expected 1 to 64 letters, digits, '.', '_', ':', '-'");
                return Err(SetupError::Setting("name", why));
            }
            line += &format!(" name={name}");
        }
        if let Some(token) = &self.token {
            if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                let why = "expected visible ASCII characters without spaces".to_owned();
                return Err(SetupError::Setting("token", why));
            }
            line += &format!(" token={token}");
        }
        line.push('\n');
        Ok(Greeting { line, has_name: self.name.is_some() })
    }

    fn check_limits(&self) -> Result<(), SetupError> {
        let wrong = |name, why: String| Err(SetupError::Setting(name, why));
        if self.line_max == 0 || self.line_max > LINE_MAX {
            return wrong("line_max", format!("{}: expected 1 to {LINE_MAX}", self.line_max));
        }
        if !self.address.contains(':') {
            return wrong("address", format!("{:?}: expected HOST:PORT", self.address));
        }
        #[cfg(feature = "spool")]
        if let Some(spool) = &self.spool {
            let least = spool::LIMIT_MIN + 2 * self.line_max as u64;
            if spool.limit < least {
                return wrong("limit", format!("{}: expected at least {least}", spool.limit));
            }
            return Ok(());
        }
        let least = self.line_max + MEMORY_MIN;
        if self.memory < least {
            let why = format!("{}: expected at least {least}, or a lower line_max", self.memory);
            return wrong("memory", why);
        }
        Ok(())
    }

    fn backlog(&self) -> Result<Backlog, SetupError> {
        #[cfg(feature = "spool")]
        if let Some(spool) = &self.spool {
            let name = self.name.as_deref().unwrap_or_default();
            return Ok(Backlog::Spool(Box::new(spool::Files::open(spool, name)?)));
        }
        Ok(Backlog::Memory(Memory::new(self.memory)))
    }
}
