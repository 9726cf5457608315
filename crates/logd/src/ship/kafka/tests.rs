//! The producer with a broker in memory: what is stored, and what is told.

mod exactly_once;
mod security;

use std::{io::Write as _, net::TcpListener, thread};

use super::{
    Brokers, Compression, Delivery, Kafka, Security, Settings, brokers,
    mock::{Broker, Fault, Faults, Guard, Stored},
    topic,
};
use crate::ship::tests::{World, finish};

fn kafka(brokers: Vec<String>) -> Kafka {
    secured(brokers, Security::default())
}

fn secured(brokers: Vec<String>, security: Security) -> Kafka {
    Kafka::new(Settings { security, ..settings(brokers) }, ("00ff", 4), 0)
}

fn settings(brokers: Vec<String>) -> Settings {
    let (security, compression) = (Security::default(), Compression::None);
    let (topic, delivery) = ("logs".to_owned(), Delivery::Idempotent);
    Settings { brokers, topic, security, compression, delivery }
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
    let mut stored = broker.state.lock().unwrap().committed("logs");
    // (crc32("00ff") + 4) % 3
    let own = ((crc32fast::hash(b"00ff").wrapping_add(4)) % 3) as i32;
    let own = stored.remove(&own).unwrap();
    assert!(stored.is_empty(), "a stream goes to one partition");
    let errors = world.progress().troubles.count();
    (world, own, errors)
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
    let told = world.progress().troubles.last();
    assert!(told.starts_with(&format!("kafka {closed}: ")) && told.contains("refused"), "{told}");
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
        assert!(lane.is_done(), "{}", world.progress().troubles.last());
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
    let told = world.progress().troubles.last();
    assert!(told.contains("no broker of Kafka without TLS answers there"), "{told}");
}

#[test]
fn brokers_and_topics_are_what_kafka_takes() {
    let both = ["a:9092".to_owned(), "[::1]:1".to_owned()];
    assert_eq!(brokers("a:9092, [::1]:1"), Ok(Brokers(both.to_vec())));
    for text in ["", "a", "a:", ":9092", "a:9092,", "a:99999", "a:b"] {
        assert!(brokers(text).is_err(), "{text}");
    }
    for text in ["logs", "a.b_C-9", &"x".repeat(249)] {
        assert_eq!(topic(text), Ok(text.to_owned()));
    }
    for text in ["", ".", "..", "a b", "a/b", "\u{e4}", &"x".repeat(250)] {
        assert!(topic(text).is_err(), "{text}");
    }
}
