//! The requests of a producer, and their answers.
//!
//! Each has the newest version whose encoding is the old one, without tagged fields, up to the one named here. Every
//! broker from Kafka 2.4 on has them all. <https://kafka.apache.org/protocol.html> describes the messages.

use std::{fmt, time::Duration};

mod code;
mod transaction;

pub(super) use code::Code;
pub(super) use transaction::{
    Edge, Fetched, add_partitions, added, commit, committed, coordinator, fetch, fetched,
    find_coordinator, list_offsets, offset,
};

use super::{
    batch::Producer,
    wire::{Get, Put},
};

/// Reads bytes as each answer, for fuzzers: whatever they are, they are an answer or none.
pub(super) fn try_all(bytes: &[u8]) {
    let _ = (check_versions(bytes, true), producer(bytes), Stored::read(bytes));
    let _ = (coordinator(bytes), added(bytes), committed(bytes), offset(bytes));
    if let Some(metadata) = Metadata::read(bytes) {
        let _ = (metadata.partitions("topic"), metadata.partitions(""));
    }
}

/// How this program names itself to brokers, for their logs and quotas.
const CLIENT: &str = "ringwise-logd";

/// A kind of request: its number and its version.
#[derive(Clone, Copy)]
struct Kind {
    key: i16,
    version: i16,
    name: &'static str,
}

const PRODUCE: Kind = Kind { key: 0, version: 8, name: "Produce" };
const METADATA: Kind = Kind { key: 3, version: 4, name: "Metadata" };
const VERSIONS: Kind = Kind { key: 18, version: 0, name: "ApiVersions" };
const INIT_PRODUCER: Kind = Kind { key: 22, version: 1, name: "InitProducerId" };
const SASL_HANDSHAKE: Kind = Kind { key: 17, version: 1, name: "SaslHandshake" };
const SASL_AUTHENTICATE: Kind = Kind { key: 36, version: 0, name: "SaslAuthenticate" };

/// Adds the head of a request, with room for its length and its number.
fn begin(out: &mut Vec<u8>, kind: Kind) {
    out.clear();
    out.i32(0);
    out.i16(kind.key);
    out.i16(kind.version);
    out.i32(0);
    out.string(CLIENT);
}

/// Asks which requests a broker takes.
pub(super) fn versions() -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, VERSIONS);
    out
}

/// Checks that a broker takes the requests of a producer, with transactions or without.
pub(super) fn check_versions(answer: &[u8], has_transactions: bool) -> Result<(), String> {
    const OWN: &[Kind] = &[PRODUCE, METADATA, INIT_PRODUCER];
    use transaction::{ADD_PARTITIONS, END, FETCH, FIND_COORDINATOR, LIST_OFFSETS};
    const MORE: &[Kind] = &[FETCH, LIST_OFFSETS, FIND_COORDINATOR, ADD_PARTITIONS, END];
    let more = if has_transactions { MORE } else { &[] };
    let mut get = Get(answer);
    let read = get.i16().and_then(|_| get.list(|get| Some((get.i16()?, get.i16()?, get.i16()?))));
    let all = read.ok_or("its answer is not understood")?;
    for kind in OWN.iter().chain(more) {
        let takes = |(key, min, max): &(i16, i16, i16)| {
            *key == kind.key && (*min..=*max).contains(&kind.version)
        };
        if !all.iter().any(takes) {
            let (name, version) = (kind.name, kind.version);
            return Err(format!(
                "it does not support {name} requests of version {version}: Kafka 2.4 to 4.x do"
            ));
        }
    }
    Ok(())
}

/// Names the mechanism of a login.
pub(super) fn sasl_handshake(mechanism: &str) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, SASL_HANDSHAKE);
    out.string(mechanism);
    out
}

/// Sends a message of a login.
pub(super) fn sasl_authenticate(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, SASL_AUTHENTICATE);
    out.bytes(message);
    out
}

/// Asks for the leaders of topics' partitions. A topic is not created if it does not exist.
pub(super) fn metadata(topics: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, METADATA);
    out.i32(topics.len() as i32);
    topics.iter().for_each(|topic| out.string(topic));
    out.i8(0);
    out
}

/// Asks for a producer id: that of a transactional id with the time after which its transactions are aborted, or a new
/// one.
pub(super) fn init_producer(transactions: Option<(&str, Duration)>) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, INIT_PRODUCER);
    match transactions {
        Some((id, _)) => out.string(id),
        None => out.no_string(),
    }
    out.i32(transactions.map_or(0, |(_, time)| time.as_millis() as i32));
    out
}

/// Why a broker does not do what it was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It does it later.
    NotYet(Code),
    For(Code),
    Unreadable,
}

impl Refused {
    /// Tells success from errors.
    fn check(code: Code) -> Result<(), Refused> {
        match code {
            Code::NONE => Ok(()),
            code if code.is_passing() => Err(Refused::NotYet(code)),
            code => Err(Refused::For(code)),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NotYet(code) | Refused::For(code) => write!(f, "{code}"),
            Refused::Unreadable => f.write_str("its answer is not understood"),
        }
    }
}

/// Reads the answer to [`init_producer`].
pub(super) fn producer(answer: &[u8]) -> Result<Producer, Refused> {
    let mut get = Get(answer);
    let mut read = || Some((get.i32()?, Code(get.i16()?), get.i64()?, get.i16()?));
    let (_, code, id, epoch) = read().ok_or(Refused::Unreadable)?;
    Refused::check(code)?;
    Ok(Producer { id, epoch })
}

/// Makes a request that stores a batch on all replicas in sync, in the transaction of an id if there is one. `batch`
/// adds the batch.
pub(super) fn produce(
    out: &mut Vec<u8>,
    (transactional_id, topic, partition): (Option<&str>, &str, i32),
    store: Duration,
    batch: impl FnOnce(&mut Vec<u8>),
) {
    begin(out, PRODUCE);
    match transactional_id {
        Some(id) => out.string(id),
        None => out.no_string(),
    }
    // All replicas.
    out.i16(-1);
    out.i32(store.as_millis() as i32);
    out.i32(1);
    out.string(topic);
    out.i32(1);
    out.i32(partition);
    let start = out.len();
    out.i32(0);
    batch(out);
    let bytes = (out.len() - start - 4) as i32;
    out[start..start + 4].copy_from_slice(&bytes.to_be_bytes());
}

/// What became of a batch.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) code: Code,
    /// More about the error, in the broker's words. It may be empty.
    why: String,
}

impl Stored {
    /// Reads the answer to [`produce`].
    pub(super) fn read(answer: &[u8]) -> Option<Stored> {
        let partition = |get: &mut Get<'_>| {
            let (_, code) = (get.i32()?, Code(get.i16()?));
            // The offset, and two more numbers.
            get.i64()?;
            get.i64()?;
            get.i64()?;
            let wrong = get.list(|get| Some((get.i32()?, get.string()?.to_owned())))?;
            let mut why = get.string()?.to_owned();
            if let Some((_, first)) = wrong.into_iter().next().filter(|_| why.is_empty()) {
                why = first;
            }
            Some(Stored { code, why })
        };
        let topics = Get(answer).list(|get| {
            get.string()?;
            get.list(partition)
        })?;
        topics.into_iter().flatten().next()
    }

    /// Tells success from errors. A duplicate is stored, with an earlier answer that was lost.
    pub(super) fn result(self) -> Result<(), String> {
        match self.code {
            Code::NONE | Code::DUPLICATE_SEQUENCE_NUMBER => Ok(()),
            _ => Err(self.to_string()),
        }
    }
}

/// Reads an answer about one partition of one topic, which `one` reads.
fn one_partition<T>(answer: &[u8], mut one: impl FnMut(&mut Get<'_>) -> Option<T>) -> Option<T> {
    let mut get = Get(answer);
    get.i32()?;
    let topics = get.list(|get| {
        get.string()?;
        get.list(&mut one)
    })?;
    topics.into_iter().flatten().next()
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why.is_empty() {
            true => write!(f, "{}", self.code),
            false => write!(f, "{} ({})", self.code, self.why),
        }
    }
}

/// A topic, as brokers know it.
#[derive(Debug)]
struct Topic {
    code: Code,
    name: String,
    /// Each partition's error, number and leader.
    partitions: Vec<(Code, i32, i32)>,
}

/// The answer to [`metadata`].
#[derive(Debug)]
pub(super) struct Metadata {
    /// Each broker's number and address.
    brokers: Vec<(i32, String)>,
    topics: Vec<Topic>,
}

/// Makes `HOST:PORT`.
fn address(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl Metadata {
    /// Reads an answer.
    pub(super) fn read(answer: &[u8]) -> Option<Metadata> {
        let mut get = Get(answer);
        get.i32()?;
        let brokers = get.list(|get| {
            let (number, host, port) = (get.i32()?, get.string()?, get.i32()?);
            get.string()?;
            Some((number, address(host, port)))
        })?;
        get.string()?;
        get.i32()?;
        let topics = get.list(|get| {
            let (code, name) = (Code(get.i16()?), get.string()?.to_owned());
            get.i8()?;
            let partitions = get.list(|get| {
                let partition = (Code(get.i16()?), get.i32()?, get.i32()?);
                get.list(|get| get.i32())?;
                get.list(|get| get.i32())?;
                Some(partition)
            })?;
            Some(Topic { code, name, partitions })
        })?;
        Some(Metadata { brokers, topics })
    }

    fn topic(&self, name: &str) -> Result<&Topic, String> {
        let found = self.topics.iter().find(|topic| topic.name == name);
        found.ok_or_else(|| format!("its answer does not have the topic {name}"))
    }

    /// Returns how many partitions a topic has.
    pub(super) fn partitions(&self, name: &str) -> Result<u32, String> {
        let topic = self.topic(name)?;
        match (topic.code, topic.partitions.len() as u32) {
            (Code::UNKNOWN_TOPIC_OR_PARTITION, _) => Err(format!(
                "the topic {name} does not exist: create it, with the partitions and replicas that it needs"
            )),
            (Code::NONE, count @ 1..) => Ok(count),
            (code, _) => Err(format!("the topic {name} has no partitions now: {code}")),
        }
    }

    /// Returns the address of a partition's leader.
    pub(super) fn leader(&self, name: &str, partition: i32) -> Result<String, String> {
        let mut partitions = self.topic(name)?.partitions.iter();
        let found = partitions.find(|(_, number, _)| *number == partition);
        let (code, _, leader) = found
            .ok_or_else(|| format!("the topic {name} has no partition {partition} any more"))?;
        let broker = self.brokers.iter().find(|(number, _)| number == leader);
        match broker {
            Some((_, address)) => Ok(address.clone()),
            None => Err(format!("partition {partition} of {name} has no leader now: {code}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of a broker, as the documentation of the protocol lays it out.
    fn metadata_answer(topic: Code, partitions: &[(Code, i32, i32)]) -> Vec<u8> {
        let mut out = Vec::new();
        out.i32(0);
        out.i32(2);
        for (number, host) in [(1, "one"), (2, "::1")] {
            out.i32(number);
            out.string(host);
            out.i32(9092);
            out.no_string();
        }
        out.string("cluster");
        out.i32(1);
        out.i32(1);
        out.i16(topic.0);
        out.string("logs");
        out.i8(0);
        out.i32(partitions.len() as i32);
        for (code, number, leader) in partitions {
            out.i16(code.0);
            out.i32(*number);
            out.i32(*leader);
            for _ in 0..2 {
                out.i32(2);
                out.i32(1);
                out.i32(2);
            }
        }
        out
    }

    #[test]
    fn the_leader_of_a_partition_is_found() {
        let partitions = [(Code::NONE, 1, 2), (Code::NONE, 0, 1), (Code(5), 2, -1)];
        let answer = metadata_answer(Code::NONE, &partitions);
        let metadata = Metadata::read(&answer).unwrap();
        assert_eq!(metadata.partitions("logs"), Ok(3));
        assert_eq!(metadata.leader("logs", 0).unwrap(), "one:9092");
        assert_eq!(metadata.leader("logs", 1).unwrap(), "[::1]:9092");
        assert!(
            metadata.leader("logs", 2).unwrap_err().contains("no leader now: LEADER_NOT_AVAILABLE")
        );
        assert!(metadata.leader("logs", 3).unwrap_err().contains("no partition 3"));
        for len in 0..answer.len() {
            assert!(Metadata::read(&answer[..len]).is_none(), "{len}");
        }
        let missing = metadata_answer(Code::UNKNOWN_TOPIC_OR_PARTITION, &[]);
        let told = Metadata::read(&missing).unwrap().partitions("logs").unwrap_err();
        assert!(told.contains("does not exist: create it"), "{told}");
    }

    #[test]
    fn a_broker_that_is_too_old_or_too_new_is_told() {
        let answer = |all: &[(i16, i16, i16)]| {
            let mut out = Vec::new();
            out.i16(0);
            out.i32(all.len() as i32);
            for (key, min, max) in all {
                out.i16(*key);
                out.i16(*min);
                out.i16(*max);
            }
            out
        };
        let good = [(0, 3, 13), (3, 0, 13), (22, 0, 5)];
        assert_eq!(check_versions(&answer(&good), false), Ok(()));
        let told = check_versions(&answer(&good), true).unwrap_err();
        assert!(told.contains("Fetch requests of version 4"), "{told}");
        for place in 0..good.len() {
            let mut other = good;
            (other[place].1, other[place].2) = (12, 13);
            assert!(check_versions(&answer(&other), false).unwrap_err().contains("2.4 to 4.x"));
        }
        assert!(check_versions(b"HTTP", false).is_err());
    }

    #[test]
    fn an_answer_tells_what_became_of_a_batch() {
        let answer = |code: Code, why: Option<&str>| {
            let mut out = Vec::new();
            out.i32(1);
            out.string("logs");
            out.i32(1);
            out.i32(0);
            out.i16(code.0);
            (0..3).for_each(|_| out.i64(-1));
            out.i32(1);
            out.i32(7);
            out.string("the seventh");
            match why {
                Some(why) => out.string(why),
                None => out.no_string(),
            }
            out.i32(0);
            out
        };
        let whole = answer(Code(87), Some("bad record"));
        let told = |bytes: &[u8]| Stored::read(bytes).map(|stored| stored.to_string());
        assert_eq!(told(&whole).as_deref(), Some("INVALID_RECORD (bad record)"));
        assert_eq!(told(&answer(Code(87), None)).as_deref(), Some("INVALID_RECORD (the seventh)"));
        assert!(told(&answer(Code(10), Some("x"))).unwrap().contains("max.message.bytes"));
        // The last number, how long the broker held the answer back, is not needed.
        for len in 0..whole.len() - 4 {
            assert!(told(&whole[..len]).is_none(), "{len}");
        }
    }
}
