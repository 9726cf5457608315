//! Segments that are written, packed, uploaded and removed at random, and what is fetched in the end.

use std::{fs, io, time::SystemTime};

use super::{
    super::{fetch::fetch, place::place},
    faulty::{FAULTS, Fault},
    *,
};
use crate::{
    disk::{
        keeper::{Copies, looks::Looks},
        segment::{format::name::Content, retention::Policy},
    },
    live::Care,
    ship::tests::{World, seeds},
};

/// What a start of the daemon makes.
fn start(directory: &Path, store: &Arc<Faulty>, care: Care) -> (Work, Looks) {
    let work = work(directory, store);
    let copies = Copies { shipped: None, uploads: Some(work.uploads.clone()) };
    let looks = Looks::new(directory, copies, care);
    (work, looks)
}

fn care(policy: Policy, pack_level: Option<i32>) -> Care {
    Care { policy, pack_level, forget_names: None }
}

/// The property: with retention that removes everything at once that has a copy, and with a store that fails in any way
/// at any time, all lines come back.
#[test]
fn whatever_fails_all_lines_come_back() {
    for seed in 0..seeds() {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::new(seed);
        let directory = world.directory.path().to_owned();
        let store = Faulty::new();
        let mut faults = random.fork();
        store.fails(move |_, _| {
            let fault = FAULTS[faults.usize(..FAULTS.len())];
            let is_seldom = fault == Fault::Hangs && faults.u8(..8) > 0;
            (faults.u8(..8) == 0 && !is_seldom).then_some(fault)
        });
        let policy = Policy { age: Some(Duration::ZERO), ..Policy::default() };
        let care = care(policy, random.bool().then_some(1));
        let (mut work, mut looks) = start(&directory, &store, care);
        for _ in 0..60 {
            match random.u8(..12) {
                0..5 => world.write(),
                5 => {
                    world.restart();
                    (work, looks) = start(&directory, &store, care);
                }
                6 | 7 => looks.look(),
                _ => drop(work.turn()),
            }
        }
        // A start seals the last segment.
        world.restart();
        // A start may leave a segment without a batch. It counts as ended some time after it was written to.
        for entry in fs::read_dir(&directory).unwrap() {
            let file = fs::File::open(entry.unwrap().path()).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        }
        store.fails(|_, _| None);
        (work, looks) = start(&directory, &store, care);
        for round in 0.. {
            looks.look();
            if work.uploads.waiting().is_empty() {
                break;
            }
            assert!(round < 10, "seed {seed}: never done: {:?}", work.uploads.waiting());
            finish(&mut work);
        }
        let fetched = fetched(&store);
        assert!(lines_of(fetched.path()) == world.lines, "seed {seed}: lines are missing");
        // The first look after an upload is within the millisecond in which its segment was sealed.
        std::thread::sleep(Duration::from_millis(2));
        looks.look();
        let left = streams(&directory).unwrap().remove(&STREAM).unwrap();
        assert_eq!(left.len(), 1, "seed {seed}: only the last index stays");
    }
}

#[test]
fn what_is_not_uploaded_goes_last_and_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    (0..4).for_each(|serial| drop(write_sealed(directory, (STREAM, serial))));
    let store = Faulty::new();
    store.fails(|_, key| key.as_ref().contains("0000000000").then_some(Fault::Before));
    let age = Policy { age: Some(Duration::ZERO), ..Policy::default() };
    let (mut work, mut looks) = start(directory, &store, care(age, None));
    looks.look();
    assert_eq!(work.uploads.waiting_segments(), 4);
    for _ in 0..6 {
        work.turn();
    }
    std::thread::sleep(Duration::from_millis(2));
    looks.look();
    let has_lines = |serial| directory.join(STREAM.file(serial, Part::Data)).exists();
    assert_eq!([0, 1, 2, 3].map(has_lines), [true, false, false, false]);
    assert_eq!(work.uploads.waiting_segments(), 1);
    let lost = || work.uploads.lost_segments.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(lost(), 0);
    let size = Policy { bytes: Some(0), ..Policy::default() };
    let copies = Copies { shipped: None, uploads: Some(work.uploads.clone()) };
    Looks::new(directory, copies, care(size, None)).look();
    assert_eq!((has_lines(0), lost(), work.uploads.waiting_segments()), (false, 1, 0));
}

/// A segment would be packed twice, for the upload and for the directory.
#[test]
fn a_segment_is_packed_before_it_is_uploaded() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    write_sealed(directory, (STREAM, 0));
    // It has no seal.
    let index = directory.join(STREAM.file(1, Part::Index));
    write_sealed(directory, (STREAM, 1));
    let whole = fs::read(&index).unwrap();
    fs::write(&index, &whole[..whole.len() - 64]).unwrap();
    let store = Faulty::new();
    let (mut work, mut looks) = start(directory, &store, care(Policy::default(), Some(1)));
    looks.look();
    let is_ready =
        |work: &Work| work.uploads.waiting().iter().map(|one| one.is_ready).collect::<Vec<_>>();
    assert_eq!((is_ready(&work), work.turn()), (vec![false], Turn::Idle));
    looks.look();
    assert_eq!(is_ready(&work), [true], "it is packed, and the last one is open");
    finish(&mut work);
    let packed = fs::read(directory.join(STREAM.file(0, Part::Packed))).unwrap();
    assert_eq!(stored(&store, (STREAM, 0), Part::Packed), Some(packed), "as it is");
}

/// The record of a segment that was removed while it was uploaded looked like a segment.
#[test]
fn a_record_without_a_segment_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    write_sealed(directory, (STREAM, 5));
    let record = directory.join(STREAM.file(3, Part::Uploaded));
    fs::write(&record, "").unwrap();
    let (_, mut looks) = start(directory, &Faulty::new(), care(Policy::default(), None));
    fs::write(&record, "").unwrap();
    looks.look();
    assert!(!record.exists());
}

/// Objects in a directory, and what a fetch says of them.
#[test]
fn a_fetch_is_checked_and_goes_on_where_it_was() {
    let (above, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (id, into) = ("0123456789abcdef", into.path().join("new"));
    let dead = Stream { content: Content::DeadLetters, number: 3 };
    let source = tempfile::tempdir().unwrap();
    (0..2).for_each(|serial| drop(write_sealed(source.path(), (STREAM, serial))));
    write_sealed(source.path(), (dead, 0));
    let url = url::Url::from_file_path(above.path()).unwrap();
    let place_of = |more: &str| place(&format!("{url}{more}")).unwrap();
    let fetch_from = |more: &str| {
        let mut out = Vec::new();
        let fetched = fetch(&place_of(more), &into, &mut out);
        (fetched.map_err(|error| error.to_string()), String::from_utf8(out).unwrap())
    };
    assert!(fetch_from("").0.unwrap_err().contains("no segments"), "nothing is there");
    let connect = place_of("").connect(Some(id)).unwrap();
    let mut work = Work::new(source.path(), ("test".to_owned(), connect), BOUNDS).unwrap();
    let all = [(STREAM, 0), (STREAM, 1), (dead, 0)];
    work.uploads.found(all.map(|segment| Waiting { segment, ..waiting(0) }).to_vec());
    finish(&mut work);
    let object =
        |stream: Stream, serial, part| above.path().join(id).join(stream.file(serial, part));
    // One object is damaged, another has no index.
    let damaged = object(STREAM, 1, Part::Packed);
    let whole = fs::read(&damaged).unwrap();
    fs::write(&damaged, &whole[..whole.len() - 1]).unwrap();
    fs::remove_file(object(dead, 0, Part::Index)).unwrap();
    let (result, out) = fetch_from("");
    assert!(result.unwrap_err().contains("1 segments of"));
    assert_eq!(out.lines().count(), 1, "{out}");
    let names = |directory: &Path| {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let names = names.map(|name| name.into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != "lock").collect();
        names.sort();
        names
    };
    assert_eq!(names(&into), ["lines-000-0000000000.index", "lines-000-0000000000.ndjson.zst"]);
    // They are whole again, and a second directory has objects there.
    fs::write(&damaged, whole).unwrap();
    fs::create_dir(above.path().join("fedcba9876543210")).unwrap();
    fs::write(above.path().join("fedcba9876543210/x"), "").unwrap();
    let error = fetch_from("").0.unwrap_err();
    assert!(error.contains("2 directories") && error.contains(id), "{error}");
    let (result, out) = fetch_from(&format!("/{id}"));
    result.unwrap();
    assert!(
        out.contains("0000000000.ndjson.zst: already there") && out.lines().count() == 2,
        "{out}"
    );
    assert_eq!(lines_of(&into), lines_of(source.path()));
    // Another segment of this name is not overwritten.
    let index = into.join(STREAM.file(0, Part::Index));
    let mut other = fs::read(&index).unwrap();
    other.truncate(64);
    fs::write(&index, &other).unwrap();
    assert!(fetch_from(&format!("/{id}")).0.is_err());
    assert_eq!(fs::read(&index).unwrap(), other);
}

/// A daemon stores there, and takes new files for its own.
#[test]
fn a_fetch_does_not_write_into_the_directory_of_a_daemon() {
    let (above, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = tempfile::tempdir().unwrap();
    write_sealed(source.path(), (STREAM, 0));
    let url = url::Url::from_file_path(above.path()).unwrap();
    let place = place(url.as_str()).unwrap();
    let mut work =
        Work::new(source.path(), ("test".to_owned(), place.connect(None).unwrap()), BOUNDS)
            .unwrap();
    work.uploads.found(vec![waiting(0)]);
    finish(&mut work);
    let lock = crate::daemon::lock(into.path()).unwrap();
    let error = fetch(&place, into.path(), &mut io::sink()).unwrap_err().to_string();
    assert!(error.contains("another daemon"), "{error}");
    drop(lock);
    fetch(&place, into.path(), &mut io::sink()).unwrap();
}
