//! The threads that ship, one for each stream.
//!
//! Each has a connection of its own, so a broker that hangs holds up only the streams that it leads.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ringwise_serve::ServeError;

use super::{
    cursor::Cursor,
    destination::Destination,
    follower::Follower,
    kafka::{Kafka, Settings},
    lane::{Lane, Turn},
    progress::Streams,
};
use crate::{
    disk::{
        identity,
        segment::{
            format::name::{Content, Stream},
            reading::{reader::end_of, source::InDirectory},
        },
    },
    error::LogdError,
    monitoring::log,
};

/// How long a thread waits for lines. They are gathered meanwhile, so that a shipment has many.
const GATHER_TIME: Duration = Duration::from_millis(20);
/// How long a thread may take to see that there is no more time.
const END_TIME: Duration = Duration::from_millis(500);
/// How often it is looked whether the threads have ended.
const LOOK_TIME: Duration = Duration::from_millis(5);
/// How long a thread waits for an acknowledgement before it looks whether the daemon ends.
const RECEIVE_TIME: Duration = Duration::from_millis(100);

/// What is shipped where, before the threads run.
pub(crate) struct Shipping {
    directory: PathBuf,
    kafka: Settings,
    cursor: Cursor,
    /// The random name of the directory.
    origin: String,
    streams: Arc<Streams>,
}

impl Shipping {
    /// Reads the cursor, and checks it before anything is stored.
    ///
    /// # Errors
    ///
    /// The cursor cannot be read, or is not that of these segments or of this destination.
    pub(crate) fn new(directory: &Path, kafka: Settings) -> Result<Shipping, LogdError> {
        let (name, former) = kafka.names();
        let cursor = Cursor::open(directory, (&name, &former))?;
        let streams = Arc::new(Streams::default());
        for segments in InDirectory::all(directory)? {
            let stream = segments.stream();
            if stream.content == Content::Lines {
                streams.of(stream.number).opened(end_of(&segments)?.unwrap_or(0));
            }
        }
        for (number, line) in cursor.lines() {
            check(number, line, streams.of(number).durable())?;
        }
        let (directory, origin) = (directory.to_owned(), identity::of(directory)?);
        Ok(Shipping { directory, kafka, cursor, origin, streams })
    }

    /// How far the streams are.
    pub(crate) fn streams(&self) -> Arc<Streams> {
        self.streams.clone()
    }

    /// Starts a thread for each stream. All streams that are written are open.
    ///
    /// # Errors
    ///
    /// A thread cannot start.
    pub(crate) fn start(self) -> Result<Fleet, LogdError> {
        let cursor = Arc::new(Mutex::new(self.cursor));
        let mut fleet = Fleet { threads: Vec::new(), end: Arc::default() };
        for (number, progress) in self.streams.all() {
            let stream = Stream { content: Content::Lines, number };
            let line = cursor.lock().unwrap_or_else(PoisonError::into_inner).line(number);
            let follower = Follower::new(&self.directory, stream, line);
            let kafka = Kafka::new(self.kafka.clone(), (&self.origin, number), line);
            let lane = Lane::new(number, follower, kafka, (progress, cursor.clone()));
            fleet.launch(number, lane)?;
        }
        Ok(fleet)
    }
}

/// The running threads.
pub(crate) struct Fleet {
    threads: Vec<JoinHandle<()>>,
    /// When the threads have to end, once they have to.
    end: End,
}

type End = Arc<Mutex<Option<Instant>>>;

impl Fleet {
    fn launch(
        &mut self,
        number: u32,
        mut lane: Lane<impl Destination + Send + 'static>,
    ) -> Result<(), LogdError> {
        let end = self.end.clone();
        let run = move || {
            lane.attend();
            while !is_over(&lane, &end) {
                match lane.turn(RECEIVE_TIME) {
                    Turn::Worked | Turn::Waits => {}
                    Turn::Idle => thread::park_timeout(GATHER_TIME),
                    Turn::Failed(pause) => thread::park_timeout(pause),
                }
            }
            lane.keep(Duration::ZERO);
        };
        let thread = thread::Builder::new().name(format!("logd-ship-{number}")).spawn(run);
        let thread = thread.map_err(|error| ServeError::of_thread("that ships", &error))?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ships what is stored, for at most this time, and ends the threads, if there are any. What is left is shipped after
    /// the next start. A thread may hang in a connection that is being made: it is left, and ends with the process. The
    /// cursor is always whole.
    pub(crate) fn finish(fleet: Option<Fleet>, drain: Duration) {
        let Some(fleet) = fleet else { return };
        let end = Instant::now() + drain;
        *fleet.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        fleet.threads.iter().for_each(|thread| thread.thread().unpark());
        let is_running = || fleet.threads.iter().filter(|thread| !thread.is_finished()).count();
        while is_running() > 0 && Instant::now() < end + END_TIME {
            thread::sleep(LOOK_TIME);
        }
        let left = is_running();
        if left > 0 {
            let remark =
                "still wait for Kafka: they end now, and the rest is shipped after the next start";
            log::remark("ship", format_args!("{left} threads {remark}"));
        }
    }
}

/// Whether a thread has to end: everything is shipped, the destination is away, or there is no more time.
fn is_over<D: Destination>(lane: &Lane<D>, end: &End) -> bool {
    let end = *end.lock().unwrap_or_else(PoisonError::into_inner);
    end.is_some_and(|end| Instant::now() >= end || lane.is_done() || lane.is_away())
}

/// Refuses a cursor that is ahead of its stream: the directory was emptied, and its numbers begin again.
fn check(stream: u32, cursor: u64, end: u64) -> Result<(), LogdError> {
    if cursor <= end {
        return Ok(());
    }
    Err(LogdError::Failed(format!(
        "ship.cursor: {cursor} lines of stream {stream} are shipped, and {end} are stored: other segments were here; \
         restore them, or remove ship.cursor and directory.id to ship these lines under a new name"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::{
        destination::{Reached, Trouble},
        shipment::Shipment,
        tests::World,
    };

    /// A broker that takes connections and answers nothing.
    struct Hanging;

    impl Destination for Hanging {
        fn connect(&mut self) -> Result<Option<Reached>, Trouble> {
            thread::sleep(Duration::from_secs(30));
            Err(Trouble("no answer".to_owned()))
        }

        fn send(&mut self, _shipment: &Shipment) -> Result<(), Trouble> {
            Ok(())
        }

        fn receive(&mut self, _wait: Duration) -> Result<usize, Trouble> {
            Ok(0)
        }

        fn window(&self) -> usize {
            1
        }
    }

    #[test]
    fn a_thread_that_hangs_does_not_hold_up_the_end() {
        let mut world = World::new(2);
        world.write();
        let mut fleet = Fleet { threads: Vec::new(), end: Arc::default() };
        fleet.launch(0, world.lane(Hanging)).unwrap();
        let since = Instant::now();
        Fleet::finish(Some(fleet), Duration::from_millis(50));
        let waited = since.elapsed();
        assert!(waited >= Duration::from_millis(50) && waited.as_secs() < 10, "{waited:?}");
    }
}
