//! Segments are uploaded to a store that fails, while they are written, packed and removed.
//!
//! Whatever fails, a segment has a record only if the store has it, nothing without a record is removed for its age,
//! and in the end the store has all lines.

mod faults;
mod faulty;
mod restored;

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use object_store::{ObjectStore, ObjectStoreExt as _};
use tokio::runtime::Runtime;

use super::{
    copy::key,
    fetch::{bring, segments},
    progress::Waiting,
    remote::Bounds,
    uploader::{Turn, Work},
};
use crate::{
    disk::segment::{
        format::name::{Part, Stream, parse},
        reading::{
            reader::{read_all, verify},
            source::{InDirectory, streams},
        },
    },
    fuzzing::index_of,
    ship::tests::STREAM,
};
use faulty::Faulty;

/// So small that the segments of tests have parts.
const BOUNDS: Bounds = Bounds { part_bytes: 64, answer_time: Duration::from_millis(40) };

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The thread that uploads, without its thread.
fn work(directory: &Path, store: &Arc<Faulty>) -> Work {
    work_at(directory, store, "memory:///0123456789abcdef")
}

fn work_at(directory: &Path, store: &Arc<Faulty>, place: &str) -> Work {
    let store: Arc<dyn ObjectStore> = store.clone();
    let connect = Arc::new(move || Ok(store.clone()));
    Work::new(directory, (place.to_owned(), connect), BOUNDS).unwrap()
}

/// Writes a sealed segment. Returns its lines.
fn write_sealed(directory: &Path, segment: (Stream, u64)) -> Vec<u8> {
    write_sealed_of(directory, segment, segment.1)
}

/// Writes a sealed segment with the lines of a seed. Returns them.
fn write_sealed_of(directory: &Path, (stream, serial): (Stream, u64), seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let lines = (0..20).map(|_| format!("{}\n", random.u64(..)).into_bytes());
    let batches: Vec<Vec<u8>> = lines.collect();
    let path = |part| directory.join(stream.file(serial, part));
    fs::write(path(Part::Data), batches.concat()).unwrap();
    fs::write(path(Part::Index), index_of(&batches, true, true)).unwrap();
    batches.concat()
}

fn waiting(serial: u64) -> Waiting {
    Waiting { segment: (STREAM, serial), bytes: 1, ended_ms: serial, is_ready: true }
}

/// The segments with a record.
fn recorded(directory: &Path) -> Vec<(Stream, u64)> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let parsed = names.filter_map(|name| parse(name.to_str().unwrap()));
    let records = parsed.filter(|(_, _, part)| *part == Part::Uploaded);
    let mut records: Vec<_> = records.map(|(stream, serial, _)| (stream, serial)).collect();
    records.sort_unstable();
    records
}

/// What the store has of a segment, past its faults.
fn stored(store: &Faulty, segment: (Stream, u64), part: Part) -> Option<Vec<u8>> {
    let get = async { store.inner.get(&key(segment, part)).await?.bytes().await };
    runtime().block_on(get).ok().map(Vec::from)
}

/// Whether the store has a segment: these lines, and this index.
fn has_copy(store: &Faulty, segment: (Stream, u64), lines: &[u8], index: &[u8]) -> bool {
    let packed = stored(store, segment, Part::Packed);
    let unpacked = packed.and_then(|packed| zstd::decode_all(&packed[..]).ok());
    unpacked.as_deref() == Some(lines)
        && stored(store, segment, Part::Index).as_deref() == Some(index)
}

/// Fetches what the store has into a new directory.
fn fetched(store: &Faulty) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let inner: Arc<dyn ObjectStore> = store.inner.clone();
    let runtime = runtime();
    let found = runtime.block_on(segments(&inner)).unwrap();
    assert_eq!(bring(&runtime, (inner, found), directory.path(), &mut Vec::new()).unwrap(), 0);
    directory
}

/// The lines of a stream in a directory, which has no problems.
fn lines_of(directory: &Path) -> Vec<Vec<u8>> {
    let serials = streams(directory).unwrap().remove(&STREAM).unwrap_or_default();
    let all = || InDirectory::new(directory, STREAM, serials.clone());
    assert_eq!(verify(&all(), |_| Ok(())).unwrap(), Vec::<String>::new());
    let (lines, problems) = read_all(all()).unwrap();
    assert_eq!(problems, Vec::<String>::new());
    lines
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| line[..line.len() - 1].to_vec())
        .collect()
}

/// All objects of a store.
fn objects(store: &Faulty) -> BTreeMap<String, u64> {
    let list = store.inner.list_with_delimiter(None);
    let listed = runtime().block_on(list).unwrap();
    listed.objects.into_iter().map(|object| (object.location.to_string(), object.size)).collect()
}

/// Works until nothing is left to do.
fn finish(work: &mut Work) {
    for _ in 0..1000 {
        if work.turn() == Turn::Idle {
            return;
        }
    }
    panic!("it is never done");
}
