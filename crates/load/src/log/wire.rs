//! Bytes to and from the target: as they are, or in TLS records. It never waits.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
};

use rustls::ClientConnection;

/// What is given to TLS at a time, so that what one call sends fits into a socket's buffer.
const TLS_BYTES: usize = 128 << 10;

/// A connected socket.
pub(super) enum Wire {
    Plain(TcpStream),
    Tls(TcpStream, Box<ClientConnection>),
}

impl Wire {
    pub(super) fn stream(&self) -> &TcpStream {
        match self {
            Wire::Plain(stream) | Wire::Tls(stream, _) => stream,
        }
    }

    /// Whether bytes may be sent: a handshake comes first.
    pub(super) fn is_ready(&self) -> bool {
        match self {
            Wire::Plain(_) => true,
            Wire::Tls(_, session) => !session.is_handshaking(),
        }
    }

    /// Sends as much as there is room for.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldBlock`] where there is none; what send(2) reports.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.write(bytes),
            Wire::Tls(stream, session) => {
                flush(stream, session)?;
                let taken = session.writer().write(&bytes[..bytes.len().min(TLS_BYTES)])?;
                match flush(stream, session) {
                    Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
                    _ => Ok(taken),
                }
            }
        }
    }

    /// Sends what is left of records. Whether nothing is left.
    ///
    /// # Errors
    ///
    /// What send(2) reports.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        match self {
            Wire::Plain(_) => Ok(true),
            Wire::Tls(stream, session) => match flush(stream, session) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(error),
            },
        }
    }

    /// Receives what is there; 0 is the end.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::WouldBlock`] where nothing is there; what recv(2) reports; records that are
    /// none.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.read(buffer),
            Wire::Tls(stream, session) => receive(stream, session, buffer),
        }
    }

    /// Says that nothing more will be sent.
    ///
    /// # Errors
    ///
    /// What shutdown(2) reports.
    pub(super) fn half_close(&mut self) -> io::Result<()> {
        if let Wire::Tls(stream, session) = self {
            session.send_close_notify();
            // Where there is no room for the alert the end of the bytes has to do.
            let _ = flush(stream, session);
        }
        self.stream().shutdown(Shutdown::Write)
    }
}

fn flush(stream: &mut TcpStream, session: &mut ClientConnection) -> io::Result<()> {
    while session.wants_write() {
        match session.write_tls(stream) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn receive(
    stream: &mut TcpStream,
    session: &mut ClientConnection,
    buffer: &mut [u8],
) -> io::Result<usize> {
    loop {
        match session.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // An end without an alert: what came before it was whole records all the same.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
            result => return result,
        }
        session.read_tls(stream)?;
        if let Err(error) = session.process_new_packets() {
            // The alert that says why; the connection fails in any case.
            let _ = flush(stream, session);
            return Err(io::Error::other(format!("TLS: {error}")));
        }
        match flush(stream, session) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}
