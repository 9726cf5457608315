//! Kafka as a destination: a producer for each stream, idempotent or transactional.
//!
//! A stream goes to one partition, over one connection to its leader, with a producer id of its own. A record has the
//! line as its value, the time of arrival as its timestamp, and headers that name the line.
//!
//! - Idempotent (`producer`): Kafka numbers the records of a producer id, so a shipment that is sent again after an
//!   error is stored once and in its place.
//! - Exactly once (`transaction`): shipments are stored in transactions, with a record of progress (`position`), from
//!   which a restart goes on.
//!
//! Connections to brokers are in `link`.
//!
//! The requests have fixed versions, which Kafka 2.4 to 4.x know (KIP-896). It is own code, and no client library, for
//! the cost of each line: docs/notes/logd/kafka.md.

mod batch;
mod link;
mod messages;
#[cfg(test)]
mod mock;
mod packer;
mod position;
mod producer;
mod transaction;
mod wire;

use clap::ValueEnum;

pub(crate) use link::{Login, Mechanism, Security, Tls};
pub(crate) use packer::Compression;
pub(crate) use producer::Kafka;

/// Reads bytes as each answer of a broker, for fuzzers.
pub(crate) fn try_answers(bytes: &[u8]) {
    messages::try_all(bytes);
    if let Ok(fetched) = messages::fetched(bytes) {
        let _ = position::scan(&fetched, b"stream", 0);
    }
    link::try_login(&String::from_utf8_lossy(bytes));
}

/// How often Kafka has a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delivery {
    /// Once, or again after a crash; headers number the lines, so that consumers can drop repeats
    #[default]
    Idempotent,
    /// Once, in transactions, for consumers that read only committed records
    ExactlyOnce,
}

/// Where Kafka is, and how lines are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `HOST:PORT` of brokers. One that answers is enough to find the others.
    pub(crate) brokers: Vec<String>,
    pub(crate) topic: String,
    pub(crate) security: Security,
    pub(crate) compression: Compression,
    pub(crate) delivery: Delivery,
}

impl Settings {
    /// Returns what the cursor is of, and what it is of if lines were delivered the other way before.
    pub(crate) fn names(&self) -> (String, String) {
        let idempotent = format!("kafka {}", self.topic);
        let exactly_once = format!("{idempotent} exactly-once");
        match self.delivery {
            Delivery::Idempotent => (idempotent, exactly_once),
            Delivery::ExactlyOnce => (exactly_once, idempotent),
        }
    }

    /// Returns the topic that says how far each stream is, if there is one.
    pub(crate) fn progress_topic(&self) -> Option<String> {
        let is_needed = self.delivery == Delivery::ExactlyOnce;
        is_needed.then(|| format!("{}{PROGRESS}", self.topic))
    }
}

/// What comes after the name of the topic in that of its progress topic.
const PROGRESS: &str = "-progress";

/// Checks the name of a topic by Kafka's rules.
pub(crate) fn topic(text: &str) -> Result<String, String> {
    const LEN_MAX: usize = 249;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_good =
        !matches!(text, "" | "." | "..") && text.len() <= LEN_MAX && text.bytes().all(is_letter);
    match is_good {
        true => Ok(text.to_owned()),
        false => Err(format!("expected 1 to {LEN_MAX} letters, digits, '.', '_' and '-'")),
    }
}

/// Addresses of brokers, as typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Brokers(pub(crate) Vec<String>);

/// Checks the addresses of brokers.
pub(crate) fn brokers(text: &str) -> Result<Brokers, String> {
    let is_address = |text: &&str| {
        let parts = text.rsplit_once(':');
        parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    };
    let all: Vec<&str> = text.split(',').map(str::trim).collect();
    match all.iter().all(is_address) {
        true => Ok(Brokers(all.into_iter().map(str::to_owned).collect())),
        false => Err("expected HOST:PORT, or several separated by commas".to_owned()),
    }
}

#[cfg(test)]
mod tests;
