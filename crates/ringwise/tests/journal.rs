//! Journals on every backend: what was acknowledged is there, what was not disturbs nobody, and damage is told.
//!
//! RINGWISE_SEEDS: how many programs with crashes are run (200 unless set); RINGWISE_SEED: the first of them.

#[path = "journal/crashes.rs"]
mod crashes;
#[path = "shared/rings.rs"]
mod rings;

use std::{
    future::Future,
    path::PathBuf,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use futures::{
    executor::block_on,
    future::{join, join_all},
};
use rings::{Place, places, real_places, simulated};
use ringwise::{
    Error, ErrorKind, Opcode, Operation, Ring,
    fs::{Journal, JournalOptions, Recovery, create_dir, read_dir, remove_file},
    sim::{Fault, Simulation, When},
};

const NAME: &str = "journal";

fn small() -> JournalOptions {
    JournalOptions::default().segment_bytes(400)
}

async fn open(place: &Place, options: JournalOptions) -> (Journal, Recovery) {
    Journal::open(&place.ring, place.path(NAME), options).await.unwrap()
}

/// A new journal.
async fn create(place: &Place, options: JournalOptions) -> Journal {
    create_dir(&place.ring, place.path(NAME)).await.unwrap();
    let (journal, recovery) = open(place, options).await;
    assert_eq!((recovery.records, recovery.torn), (0..0, None));
    journal
}

async fn read_all(journal: &Journal, start: u64) -> Vec<(u64, Vec<u8>)> {
    let mut records = journal.records(start);
    let mut found = Vec::new();
    while let Some(record) = records.next_record().await.unwrap() {
        found.push((record.number, record.bytes));
    }
    found
}

fn record(number: usize) -> Vec<u8> {
    format!("{number}:{}", "x".repeat(number % 90)).into_bytes()
}

/// The names in its directory, sorted.
async fn names(place: &Place) -> Vec<String> {
    let mut names = read_dir(&place.ring, place.path(NAME)).await.unwrap();
    let mut found = Vec::new();
    while let Some(entry) = names.next_entry().await.unwrap() {
        found.push(format!("{NAME}/{}", entry.file_name().display()));
    }
    found.sort();
    found
}

/// Polls a future once, and drops it.
fn begin_and_drop(future: impl Future) {
    let mut future = pin!(future);
    let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

#[test]
fn what_many_tasks_append_is_read_back_in_order() {
    const TASKS: usize = 20;
    for place in places() {
        block_on(async {
            let journal = create(&place, small()).await;
            let tasks = (0..TASKS).map(|task| {
                let journal = journal.clone();
                async move {
                    let mut told = Vec::new();
                    for turn in 0..10 {
                        let record = record(task + TASKS * turn);
                        told.push((journal.append(&record).await.unwrap(), record));
                    }
                    assert!(told.is_sorted(), "one after the other");
                    told
                }
            });
            let mut told = join_all(tasks).await.concat();
            told.sort();
            assert_eq!(read_all(&journal, 0).await, told, "{}", place.name);
            journal.close().await.unwrap();
            let (journal, recovery) = open(&place, small()).await;
            assert_eq!((recovery.records, recovery.torn), (0..told.len() as u64, None));
            assert_eq!(read_all(&journal, 0).await, told, "{}", place.name);
            assert_eq!(read_all(&journal, 150).await, told[150..], "{}", place.name);
            assert!(names(&place).await.len() >= 5, "{}: {:?}", place.name, names(&place).await);
            assert_eq!(journal.append("next").await.unwrap(), told.len() as u64);
        });
    }
}

#[test]
fn tasks_of_several_threads_are_told() {
    for place in places() {
        let journal = block_on(create(&place, small().gathered_bytes(200)));
        std::thread::scope(|scope| {
            for thread in 0..6 {
                let journal = &journal;
                scope.spawn(move || {
                    for turn in 0..30 {
                        let record = record(thread + 6 * turn);
                        if turn % 4 == 3 {
                            begin_and_drop(journal.append(record));
                        } else {
                            block_on(journal.append(record)).unwrap();
                        }
                    }
                });
            }
        });
        block_on(journal.settled()).unwrap();
        let found = block_on(read_all(&journal, 0));
        let mut found: Vec<_> = found.into_iter().map(|(_, bytes)| bytes).collect();
        found.sort();
        assert!(found.windows(2).all(|two| two[0] != two[1]), "{}: one twice", place.name);
        let is_kept = |number: &usize| (number / 6) % 4 != 3;
        assert!((0..180).filter(is_kept).all(|number| found.contains(&record(number))));
        assert!(found.iter().all(|found| (0..180).any(|number| record(number) == *found)));
    }
}

#[test]
fn a_dropped_append_is_stored_whole_or_not_at_all_and_stops_nobody() {
    for place in places() {
        block_on(async {
            let journal = create(&place, JournalOptions::default()).await;
            begin_and_drop(journal.append("begun"));
            begin_and_drop(journal.append("gathered"));
            drop(journal.append("never polled"));
            // One that nobody looks at any more, but is not dropped.
            let mut forgotten = Box::pin(journal.append("forgotten"));
            let early = forgotten.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(journal.append("awaited").await.unwrap(), 3);
            let found = read_all(&journal, 0).await.into_iter().map(|(_, bytes)| bytes);
            let expected = ["begun", "gathered", "forgotten", "awaited"].map(Vec::from);
            assert_eq!(found.collect::<Vec<_>>(), expected, "{}", place.name);
            let told = if early.is_pending() { forgotten.await } else { Ok(2) };
            assert_eq!(told.unwrap(), 2);
        });
    }
}

/// What a journal was given is written, though nobody holds it.
#[test]
fn a_dropped_journal_finishes_its_work() {
    for place in real_places() {
        block_on(async {
            let journal = create(&place, JournalOptions::default()).await;
            for number in 0..10 {
                begin_and_drop(journal.append(record(number)));
            }
            drop(journal);
            let (journal, _) = open(&place, small()).await;
            assert_eq!(read_all(&journal, 0).await.len(), 10, "{}", place.name);
        });
    }
}

/// It was `Busy` for as long as the dropped journal wrote, and a moment longer.
#[test]
fn a_journal_is_opened_again_right_after_a_drop() {
    for place in real_places() {
        block_on(async {
            let mut journal = create(&place, JournalOptions::default()).await;
            for turn in 0..10_u8 {
                assert_eq!(journal.append([turn]).await.unwrap(), 2 * u64::from(turn));
                // This takes longer than an opening.
                begin_and_drop(journal.append(vec![turn; 2 << 20]));
                drop(journal);
                let recovery;
                (journal, recovery) = open(&place, JournalOptions::default()).await;
                assert_eq!(recovery.records.end, 2 * u64::from(turn) + 2, "{}", place.name);
            }
        });
    }
}

/// Whoever has the directory may be closing it.
#[test]
fn an_opening_waits_for_the_end_of_another_journal() {
    for place in places() {
        block_on(async {
            let journal = create(&place, small()).await;
            journal.append("first").await.unwrap();
            let close = async {
                let pause = place.ring.submit(Operation::timeout(Duration::from_millis(100)));
                pause.await.result().unwrap();
                journal.close().await.unwrap();
            };
            let ((journal, recovery), ()) = join(open(&place, small()), close).await;
            assert_eq!(recovery.records, 0..1, "{}", place.name);
            journal.close().await.unwrap();
        });
    }
}

#[test]
fn a_directory_has_one_journal() {
    for place in places() {
        block_on(async {
            let journal = create(&place, small()).await;
            let other = Journal::open(&place.ring, place.path(NAME), small()).await;
            let error = other.unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::Busy, Some(&*place.path(NAME))));
            journal.append("still here").await.unwrap();
            journal.close().await.unwrap();
            let (journal, _) = open(&place, small()).await;
            assert_eq!(read_all(&journal, 0).await.len(), 1);
        });
    }
}

/// The directory may be another journal's by then.
#[test]
fn a_clone_of_a_closed_journal_removes_nothing() {
    for place in places() {
        block_on(async {
            let journal = create(&place, small()).await;
            for number in 0..20 {
                journal.append(vec![number; 100]).await.unwrap();
            }
            let clone = journal.clone();
            journal.close().await.unwrap();
            let (journal, recovery) = open(&place, small()).await;
            let refused = clone.remove_before(u64::MAX).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ShutDown, "{}: {refused}", place.name);
            assert_eq!(read_all(&journal, 0).await.len(), 20);
            assert_eq!(recovery.records, 0..20);
        });
    }
}

/// It went on while the directory was another journal's.
#[test]
fn a_removal_that_was_dropped_keeps_the_lock_until_its_end() {
    for seed in 0..20 {
        let delay = When::always().of(Opcode::Unlink);
        let machine = Simulation::new(seed);
        let place = simulated(&machine);
        block_on(async {
            let journal = create(&place, small()).await;
            for number in 0..20 {
                journal.append(vec![number; 100]).await.unwrap();
            }
            machine.inject(Fault::Delay, delay);
            let clone = journal.clone();
            begin_and_drop(clone.remove_before(10));
            journal.close().await.unwrap();
            let (journal, recovery) = open(&place, small()).await;
            assert!(recovery.records.start > 0, "the first segment was removed before");
            assert_eq!(read_all(&journal, 0).await[0].0, recovery.records.start);
        });
    }
}

#[test]
fn old_segments_are_removed_and_the_rest_is_numbered_on() {
    for place in places() {
        block_on(async {
            let journal = create(&place, small()).await;
            for number in 0..40 {
                journal.append(vec![number; 100]).await.unwrap();
            }
            let before = names(&place).await.len();
            journal.remove_before(0).await.unwrap();
            assert_eq!(names(&place).await.len(), before);
            journal.remove_before(20).await.unwrap();
            let left = read_all(&journal, 0).await;
            let first = left[0].0;
            assert!((18..=20).contains(&first), "{}: {first}", place.name);
            assert_eq!(left.len() as u64, 40 - first);
            journal.remove_before(u64::MAX).await.unwrap();
            assert_eq!(names(&place).await.len(), 1, "the last stays");
            journal.close().await.unwrap();
            let (journal, recovery) = open(&place, small()).await;
            assert_eq!(recovery.records.end, 40);
            assert_eq!(journal.append("more").await.unwrap(), 40);
        });
    }
}

#[test]
fn long_records_and_empty_ones() {
    for place in places() {
        block_on(async {
            let journal = create(&place, small().gathered_bytes(0)).await;
            let records = [vec![], vec![7; 1 << 20], vec![], vec![8; 300 << 10]];
            let appends = join_all(records.iter().map(|record| journal.append(record)));
            for (number, told) in appends.await.into_iter().enumerate() {
                assert_eq!(told.unwrap(), number as u64);
            }
            journal.close().await.unwrap();
            let (journal, _) = open(&place, small()).await;
            let found = read_all(&journal, 0).await.into_iter().map(|(_, bytes)| bytes);
            assert!(found.eq(records), "{}", place.name);
        });
    }
}

/// A segment that no record was written to is replaced, and leftovers are removed.
#[test]
fn an_opening_without_appends_leaves_nothing() {
    for place in places() {
        block_on(async {
            let journal = create(&place, small()).await;
            journal.append("first").await.unwrap();
            journal.close().await.unwrap();
            place.write("journal/unfinished.segment", b"half a head");
            place.write("journal/notes.txt", b"not a segment");
            for _ in 0..3 {
                drop(open(&place, small()).await);
            }
            assert_eq!(names(&place).await.len(), 2, "{:?}", names(&place).await);
            let (journal, _) = open(&place, small()).await;
            journal.append("second").await.unwrap();
            assert_eq!(read_all(&journal, 0).await.len(), 2);
        });
    }
}

/// A journal of three commits in a segment, and the segment's name and bytes.
async fn three_commits(place: &Place) -> (String, Vec<u8>) {
    let journal = create(place, JournalOptions::default()).await;
    for number in 0..3_u8 {
        journal.append([number; 50]).await.unwrap();
    }
    journal.close().await.unwrap();
    let segment = names(place).await.pop().unwrap();
    let bytes = place.read(&segment);
    (segment, bytes)
}

#[test]
fn a_torn_end_is_cut_and_told() {
    for place in places() {
        block_on(async {
            let (segment, bytes) = three_commits(&place).await;
            let len = (bytes.len() - 28) / 3;
            for cut in [1, 30, len - 1, len] {
                let kept = bytes.len() - cut;
                place.write(&segment, &bytes[..kept]);
                let (journal, recovery) = open(&place, small()).await;
                let end = bytes.len() - len;
                assert_eq!(recovery.records, 0..2, "{}: {cut}", place.name);
                assert_eq!(place.read(&segment).len(), end);
                match recovery.torn {
                    None => assert_eq!(cut, len),
                    Some(torn) => {
                        assert_eq!(torn.path, place.path(&segment));
                        assert_eq!((torn.offset, torn.bytes), (end as u64, (kept - end) as u64));
                    }
                }
                assert_eq!(read_all(&journal, 0).await.len(), 2);
                journal.close().await.unwrap();
            }
        });
    }
}

#[test]
fn damage_that_is_no_torn_end_is_an_error_with_its_place() {
    for place in places() {
        block_on(async {
            let (segment, bytes) = three_commits(&place).await;
            let path: PathBuf = place.path(&segment);
            let len = (bytes.len() - 28) / 3;
            for (at, frame) in
                [(0, 0), (20, 0), (29, 28), (28 + len - 1, 28), (28 + len + 14, 28 + len)]
            {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x10;
                place.write(&segment, &damaged);
                let error =
                    Journal::open(&place.ring, place.path(NAME), small()).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{}: {error}", place.name);
                assert_eq!((error.path(), error.offset()), (Some(&*path), Some(frame as u64)));
                assert_eq!(place.read(&segment), damaged, "nothing was cut");
            }
            // A commit that is missing within a segment.
            let missing = [&bytes[..28 + len], &bytes[28 + 2 * len..]].concat();
            place.write(&segment, &missing);
            let opened = Journal::open(&place.ring, place.path(NAME), small()).await;
            assert_eq!(opened.unwrap_err().offset(), Some((28 + len) as u64));
        });
    }
}

#[test]
fn a_segment_before_the_last_may_not_be_torn() {
    for place in places() {
        block_on(async {
            let (segment, bytes) = three_commits(&place).await;
            let (journal, _) = open(&place, small()).await;
            journal.append("in another segment").await.unwrap();
            journal.close().await.unwrap();
            for cut in [5, (bytes.len() - 28) / 3] {
                place.write(&segment, &bytes[..bytes.len() - cut]);
                let (journal, recovery) = open(&place, small()).await;
                assert_eq!((recovery.records, recovery.torn), (0..4, None));
                let mut records = journal.records(0);
                let mut found = 0;
                let error = loop {
                    match records.next_record().await {
                        Ok(Some(_)) => found += 1,
                        Ok(None) => panic!("{}: {cut} bytes are missing", place.name),
                        Err(error) => break error,
                    }
                };
                assert_eq!((found, error.kind()), (2, ErrorKind::Corrupt), "{}", place.name);
                assert_eq!(error.path(), Some(&*place.path(&segment)));
                let again = records.next_record().await.unwrap_err();
                assert_eq!(again.offset(), error.offset(), "it is no end");
                assert_eq!(read_all(&journal, 3).await.len(), 1, "what follows can be read");
                journal.close().await.unwrap();
            }
        });
    }
}

/// Whatever is changed in its files: a journal gives a beginning of what was appended, or an error.
#[test]
fn random_damage_is_never_taken_for_records() {
    let simulation = Simulation::new(3);
    let place = simulated(&simulation);
    let mut random = fastrand::Rng::with_seed(3);
    let (told, files) = block_on(async {
        let journal = create(&place, small()).await;
        for number in 0..20 {
            journal.append(record(number)).await.unwrap();
        }
        let told = read_all(&journal, 0).await;
        let names = names(&place).await.into_iter();
        let files: Vec<_> = names.map(|name| (place.read(&name), name)).collect();
        (told, files)
    });
    let (mut whole, mut torn, mut damaged) = (0, 0, 0);
    for _ in 0..400 {
        block_on(async {
            for name in names(&place).await {
                remove_file(&place.ring, place.path(&name)).await.unwrap();
            }
        });
        for (bytes, name) in &files {
            place.write(name, bytes);
        }
        let (bytes, name) = &files[random.usize(..files.len())];
        place.write(name, &changed(bytes.clone(), &mut random));
        let opened = block_on(Journal::open(&place.ring, place.path(NAME), small()));
        let Ok((journal, recovery)) = opened else {
            assert_eq!(opened.unwrap_err().kind(), ErrorKind::Corrupt);
            damaged += 1;
            continue;
        };
        let (found, ended) = block_on(read_until_damage(&journal));
        assert!(told.starts_with(&found), "{found:?}");
        match ended {
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}"),
            Ok(()) => assert_eq!(found.len() as u64, recovery.records.end),
        }
        whole += usize::from(found == told);
        torn += usize::from(recovery.torn.is_some());
    }
    assert!(whole > 0 && torn > 0 && damaged > 0, "{whole}, {torn}, {damaged}");
}

/// Cuts it, lengthens it, moves a part of it or changes a byte.
fn changed(mut bytes: Vec<u8>, random: &mut fastrand::Rng) -> Vec<u8> {
    let (one, other) = (random.usize(..bytes.len()), random.usize(..bytes.len()));
    match random.u8(..4) {
        0 => bytes.truncate(one),
        1 => bytes.extend((0..random.usize(1..100)).map(|_| random.u8(..))),
        2 => bytes.copy_within(one.min(other)..one.max(other), one.min(other) / 2),
        _ => bytes[one] ^= random.u8(1..),
    }
    bytes
}

/// The records up to the first error, and that.
async fn read_until_damage(journal: &Journal) -> (Vec<(u64, Vec<u8>)>, Result<(), Error>) {
    let mut records = journal.records(0);
    let mut found = Vec::new();
    loop {
        match records.next_record().await {
            Ok(Some(record)) => found.push((record.number, record.bytes)),
            ended => return (found, ended.map(drop)),
        }
    }
}

#[test]
fn a_failed_commit_fails_the_journal_until_it_is_opened_again() {
    const LONG: u64 = 1 << 20;
    for (opcode, fault, segment_bytes) in [
        (Opcode::Sync, Fault::Io, LONG),
        (Opcode::Write, Fault::Io, LONG),
        (Opcode::Write, Fault::NoSpace, LONG),
        // What makes another segment.
        (Opcode::Open, Fault::NoSpace, 100),
        (Opcode::Write, Fault::NoSpace, 100),
        (Opcode::Sync, Fault::Io, 100),
        (Opcode::Rename, Fault::Io, 100),
    ] {
        let simulation = Simulation::new(1);
        block_on(fail(&simulation, (opcode, fault), segment_bytes));
        simulation.crash();
        let place = simulated(&simulation);
        block_on(async {
            let (journal, recovery) = open(&place, small()).await;
            let found = read_all(&journal, 0).await;
            assert_eq!(found.len() as u64, recovery.records.end);
            assert_eq!((&*found[0].1, &*found.last().unwrap().1), (&[1; 90][..], &[5; 90][..]));
        });
    }
}

async fn fail(simulation: &Simulation, (opcode, fault): (Opcode, Fault), segment_bytes: u64) {
    let place = simulated(simulation);
    let journal = create(&place, JournalOptions::default().segment_bytes(segment_bytes)).await;
    journal.append([1; 90]).await.unwrap();
    simulation.inject(fault, When::nth(1).of(opcode));
    let (first, second) = join(journal.append([2; 90]), journal.append([3; 90])).await;
    for error in [first.unwrap_err(), second.unwrap_err()] {
        assert_eq!(error.opcode(), opcode, "{error}");
        assert!(error.path().unwrap().starts_with(place.path(NAME)), "{error}");
        assert!(error.to_string().contains("open it again"), "{error}");
    }
    // The fault is over, but nobody knows what it lost.
    assert_eq!(journal.append([4; 90]).await.unwrap_err().opcode(), opcode);
    assert!(journal.settled().await.is_err());
    assert_eq!(read_all(&journal, 0).await.len(), 1, "what is durable can be read");
    assert!(journal.close().await.is_err());
    let (journal, recovery) = open(&place, small()).await;
    let end = recovery.records.end;
    assert!((1..=2).contains(&end), "{end}");
    assert_eq!(journal.append([5; 90]).await.unwrap(), end);
}

/// What a failed sync lost still reads as written. It is not passed on as durable.
#[test]
fn what_is_found_after_a_failed_sync_is_made_durable() {
    for seed in 0..50 {
        let simulation = Simulation::new(seed);
        let place = simulated(&simulation);
        let found = block_on(async {
            let journal = create(&place, JournalOptions::default()).await;
            journal.append([1; 3000]).await.unwrap();
            simulation.inject(Fault::Io, When::nth(1).of(Opcode::Sync));
            journal.append([2; 3000]).await.unwrap_err();
            assert!(journal.close().await.is_err());
            let (journal, _) = open(&place, small()).await;
            read_all(&journal, 0).await
        });
        simulation.crash();
        let place = simulated(&simulation);
        block_on(async {
            let (journal, _) = open(&place, small()).await;
            assert_eq!(read_all(&journal, 0).await, found, "{seed}\n{}", simulation.trace());
        });
    }
}

#[test]
fn a_ring_that_ends_fails_the_journal() {
    for place in places() {
        block_on(async {
            let journal = create(&place, small()).await;
            journal.append("durable").await.unwrap();
            place.ring.shutdown(Duration::from_secs(5)).await.unwrap();
            let error = journal.append("late").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ShutDown, "{}: {error}", place.name);
        });
    }
}

#[test]
fn its_futures_go_to_other_threads() {
    fn is_send<T: Send>(_: &T) {}
    fn check(ring: &Ring, journal: &Journal) {
        is_send(&Journal::open(ring, "", JournalOptions::default()));
        is_send(&journal.append(vec![1]));
        is_send(&journal.append("text"));
        is_send(&journal.settled());
        is_send(&journal.remove_before(0));
        is_send(&journal.records(0).next_record());
        is_send(journal);
    }
    let _ = check;
}
