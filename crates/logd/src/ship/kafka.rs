//! Kafka as a destination: an idempotent producer for one stream.
//!
//! A stream goes to one partition, over one connection to its leader, with a producer id of its own. Kafka numbers the
//! records of a producer id, so a shipment that is sent again after an error is stored once and in its place. A record
//! has the line as its value, the time of arrival as its timestamp, and headers that name the line.
//!
//! A connection is plain or by TLS (`transport`), and logs in if brokers want that (`login`).
//!
//! The requests have fixed versions, which Kafka 2.4 to 4.x know (KIP-896). It is own code, and no client library, for
//! the cost of each line: docs/notes/logd/kafka.md.

mod batch;
mod connection;
mod login;
mod messages;
#[cfg(test)]
mod mock;
mod scram;
mod security;
mod transport;
mod wire;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use batch::{Labels, Producer};
use connection::{ANSWER_TIME, CLOSED, Connection};
use messages::{Code, Leader, Refused};

pub(crate) use security::{Login, Mechanism, Security, Tls};

use super::{
    destination::{Destination, Trouble},
    shipment::Shipment,
};

/// Kafka keeps the numbers of this many batches of a producer, to recognise those that are sent again.
const WINDOW: usize = 5;
/// How long a broker may take to store a batch on all replicas.
const STORE_TIME: Duration = Duration::from_secs(10);
/// How long a connection is used again after a pause. Brokers close it after ten minutes (connections.max.idle.ms), and
/// networks in between may forget it earlier.
const FRESH_TIME: Duration = Duration::from_secs(60);
/// How often, and after how long, a producer id is asked for again. A new cluster has none at first.
const ID_TRIES: u32 = 20;
const ID_PAUSE: Duration = Duration::from_millis(100);

/// Where Kafka is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `HOST:PORT` of brokers. One that answers is enough to find the others.
    pub(crate) brokers: Vec<String>,
    pub(crate) topic: String,
    pub(crate) security: Security,
}

impl Settings {
    /// Returns what the cursor is of.
    pub(crate) fn name(&self) -> String {
        format!("kafka {}", self.topic)
    }
}

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
        false => Err("expected HOST:PORT, or several with commas between".to_owned()),
    }
}

/// The producer of a stream.
pub(crate) struct Kafka {
    settings: Settings,
    stream: u32,
    labels: Labels,
    /// Spreads the streams of many directories over the partitions.
    spread: u32,
    /// The stream's partition. It stays when partitions are added, until a restart.
    partition: Option<i32>,
    producer: Option<Producer>,
    /// The sequence numbers of the next record to be acknowledged, and of the next one to be sent.
    acknowledged: i32,
    sent: i32,
    connection: Option<Connection>,
    /// The lines of each shipment in flight, and when it was sent.
    in_flight: VecDeque<(u64, Instant)>,
    /// When the connection was used last.
    used: Instant,
    /// The broker that is asked first for the leader: the one after that which was asked last, whose answer may be old,
    /// until an acknowledgement proves the answer.
    first: usize,
    /// The broker that was asked last.
    asked: usize,
    memory: Vec<u8>,
}

impl Kafka {
    /// Makes the producer of a stream. `origin` names the directory.
    pub(crate) fn new(settings: Settings, origin: &str, stream: u32) -> Kafka {
        Kafka {
            settings,
            stream,
            labels: Labels::new(origin, stream),
            spread: crc32fast::hash(origin.as_bytes()),
            partition: None,
            producer: None,
            acknowledged: 0,
            sent: 0,
            connection: None,
            in_flight: VecDeque::new(),
            used: Instant::now(),
            first: 0,
            asked: 0,
            memory: Vec::new(),
        }
    }

    /// Asks the brokers for the leader of the stream's partition.
    fn find_leader(&mut self) -> Result<Leader, Trouble> {
        let brokers = self.settings.brokers.clone();
        let mut trouble = Trouble("no brokers".to_owned());
        for number in 0..brokers.len() {
            let place = (self.first + number) % brokers.len();
            match self.ask(&brokers[place]) {
                Ok(leader) => {
                    (self.asked, self.first) = (place, place + 1);
                    return Ok(leader);
                }
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    fn ask(&mut self, broker: &str) -> Result<Leader, Trouble> {
        let topic = &self.settings.topic;
        let security = &self.settings.security;
        let mut connection = login::connect(broker, security)?;
        let versions = connection.call(&messages::versions())?;
        messages::check_versions(&versions).map_err(|why| connection.trouble(&why))?;
        let metadata = connection.call(&messages::metadata(topic));
        let metadata = metadata.map_err(|Trouble(why)| match security.login {
            // It answers about versions without a login, and nothing else.
            None if why.ends_with(CLOSED) => {
                Trouble(format!("{why}: its listener may want a login (--kafka-login)"))
            }
            _ => Trouble(why),
        })?;
        let metadata = messages::Metadata::read(&metadata);
        let metadata =
            metadata.ok_or_else(|| connection.trouble("its answer is not understood"))?;
        let count = metadata.partitions().map_err(|why| connection.trouble(&why))?;
        // With one stream for each partition they take turns; of many directories each begins elsewhere.
        let own = (self.spread.wrapping_add(self.stream) % count) as i32;
        let partition = *self.partition.get_or_insert(own);
        metadata.leader(partition).map_err(|why| connection.trouble(&why))
    }

    fn open(&mut self) -> Result<(), Trouble> {
        let leader = self.find_leader()?;
        let mut connection = login::connect(&leader.address, &self.settings.security)?;
        if self.producer.is_none() {
            self.producer = Some(new_producer(&mut connection)?);
            (self.acknowledged, self.sent) = (0, 0);
        }
        self.connection = Some(connection);
        self.used = Instant::now();
        Ok(())
    }

    fn take(&mut self, answer: &[u8]) -> Result<(), String> {
        let stored = messages::Stored::read(answer);
        let stored = stored.ok_or("its answer is not understood")?;
        if stored.code.is_new_producer_needed() {
            self.producer = None;
        }
        // A duplicate is stored, with an earlier answer that was lost.
        if !matches!(stored.code, Code::NONE | Code::DUPLICATE_SEQUENCE_NUMBER) {
            return Err(stored.to_string());
        }
        self.first = self.asked;
        if let Some((lines, _)) = self.in_flight.pop_front() {
            self.acknowledged = batch::sequence(self.acknowledged, lines);
        }
        Ok(())
    }
}

/// Asks for a producer id.
fn new_producer(connection: &mut Connection) -> Result<Producer, Trouble> {
    let mut tries = 0;
    loop {
        let answer = connection.call(&messages::init_producer())?;
        match messages::producer(&answer) {
            Ok(producer) => return Ok(producer),
            Err(Refused::NotYet) if tries < ID_TRIES => {
                tries += 1;
                std::thread::sleep(ID_PAUSE);
            }
            Err(why) => return Err(connection.trouble(&why.to_string())),
        }
    }
}

impl Destination for Kafka {
    fn connect(&mut self) -> Result<(), Trouble> {
        self.connection = None;
        self.in_flight.clear();
        self.sent = self.acknowledged;
        self.open()
    }

    fn send(&mut self, shipment: &Shipment) -> Result<(), Trouble> {
        if self.in_flight.is_empty() && self.used.elapsed() > FRESH_TIME {
            self.open()?;
        }
        let (Some(connection), Some(producer)) = (&mut self.connection, self.producer) else {
            return Err(Trouble("kafka: not connected".to_owned()));
        };
        let memory = &mut self.memory;
        let partition = self.partition.unwrap_or(0);
        messages::produce(memory, (&self.settings.topic, partition), STORE_TIME, |out| {
            batch::encode(out, shipment, &self.labels, (producer, self.sent));
        });
        connection.send(memory)?;
        self.sent = batch::sequence(self.sent, shipment.lines);
        self.used = Instant::now();
        self.in_flight.push_back((shipment.lines, self.used));
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> Result<bool, Trouble> {
        let Some(connection) = &mut self.connection else {
            return Err(Trouble("kafka: not connected".to_owned()));
        };
        if !connection.has_answer(wait)? {
            let is_late = |(_, since): &(u64, Instant)| since.elapsed() > ANSWER_TIME;
            if self.in_flight.front().is_some_and(is_late) {
                let seconds = ANSWER_TIME.as_secs();
                return Err(connection.trouble(&format!("no answer within {seconds} s")));
            }
            return Ok(false);
        }
        let answer = connection.receive()?;
        let broker = connection.broker().to_owned();
        self.take(&answer).map_err(|why| connection::trouble(&broker, &why))?;
        Ok(true)
    }

    fn window(&self) -> usize {
        WINDOW
    }
}

#[cfg(test)]
mod tests;
