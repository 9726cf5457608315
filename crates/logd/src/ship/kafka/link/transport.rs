//! The bytes of a connection to a broker: plain, or by TLS over the same socket.

use std::{
    io::{self, BufRead, Read, Write},
    sync::Arc,
    time::Duration,
};

use ringwise_measure::plain;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, StreamOwned,
    pki_types::ServerName,
};

use super::socket::Socket;

/// What carries the bytes of a connection.
pub(super) enum Transport {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

impl Transport {
    /// Shakes hands with a broker of this name, and verifies its certificate.
    pub(super) fn secure(
        mut socket: Socket,
        host: &str,
        config: Arc<ClientConfig>,
    ) -> Result<Transport, String> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| format!("a certificate cannot have the name {host}"))?;
        let connection = ClientConnection::new(config, name);
        let mut connection = connection.map_err(|error| error.to_string())?;
        while connection.is_handshaking() {
            let done = connection.complete_io(&mut socket);
            done.map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => NO_TLS.to_owned(),
                _ => reason(&error),
            })?;
        }
        Ok(Transport::Tls(Box::new(StreamOwned::new(connection, socket))))
    }

    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Transport::Tls(_))
    }

    /// Gives this time to what follows, together.
    pub(super) fn give(&mut self, time: Duration) {
        match self {
            Transport::Plain(socket) => socket.give(time),
            Transport::Tls(stream) => stream.sock.give(time),
        }
    }

    /// Whether bytes can be read within this time. A connection that ended is an error.
    pub(super) fn wait(&mut self, wait: Duration) -> io::Result<bool> {
        self.give(wait);
        let found = match self {
            Transport::Plain(socket) => socket.peek(),
            Transport::Tls(stream) => stream.fill_buf().map(<[u8]>::len),
        };
        match found {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(false),
                _ => Err(error),
            },
        }
    }
}

impl Read for Transport {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.read(bytes),
            Transport::Tls(stream) => stream.read(bytes),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Transport::Plain(socket) => socket.write(bytes),
            Transport::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Transport::Plain(socket) => socket.flush(),
            Transport::Tls(stream) => stream.flush(),
        }
    }
}

const NO_TLS: &str = "it speaks no TLS there: name its listener with TLS, or leave --kafka-ca out";

/// Explains an error of a socket or of TLS.
pub(super) fn reason(error: &io::Error) -> String {
    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) {
        return "no answer in time".to_owned();
    }
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let remedy = match inner {
        Some(Error::InvalidMessage(_)) => return NO_TLS.to_owned(),
        Some(Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => {
            return "no authority of --kafka-ca signed its certificate".to_owned();
        }
        Some(Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::CertificateUnknown,
        )) => ": it wants a certificate that it trusts (--kafka-cert)",
        _ => "",
    };
    match inner {
        Some(inner) => format!("{inner}{remedy}"),
        None => plain(error),
    }
}
