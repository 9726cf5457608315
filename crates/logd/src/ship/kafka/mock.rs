//! A broker in memory for tests, which checks a producer's batches as Kafka does, and loses requests or answers.
//!
//! It has one topic with its progress topic, leads all their partitions and coordinates transactions. It follows the
//! rules for sequence numbers: it stores a batch only if its numbers follow those of the last one of its producer, and
//! recognises the last five. It follows those of transactions: partitions are added before batches, only the newest
//! producer of an id is heard, and who reads sees what is committed.

mod log;
mod login;
mod record;
mod transactions;

use std::{
    collections::{BTreeMap, VecDeque},
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
};

use log::Log;
use login::Session;
pub(super) use login::{Gate, Guard};
pub(super) use record::{Stored, decode};
use rustls::{ServerConnection, StreamOwned};
use transactions::Transactional;

use super::{
    batch::sequence,
    wire::{Get, Put},
};

/// What a broker does with a request instead of doing it and saying so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It loses the connection before it does it, or after that.
    Before,
    After,
    /// It answers with this error and does nothing.
    Refuse(i16),
    /// It answers with this error, and forgets the producers.
    Forget(i16),
}

/// Which batch, by its number, has which fault.
pub(super) type Faults = fn(u64) -> Option<Fault>;

/// Which other request, by its kind and number, has which fault.
pub(super) type FaultsBeside = fn(i16, u64) -> Option<Fault>;

/// A topic and a partition of it.
type Place = (String, i32);

/// A producer as the leader of partitions knows it.
#[derive(Default)]
struct Known {
    epoch: i16,
    /// For each partition the next number, and the first numbers of its last batches.
    numbers: BTreeMap<Place, (i32, VecDeque<(i32, usize)>)>,
}

/// What a broker has.
#[derive(Default)]
pub(super) struct State {
    /// Who leads all partitions, as it says.
    pub(super) leader: Option<SocketAddr>,
    pub(super) logs: BTreeMap<Place, Log>,
    producers: BTreeMap<i64, Known>,
    transactional: BTreeMap<String, Transactional>,
    given: i64,
    /// How many requests came of each kind.
    pub(super) requests: BTreeMap<i16, u64>,
    fault: Option<Faults>,
    beside: Option<FaultsBeside>,
}

impl State {
    pub(super) fn new(fault: Option<Faults>, beside: Option<FaultsBeside>) -> State {
        State { fault, beside, ..State::default() }
    }

    /// What consumers of committed records read, by partition.
    pub(super) fn committed(&self, topic: &str) -> BTreeMap<i32, Vec<Stored>> {
        let own = self.logs.iter().filter(|((own, _), _)| own == topic);
        own.map(|((_, partition), log)| (*partition, log.committed())).collect()
    }
}

/// A running broker.
pub(super) struct Broker {
    pub(super) address: SocketAddr,
    pub(super) state: Arc<Mutex<State>>,
}

pub(super) const PARTITIONS: i32 = 3;
const PROGRESS: &str = "logs-progress";

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
        // Its length, which is known at the end.
        out.i32(0);
        out.i32(number);
        if !session.take(guard, kind, &mut get, &mut out)? {
            take(&mut state.lock().unwrap(), kind, get, &mut out)?;
        }
        let length = out.len() as i32 - 4;
        out[..4].copy_from_slice(&length.to_be_bytes());
        stream.write_all(&out).ok()?;
        stream.flush().ok()?;
    }
}

/// Takes a request, or has a fault instead. Returns nothing if the connection is lost.
fn take(state: &mut State, kind: (i16, i16), get: Get<'_>, out: &mut Vec<u8>) -> Option<()> {
    let number = state.requests.entry(kind.0).or_default();
    *number += 1;
    let fault = match kind.0 {
        0 => state.fault.and_then(|fault| fault(*number)),
        key => state.beside.and_then(|fault| fault(key, *number)),
    };
    let refused = match fault {
        Some(Fault::Before) => return None,
        Some(Fault::Refuse(code)) => Some(code),
        Some(Fault::Forget(code)) => {
            state.producers.clear();
            Some(code)
        }
        Some(Fault::After) | None => None,
    };
    answer(state, kind, get, out, refused)?;
    (fault != Some(Fault::After)).then_some(())
}

fn answer(
    state: &mut State,
    kind: (i16, i16),
    mut get: Get<'_>,
    out: &mut Vec<u8>,
    refused: Option<i16>,
) -> Option<()> {
    let code = refused.unwrap_or(0);
    match kind {
        (0, 8) => produce(state, &mut get, out, refused)?,
        (1, 4) => state.fetch(&mut get, out, code)?,
        (2, 2) => state.list_offsets(&mut get, out, code)?,
        (3, 4) => metadata(out, state.leader?),
        (10, 1) => {
            assert!(get.string()?.starts_with("ringwise-logd-") && get.i8()? == 1);
            let leader = state.leader?;
            out.i32(0);
            out.i16(code);
            out.no_string();
            out.i32(7);
            out.string(&leader.ip().to_string());
            out.i32(i32::from(leader.port()));
        }
        (18, 0) => {
            let all = [(0, 3, 13), (1, 4, 18), (2, 1, 11), (3, 0, 13), (10, 0, 6)];
            let all = [&all[..], &[(22, 0, 6), (24, 0, 5), (26, 0, 5)]].concat();
            out.i16(0);
            out.i32(all.len() as i32);
            for (key, min, max) in all {
                out.i16(key);
                out.i16(min);
                out.i16(max);
            }
        }
        (22, 1) => init_producer(state, &mut get, out, refused)?,
        (24, 1) => state.add_partitions(&mut get, out, refused)?,
        (26, 1) => state.end(&mut get, out, refused)?,
        other => panic!("{other:?} is no request of a producer"),
    }
    Some(())
}

fn init_producer(
    state: &mut State,
    get: &mut Get<'_>,
    out: &mut Vec<u8>,
    refused: Option<i16>,
) -> Option<()> {
    let (id, timeout_ms) = (get.string()?, get.i32()?);
    state.given += 1;
    // At first it has none: COORDINATOR_LOAD_IN_PROGRESS.
    let loading = (state.given == 1).then_some(14);
    let (code, producer) = match (id, refused.or(loading)) {
        (_, Some(code)) => (code, super::batch::Producer { id: -1, epoch: -1 }),
        ("", None) => {
            let producer = super::batch::Producer { id: state.given, epoch: 0 };
            state.producers.insert(producer.id, Known::default());
            (0, producer)
        }
        (id, None) => {
            assert_eq!(timeout_ms, 60_000);
            state.renew(id)
        }
    };
    out.i32(0);
    out.i16(code);
    out.i64(producer.id);
    out.i16(producer.epoch);
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
    out.i32(2);
    for (name, partitions) in [(PROGRESS, 1), ("logs", PARTITIONS)] {
        out.i16(0);
        out.string(name);
        out.i8(0);
        out.i32(partitions);
        for number in 0..partitions {
            out.i16(0);
            out.i32(number);
            out.i32(7);
            for _ in 0..2 {
                out.i32(1);
                out.i32(7);
            }
        }
    }
}

fn produce(
    state: &mut State,
    get: &mut Get<'_>,
    out: &mut Vec<u8>,
    refused: Option<i16>,
) -> Option<()> {
    let id = get.string()?.to_owned();
    assert_eq!((get.i16()?, get.i32()?, get.i32()?), (-1, 10_000, 1));
    let topic = get.string()?.to_owned();
    assert_eq!(get.i32()?, 1);
    let partition = get.i32()?;
    assert!(["logs", PROGRESS].contains(&&*topic) && (0..PARTITIONS).contains(&partition));
    let bytes = get.bytes()?;
    assert!(get.0.is_empty());
    let place = (topic.clone(), partition);
    let code = refused.unwrap_or_else(|| store(state, &place, bytes, &id));
    out.i32(1);
    out.string(&topic);
    out.i32(1);
    out.i32(partition);
    out.i16(code);
    (0..3).for_each(|_| out.i64(-1));
    out.i32(0);
    out.no_string();
    out.i32(0);
    Some(())
}

/// Stores a batch. Returns the error for the answer.
fn store(state: &mut State, place: &Place, bytes: &[u8], id: &str) -> i16 {
    let batch = decode(bytes).expect("a batch that Kafka takes");
    assert_eq!(batch.is_transactional, !id.is_empty());
    // UNKNOWN_PRODUCER_ID
    let Some(known) = state.producers.get_mut(&batch.producer.id) else { return 59 };
    if batch.producer.epoch != known.epoch {
        // INVALID_PRODUCER_EPOCH
        return 47;
    }
    if batch.is_transactional && !state.transactional[id].open.contains(place) {
        // INVALID_TXN_STATE
        return 48;
    }
    let (next, last) = known.numbers.entry(place.clone()).or_default();
    let own = (batch.sequence, batch.records.len());
    if last.contains(&own) {
        return 0;
    }
    if batch.sequence != *next {
        // OUT_OF_ORDER_SEQUENCE_NUMBER
        return 45;
    }
    *next = sequence(*next, batch.records.len() as u64);
    last.push_back(own);
    if last.len() > 5 {
        last.pop_front();
    }
    state.logs.entry(place.clone()).or_default().add(batch, bytes);
    0
}
