//! One segment or a few, and a store that fails at a chosen request.

use std::{fs, sync::atomic::Ordering, time::Instant};

use super::{
    super::uploader::Uploader,
    faulty::{FAULTS, Fault},
    *,
};
use crate::{
    disk::segment::format::{
        entry::{ENTRY_BYTES, Entry},
        name::Content,
    },
    ship::destination::Trouble,
};

const FIRST: (Stream, u64) = (STREAM, 0);

/// The property: whichever request fails, and however, a segment has its record only when the store has its copy, and
/// the next attempts bring it there.
#[test]
fn whichever_request_fails_a_record_means_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let lines = write_sealed(directory, FIRST);
    let index = fs::read(directory.join(STREAM.file(0, Part::Index))).unwrap();
    let record = directory.join(STREAM.file(0, Part::Uploaded));
    let attempt = |store: &Arc<Faulty>, what: &str| {
        let (turn, _) = upload_one(directory, store);
        let is_right = has_copy(store, FIRST, &lines, &index);
        assert!(!record.exists() || is_right, "{what}: a record without a copy");
        assert_eq!(turn == Turn::Worked, record.exists(), "{what}: {turn:?}");
    };
    let store = Faulty::new();
    attempt(&store, "no fault");
    let requests = store.requests();
    assert!(requests > 13 && objects(&store).len() == 3, "{requests} requests");
    for fault in FAULTS {
        for place in 1..=requests {
            let what = format!("{fault:?} at {place}");
            fs::remove_file(&record).unwrap();
            let store = Faulty::new();
            store.fails(move |request, _| (request == place).then_some(fault));
            attempt(&store, &what);
            store.fails(|_, _| None);
            if !record.exists() {
                attempt(&store, &what);
            }
            assert!(record.exists(), "{what}: never uploaded");
            assert!(has_copy(&store, FIRST, &lines, &index), "{what}");
        }
    }
}

#[test]
fn a_store_that_always_fails_never_gets_a_record() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    write_sealed(directory, FIRST);
    for fault in FAULTS {
        let store = Faulty::new();
        store.fails(move |_, _| Some(fault));
        let mut work = work(directory, &store);
        work.uploads.found(vec![waiting(0)]);
        let mut pauses = Vec::new();
        for _ in 0..3 {
            let Turn::Failed(pause) = work.turn() else { panic!("{fault:?}: no failure") };
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [1, 2, 4], "{fault:?}");
        assert_eq!(recorded(directory), [], "{fault:?}");
        let uploads = work.uploads.clone();
        assert_eq!(uploads.troubles.count(), 3, "{fault:?}");
        assert!(uploads.troubles.is_away() && uploads.oldest_seconds() > 0, "{fault:?}");
        store.fails(|_, _| None);
        finish(&mut work);
        assert_eq!(recorded(directory), [FIRST]);
        assert!(!uploads.troubles.is_away() && uploads.waiting().is_empty());
        let bytes: u64 = objects(&store).values().sum();
        assert_eq!(uploads.bytes.load(Ordering::Relaxed), bytes);
        fs::remove_file(directory.join(STREAM.file(0, Part::Uploaded))).unwrap();
    }
}

/// A crash between the upload and the record: the copy is checked, and not made again.
#[test]
fn a_copy_without_a_record_is_only_checked() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    write_sealed(directory, FIRST);
    let store = Faulty::new();
    let blocked = directory.join("lines-000-0000000000.uploaded.part");
    fs::create_dir(&blocked).unwrap();
    let mut first = work(directory, &store);
    first.uploads.found(vec![waiting(0)]);
    assert!(matches!(first.turn(), Turn::Failed(_)));
    assert_eq!((objects(&store).len(), recorded(directory)), (3, vec![]));
    fs::remove_dir(&blocked).unwrap();
    let mut second = work(directory, &store);
    second.uploads.found(vec![waiting(0)]);
    let before = runtime().block_on(store.inner.head(&key(FIRST, Part::Packed))).unwrap();
    finish(&mut second);
    let after = runtime().block_on(store.inner.head(&key(FIRST, Part::Packed))).unwrap();
    assert_eq!(before.e_tag, after.e_tag, "it was written again");
    assert_eq!(recorded(directory), [FIRST]);
}

/// A full disk once made the daemon read the segment and its copy again for ever.
#[test]
fn a_record_that_cannot_be_written_is_tried_without_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    write_sealed(directory, FIRST);
    let name = STREAM.file(0, Part::Uploaded);
    let part = directory.join(format!("{}.part", name.display()));
    fs::create_dir(&part).unwrap();
    let store = Faulty::new();
    let mut work = work(directory, &store);
    work.uploads.found(vec![waiting(0)]);
    assert!(matches!(work.turn(), Turn::Failed(_)));
    let requests = store.requests();
    for _ in 0..3 {
        assert!(matches!(work.turn(), Turn::Failed(_)));
    }
    assert_eq!(recorded(directory), []);
    fs::remove_dir(&part).unwrap();
    assert_eq!(work.turn(), Turn::Worked);
    assert_eq!((recorded(directory), store.requests()), (vec![FIRST], requests));
}

#[test]
fn one_segment_that_always_fails_does_not_hold_up_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    (0..4).for_each(|serial| drop(write_sealed(directory, (STREAM, serial))));
    // This one is damaged: a line is another.
    let path = directory.join(STREAM.file(1, Part::Data));
    let mut damaged = fs::read(&path).unwrap();
    damaged[30] ^= 1;
    fs::write(&path, damaged).unwrap();
    let store = Faulty::new();
    store.fails(|_, key| key.as_ref().contains("0000000000").then_some(Fault::Before));
    let mut work = work(directory, &store);
    work.uploads.found((0..4).map(waiting).collect());
    for _ in 0..6 {
        work.turn();
    }
    assert_eq!(recorded(directory), [(STREAM, 2), (STREAM, 3)]);
    let mut of_damaged = objects(&store);
    of_damaged.retain(|key, _| key.contains("0000000001"));
    let names: Vec<_> = of_damaged.into_keys().collect();
    assert_eq!(names, ["lines-000-0000000001.claim"], "damage is no copy");
    store.fails(|_, _| None);
    finish(&mut work);
    assert_eq!(recorded(directory), [FIRST, (STREAM, 2), (STREAM, 3)]);
}

/// A directory was emptied, and kept its name. The old segments are still in the store, under the names of the new.
#[test]
fn a_copy_of_another_segment_is_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let store = Faulty::new();
    let upload = || upload_one(directory, &store).1.uploads.troubles.count();
    let old = write_sealed(directory, FIRST);
    let index = fs::read(directory.join(STREAM.file(0, Part::Index))).unwrap();
    assert_eq!((upload(), recorded(directory)), (0, vec![FIRST]));
    fs::remove_file(directory.join(STREAM.file(0, Part::Uploaded))).unwrap();
    // Of another millisecond.
    std::thread::sleep(Duration::from_millis(2));
    write_sealed(directory, FIRST);
    assert_eq!((upload(), recorded(directory)), (1, vec![]));
    assert!(has_copy(&store, FIRST, &old, &index));
}

/// A copy of a directory, which took other lines since, is uploaded between any two requests of the first, of which the
/// one before or the one after fails too: whichever of the two has a record has its copy in the store.
#[test]
fn two_directories_of_one_name_never_overwrite_each_other() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let directories = directories.each_ref().map(|directory| directory.path());
    let lines = [0, 1].map(|seed| write_sealed_of(directories[seed], FIRST, seed as u64));
    let store = Faulty::new();
    upload_one(directories[0], &store);
    let requests = store.requests();
    let mut winners = [0, 0];
    // One that hangs takes long, and is as one that fails before.
    let faults = FAULTS.into_iter().filter(|fault| *fault != Fault::Hangs);
    let faults = faults.flat_map(|fault| [(Some(fault), 1), (Some(fault), -1)]);
    for (fault, distance) in faults.chain([(None, 0)]) {
        for place in 1..=requests {
            for directory in directories {
                take_record(directory);
            }
            let store = Faulty::new();
            let (near, other) = (store.besides(), directories[1].to_owned());
            store.fails(move |request, _| {
                if request == place {
                    let (near, other) = (near.clone(), other.clone());
                    std::thread::spawn(move || drop(upload_one(&other, &near))).join().unwrap();
                }
                fault.filter(|_| request as i64 == place as i64 + distance)
            });
            upload_one(directories[0], &store);
            store.fails(|_, _| None);
            for turn in 0..2 {
                for (winner, directory) in directories.into_iter().enumerate() {
                    if take_record(directory) {
                        let index = fs::read(directory.join(STREAM.file(0, Part::Index))).unwrap();
                        let is_right = has_copy(&store, FIRST, &lines[winner], &index);
                        assert!(is_right, "{winner}: {fault:?} near {place}, turn {turn}");
                        winners[winner] += 1;
                    }
                    upload_one(directory, &store);
                }
            }
        }
    }
    assert!(winners.iter().all(|count| *count > 20), "{winners:?}");
}

/// Tries once to upload the first segment.
fn upload_one(directory: &Path, store: &Arc<Faulty>) -> (Turn, Work) {
    let mut work = work(directory, store);
    work.uploads.found(vec![waiting(0)]);
    (work.turn(), work)
}

/// Removes the record of the first segment. Returns whether there was one.
fn take_record(directory: &Path) -> bool {
    fs::remove_file(directory.join(STREAM.file(0, Part::Uploaded))).is_ok()
}

/// An earlier version wrote no claims.
#[test]
fn a_segment_without_a_claim_is_not_overwritten_though_its_index_is_read_wrongly() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let old = write_sealed(directory, FIRST);
    let index = fs::read(directory.join(STREAM.file(0, Part::Index))).unwrap();
    let store = Faulty::new();
    upload_one(directory, &store);
    assert!(take_record(directory));
    std::thread::sleep(Duration::from_millis(2));
    write_sealed(directory, FIRST);
    for fault in [None, Some(Fault::Smaller), Some(Fault::Cut)] {
        let claim = object_store::path::Path::from("lines-000-0000000000.claim");
        let _ = runtime().block_on(store.inner.delete(&claim));
        store.fails(move |_, key| fault.filter(|_| key.as_ref().ends_with(".index")));
        upload_one(directory, &store);
        assert!(!take_record(directory) && has_copy(&store, FIRST, &old, &index), "{fault:?}");
    }
}

/// A seal that could not be synced is written again, with another time.
#[test]
fn a_segment_that_was_sealed_again_still_has_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let lines = write_sealed(directory, FIRST);
    let path = directory.join(STREAM.file(0, Part::Index));
    let store = Faulty::new();
    upload_one(directory, &store);
    assert!(take_record(directory));
    let mut index = fs::read(&path).unwrap();
    let at = index.len() - ENTRY_BYTES;
    let seal = Entry::decode(&index[at..]).unwrap();
    let later = Entry { time_ms: seal.time_ms + 5, ..seal };
    index[at..].copy_from_slice(&later.encode());
    fs::write(&path, &index).unwrap();
    upload_one(directory, &store);
    assert!(take_record(directory) && has_copy(&store, FIRST, &lines, &index));
}

/// An object without a whole index is what a crash left, and is replaced.
#[test]
fn a_half_written_index_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let lines = write_sealed(directory, FIRST);
    let index = fs::read(directory.join(STREAM.file(0, Part::Index))).unwrap();
    for len in [0, 63, 64, index.len() - 64] {
        let store = Faulty::new();
        let half = index[..len].to_vec();
        runtime().block_on(store.inner.put(&key(FIRST, Part::Index), half.into())).unwrap();
        let mut work = work(directory, &store);
        work.uploads.found(vec![waiting(0)]);
        finish(&mut work);
        assert!(has_copy(&store, FIRST, &lines, &index), "{len} bytes");
        fs::remove_file(directory.join(STREAM.file(0, Part::Uploaded))).unwrap();
    }
}

#[test]
fn another_place_gets_all_segments_again() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let dead = Stream { content: Content::DeadLetters, number: 0 };
    write_sealed(directory, FIRST);
    write_sealed(directory, (dead, 0));
    let all = || vec![waiting(0), Waiting { segment: (dead, 0), ..waiting(0) }];
    let upload = |store: &Arc<Faulty>, place: &str| {
        let mut work = work_at(directory, store, place);
        work.uploads.found(all());
        finish(&mut work);
        work.uploads.segments.load(Ordering::Relaxed)
    };
    let (one, other) = (Faulty::new(), Faulty::new());
    assert_eq!([upload(&one, "s3://one/id"), upload(&one, "s3://one/id")], [2, 0]);
    assert_eq!(upload(&other, "s3://other/id"), 2);
    assert_eq!((objects(&one), recorded(directory).len()), (objects(&other), 2));
}

/// Its segment may be gone before another record of it is written, so nothing would replace it.
#[test]
fn what_a_crash_left_of_a_record_is_removed_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let left = directory.path().join("lines-000-0000000007.uploaded.part");
    let others = ["lines-000-0000000007.ndjson.zst.part", "names.part"];
    let others = others.map(|name| directory.path().join(name));
    for path in others.iter().chain([&left]) {
        fs::write(path, "ring").unwrap();
    }
    work(directory.path(), &Faulty::new());
    assert!(!left.exists() && others.iter().all(|path| path.exists()));
}

/// A directory on a file system that hangs.
#[test]
fn a_place_that_hangs_is_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    write_sealed(directory.path(), FIRST);
    let (_hanging, hangs) = std::sync::mpsc::channel::<()>();
    let hangs = std::sync::Mutex::new(hangs);
    let connect = Arc::new(move || {
        let _ = hangs.lock().unwrap().recv_timeout(10 * BOUNDS.answer_time);
        Err(Trouble("it answered at last".to_owned()))
    });
    let place = "file:///mounted/id".to_owned();
    let mut work = Work::new(directory.path(), (place, connect), BOUNDS).unwrap();
    work.uploads.found(vec![waiting(0)]);
    let since = Instant::now();
    assert!(matches!(work.turn(), Turn::Failed(_)));
    assert!(since.elapsed() < 5 * BOUNDS.answer_time, "{:?}", since.elapsed());
    assert_eq!(work.uploads.troubles.count(), 1);
}

#[test]
fn the_end_does_not_wait_for_a_store_that_hangs() {
    let directory = tempfile::tempdir().unwrap();
    write_sealed(directory.path(), FIRST);
    let store = Faulty::new();
    store.fails(|_, _| Some(Fault::Hangs));
    let shared: Arc<dyn ObjectStore> = store.clone();
    let bounds = Bounds { answer_time: Duration::from_secs(60), ..BOUNDS };
    let connect = Arc::new(move || Ok(shared.clone()));
    let work = Work::new(directory.path(), ("memory:///id".to_owned(), connect), bounds).unwrap();
    work.uploads.found(vec![waiting(0)]);
    let uploader = Uploader::start(work).unwrap();
    let since = Instant::now();
    while store.requests() == 0 {
        assert!(since.elapsed().as_secs() < 20, "nothing is asked for");
        std::thread::yield_now();
    }
    let since = Instant::now();
    Uploader::finish(Some(uploader));
    assert!(since.elapsed().as_secs() < 10, "{:?}", since.elapsed());
}
