//! A broker in memory for tests, which checks a producer's batches as Kafka does, and loses requests or answers.
//!
//! It has one topic, and is the leader of all its partitions. It follows the rules for sequence numbers: it stores a
//! batch only if its numbers follow those of the last one of its producer, and recognises the last five.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use super::{
    batch::{Producer, sequence},
    wire::{Get, Put},
};

/// A record as a consumer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) value: Vec<u8>,
    pub(super) time_ms: i64,
    pub(super) headers: Vec<(String, String)>,
}

/// A batch.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) producer: Producer,
    pub(super) sequence: i32,
    pub(super) records: Vec<Stored>,
}

fn varint(get: &mut Get<'_>) -> Option<i64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = get.i8()? as u8;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some((number >> 1) as i64 ^ -((number & 1) as i64));
        }
    }
    None
}

fn bytes<'a>(get: &mut Get<'a>) -> Option<&'a [u8]> {
    let len = usize::try_from(varint(get)?).ok()?;
    let (own, rest) = get.0.split_at_checked(len)?;
    get.0 = rest;
    Some(own)
}

/// Reads a batch. Returns nothing if it is not whole and right to the last bit that its checksum covers.
pub(super) fn decode(batch: &[u8]) -> Option<Batch> {
    let mut get = Get(batch);
    get.i64()?;
    let length = get.i32()?;
    (length as usize == get.0.len()).then_some(())?;
    get.i32()?;
    (get.i8()? == 2).then_some(())?;
    let checksum = get.i32()?;
    (checksum as u32 == crc32c::crc32c(get.0)).then_some(())?;
    (get.i16()? == 0).then_some(())?;
    let last = get.i32()?;
    let (first_ms, last_ms) = (get.i64()?, get.i64()?);
    let producer = Producer { id: get.i64()?, epoch: get.i16()? };
    let sequence = get.i32()?;
    let count = get.i32()?;
    (count == last + 1).then_some(())?;
    let records = (0..count).map(|number| record(&mut get, first_ms, number)).collect();
    let records: Vec<Stored> = Option::from_iter::<Vec<Option<Stored>>>(records)?;
    let is_last = records.iter().map(|record| record.time_ms).max() == Some(last_ms);
    (get.0.is_empty() && is_last).then_some(Batch { producer, sequence, records })
}

fn record(get: &mut Get<'_>, first_ms: i64, number: i32) -> Option<Stored> {
    let mut own = Get(bytes(get)?);
    (own.i8()? == 0).then_some(())?;
    let time_ms = first_ms + varint(&mut own)?;
    (varint(&mut own)? == i64::from(number)).then_some(())?;
    // No key.
    (varint(&mut own)? == -1).then_some(())?;
    let value = bytes(&mut own)?.to_vec();
    let text = |own: &mut Get<'_>| String::from_utf8(bytes(own)?.to_vec()).ok();
    let count = varint(&mut own)?;
    let headers = (0..count).map(|_| Some((text(&mut own)?, text(&mut own)?))).collect();
    let headers = Option::from_iter::<Vec<Option<_>>>(headers)?;
    own.0.is_empty().then_some(Stored { value, time_ms, headers })
}

/// What a broker does with a batch instead of storing it and saying so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It loses the connection before it stores the batch, or after that.
    Before,
    After,
    /// It answers with this error and stores nothing.
    Refuse(i16),
    /// It answers with this error, and forgets the producer.
    Forget(i16),
}

/// Which batch, by its number, has which fault.
pub(super) type Faults = fn(u64) -> Option<Fault>;

/// What a broker has.
#[derive(Default)]
pub(super) struct State {
    pub(super) partitions: BTreeMap<i32, Vec<Stored>>,
    /// The next number of each producer, and the first numbers of its last batches.
    producers: BTreeMap<i64, (i32, VecDeque<(i32, usize)>)>,
    given: i64,
    /// How many batches came.
    pub(super) batches: u64,
    pub(super) fault: Option<Faults>,
}

/// A running broker.
pub(super) struct Broker {
    pub(super) address: SocketAddr,
    pub(super) state: Arc<Mutex<State>>,
}

pub(super) const PARTITIONS: i32 = 3;

impl Broker {
    pub(super) fn start(fault: Option<Faults>) -> Broker {
        Broker::start_beside(fault, None)
    }

    /// Starts a broker that says that another one is the leader.
    fn start_beside(fault: Option<Faults>, leader: Option<SocketAddr>) -> Broker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { fault, ..State::default() }));
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), shared.clone());
                thread::spawn(move || serve(stream, leader.unwrap_or(address), &state));
            }
        });
        Broker { address, state }
    }
}

/// Answers requests until the connection ends, or is lost by a fault.
fn serve(mut stream: TcpStream, leader: SocketAddr, state: &Mutex<State>) -> Option<()> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let mut request = vec![0; i32::from_be_bytes(length) as usize];
        stream.read_exact(&mut request).ok()?;
        let mut get = Get(&request);
        let (key, version, number) = (get.i16()?, get.i16()?, get.i32()?);
        assert_eq!(get.string()?, "ringwise-logd");
        let mut out = Vec::new();
        out.i32(number);
        match (key, version) {
            (18, 0) => {
                out.i16(0);
                out.i32(3);
                for (key, min, max) in [(0, 3, 13), (3, 0, 13), (22, 0, 6)] {
                    out.i16(key);
                    out.i16(min);
                    out.i16(max);
                }
            }
            (3, 4) => metadata(&mut out, leader),
            (22, 1) => {
                let mut state = state.lock().unwrap();
                state.given += 1;
                let id = state.given;
                // At first it has none: COORDINATOR_LOAD_IN_PROGRESS.
                let code = if id == 1 { 14 } else { 0 };
                state.producers.insert(id, (0, VecDeque::new()));
                out.i32(0);
                out.i16(code);
                out.i64(id);
                out.i16(0);
            }
            (0, 8) => {
                assert_eq!((get.string()?, get.i16()?, get.i32()?), ("", -1, 10_000));
                assert_eq!((get.i32()?, get.string()?, get.i32()?), (1, "logs", 1));
                let partition = get.i32()?;
                assert!(get.i32()? as usize == get.0.len() && (0..PARTITIONS).contains(&partition));
                let code = store(&mut state.lock().unwrap(), partition, get.0)?;
                stored(&mut out, partition, code);
            }
            other => panic!("{other:?} is no request of a producer"),
        }
        stream.write_all(&(out.len() as i32).to_be_bytes()).ok()?;
        stream.write_all(&out).ok()?;
    }
}

fn metadata(out: &mut Vec<u8>, leader: SocketAddr) {
    out.i32(0);
    out.i32(1);
    out.i32(7);
    out.string(&leader.ip().to_string());
    out.i32(i32::from(leader.port()));
    out.no_string();
    out.no_string();
    out.i32(7);
    out.i32(1);
    out.i16(0);
    out.string("logs");
    out.i8(0);
    out.i32(PARTITIONS);
    for number in 0..PARTITIONS {
        out.i16(0);
        out.i32(number);
        out.i32(7);
        for _ in 0..2 {
            out.i32(1);
            out.i32(7);
        }
    }
}

/// Stores a batch. Returns the error for the answer, or nothing if the connection is lost.
fn store(state: &mut State, partition: i32, bytes: &[u8]) -> Option<i16> {
    let batch = decode(bytes).expect("a batch that Kafka takes");
    state.batches += 1;
    let fault = state.fault.and_then(|fault| fault(state.batches));
    match fault {
        Some(Fault::Before) => return None,
        Some(Fault::Refuse(code)) => return Some(code),
        Some(Fault::Forget(code)) => {
            state.producers.clear();
            return Some(code);
        }
        _ => {}
    }
    // UNKNOWN_PRODUCER_ID
    let Some((next, last)) = state.producers.get_mut(&batch.producer.id) else { return Some(59) };
    let own = (batch.sequence, batch.records.len());
    if !last.contains(&own) {
        if batch.sequence != *next {
            // OUT_OF_ORDER_SEQUENCE_NUMBER
            return Some(45);
        }
        *next = sequence(*next, batch.records.len() as u64);
        last.push_back(own);
        if last.len() > 5 {
            last.pop_front();
        }
        state.partitions.entry(partition).or_default().extend(batch.records);
    }
    (fault != Some(Fault::After)).then_some(0)
}

fn stored(out: &mut Vec<u8>, partition: i32, code: i16) {
    out.i32(1);
    out.string("logs");
    out.i32(1);
    out.i32(partition);
    out.i16(code);
    (0..3).for_each(|_| out.i64(-1));
    out.i32(0);
    out.no_string();
    out.i32(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::{
        kafka::{Kafka, Settings},
        tests::{World, finish},
    };

    fn kafka(brokers: Vec<String>) -> Kafka {
        Kafka::new(Settings { brokers, topic: "logs".to_owned() }, "00ff", 4)
    }

    /// Ships sixty batches, each as soon as it is stored.
    fn ship(fault: Option<Faults>) -> (World, Vec<Stored>, u64) {
        let broker = Broker::start(fault);
        let mut world = World::new(3);
        let mut lane = world.lane(kafka(vec![broker.address.to_string()]));
        for _ in 0..60 {
            world.write();
            lane.turn(std::time::Duration::from_millis(1));
        }
        finish(&mut lane);
        let mut state = broker.state.lock().unwrap();
        // (crc32("00ff") + 4) % 3
        let own = ((crc32fast::hash(b"00ff").wrapping_add(4)) % 3) as i32;
        let stored = state.partitions.remove(&own).unwrap();
        assert!(state.partitions.is_empty(), "a stream goes to one partition");
        let errors = world.progress().errors.load(std::sync::atomic::Ordering::Relaxed);
        (world, stored, errors)
    }

    /// The lines, and their numbers as a consumer reads them in the headers.
    fn numbers(world: &World, stored: &[Stored]) -> Vec<usize> {
        let number = |stored: &Stored| {
            let header = |key: &str| {
                let found = stored.headers.iter().find(|(own, _)| own == key);
                found.map(|(_, value)| value.clone()).unwrap()
            };
            assert_eq!((&*header("origin"), &*header("stream")), ("00ff", "4"));
            let number: usize = header("line").parse().unwrap();
            assert_eq!(header("tenant"), ["web", "db"][number % 2]);
            assert!(stored.value == world.lines[number], "line {number} is another");
            number
        };
        stored.iter().map(number).collect()
    }

    #[test]
    fn with_an_idempotent_producer_each_line_is_stored_once() {
        let faults: [Option<Faults>; 6] = [
            None,
            Some(|batch| (batch == 3).then_some(Fault::Before)),
            Some(|batch| batch.is_multiple_of(7).then_some(Fault::After)),
            Some(|batch| batch.is_multiple_of(8).then_some(Fault::Before)),
            // NOT_ENOUGH_REPLICAS: batches after it are in flight, and are out of order.
            Some(|batch| batch.is_multiple_of(9).then_some(Fault::Refuse(19))),
            Some(|batch| match batch % 20 {
                7 => Some(Fault::Before),
                14 => Some(Fault::After),
                _ => None,
            }),
        ];
        for (place, fault) in faults.into_iter().enumerate() {
            let (world, stored, errors) = ship(fault);
            let found = numbers(&world, &stored);
            assert!(found.iter().copied().eq(0..world.lines.len()), "{place}: {found:?}");
            assert_eq!(errors > 0, fault.is_some(), "{place}");
        }
    }

    /// The broker lost what it knew of the producer, so batches in flight may be stored twice. Their numbers tell.
    #[test]
    fn after_a_new_producer_id_repeated_lines_are_recognised() {
        let (world, stored, errors) = ship(Some(|batch| (batch == 9).then_some(Fault::Forget(59))));
        let found = numbers(&world, &stored);
        let mut seen = None;
        let is_new = |number: &usize| {
            let is_new = seen.is_none_or(|seen| *number > seen);
            seen = seen.max(Some(*number));
            is_new
        };
        assert!(found.into_iter().filter(is_new).eq(0..world.lines.len()));
        assert!(errors > 0);
    }

    #[test]
    fn a_broker_that_is_away_is_told_and_the_next_one_is_asked() {
        // Nobody listens there while the listener is not one.
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut world = World::new(1);
        world.write();
        let mut lane = world.lane(kafka(vec![closed.clone()]));
        lane.turn(std::time::Duration::ZERO);
        assert!(lane.is_away());
        let told = world.progress().last_error();
        assert!(
            told.starts_with(&format!("kafka {closed}: ")) && told.contains("refused"),
            "{told}"
        );
        let broker = Broker::start(None);
        let mut lane = world.lane(kafka(vec![closed, broker.address.to_string()]));
        finish(&mut lane);
        assert!(!lane.is_away());
    }

    /// Such a broker used to be asked for ever, because it answers.
    #[test]
    fn after_a_wrong_answer_the_next_broker_is_asked() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // One that takes connections and closes them.
        let closing = TcpListener::bind("127.0.0.1:0").unwrap();
        let ending = closing.local_addr().unwrap();
        thread::spawn(move || closing.incoming().for_each(drop));
        for leader in [closed, ending] {
            let stale = Broker::start_beside(None, Some(leader));
            let broker = Broker::start(None);
            let mut world = World::new(1);
            world.write();
            let mut lane =
                world.lane(kafka(vec![stale.address.to_string(), broker.address.to_string()]));
            for _ in 0..20 {
                lane.turn(std::time::Duration::from_millis(500));
            }
            assert!(lane.is_done(), "{}", world.progress().last_error());
        }
    }

    #[test]
    fn what_is_no_broker_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            stream
        });
        let mut world = World::new(1);
        world.write();
        world.lane(kafka(vec![address])).turn(std::time::Duration::ZERO);
        drop(server.join());
        let told = world.progress().last_error();
        assert!(told.contains("no broker of Kafka without TLS answers there"), "{told}");
    }
}
