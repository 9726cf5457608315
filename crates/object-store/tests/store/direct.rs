//! Direct reads: the same answers, nothing in the page cache, and refusals.

use std::{fs, time::Duration};

use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use ringwise::{BackendChoice, Builder, drop_page_cache, page_cache};
use ringwise_object_store::RingFileSystem;
use rustix::fs::statfs;
use tempfile::TempDir;

use crate::{path, reads::long, refused, skip, suite};

/// Of `struct statfs`, for tmpfs (linux/magic.h).
const TMPFS: i64 = 0x0102_1994;

/// A store with direct reads on a file system that has them.
fn store_on(choice: BackendChoice) -> Option<(RingFileSystem, TempDir)> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if statfs(directory.path()).unwrap().f_type == TMPFS {
        skip("the target directory is in memory, which has no direct reads");
        return None;
    }
    let ring = Builder::default().backend(choice).build_ring().unwrap();
    let store = RingFileSystem::with_ring(ring, &directory).unwrap();
    Some((store.with_direct_reads(true), directory))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_suite_passes() {
    for choice in [BackendChoice::Auto, BackendChoice::Classic] {
        let Some((store, _directory)) = store_on(choice) else { return };
        suite::passes(store).await;
    }
}

async fn answers_are_right() {
    let Some((store, _directory)) = store_on(BackendChoice::Auto) else { return };
    let (location, bytes) = (path("long"), long());
    store.put(&location, PutPayload::from(bytes.clone())).await.unwrap();
    let len = bytes.len() as u64;
    let few = [3_000_001..7_000_003, 0..3_000_001, 7_115_500..8_600_000, len - 1..len, 4096..8192];
    // Several in each block, and more than one thread's share.
    let many = (0..900).map(|number| number * 1009..number * 1009 + 997);
    let ranges: Vec<_> = few.into_iter().chain(many).collect();
    for gap in [0, 5000, u64::MAX] {
        let read = store.clone().with_gap(gap).get_ranges(&location, &ranges).await.unwrap();
        for (range, read) in ranges.iter().zip(read) {
            let expected = &bytes[range.start as usize..range.end as usize];
            assert!(read == expected, "{range:?} with a gap of {gap}");
        }
    }
    for range in [1..5_000_002, 4095..len, 0..len] {
        let options = object_store::GetOptions::new().with_range(Some(range.clone()));
        let read = store.get_opts(&location, options).await.unwrap().bytes().await.unwrap();
        assert!(read == bytes[range.start as usize..range.end as usize], "{range:?}");
    }
    store.put(&path("empty"), PutPayload::new()).await.unwrap();
    assert!(store.get(&path("empty")).await.unwrap().bytes().await.unwrap().is_empty());
    assert!(store.get_ranges(&path("empty"), &[0..0]).await.unwrap()[0].is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_right_on_several_threads() {
    answers_are_right().await;
}

#[tokio::test]
async fn answers_are_right_on_one_thread() {
    answers_are_right().await;
}

#[test]
fn answers_are_right_without_a_runtime() {
    futures::executor::block_on(answers_are_right());
}

#[test]
fn answers_are_right_if_a_program_blocks_the_only_worker_thread() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let task = runtime.spawn(async { futures::executor::block_on(answers_are_right()) });
    runtime.block_on(task).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_in_the_page_cache() {
    let Some((store, directory)) = store_on(BackendChoice::Auto) else { return };
    let (location, bytes) = (path("long"), long());
    store.put(&location, PutPayload::from(bytes.clone())).await.unwrap();
    let file = fs::File::open(directory.path().join("long")).unwrap();
    file.sync_all().unwrap();
    let (file, len) = (file.into(), bytes.len() as u64);
    // Pages that the kernel moves at the moment stay.
    let is_forgotten = (0..1000).any(|attempt| {
        std::thread::sleep(Duration::from_millis(attempt.min(1)));
        drop_page_cache(&file, 0, len).unwrap();
        !page_cache(&file, 0, len).is_ok_and(|state| state.cached_pages > 0)
    });
    assert!(is_forgotten);
    for direct in [true, false] {
        let store = store.clone().with_direct_reads(direct);
        assert!(store.get(&location).await.unwrap().bytes().await.unwrap() == bytes);
        match page_cache(&file, 0, len) {
            Ok(state) => assert_eq!(state.cached_pages > 0, !direct, "{state:?}"),
            Err(error) => skip(&format!("the state of the page cache is not known: {error}")),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_becomes_shorter_fails_a_read() {
    let Some((store, directory)) = store_on(BackendChoice::Auto) else { return };
    let location = path("long");
    store.put(&location, PutPayload::from(long())).await.unwrap();
    for len in [5 << 20, (1 << 20) + 100, 0] {
        let opened = store.get(&location).await.unwrap();
        let file = fs::OpenOptions::new().write(true).open(directory.path().join("long")).unwrap();
        file.set_len(len).unwrap();
        assert_eq!(refused(opened.bytes().await), "Precondition", "{len}");
        file.set_len(9 << 20).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_refused_where_there_are_none() {
    let store = RingFileSystem::new_with_prefix("/proc/self").unwrap().with_direct_reads(true);
    let error = store.get(&path("status")).await.unwrap_err().to_string();
    assert!(error.contains("status: its file system has no direct reads"), "{error}");
}
