//! The producer of a stream: finds the leader of its partition, sends shipments and takes the answers.
//!
//! Without transactions a shipment is acknowledged when it is stored; with them, when its transaction is committed.

use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

use super::{
    Settings,
    batch::{self, Head, Labels, Producer},
    link::{self, ANSWER_TIME, CLOSED, Connection, trouble},
    messages::{self, Metadata, Stored},
    packer::Packer,
    position,
    transaction::{NO_PRODUCER, Place, SHIPMENTS_MAX, Transactions, patiently},
};
use crate::ship::{
    destination::{Destination, Reached, Trouble},
    shipment::Shipment,
};

/// Kafka keeps the numbers of this many batches of a producer, to recognise those that are sent again.
const WINDOW: usize = 5;
/// How long a broker may take to store a batch on all replicas.
const STORE_TIME: Duration = Duration::from_secs(10);
/// How long a connection is used again after a pause. Brokers close it after ten minutes (connections.max.idle.ms), and
/// networks in between may forget it earlier.
const FRESH_TIME: Duration = Duration::from_secs(60);
/// How long lines for an open transaction are gathered.
const GATHER_TIME: Duration = Duration::from_millis(20);

/// The brokers that a stream needs.
struct Route {
    /// The leader of its partition.
    leader: String,
    /// With transactions: their coordinator, and the leader of the progress topic's partition.
    beside: Option<(String, String)>,
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
    /// The sequence numbers of the next record to be stored, and of the next one to be sent.
    stored: i32,
    sent: i32,
    connection: Option<Connection>,
    transactions: Option<Transactions>,
    /// The lines of each shipment that is not stored, and when it was sent.
    in_flight: VecDeque<(u64, Instant)>,
    /// When the connection was used last.
    used: Instant,
    /// The broker that is asked first for the leader: the one after that which was asked last, whose answer may be old,
    /// until an acknowledgement proves the answer.
    first: usize,
    /// The broker that was asked last.
    asked: usize,
    packer: Packer,
    memory: Vec<u8>,
}

impl Kafka {
    /// Makes the producer of a stream. `origin` names the directory. `least` is the line that the cursor has, which
    /// is never beyond what Kafka has: an older record of progress does not count.
    pub(crate) fn new(settings: Settings, (origin, stream): (&str, u32), least: u64) -> Kafka {
        let topic = settings.progress_topic();
        Kafka {
            stream,
            labels: Labels::new(origin, stream),
            spread: crc32fast::hash(origin.as_bytes()),
            partition: None,
            producer: None,
            stored: 0,
            sent: 0,
            connection: None,
            transactions: topic.map(|topic| Transactions::new((origin, stream), topic, least)),
            in_flight: VecDeque::new(),
            used: Instant::now(),
            first: 0,
            asked: 0,
            packer: Packer::new(settings.compression),
            memory: Vec::new(),
            settings,
        }
    }

    /// Asks the brokers for those that the stream needs.
    fn find_route(&mut self) -> Result<Route, Trouble> {
        let brokers = self.settings.brokers.clone();
        let mut trouble = Trouble("no brokers".to_owned());
        for number in 0..brokers.len() {
            let place = (self.first + number) % brokers.len();
            match self.ask(&brokers[place]) {
                Ok(route) => {
                    (self.asked, self.first) = (place, place + 1);
                    return Ok(route);
                }
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    fn ask(&mut self, broker: &str) -> Result<Route, Trouble> {
        let topic = &self.settings.topic;
        let progress = self.settings.progress_topic();
        let mut connection = link::connect(broker, &self.settings.security)?;
        let versions = connection.call(&messages::versions())?;
        let checked = messages::check_versions(&versions, progress.is_some());
        checked.map_err(|why| connection.trouble(&why))?;
        let topics: Vec<&str> =
            [Some(&**topic), progress.as_deref()].into_iter().flatten().collect();
        let metadata = connection.call(&messages::metadata(&topics));
        let metadata = metadata.map_err(|Trouble(why)| match self.settings.security.login {
            // It answers about versions without a login, and nothing else.
            None if why.ends_with(CLOSED) => {
                Trouble(format!("{why}: its listener may want a login (--kafka-login)"))
            }
            _ => Trouble(why),
        })?;
        let metadata = Metadata::read(&metadata);
        let metadata =
            metadata.ok_or_else(|| connection.trouble("its answer is not understood"))?;
        let count = metadata.partitions(topic).map_err(|why| connection.trouble(&why))?;
        // With one stream for each partition they take turns; of many directories each begins elsewhere.
        let own = (self.spread.wrapping_add(self.stream) % count) as i32;
        let partition = *self.partition.get_or_insert(own);
        let leader = metadata.leader(topic, partition).map_err(|why| connection.trouble(&why))?;
        let beside = match self.transactions.as_ref().zip(progress) {
            None => None,
            Some((transactions, topic)) => {
                let leader = metadata.partitions(&topic);
                let leader = leader.and_then(|_| metadata.leader(&topic, position::PARTITION));
                let leader = leader.map_err(|why| connection.trouble(&why))?;
                let request = messages::find_coordinator(transactions.id());
                let why = "no broker coordinates transactions";
                let found = patiently(&mut connection, &request, why, messages::coordinator)?;
                Some((found, leader))
            }
        };
        Ok(Route { leader, beside })
    }

    /// Connects.
    fn open(&mut self) -> Result<(), Trouble> {
        let route = self.find_route()?;
        let security = &self.settings.security;
        let mut connection = link::connect(&route.leader, security)?;
        if let Some((transactions, (coordinator, progress))) =
            self.transactions.as_mut().zip(route.beside)
        {
            let place = Place { coordinator: &coordinator, progress: &progress, security };
            self.producer = Some(transactions.connect(&place)?);
            (self.stored, self.sent) = (0, 0);
        } else if self.producer.is_none() {
            let request = messages::init_producer(None);
            let producer = patiently(&mut connection, &request, NO_PRODUCER, messages::producer)?;
            self.producer = Some(producer);
            (self.stored, self.sent) = (0, 0);
        }
        self.connection = Some(connection);
        self.used = Instant::now();
        Ok(())
    }

    /// Returns what is committed, if the progress topic says it.
    fn reached(&self) -> Option<Reached> {
        self.transactions.as_ref().and_then(Transactions::reached)
    }

    /// Connects again if nothing was sent for long. Nothing is in flight then.
    fn refresh(&mut self) -> Result<(), Trouble> {
        let is_open = self.due_in().is_some();
        if !self.in_flight.is_empty() || is_open || self.used.elapsed() <= FRESH_TIME {
            return Ok(());
        }
        let before = self.reached();
        self.open()?;
        match self.reached() {
            reached if reached == before => Ok(()),
            _ => Err(Trouble("kafka: another daemon shipped lines of this stream".to_owned())),
        }
    }

    /// Returns how long the open transaction may wait. Nothing means that none is open.
    fn due_in(&self) -> Option<Duration> {
        self.transactions.as_ref().and_then(Transactions::due_in)
    }

    /// Waits until the oldest shipment in flight is stored. False means that it is not yet.
    fn take(&mut self, wait: Duration) -> Result<bool, Trouble> {
        let Some(connection) = &mut self.connection else { return Err(not_connected()) };
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
        let stored = Stored::read(&answer);
        let stored = stored.ok_or_else(|| trouble(&broker, "its answer is not understood"))?;
        if stored.code.is_new_producer_needed() {
            self.producer = None;
        }
        stored.result().map_err(|why| trouble(&broker, &why))?;
        self.first = self.asked;
        if let Some((lines, _)) = self.in_flight.pop_front() {
            self.stored = batch::sequence(self.stored, lines);
        }
        Ok(true)
    }

    /// Waits until at most so many shipments are in flight.
    fn drain(&mut self, most: usize) -> Result<(), Trouble> {
        while self.in_flight.len() > most {
            self.take(ANSWER_TIME)?;
        }
        Ok(())
    }
}

fn not_connected() -> Trouble {
    Trouble("kafka: not connected".to_owned())
}

impl Destination for Kafka {
    fn connect(&mut self) -> Result<Option<Reached>, Trouble> {
        self.connection = None;
        self.in_flight.clear();
        self.sent = self.stored;
        self.open()?;
        Ok(self.reached())
    }

    fn send(&mut self, shipment: &Shipment) -> Result<(), Trouble> {
        self.refresh()?;
        self.drain(WINDOW - 1)?;
        let partition = self.partition.unwrap_or(0);
        let topic = &self.settings.topic;
        if let Some(transactions) = &mut self.transactions {
            transactions.include(shipment, (topic, partition))?;
        }
        let (Some(connection), Some(producer)) = (&mut self.connection, self.producer) else {
            return Err(not_connected());
        };
        let id = self.transactions.as_ref().map(Transactions::id);
        let head = Head { producer, sequence: self.sent, is_transactional: id.is_some() };
        let (memory, packer) = (&mut self.memory, &mut self.packer);
        messages::produce(memory, (id, topic, partition), STORE_TIME, |out| {
            batch::encode(out, shipment, &self.labels, head, packer);
        });
        connection.send(memory)?;
        self.sent = batch::sequence(self.sent, shipment.lines);
        self.used = Instant::now();
        self.in_flight.push_back((shipment.lines, self.used));
        Ok(())
    }

    fn receive(&mut self, wait: Duration) -> Result<usize, Trouble> {
        if self.transactions.is_none() {
            return self.take(wait).map(usize::from);
        }
        let Some(due) = self.due_in() else { return Ok(0) };
        let wait = wait.min(due);
        match self.in_flight.is_empty() {
            _ if due.is_zero() => {}
            true => thread::park_timeout(wait.min(GATHER_TIME)),
            false => drop(self.take(wait)?),
        }
        if self.due_in().is_some_and(|due| !due.is_zero()) {
            return Ok(0);
        }
        self.drain(0)?;
        let committed = self.transactions.as_mut().map(|it| it.commit(STORE_TIME)).transpose()?;
        self.used = Instant::now();
        Ok(committed.unwrap_or(0))
    }

    fn window(&self) -> usize {
        if self.transactions.is_some() { SHIPMENTS_MAX } else { WINDOW }
    }
}
