//! A connection to a broker: requests go out in order, and answers come back in the same order.

use std::{
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

use ringwise_measure::plain;

use super::wire::Get;
use crate::ship::destination::Trouble;

/// How long a connection may take to be made.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// The longest answer that is read. Answers to a producer are much shorter.
const ANSWER_BYTES_MAX: i32 = 16 << 20;

/// Makes an error that names a broker.
pub(super) fn trouble(broker: &str, why: &str) -> Trouble {
    Trouble(format!("kafka {broker}: {why}"))
}

/// A connection.
pub(super) struct Connection {
    broker: String,
    stream: TcpStream,
    /// The number of the next request, and of the one whose answer comes next.
    next: i32,
    awaited: i32,
}

impl Connection {
    /// Connects to `HOST:PORT`. No read and no write on it waits longer than `patience`.
    pub(super) fn open(broker: &str, patience: Duration) -> Result<Connection, Trouble> {
        let failed = |error: &io::Error| trouble(broker, &plain(error));
        let addresses = broker.to_socket_addrs().map_err(|error| failed(&error))?;
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIME) {
                Ok(stream) => {
                    stream.set_nodelay(true).map_err(|error| failed(&error))?;
                    stream.set_write_timeout(Some(patience)).map_err(|error| failed(&error))?;
                    stream.set_read_timeout(Some(patience)).map_err(|error| failed(&error))?;
                    return Ok(Connection {
                        broker: broker.to_owned(),
                        stream,
                        next: 0,
                        awaited: 0,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(failed(&last))
    }

    pub(super) fn broker(&self) -> &str {
        &self.broker
    }

    /// Makes an error that names the broker.
    pub(super) fn trouble(&self, why: &str) -> Trouble {
        trouble(&self.broker, why)
    }

    fn failed(&self, error: &io::Error) -> Trouble {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                self.trouble("no answer in time")
            }
            io::ErrorKind::UnexpectedEof => self.trouble("it closed the connection"),
            _ => self.trouble(&plain(error)),
        }
    }

    /// Sends a request. `request` is whole but for its length and its number, for which it has room.
    pub(super) fn send(&mut self, request: &mut [u8]) -> Result<(), Trouble> {
        let length = (request.len() - 4) as i32;
        request[..4].copy_from_slice(&length.to_be_bytes());
        request[8..12].copy_from_slice(&self.next.to_be_bytes());
        self.next = self.next.wrapping_add(1);
        self.stream.write_all(request).map_err(|error| self.failed(&error))
    }

    /// Whether an answer begins to arrive within this time.
    pub(super) fn has_answer(&mut self, wait: Duration) -> Result<bool, Trouble> {
        let patience = self.stream.read_timeout().map_err(|error| self.failed(&error))?;
        let set = |time| self.stream.set_read_timeout(time);
        set(Some(wait.max(Duration::from_millis(1)))).map_err(|error| self.failed(&error))?;
        let peeked = self.stream.peek(&mut [0]);
        set(patience).map_err(|error| self.failed(&error))?;
        match peeked {
            Ok(0) => Err(self.failed(&io::ErrorKind::UnexpectedEof.into())),
            Ok(_) => Ok(true),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut
                | io::ErrorKind::Interrupted => Ok(false),
                _ => Err(self.failed(&error)),
            },
        }
    }

    /// Receives the next answer, without its head.
    pub(super) fn receive(&mut self) -> Result<Vec<u8>, Trouble> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).map_err(|error| self.failed(&error))?;
        let length = i32::from_be_bytes(length);
        if !(4..=ANSWER_BYTES_MAX).contains(&length) {
            return Err(self.trouble("no broker of Kafka without TLS answers there"));
        }
        let mut answer = vec![0; length as usize];
        self.stream.read_exact(&mut answer).map_err(|error| self.failed(&error))?;
        if Get(&answer).i32() != Some(self.awaited) {
            return Err(self.trouble("its answer is to another request"));
        }
        self.awaited = self.awaited.wrapping_add(1);
        answer.drain(..4);
        Ok(answer)
    }

    /// Sends a request and receives its answer. No other is in flight.
    pub(super) fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, Trouble> {
        self.send(&mut request.to_vec())?;
        self.receive()
    }
}
