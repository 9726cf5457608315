//! Exactly once: whatever request is lost or refused, and whoever is killed, consumers of committed records read each
//! line once, in order.

use std::sync::atomic::Ordering;

use super::*;
use crate::disk::segment::{format::name::Part, reading::source::streams};
use crate::ship::{
    kafka::{
        Delivery,
        mock::{FaultsBeside, State},
    },
    lane::{Lane, Turn},
    tests::STREAM,
};

const WRITES: usize = 30;

/// The kinds of requests.
const FETCH: i16 = 1;
const LIST_OFFSETS: i16 = 2;
const FIND_COORDINATOR: i16 = 10;
const INIT_PRODUCER: i16 = 22;
const ADD_PARTITIONS: i16 = 24;
const END: i16 = 26;

fn broker(fault: Option<Faults>, beside: Option<FaultsBeside>) -> Broker {
    Broker::guarded(Guard::default(), State::new(fault, beside))
}

fn exactly_once(broker: &Broker, least: u64) -> Kafka {
    let settings = Settings {
        delivery: Delivery::ExactlyOnce,
        compression: Compression::Zstd,
        ..settings(vec![broker.address.to_string()])
    };
    Kafka::new(settings, ("00ff", 4), least)
}

/// Checks what a consumer of committed records reads.
fn check(world: &World, broker: &Broker, what: &str) {
    let state = broker.state.lock().unwrap();
    let stored = state.committed("logs").into_values().flatten().collect::<Vec<_>>();
    let found = numbers(world, &stored);
    assert!(found.iter().copied().eq(0..world.lines.len()), "{what}: {found:?}");
    let progress = state.committed("logs-progress").remove(&0).unwrap();
    let last = progress.last().unwrap();
    assert_eq!(last.key.as_deref(), Some(&b"00ff/4"[..]), "{what}");
    let value = String::from_utf8_lossy(&last.value);
    assert!(value.starts_with(&format!("{} ", world.lines.len())), "{what}: {value}");
}

/// Ships until all is committed, with the pauses that the lane wants.
fn complete(lane: &mut Lane<Kafka>) {
    for _ in 0..5000 {
        match lane.turn(std::time::Duration::from_millis(20)) {
            Turn::Idle => return lane.keep(std::time::Duration::ZERO),
            Turn::Failed(pause) => thread::sleep(pause.min(std::time::Duration::from_millis(5))),
            Turn::Worked | Turn::Waits => {}
        }
    }
    panic!("it is never done");
}

/// Writes and ships, with a restart after each of some writes: at once, or with a turn in between.
fn run(broker: &Broker, restarts: &[usize]) -> (World, u64) {
    let mut world = World::new(3);
    let mut lane = world.lane(exactly_once(broker, 0));
    for number in 0..WRITES {
        world.write();
        if restarts.contains(&number) {
            // The cursor is what it was when it was kept last.
            lane = world.lane(exactly_once(broker, 0));
        }
        lane.turn(std::time::Duration::from_millis(5));
    }
    complete(&mut lane);
    let errors = world.progress().troubles.count();
    (world, errors)
}

#[test]
fn each_line_is_committed_once_whichever_request_fails() {
    let cases: [(&str, Option<Faults>, Option<FaultsBeside>); 14] = [
        ("a lost batch", Some(|number| recurring((11, 4), number, Fault::Before)), None),
        ("a lost answer", Some(|number| recurring((13, 5), number, Fault::After)), None),
        // NOT_ENOUGH_REPLICAS, NOT_LEADER_OR_FOLLOWER
        ("no replicas", Some(|number| recurring((9, 3), number, Fault::Refuse(19))), None),
        ("no leader", Some(|number| recurring((10, 7), number, Fault::Refuse(6))), None),
        // UNKNOWN_PRODUCER_ID
        ("forgotten", Some(|number| recurring((14, 6), number, Fault::Forget(59))), None),
        (
            "a lost end",
            None,
            Some(|key, number| lose(key == END && number % 3 == 1, Fault::Before)),
        ),
        ("its answer", None, Some(|key, number| lose(key == END && number % 3 == 1, Fault::After))),
        // CONCURRENT_TRANSACTIONS, NOT_COORDINATOR, INVALID_PRODUCER_EPOCH
        (
            "too early",
            None,
            Some(|key, number| lose(key == END && number % 2 == 1, Fault::Refuse(51))),
        ),
        ("moved", None, Some(|key, number| lose(key == END && number % 3 == 1, Fault::Refuse(16)))),
        (
            "fenced",
            None,
            Some(|key, number| lose(key == END && number % 3 == 1, Fault::Refuse(47))),
        ),
        (
            "a lost begin",
            None,
            Some(|key, number| lose(key == ADD_PARTITIONS && number % 4 == 2, Fault::After)),
        ),
        (
            "no begin",
            None,
            Some(|key, number| lose(key == ADD_PARTITIONS && number % 4 == 2, Fault::Refuse(48))),
        ),
        (
            "no start",
            None,
            Some(|key, number| {
                let is_start = [INIT_PRODUCER, FIND_COORDINATOR].contains(&key);
                // COORDINATOR_NOT_AVAILABLE is waited for.
                lose(is_start && number == 1, Fault::Refuse(15))
            }),
        ),
        (
            "no progress",
            None,
            Some(|key, number| {
                let is_lost = [LIST_OFFSETS, FETCH, END].contains(&key);
                lose(is_lost && number % 3 == 1, Fault::Before)
            }),
        ),
    ];
    for (place, (what, fault, beside)) in cases.into_iter().enumerate() {
        let broker = broker(fault, beside);
        let restarts = if place % 2 == 0 { &[][..] } else { &[10, 11, 20] };
        let (world, errors) = run(&broker, restarts);
        check(&world, &broker, what);
        let is_waited_for = ["too early", "no start"].contains(&what);
        assert_eq!(errors > 0, !is_waited_for, "{what}");
    }
}

/// A fault of each so many requests. It ends: on a fast machine a transaction has so many batches that each attempt at
/// it would have one of them.
fn recurring((every, at): (u64, u64), number: u64, fault: Fault) -> Option<Fault> {
    lose(number % every == at && number < 150, fault)
}

fn lose(is_lost: bool, fault: Fault) -> Option<Fault> {
    is_lost.then_some(fault)
}

/// Each commit may be the last of a daemon that is killed, before the cursor has it.
#[test]
fn a_restart_goes_on_where_the_progress_topic_says() {
    let broker = broker(None, None);
    let all: Vec<usize> = (1..WRITES).collect();
    let (mut world, errors) = run(&broker, &all);
    check(&world, &broker, "restarts");
    assert_eq!(errors, 0);
    let requests = broker.state.lock().unwrap().requests[&INIT_PRODUCER];
    assert!(requests > 10, "{requests}");
    // Also without a cursor and with packed segments: everything is committed already, and nothing is sent.
    world.restart();
    world.pack_all();
    let batches = || broker.state.lock().unwrap().requests[&0];
    let before = batches();
    std::fs::remove_file(world.directory.path().join("ship.cursor")).unwrap();
    complete(&mut world.lane(exactly_once(&broker, 0)));
    assert_eq!((batches(), world.progress().acknowledged()), (before, world.lines.len() as u64));
    assert_eq!(world.progress().troubles.count(), 0);
}

/// The first half used to be taken for what was known before, so the lane was not told.
#[test]
fn progress_that_is_read_in_two_halves_is_believed() {
    let broker = broker(None, Some(|key, number| lose(key == FETCH && number == 2, Fault::Before)));
    let mut world = World::new(5);
    let mut lane = world.lane(exactly_once(&broker, 0));
    for _ in 0..5 {
        world.write();
        complete(&mut lane);
    }
    std::fs::remove_file(world.directory.path().join("ship.cursor")).unwrap();
    lane = world.lane(exactly_once(&broker, 0));
    complete(&mut lane);
    check(&world, &broker, "two halves");
    assert_eq!(world.progress().troubles.count(), 1);
}

/// A daemon that hangs, and goes on after another took over, commits nothing any more.
#[test]
fn who_had_the_stream_before_is_fenced() {
    let broker = broker(None, None);
    let mut world = World::new(5);
    let mut lanes = [world.lane(exactly_once(&broker, 0)), world.lane(exactly_once(&broker, 0))];
    for number in 0..40 {
        world.write();
        // Neither knows of the other; each finds out by an error.
        let _ = lanes[number / 4 % 2].turn(std::time::Duration::from_millis(2));
    }
    let errors = world.progress().troubles.count();
    assert!(errors > 0);
    for lane in &mut lanes {
        complete(lane);
    }
    check(&world, &broker, "two");
}

/// Lines that were shipped without transactions are not sent again, whatever an older record of progress says.
#[test]
fn a_stream_goes_on_where_it_was_shipped_without_transactions() {
    let broker = broker(None, None);
    let mut world = World::new(5);
    (0..5).for_each(|_| world.write());
    complete(&mut world.lane(exactly_once(&broker, 0)));
    let first = world.lines.len();
    (0..5).for_each(|_| world.write());
    finish(&mut world.lane(kafka(vec![broker.address.to_string()])));
    let second = world.lines.len() as u64;
    (0..5).for_each(|_| world.write());
    complete(&mut world.lane(exactly_once(&broker, second)));
    check(&world, &broker, "both ways");
    assert!(first > 0 && second as usize > first);
}

/// Other streams share the progress topic, some of them with open and aborted transactions.
#[test]
fn the_progress_of_other_streams_is_left_out() {
    let broker = broker(None, None);
    let other = |stream| {
        let settings = Settings {
            delivery: Delivery::ExactlyOnce,
            ..settings(vec![broker.address.to_string()])
        };
        Kafka::new(settings, ("00fe", stream), 0)
    };
    let mut world = World::new(5);
    let mut elsewhere = World::new(6);
    for number in 0..20 {
        world.write();
        elsewhere.write();
        let mut lane = elsewhere.lane(other(number % 3));
        lane.turn(std::time::Duration::from_millis(2));
        drop(lane);
        let mut lane = world.lane(exactly_once(&broker, 0));
        complete(&mut lane);
    }
    let state = broker.state.lock().unwrap();
    let stored = state.committed("logs").into_values().flatten();
    let own = |stored: &Stored| stored.headers[0].1 == "00ff";
    let found = numbers(&world, &stored.filter(own).collect::<Vec<_>>());
    assert!(found.iter().copied().eq(0..world.lines.len()), "{found:?}");
}

/// The progress topic was made anew, or lost records: what is in memory says where to go on.
#[test]
fn a_progress_topic_that_is_empty_is_read_from_its_start() {
    let broker = broker(None, Some(|key, number| lose(key == END && number == 3, Fault::Before)));
    let mut world = World::new(5);
    let mut lane = world.lane(exactly_once(&broker, 0));
    for number in 0..3 {
        world.write();
        if number == 2 {
            let mut state = broker.state.lock().unwrap();
            state.logs.get_mut(&("logs-progress".to_owned(), 0)).unwrap().clear();
        }
        complete(&mut lane);
    }
    check(&world, &broker, "cleared");
    assert_eq!(world.progress().troubles.count(), 1);
}

/// A directory of which everything is committed.
fn committed(broker: &Broker) -> World {
    let mut world = World::new(5);
    (0..9).for_each(|_| world.write());
    complete(&mut world.lane(exactly_once(broker, 0)));
    world
}

/// The directory was emptied, and its numbers began again under the same name.
#[test]
fn progress_beyond_what_is_stored_is_told() {
    let broker = broker(None, None);
    let world = committed(&broker);
    let mut emptied = World::new(6);
    emptied.write();
    let mut lane = emptied.lane(exactly_once(&broker, 0));
    lane.turn(std::time::Duration::ZERO);
    let told = emptied.progress().troubles.last();
    let (lines, own) = (world.lines.len(), emptied.lines.len());
    let expected = format!("the destination has {lines} lines of stream 0, and {own} are stored");
    assert!(
        told.contains(&expected) && told.contains("remove ship.cursor and directory.id"),
        "{told}"
    );
    // Lines that come later have numbers that the destination knows, and are others.
    while emptied.lines.len() <= lines {
        emptied.write();
    }
    refuses(&emptied, &mut lane);
}

/// Checks that nothing is shipped, however often it is tried.
fn refuses(world: &World, lane: &mut Lane<Kafka>) {
    for _ in 0..3 {
        assert!(matches!(lane.turn(std::time::Duration::ZERO), Turn::Failed(_)));
    }
    assert_eq!(world.progress().shipped_lines.load(Ordering::Relaxed), 0);
}

/// It was restored from a backup, and has grown beyond what is committed before a restart. Or it is a copy, and both are
/// used. The lines up to the committed number used to be left out.
#[test]
fn other_lines_with_the_numbers_of_committed_ones_are_told() {
    let broker = broker(None, None);
    let mut world = committed(&broker);
    let lines = world.lines.len();
    let mut restored = World::new(6);
    while restored.lines.len() <= lines {
        restored.write();
    }
    let mut lane = restored.lane(exactly_once(&broker, 0));
    refuses(&restored, &mut lane);
    let told = restored.progress().troubles.last();
    let expected = format!(
        "the destination has {lines} lines of stream 0, and its line {} is not the one here",
        lines - 1
    );
    assert!(told.contains(&expected), "{told}");
    // The first directory goes on.
    world.write();
    complete(&mut world.lane(exactly_once(&broker, 0)));
    check(&world, &broker, "the first directory");
}

/// Retention has removed the last committed line, so that there is nothing to compare with.
#[test]
fn a_stream_without_its_last_committed_line_goes_on() {
    let broker = broker(None, None);
    let mut world = committed(&broker);
    world.restart();
    let before = streams(world.directory.path()).unwrap().remove(&STREAM).unwrap();
    world.write();
    for serial in before {
        for part in [Part::Data, Part::Index] {
            std::fs::remove_file(world.directory.path().join(STREAM.file(serial, part))).unwrap();
        }
    }
    complete(&mut world.lane(exactly_once(&broker, 0)));
    check(&world, &broker, "after retention");
}
