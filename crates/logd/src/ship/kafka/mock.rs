//! A broker in memory for tests, which checks a producer's batches as Kafka does, and loses requests or answers.
//!
//! It has one topic, and is the leader of all its partitions. It follows the rules for sequence numbers: it stores a
//! batch only if its numbers follow those of the last one of its producer, and recognises the last five.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
};

mod login;

use login::Session;
pub(super) use login::{Gate, Guard};
use rustls::{ServerConnection, StreamOwned};

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
    /// Who leads all partitions, as it says.
    pub(super) leader: Option<SocketAddr>,
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

    /// Starts one that says that another broker leads, if there is another.
    pub(super) fn start_beside(fault: Option<Faults>, leader: Option<SocketAddr>) -> Broker {
        Broker::guarded(Guard::default(), State { fault, leader, ..State::default() })
    }

    /// Starts one that wants TLS or a login.
    pub(super) fn guarded(guard: Guard, state: State) -> Broker {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(state));
        state.lock().unwrap().leader.get_or_insert(address);
        let (shared, guard) = (state.clone(), Arc::new(guard));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state, guard) = (stream.unwrap(), shared.clone(), guard.clone());
                thread::spawn(move || match &guard.tls {
                    None => serve(stream, &guard, &state),
                    Some(config) => {
                        let session = ServerConnection::new(config.clone()).unwrap();
                        serve(StreamOwned::new(session, stream), &guard, &state)
                    }
                });
            }
        });
        Broker { address, state }
    }
}

/// The longest request, as Kafka has it (socket.request.max.bytes). What is no Kafka looks longer.
const REQUEST_BYTES_MAX: i32 = 100 << 20;

/// Answers requests until the connection ends, or is lost by a fault.
fn serve(mut stream: impl Read + Write, guard: &Guard, state: &Mutex<State>) -> Option<()> {
    let mut session = Session::default();
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let length = i32::from_be_bytes(length);
        (0..=REQUEST_BYTES_MAX).contains(&length).then_some(())?;
        let mut request = vec![0; length as usize];
        stream.read_exact(&mut request).ok()?;
        let mut get = Get(&request);
        let (kind, number) = ((get.i16()?, get.i16()?), get.i32()?);
        assert_eq!(get.string()?, "ringwise-logd");
        let mut out = Vec::new();
        out.i32(number);
        if !session.take(guard, kind, &mut get, &mut out)? {
            answer(&mut state.lock().unwrap(), kind, get, &mut out)?;
        }
        stream.write_all(&(out.len() as i32).to_be_bytes()).ok()?;
        stream.write_all(&out).ok()?;
        stream.flush().ok()?;
    }
}

/// Adds the answer to a request. Returns nothing if the connection is lost.
fn answer(state: &mut State, kind: (i16, i16), mut get: Get<'_>, out: &mut Vec<u8>) -> Option<()> {
    match kind {
        (18, 0) => {
            out.i16(0);
            out.i32(3);
            for (key, min, max) in [(0, 3, 13), (3, 0, 13), (22, 0, 6)] {
                out.i16(key);
                out.i16(min);
                out.i16(max);
            }
        }
        (3, 4) => metadata(out, state.leader?),
        (22, 1) => {
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
            let code = store(state, partition, get.0)?;
            stored(out, partition, code);
        }
        other => panic!("{other:?} is no request of a producer"),
    }
    Some(())
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
