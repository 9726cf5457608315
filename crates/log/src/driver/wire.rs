//! A connection: bytes as they are, or in TLS records. One thread sends, another one receives.
//!
//! TLS is bytes in and bytes out behind a lock, which neither holds while it waits for the socket.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};
#[cfg(feature = "tls")]
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

#[cfg(feature = "tls")]
use rustls::ClientConnection;

#[cfg(feature = "tls")]
use crate::tls::Tls;

/// Where the daemon is, and how to speak with it.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) address: String,
    pub(crate) timeout: Duration,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
}

/// One half of a connection.
pub(super) struct Wire {
    stream: TcpStream,
    #[cfg(feature = "tls")]
    tls: Option<Arc<Mutex<ClientConnection>>>,
    /// Records that go out.
    #[cfg(feature = "tls")]
    records: Vec<u8>,
}

impl Wire {
    /// Connects, with a handshake if that is asked for, within the time of the route.
    pub(super) fn connect(route: &Route) -> io::Result<Wire> {
        let mut failed = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in route.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, route.timeout) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Wire::over(stream, route);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    #[cfg(not(feature = "tls"))]
    fn over(stream: TcpStream, _route: &Route) -> io::Result<Wire> {
        Ok(Wire { stream })
    }

    #[cfg(feature = "tls")]
    fn over(stream: TcpStream, route: &Route) -> io::Result<Wire> {
        let tls = match &route.tls {
            None => None,
            Some(tls) => {
                let connection = tls.connection(&route.address)?;
                let until = Instant::now() + route.timeout;
                Some(Arc::new(Mutex::new(shake_hands(&stream, connection, until)?)))
            }
        };
        Ok(Wire { stream, tls, records: Vec::new() })
    }

    /// Another half of the same connection.
    pub(super) fn half(&self) -> io::Result<Wire> {
        Ok(Wire {
            stream: self.stream.try_clone()?,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
            #[cfg(feature = "tls")]
            records: Vec::new(),
        })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends bytes, and what TLS has to say. Waits until the kernel took them.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
            tls.writer().write_all(bytes)?;
            self.records.clear();
            while tls.wants_write() {
                tls.write_tls(&mut self.records)?;
            }
            drop(tls);
            return (&self.stream).write_all(&self.records);
        }
        (&self.stream).write_all(bytes)
    }

    /// Receives what comes; 0 is the end. It may come back with [`ErrorKind::WouldBlock`] when there was nothing for
    /// the socket's time limit, or only a part of a record.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let read = |tls: &Mutex<ClientConnection>, buffer: &mut [u8]| {
                let mut tls = tls.lock().unwrap_or_else(PoisonError::into_inner);
                match tls.reader().read(buffer) {
                    // An end without an alert. What came before it was whole.
                    Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
                    result => result,
                }
            };
            match read(tls, buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            let received = (&self.stream).read(buffer)?;
            let mut rest = &buffer[..received];
            let mut session = tls.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                session.read_tls(&mut rest)?;
                session.process_new_packets().map_err(tls_error)?;
                if rest.is_empty() {
                    break;
                }
            }
            drop(session);
            return read(tls, buffer);
        }
        (&self.stream).read(buffer)
    }

    /// Whether TLS has something to send that is no line.
    pub(super) fn wants_to_send(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.lock().unwrap_or_else(PoisonError::into_inner).wants_write();
        }
        false
    }
}

#[cfg(feature = "tls")]
fn tls_error(error: rustls::Error) -> io::Error {
    io::Error::other(format!("TLS: {error}"))
}

/// Does a handshake by a time, however slowly bytes come.
#[cfg(feature = "tls")]
fn shake_hands(
    mut stream: &TcpStream,
    mut tls: ClientConnection,
    until: Instant,
) -> io::Result<ClientConnection> {
    let late = || io::Error::new(ErrorKind::TimedOut, "TLS: no handshake in time");
    // What one call sends is bounded, so it may all wait.
    tls.set_buffer_limit(None);
    while tls.is_handshaking() || tls.wants_write() {
        if tls.wants_write() {
            tls.write_tls(&mut stream)?;
            continue;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        stream.set_read_timeout(Some(left))?;
        match tls.read_tls(&mut stream) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if is_timeout(&error) => return Err(late()),
            Err(error) => return Err(error),
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert that says why.
            let _ = tls.write_tls(&mut stream);
            return Err(tls_error(error));
        }
    }
    Ok(tls)
}

/// Whether a socket's time limit ended a call. Systems have two errors for it.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
