//! A connection's TLS, without any I/O: received bytes go in, and bytes to send come out. Both engines share it.
//!
//! The rules of a connection see plain bytes only. All bytes of one completion are taken at once, and all answers
//! to them are one write. Sessions are not resumed: connections of log clients last long, and the certificate of
//! a resumed session would not be checked again.

use std::{
    io::{BufRead, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{ServerConfig, ServerConnection};

mod certificate;
mod files;

pub(crate) use certificate::name as client_name;
pub(crate) use files::{ClientAuth, Files, Own, VERSIONS, authorities, provider};

/// One connection's state.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Box<ServerConnection>,
    began: Instant,
    /// The name in the client's certificate, if it showed one.
    tenant: Option<String>,
    is_up: bool,
    has_failed: bool,
    has_parted: bool,
    /// Bytes since it last gave plain ones, or since its handshake ended.
    held: usize,
}

/// What a session keeps at most of a handshake that is not whole (rustls 0.23, msgs/deframer/buffers.rs). Of a
/// record it keeps 18 KiB.
const HELD_BYTES_MAX: usize = 64 << 10;

/// Whether more bytes can come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    GoesOn,
    /// The client said that it sends nothing more.
    Ended,
}

impl Session {
    /// Waits for the client's first message.
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Session, rustls::Error> {
        let mut connection = ServerConnection::new(config)?;
        // The rules of the connection limit what is sent.
        connection.set_buffer_limit(None);
        let connection = Box::new(connection);
        Ok(Session {
            connection,
            began: Instant::now(),
            tenant: None,
            is_up: false,
            has_failed: false,
            has_parted: false,
            held: 0,
        })
    }

    /// Takes received bytes, and gives the plain bytes with the name of the client.
    ///
    /// # Errors
    ///
    /// Why the session is over. After that only the [output](Self::output), which tells the client, is sent.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(Option<&str>, &[u8]),
    ) -> Result<Taken, String> {
        if self.has_failed {
            return Ok(Taken::GoesOn);
        }
        let mut rest = bytes;
        let mut has_ended = false;
        while !rest.is_empty() && !has_ended {
            // At most 4 KiB at a time (rustls 0.23, msgs/deframer/buffers.rs).
            let before = rest.len();
            let read = self.connection.read_tls(&mut rest);
            self.held = (self.held + before - rest.len()).min(HELD_BYTES_MAX);
            let state = match read {
                Ok(_) => self.connection.process_new_packets(),
                Err(error) => return Err(self.fail(&error.to_string())),
            };
            // The handshake may end with the first lines.
            if !self.is_up && !self.connection.is_handshaking() {
                (self.is_up, self.held) = (true, 0);
                self.find_tenant()?;
            }
            // Bytes before an error are valid.
            if self.drain(&mut take) {
                self.held = 0;
            }
            match state {
                Ok(state) => has_ended = state.peer_has_closed(),
                Err(error) => return Err(self.fail(&self.reason(&error))),
            }
        }
        Ok(if has_ended { Taken::Ended } else { Taken::GoesOn })
    }

    /// Gives plain bytes; says whether there were any.
    fn drain(&mut self, take: &mut impl FnMut(Option<&str>, &[u8])) -> bool {
        let mut has_plain = false;
        let mut reader = self.connection.reader();
        // An error means that there is nothing more for now.
        while let Ok(plain) = reader.fill_buf()
            && !plain.is_empty()
        {
            take(self.tenant.as_deref(), plain);
            let count = plain.len();
            reader.consume(count);
            has_plain = true;
        }
        has_plain
    }

    /// Bytes that it keeps of a record or a handshake that is not whole, to within 4 KiB.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    fn find_tenant(&mut self) -> Result<(), String> {
        let shown = self.connection.peer_certificates().and_then(<[_]>::first);
        let Some(certificate) = shown else { return Ok(()) };
        self.tenant = certificate::name(certificate);
        match self.tenant {
            Some(_) => Ok(()),
            None => Err(self.fail("the client's certificate names nobody")),
        }
    }

    fn reason(&self, error: &rustls::Error) -> String {
        match error {
            rustls::Error::InvalidMessage(_) if !self.is_up => {
                format!("{error}: the client does not speak TLS, which this port requires")
            }
            error => error.to_string(),
        }
    }

    fn fail(&mut self, why: &str) -> String {
        self.has_failed = true;
        why.to_owned()
    }

    /// Whether the handshake takes longer than the limit.
    pub(crate) fn is_late(&self, limit: Duration) -> bool {
        !self.is_up && !self.has_failed && self.began.elapsed() >= limit
    }

    /// Encrypts bytes for the next [`output`](Self::output).
    pub(crate) fn send(&mut self, plain: &[u8]) {
        if !self.has_failed {
            // It writes to memory.
            let _ = self.connection.writer().write_all(plain);
        }
    }

    /// Tells the client that nothing more comes.
    pub(crate) fn part(&mut self) {
        if !std::mem::replace(&mut self.has_parted, true) && !self.has_failed {
            self.connection.send_close_notify();
        }
    }

    /// Adds the bytes that are to be sent.
    pub(crate) fn output(&mut self, wire: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // It writes to memory.
            if self.connection.write_tls(wire).is_err() {
                break;
            }
        }
    }
}
