//! A socket with a deadline: whatever pieces the other side sends or takes, reads and writes end in time.
//!
//! A timeout of the socket is for each read alone, so a broker that sends a byte at a time would never exceed it.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

/// How long a connection may take to be made.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// The shortest time that is given.
const TIME_MIN: Duration = Duration::from_millis(1);

/// A connected socket.
pub(super) struct Socket {
    stream: TcpStream,
    /// When reads and writes fail.
    until: Instant,
}

impl Socket {
    /// Connects to `HOST:PORT`. It has no time yet.
    pub(super) fn connect(broker: &str) -> io::Result<Socket> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in broker.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIME) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Socket { stream, until: Instant::now() });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Gives this time to the reads and writes that follow, together.
    pub(super) fn give(&mut self, time: Duration) {
        self.until = Instant::now() + time.max(TIME_MIN);
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    /// Waits for bytes, and leaves them to be read. 0 means that the other side has closed.
    pub(super) fn peek(&self) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.peek(&mut [0])
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, sync::mpsc, thread};

    use super::*;

    /// Each byte came within the socket's own timeout, so the whole was waited for without an end.
    #[test]
    fn a_byte_now_and_then_does_not_lengthen_a_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = Socket::connect(&listener.local_addr().unwrap().to_string()).unwrap();
        let mut other = listener.accept().unwrap().0;
        let sender = thread::spawn(move || {
            while other.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(5));
            }
        });
        socket.give(Duration::from_millis(100));
        let error = socket.read_exact(&mut vec![0; 1 << 20]).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock));
        drop(socket);
        sender.join().unwrap();
    }

    #[test]
    fn who_takes_little_does_not_lengthen_a_write() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = Socket::connect(&listener.local_addr().unwrap().to_string()).unwrap();
        let mut other = listener.accept().unwrap().0;
        let (end, must_end) = mpsc::channel::<()>();
        let reader = thread::spawn(move || {
            let pause = || must_end.recv_timeout(Duration::from_millis(5));
            while pause() == Err(mpsc::RecvTimeoutError::Timeout) {
                other.read_exact(&mut [0; 4096]).unwrap();
            }
        });
        socket.give(Duration::from_millis(100));
        let error = socket.write_all(&vec![0; 64 << 20]).unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock));
        drop(end);
        reader.join().unwrap();
    }
}
