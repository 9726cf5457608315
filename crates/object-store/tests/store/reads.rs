//! Reads: ranges at and past the end, conditions, and objects that change or vanish meanwhile.

use std::{fs, io::Write};

use futures::TryStreamExt;
use object_store::{GetOptions, ObjectStore, ObjectStoreExt, PutPayload, local::LocalFileSystem};

use crate::{content, path, refused, store};

/// More than one chunk, and different at each offset.
pub fn long() -> Vec<u8> {
    (0..9 << 20).map(|at: u32| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_are_answered_as_the_local_file_system_does() {
    let (store, directory) = store();
    let local = LocalFileSystem::new_with_prefix(&directory).unwrap();
    let location = path("object");
    store.put(&location, "0123456789".into()).await.unwrap();
    let requests: [&[std::ops::Range<u64>]; 10] = [
        &[0..10, 0..0],
        &[5..7, 2..6, 6..9, 0..1],
        &[3..5, 3..5],
        &[],
        &[9..11],
        &[10..11],
        &[11..12],
        &[10..10, 99..99],
        &[0..1, 20..30],
        &[u64::MAX - 1..u64::MAX],
    ];
    for ranges in requests {
        // A read of all memory would abort `LocalFileSystem`; one of two bytes is past the end as well.
        let [ours, theirs] =
            [store.get_ranges(&location, ranges).await, local.get_ranges(&location, ranges).await];
        assert_eq!(ours.is_ok(), theirs.is_ok(), "{ranges:?}: {ours:?} {theirs:?}");
        assert_eq!(ours.ok(), theirs.ok(), "{ranges:?}");
    }
    let backwards = std::ops::Range { start: 5, end: 3 };
    assert_eq!(refused(store.get_ranges(&location, &[backwards]).await), "Generic");
    for range in [0..10, 4..99, 9..10] {
        let bytes = store.get_range(&location, range.clone()).await.unwrap();
        assert_eq!(bytes, local.get_range(&location, range).await.unwrap());
    }
    for range in [10..11, 10..10] {
        assert_eq!(refused(store.get_range(&location, range).await), "Generic");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_object_comes_in_order_and_in_parts() {
    let (store, _directory) = store();
    let (location, bytes) = (path("long"), long());
    store.put(&location, PutPayload::from(bytes.clone())).await.unwrap();
    let whole = store.get(&location).await.unwrap().bytes().await.unwrap();
    assert!(whole == bytes);
    let range = 1_000_001..8_000_003;
    let options = GetOptions::new().with_range(Some(range.start as u64..range.end as u64));
    let chunks: Vec<_> = store
        .get_opts(&location, options)
        .await
        .unwrap()
        .into_stream()
        .try_collect()
        .await
        .unwrap();
    assert!(chunks.len() > 1);
    assert!(chunks.concat() == bytes[range]);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_and_near_ranges_are_answered_with_every_gap() {
    let (store, _directory) = store();
    let (location, bytes) = (path("long"), long());
    store.put(&location, PutPayload::from(bytes.clone())).await.unwrap();
    let ranges = [
        // Longer than one part, touching, and in another order than in the object.
        3_000_001..7_000_003,
        0..3_000_001,
        // One after the other with gaps of 5000 bytes, and overlapping.
        7_100_000..7_110_000,
        7_115_000..7_116_000,
        7_115_500..8_600_000,
        9_000_000..bytes.len() as u64,
    ];
    for gap in [0, 4096, 5000, 1 << 20, u64::MAX] {
        let read = store.clone().with_gap(gap).get_ranges(&location, &ranges).await.unwrap();
        for (range, read) in ranges.iter().zip(read) {
            let expected = &bytes[range.start as usize..range.end as usize];
            assert!(read == expected, "{range:?} with a gap of {gap}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_was_replaced_is_read_as_it_was_when_it_was_opened() {
    let (store, directory) = store();
    let (location, bytes) = (path("long"), long());
    store.put(&location, PutPayload::from(bytes.clone())).await.unwrap();
    let opened = [store.get(&location).await.unwrap(), store.get(&location).await.unwrap()];
    let e_tag = opened[0].meta.e_tag.clone();
    let [first, second] = opened;
    store.put(&location, "new".into()).await.unwrap();
    assert!(first.bytes().await.unwrap() == bytes);
    store.delete(&location).await.unwrap();
    assert!(second.bytes().await.unwrap() == bytes);
    assert_eq!(refused(store.get(&location).await), "NotFound");
    assert_eq!(refused(store.get_ranges(&location, &[0..0]).await), "NotFound");

    store.put(&location, "newer".into()).await.unwrap();
    let same = GetOptions::new().with_if_match(e_tag.clone());
    assert_eq!(refused(store.get_opts(&location, same).await), "Precondition");
    let current = store.head(&location).await.unwrap().e_tag;
    let other = GetOptions::new().with_if_none_match(current).with_head(true);
    assert_eq!(refused(store.get_opts(&location, other).await), "NotModified");
    drop(directory);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_changed_in_place_fails_a_read_with_a_condition() {
    let (store, directory) = store();
    let location = path("long");
    let file = directory.path().join("long");
    store.put(&location, PutPayload::from(long())).await.unwrap();
    let e_tag = store.head(&location).await.unwrap().e_tag;
    let options = GetOptions::new().with_if_match(e_tag);
    let conditional = store.get_opts(&location, options).await.unwrap();
    let plain = store.get(&location).await.unwrap();
    let grown = store.get(&location).await.unwrap();
    fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(b"more").unwrap();
    assert_eq!(refused(conditional.bytes().await), "Precondition");
    assert!(grown.bytes().await.unwrap() == long());

    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(5 << 20).unwrap();
    assert_eq!(refused(plain.bytes().await), "Precondition");
}

#[tokio::test(flavor = "multi_thread")]
async fn entity_tags_and_times_are_those_of_the_local_file_system() {
    let (store, directory) = store();
    let local = LocalFileSystem::new_with_prefix(&directory).unwrap();
    let location = path("a/b c");
    let put = store.put(&location, "content".into()).await.unwrap();
    let meta = store.head(&location).await.unwrap();
    assert_eq!(meta, local.head(&location).await.unwrap());
    assert_eq!(put.e_tag, meta.e_tag);
    assert_eq!(
        store.path_to_filesystem(&location).unwrap(),
        local.path_to_filesystem(&location).unwrap()
    );
    assert_eq!(content(&local, "a/b c").await, "content");
}

#[test]
fn no_runtime_is_needed() {
    let (store, _directory) = store();
    let read = async {
        store.put(&path("a/b"), "content".into()).await.unwrap();
        let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
        assert_eq!(listed[0].location, path("a/b"));
        content(&store, "a/b").await
    };
    assert_eq!(futures::executor::block_on(read), "content");
}
