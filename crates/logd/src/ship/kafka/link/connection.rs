//! A connection to a broker: requests go out in order, and answers come back in the same order.

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::Duration,
};

use ringwise_measure::plain;
use rustls::ClientConfig;

use super::{
    socket::Socket,
    transport::{Transport, reason},
};
use crate::ship::{destination::Trouble, kafka::wire::Get};

/// The longest answer that is read. Answers to a producer are much shorter.
const ANSWER_BYTES_MAX: i32 = 16 << 20;
/// How long a whole answer may take, a request to be sent, and hands to be shaken.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(20);

/// What is said of a connection that ended.
pub(crate) const CLOSED: &str = "it closed the connection";

/// Makes an error that names a broker.
pub(crate) fn trouble(broker: &str, why: &str) -> Trouble {
    /// Brokers have words in it.
    const CHARACTERS_MAX: usize = 400;
    let why: String = why.chars().take(CHARACTERS_MAX).collect();
    let is_plain = !why.contains(char::is_control);
    let why = if is_plain { why } else { why.escape_debug().to_string() };
    Trouble(format!("kafka {broker}: {why}"))
}

/// A connection.
pub(crate) struct Connection {
    broker: String,
    transport: Transport,
    /// The number of the next request, and of the one whose answer comes next.
    next: i32,
    awaited: i32,
}

impl Connection {
    /// Connects to `HOST:PORT`.
    pub(crate) fn open(
        broker: &str,
        tls: Option<Arc<ClientConfig>>,
    ) -> Result<Connection, Trouble> {
        let socket = Socket::connect(broker);
        let mut socket = socket.map_err(|error| trouble(broker, &plain(&error)))?;
        socket.give(ANSWER_TIME);
        let transport = match tls {
            None => Transport::Plain(socket),
            Some(config) => {
                let host = broker.rsplit_once(':').map_or(broker, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']');
                Transport::secure(socket, host, config).map_err(|why| trouble(broker, &why))?
            }
        };
        Ok(Connection { broker: broker.to_owned(), transport, next: 0, awaited: 0 })
    }

    pub(crate) fn broker(&self) -> &str {
        &self.broker
    }

    /// Makes an error that names the broker.
    pub(crate) fn trouble(&self, why: &str) -> Trouble {
        trouble(&self.broker, why)
    }

    fn failed(&self, error: &io::Error) -> Trouble {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.trouble(CLOSED),
            _ => self.trouble(&reason(error)),
        }
    }

    /// Sends a request. `request` is whole but for its length and its number, for which it has room.
    pub(crate) fn send(&mut self, request: &mut [u8]) -> Result<(), Trouble> {
        let length = (request.len() - 4) as i32;
        request[..4].copy_from_slice(&length.to_be_bytes());
        request[8..12].copy_from_slice(&self.next.to_be_bytes());
        self.next = self.next.wrapping_add(1);
        self.transport.give(ANSWER_TIME);
        let sent = self.transport.write_all(request).and_then(|()| self.transport.flush());
        sent.map_err(|error| self.failed(&error))
    }

    /// Whether an answer begins to arrive within this time.
    pub(crate) fn has_answer(&mut self, wait: Duration) -> Result<bool, Trouble> {
        self.transport.wait(wait).map_err(|error| self.failed(&error))
    }

    /// Receives the next answer, without its head.
    pub(crate) fn receive(&mut self) -> Result<Vec<u8>, Trouble> {
        self.transport.give(ANSWER_TIME);
        let mut length = [0; 4];
        self.transport.read_exact(&mut length).map_err(|error| self.failed(&error))?;
        let length = i32::from_be_bytes(length);
        if !(4..=ANSWER_BYTES_MAX).contains(&length) {
            return Err(self.trouble(match self.transport.is_tls() {
                true => "no broker of Kafka answers there",
                false => "no broker of Kafka without TLS answers there: --kafka-ca speaks TLS",
            }));
        }
        let mut answer = vec![0; length as usize];
        self.transport.read_exact(&mut answer).map_err(|error| self.failed(&error))?;
        if Get(&answer).i32() != Some(self.awaited) {
            return Err(self.trouble("its answer is to another request"));
        }
        self.awaited = self.awaited.wrapping_add(1);
        answer.drain(..4);
        Ok(answer)
    }

    /// Sends a request and receives its answer. No other is in flight.
    pub(crate) fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, Trouble> {
        self.send(&mut request.to_vec())?;
        self.receive()
    }
}
