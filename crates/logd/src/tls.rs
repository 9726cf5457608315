//! A connection's TLS, without any I/O: what came from the wire goes in, and what is to go there
//! comes out. Both engines share it.
//!
//! It exists so that the rules of a connection see plain bytes. What was received by one completion
//! is taken in at once, and all that is to be answered after it is one write. What it does not do:
//! resume sessions. Connections of log clients last, and one that is resumed would not have its
//! certificate looked at again.

use std::{
    io::{BufRead, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use rustls::{ServerConfig, ServerConnection};

mod certificate;
mod files;

pub(crate) use files::{ClientAuth, Files};

/// One connection's state.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Box<ServerConnection>,
    began: Instant,
    /// Whose certificate the client showed.
    tenant: Option<String>,
    is_up: bool,
    has_failed: bool,
    has_parted: bool,
}

/// What came of bytes from the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    GoesOn,
    /// The other end said that nothing more comes.
    Ended,
}

impl Session {
    /// A session that waits for the client's first word.
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Session, rustls::Error> {
        let mut connection = ServerConnection::new(config)?;
        // What is to be sent is bounded by the rules of the connection.
        connection.set_buffer_limit(None);
        let connection = Box::new(connection);
        Ok(Session {
            connection,
            began: Instant::now(),
            tenant: None,
            is_up: false,
            has_failed: false,
            has_parted: false,
        })
    }

    /// Takes bytes from the wire and gives what they say in plain, with whose it is.
    ///
    /// # Errors
    ///
    /// Why the session is over, in a few words. Nothing more is taken or sent in it, except the
    /// [output](Self::output) that tells the other end so.
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
            let read = self.connection.read_tls(&mut rest);
            let state = match read {
                Ok(_) => self.connection.process_new_packets(),
                Err(error) => return Err(self.fail(&error.to_string())),
            };
            // With the end of the handshake there may be lines already.
            if !self.is_up && !self.connection.is_handshaking() {
                self.is_up = true;
                self.find_tenant()?;
            }
            // What came before an error is good all the same.
            self.drain(&mut take);
            match state {
                Ok(state) => has_ended = state.peer_has_closed(),
                Err(error) => return Err(self.fail(&self.reason(&error))),
            }
        }
        Ok(if has_ended { Taken::Ended } else { Taken::GoesOn })
    }

    fn drain(&mut self, take: &mut impl FnMut(Option<&str>, &[u8])) {
        let mut reader = self.connection.reader();
        // An error says that there is nothing more for now.
        while let Ok(plain) = reader.fill_buf()
            && !plain.is_empty()
        {
            take(self.tenant.as_deref(), plain);
            let count = plain.len();
            reader.consume(count);
        }
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
                format!("{error}: what came is no TLS, which clients have to speak here")
            }
            error => error.to_string(),
        }
    }

    fn fail(&mut self, why: &str) -> String {
        self.has_failed = true;
        why.to_owned()
    }

    /// Whether the handshake takes longer than it may.
    pub(crate) fn is_late(&self, limit: Duration) -> bool {
        !self.is_up && !self.has_failed && self.began.elapsed() >= limit
    }

    /// Sends this, by [`output`](Self::output).
    pub(crate) fn send(&mut self, plain: &[u8]) {
        if !self.has_failed {
            // It writes to memory.
            let _ = self.connection.writer().write_all(plain);
        }
    }

    /// Says that nothing more comes.
    pub(crate) fn part(&mut self) {
        if !std::mem::replace(&mut self.has_parted, true) && !self.has_failed {
            self.connection.send_close_notify();
        }
    }

    /// What is to go to the wire.
    pub(crate) fn output(&mut self, wire: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // It writes to memory.
            if self.connection.write_tls(wire).is_err() {
                break;
            }
        }
    }
}
