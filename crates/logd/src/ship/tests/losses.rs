//! Lines are gone, damaged or cannot be read for a while, at the end of a stream above all.
//!
//! A line that will not come is told and passed. A line that may still come is waited for.

use std::{ops::Range, path::Path, sync::atomic::Ordering, thread};

use super::*;

const BATCHES: [&[u8]; 3] = [b"1\n2\n", b"3\n", b"4\n5\n"];
const LINES: u64 = 5;

fn path(directory: &Path, part: Part) -> std::path::PathBuf {
    directory.join(STREAM.file(0, part))
}

/// Stores three batches in one segment.
fn store(directory: &Path, is_sealed: bool) {
    let batches = BATCHES.map(<[u8]>::to_vec);
    std::fs::write(path(directory, Part::Data), batches.concat()).unwrap();
    std::fs::write(path(directory, Part::Index), index_of(&batches, true, is_sealed)).unwrap();
}

/// Changes a byte of a file.
fn spoil(directory: &Path, part: Part, offset: usize) {
    let path = path(directory, part);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[offset] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

/// Reads until the line, for at most ten seconds. Returns what was read, what was missing (the first line and the one
/// after the last), and the count of errors.
fn follow(directory: &Path, until: u64) -> (Vec<u8>, Vec<(u64, u64)>, u32) {
    let mut follower = Follower::new(directory, STREAM, 0);
    let (mut read, mut missing, mut errors) = (Vec::new(), Vec::<(u64, u64)>::new(), 0);
    let since = Instant::now();
    while follower.next_line() < until {
        assert!(since.elapsed() < Duration::from_secs(10), "line {}", follower.next_line());
        match follower.next(until) {
            Ok(Some(Found::Lines(piece))) => read.extend(piece.bytes),
            Ok(Some(Found::Missing(lines))) => match missing.last_mut() {
                Some((_, end)) if *end == lines.start => *end = lines.end,
                _ => missing.push((lines.start, lines.end)),
            },
            Ok(None) => thread::sleep(Duration::from_millis(20)),
            Err(_) => {
                errors += 1;
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
    (read, missing, errors)
}

/// What is wrong with a segment after which there is no other, and which lines are missing then.
#[test]
fn lines_that_are_gone_at_the_end_of_a_stream_are_reported() {
    type Spoil = fn(&Path);
    let cases: [(&str, bool, Spoil, Range<u64>); 7] = [
        ("the file is removed", true, |at| drop(std::fs::remove_file(path(at, Part::Data))), 0..5),
        ("it was never sealed", false, |at| drop(std::fs::remove_file(path(at, Part::Data))), 0..5),
        ("the last batch", true, |at| spoil(at, Part::Data, 6), 3..5),
        ("an entry", true, |at| spoil(at, Part::Index, 2 * ENTRY_BYTES), 2..3),
        ("the last entry", true, |at| spoil(at, Part::Index, 3 * ENTRY_BYTES), 3..5),
        ("an entry before the open end", false, |at| spoil(at, Part::Index, 2 * ENTRY_BYTES), 2..3),
        ("the last entry, open", false, |at| spoil(at, Part::Index, 3 * ENTRY_BYTES), 3..5),
    ];
    for (what, is_sealed, spoil, lost) in cases {
        let directory = tempfile::tempdir().unwrap();
        store(directory.path(), is_sealed);
        spoil(directory.path());
        let (read, missing, errors) = follow(directory.path(), LINES);
        assert_eq!((missing, errors), (vec![(lost.start, lost.end)], 0), "{what}");
        let is_there = |line: &u64| !lost.contains(line);
        let left: String =
            (0..LINES).filter(is_there).map(|line| format!("{}\n", line + 1)).collect();
        assert_eq!(String::from_utf8(read).unwrap(), left, "{what}");
    }
}

/// The new segment has no batch yet, and retention removed the one before.
#[test]
fn lines_before_an_empty_segment_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let head = Entry { first_line: 5, ..Entry::new(Kind::Head) };
    std::fs::write(path(directory.path(), Part::Index), head.encode()).unwrap();
    std::fs::write(path(directory.path(), Part::Data), "").unwrap();
    let since = Instant::now();
    assert_eq!(follow(directory.path(), LINES), (Vec::new(), vec![(0, 5)], 0));
    assert!(since.elapsed() < Duration::from_millis(900), "the head says so");
}

/// A thread may write the same block at this moment. Elsewhere the batch does not come.
#[test]
fn a_damaged_batch_is_tried_again_only_where_it_is_written() {
    for (is_sealed, tries) in [(true, 0..1), (false, 4..20)] {
        let directory = tempfile::tempdir().unwrap();
        store(directory.path(), is_sealed);
        spoil(directory.path(), Part::Data, 6);
        let (read, missing, errors) = follow(directory.path(), LINES);
        assert_eq!((&*read, missing), (&b"1\n2\n3\n"[..], vec![(3, 5)]));
        assert!(tries.contains(&errors), "{errors}");
    }
}

/// The batch used to be passed, so its lines were reported as missing although they are good.
#[test]
fn after_an_error_the_same_batch_is_read() {
    let parent = tempfile::tempdir().unwrap();
    let (directory, elsewhere) = (parent.path().join("here"), parent.path().join("there"));
    std::fs::create_dir(&directory).unwrap();
    store(&directory, false);
    let mut follower = Follower::new(&directory, STREAM, 0);
    assert!(matches!(follower.next(LINES), Ok(Some(Found::Lines(piece))) if piece.first_line == 0));
    spoil(&directory, Part::Data, 4);
    // The directory cannot be listed.
    std::fs::rename(&directory, &elsewhere).unwrap();
    let error = follower.next(LINES).unwrap_err().to_string();
    assert!(error.contains("here"), "{error}");
    spoil(&elsewhere, Part::Data, 4);
    std::fs::rename(&elsewhere, &directory).unwrap();
    for first_line in [2, 3] {
        let found = follower.next(LINES).unwrap();
        assert!(
            matches!(&found, Some(Found::Lines(piece)) if piece.first_line == first_line),
            "{found:?}"
        );
    }
}

/// Ships until all is acknowledged or lost, with the pauses that the lane wants.
fn ship(world: &World) -> (u64, u64) {
    let store = Rc::new(RefCell::new(Store::default()));
    let memory = Memory { store: store.clone(), in_flight: VecDeque::new(), faults: None };
    let mut lane = world.lane(memory);
    let since = Instant::now();
    while !lane.is_done() {
        assert!(since.elapsed() < Duration::from_secs(20), "it is never done");
        if let Turn::Failed(pause) = lane.turn(Duration::ZERO) {
            thread::sleep(pause);
        }
    }
    lane.keep(Duration::ZERO);
    let (progress, all) = (world.progress(), world.lines.len() as u64);
    assert_eq!((progress.acknowledged(), progress.kept(), progress.lag_bytes()), (all, all, 0));
    assert!(world.streams.have_shipped_start());
    let lost = progress.lost_lines.load(Ordering::Relaxed);
    assert_eq!(lost + store.borrow().lines.len() as u64, all);
    (lost, progress.troubles.count())
}

fn last_data(world: &World) -> std::path::PathBuf {
    let serials = streams(world.directory.path()).unwrap().remove(&STREAM).unwrap();
    world.directory.path().join(STREAM.file(*serials.last().unwrap(), Part::Data))
}

/// The lag used to stay, so each stop took the whole time, and clients with names were refused for ever.
#[test]
fn a_stream_whose_end_is_gone_is_shipped() {
    let mut world = World::new(4);
    (0..10).for_each(|_| world.write());
    world.storage.seal();
    world.seal_ended();
    std::fs::remove_file(last_data(&world)).unwrap();
    world.restart();
    let (lost, _) = ship(&world);
    assert!(lost > 0);
}

#[test]
fn a_batch_that_stays_damaged_is_told_and_passed() {
    let mut world = World::new(6);
    (0..10).for_each(|_| world.write());
    let file = File::options().read(true).write(true).open(last_data(&world)).unwrap();
    // The first byte of the segment's first batch, which another batch may follow.
    file.write_all_at(b"#", 0).unwrap();
    let (lost, errors) = ship(&world);
    assert!(lost > 0 && errors >= 4, "{lost} lost, {errors} errors");
}
