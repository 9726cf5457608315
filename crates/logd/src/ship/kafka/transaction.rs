//! Transactions of a stream: its lines, and the record that says how far they go, are in Kafka together or not at all.
//!
//! The stream has a transactional id that stays over restarts, so the coordinator knows its producer:
//!
//! ```text
//!           connect: InitProducerId ends what is open, and fences who had the id before;
//!           then the progress topic says where to go on
//!   unknown ------------------------------------------------------------------------> ready
//!   ready   -- the first shipment: AddPartitionsToTxn ------------------------------> open
//!   open    -- more shipments: Produce ---------------------------------------------> open
//!   open    -- it is due, and all are stored: Produce of the progress, EndTxn ------> ready
//!   any     -- an error -----------------------------------------------------------> unknown
//! ```
//!
//! After an error nobody knows whether a transaction was committed, and nobody has to: InitProducerId waits until it
//! has ended, and the progress topic tells how. So nothing here aborts a transaction by itself.
//!
//! A new producer's epoch begins with each connection, so no request that is late can be of a later transaction.

use std::time::{Duration, Instant};

use super::{
    batch::{self, Producer},
    link::{self, Connection, Security},
    messages::{self, Refused, Stored},
    position::{self, PARTITION, Position},
};
use crate::ship::{
    destination::{Reached, Trouble},
    shipment::Shipment,
};

/// A transaction is committed when it is so old, or has so many shipments.
const COMMIT_TIME: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 100 });
pub(super) const SHIPMENTS_MAX: usize = 32;
/// When the coordinator aborts a transaction that nobody ended, as after a crash of the machine.
const ABORT_TIME: Duration = Duration::from_secs(60);

/// Where a stream's transactions go.
pub(super) struct Place<'a> {
    /// The broker that coordinates them.
    pub(super) coordinator: &'a str,
    /// The leader of the progress topic's partition.
    pub(super) progress: &'a str,
    pub(super) security: &'a Security,
}

/// The transactions of a stream.
pub(super) struct Transactions {
    /// The transactional id.
    id: String,
    /// The progress topic, and the key of the stream's records.
    topic: String,
    key: String,
    /// The line that the cursor had at the start.
    least: u64,
    position: Position,
    session: Option<Session>,
}

/// What lasts until an error.
struct Session {
    producer: Producer,
    coordinator: Connection,
    progress: Connection,
    /// How many records of progress this producer wrote.
    written: i32,
    open: Option<Open>,
}

/// An open transaction.
struct Open {
    since: Instant,
    shipments: usize,
    end: Reached,
}

impl Transactions {
    pub(super) fn new((origin, stream): (&str, u32), topic: String, least: u64) -> Transactions {
        Transactions {
            id: format!("ringwise-logd-{origin}-{stream}"),
            topic,
            key: format!("{origin}/{stream}"),
            least,
            position: Position::default(),
            session: None,
        }
    }

    /// Returns the transactional id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns what is committed, as far as it is known.
    pub(super) fn reached(&self) -> Option<Reached> {
        let least = Reached { line: self.least, checksum: None };
        self.position.reached.map(|own| if own.line < least.line { least } else { own })
    }

    /// Ends what was open. Returns the producer. The line to go on with is known after that.
    pub(super) fn connect(&mut self, place: &Place<'_>) -> Result<Producer, Trouble> {
        self.session = None;
        let mut coordinator = link::connect(place.coordinator, place.security)?;
        let request = messages::init_producer(Some((&self.id, ABORT_TIME)));
        let producer = patiently(&mut coordinator, &request, NO_PRODUCER, messages::producer)?;
        let mut progress = link::connect(place.progress, place.security)?;
        self.position.read(&mut progress, (&self.topic, self.key.as_bytes()))?;
        self.session = Some(Session { producer, coordinator, progress, written: 0, open: None });
        Ok(producer)
    }

    /// Makes a shipment part of the open transaction, or of a new one.
    pub(super) fn include(
        &mut self,
        shipment: &Shipment,
        partition: (&str, i32),
    ) -> Result<(), Trouble> {
        let Some(session) = &mut self.session else { return Err(not_connected()) };
        let open = match &mut session.open {
            Some(open) => open,
            none => {
                let partitions = [partition, (&*self.topic, PARTITION)];
                let request = messages::add_partitions((&self.id, session.producer), &partitions);
                let why = "it does not begin a transaction";
                patiently(&mut session.coordinator, &request, why, messages::added)?;
                none.insert(Open { since: Instant::now(), shipments: 0, end: Reached::default() })
            }
        };
        open.shipments += 1;
        open.end = shipment.end();
        Ok(())
    }

    /// Returns how long the open transaction may wait for more. Nothing means that none is open.
    pub(super) fn due_in(&self) -> Option<Duration> {
        let open = self.session.as_ref()?.open.as_ref()?;
        Some(match open.shipments < SHIPMENTS_MAX {
            true => COMMIT_TIME.saturating_sub(open.since.elapsed()),
            false => Duration::ZERO,
        })
    }

    /// Commits the open transaction, of which everything is stored. Returns how many shipments it had.
    pub(super) fn commit(&mut self, store: Duration) -> Result<usize, Trouble> {
        let Some(session) = &mut self.session else { return Err(not_connected()) };
        let Some(open) = session.open.take() else { return Ok(0) };
        let (producer, id) = (session.producer, Some(&*self.id));
        let mut request = Vec::new();
        let value = position::value(open.end);
        let record = (self.key.as_bytes(), value.as_bytes());
        messages::produce(&mut request, (id, &self.topic, PARTITION), store, |out| {
            batch::encode_progress(out, record, (producer, session.written));
        });
        let answer = session.progress.call(&request)?;
        let stored = Stored::read(&answer).map(Stored::result);
        let stored = stored.unwrap_or_else(|| Err("its answer is not understood".to_owned()));
        stored.map_err(|why| session.progress.trouble(&format!("topic {}: {why}", self.topic)))?;
        session.written = session.written.wrapping_add(1) & i32::MAX;
        let request = messages::commit(&self.id, producer);
        let why = "it does not commit";
        patiently(&mut session.coordinator, &request, why, messages::committed)?;
        self.position.reached = Some(open.end);
        Ok(open.shipments)
    }
}

fn not_connected() -> Trouble {
    Trouble("kafka: not connected".to_owned())
}

/// What is said of a producer id that is not given.
pub(super) const NO_PRODUCER: &str = "it does not assign a producer id";

/// How often a request is sent again that comes too early, and after how long.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 20 });

/// Sends a request, and again while the answer says that it is too early.
pub(super) fn patiently<T>(
    connection: &mut Connection,
    request: &[u8],
    what: &str,
    read: impl Fn(&[u8]) -> Result<T, Refused>,
) -> Result<T, Trouble> {
    let mut tries = 0;
    loop {
        let answer = connection.call(request)?;
        match read(&answer) {
            Ok(read) => return Ok(read),
            Err(Refused::NotYet(_)) if tries < TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            Err(why) => return Err(connection.trouble(&format!("{what}: {why}"))),
        }
    }
}
