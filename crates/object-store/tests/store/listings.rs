//! Listings of a store while objects and directories vanish: what vanished is no error, and everything that
//! stayed is listed once.
//!
//! A listing reads ahead by less than half of the tree. So what is removed after its first item has in part been read
//! already, in part is being read, and in part is still unread.

use std::{collections::BTreeSet, fs, ops::Not};

use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{Error, ObjectMeta, ObjectStore, Result, local::LocalFileSystem, path::Path};
use tempfile::TempDir;

use crate::{path, store};

const DIRECTORIES: usize = 50;
const FILES: usize = 50;

/// What vanishes: of these directories all, and of the others every second file.
type Vanishing = fn(directory: usize) -> bool;

/// In turn the one half and the other, so that the directory that is being read is among them; then all.
const VANISHING: [Vanishing; 3] =
    [|directory| directory.is_multiple_of(2), |directory| !directory.is_multiple_of(2), |_| true];

fn directory_of(directory: usize) -> String {
    format!("top/{directory:02}")
}

fn object(directory: usize, file: usize) -> String {
    let below = if file % 4 < 2 { "" } else { "below/" };
    format!("{}/{below}{file:02}", directory_of(directory))
}

fn objects() -> impl Iterator<Item = (usize, usize)> {
    (0..DIRECTORIES).flat_map(|directory| (0..FILES).map(move |file| (directory, file)))
}

/// Fills the store's directory beside the store.
fn fill(root: &TempDir) {
    for directory in 0..DIRECTORIES {
        let below = root.path().join(directory_of(directory)).join("below");
        fs::create_dir_all(below).unwrap();
    }
    for (directory, file) in objects() {
        fs::write(root.path().join(object(directory, file)), "").unwrap();
    }
}

/// Removes what is to vanish, from the last to the first.
fn remove(root: &TempDir, vanishes: Vanishing) {
    for directory in (0..DIRECTORIES).rev() {
        if vanishes(directory) {
            fs::remove_dir_all(root.path().join(directory_of(directory))).unwrap();
        } else {
            for file in (0..FILES).step_by(2) {
                fs::remove_file(root.path().join(object(directory, file))).unwrap();
            }
        }
    }
}

/// What is left of the objects.
fn kept(vanishes: Vanishing) -> BTreeSet<Path> {
    let stays = |(directory, file): &(usize, usize)| !vanishes(*directory) && file % 2 == 1;
    objects().filter(stays).map(|(directory, file)| path(&object(directory, file))).collect()
}

type Listing<'a> = BoxStream<'a, Result<ObjectMeta>>;

/// Takes one item of a listing, removes, and takes the rest.
async fn listed_meanwhile(mut listing: Listing<'_>, removes: impl FnOnce()) -> Vec<Path> {
    let first = listing.next().await.unwrap().unwrap();
    removes();
    let mut listed: Vec<Path> = listing.map_ok(|meta| meta.location).try_collect().await.unwrap();
    listed.push(first.location);
    listed
}

/// Checks what was listed against what is left of the objects that were asked for.
fn check(listed: Vec<Path>, asked_for: usize, kept: &BTreeSet<Path>) {
    let once: BTreeSet<Path> = listed.iter().cloned().collect();
    assert_eq!(once.len(), listed.len(), "an object was listed twice");
    let missing: Vec<_> = kept.difference(&once).collect();
    assert!(missing.is_empty(), "not listed: {missing:?}");
    assert!(once.len() < asked_for, "everything was listed before anything was removed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_leaves_out_what_vanishes() {
    for vanishes in VANISHING {
        let (store, root) = store();
        fill(&root);
        let listed = listed_meanwhile(store.list(None), || remove(&root, vanishes)).await;
        check(listed, DIRECTORIES * FILES, &kept(vanishes));

        fill(&root);
        let offset = path(&object(1, FILES - 1));
        let mut kept = kept(vanishes);
        kept.retain(|location| *location > offset);
        let listing = store.list_with_offset(Some(&path("top")), &offset);
        let listed = listed_meanwhile(listing, || remove(&root, vanishes)).await;
        assert!(listed.iter().all(|location| *location > offset));
        check(listed, (DIRECTORIES - 2) * FILES, &kept);
    }
}

/// The store that this one stands in for does the same.
#[tokio::test(flavor = "multi_thread")]
async fn object_stores_own_store_does_the_same() {
    for vanishes in VANISHING {
        let root = tempfile::tempdir().unwrap();
        let store = LocalFileSystem::new_with_prefix(&root).unwrap();
        fill(&root);
        let listed = listed_meanwhile(store.list(None), || remove(&root, vanishes)).await;
        check(listed, DIRECTORIES * FILES, &kept(vanishes));
    }
}

/// One level is read without a pause, so that a thread removes during many readings.
#[tokio::test(flavor = "multi_thread")]
async fn a_level_leaves_out_what_vanishes() {
    const COUNT: usize = 2000;
    let (store, root) = store();
    for number in 0..COUNT {
        fs::write(root.path().join(format!("f{number:04}")), "object").unwrap();
        fs::create_dir(root.path().join(format!("d{number:04}"))).unwrap();
    }
    let stays = |number: usize| number.is_multiple_of(10);
    let removing = root.path().to_owned();
    let thread = std::thread::spawn(move || {
        for number in (0..COUNT).filter(|number| stays(*number).not()) {
            fs::remove_file(removing.join(format!("f{number:04}"))).unwrap();
            fs::remove_dir(removing.join(format!("d{number:04}"))).unwrap();
        }
    });
    let mut seen_counts = BTreeSet::new();
    loop {
        let is_last = thread.is_finished();
        let level = store.list_with_delimiter(None).await.unwrap();
        let files: BTreeSet<Path> =
            level.objects.iter().map(|meta| meta.location.clone()).collect();
        assert_eq!(files.len(), level.objects.len(), "an object was listed twice");
        let directories: BTreeSet<Path> = level.common_prefixes.into_iter().collect();
        for number in (0..COUNT).filter(|number| stays(*number)) {
            assert!(files.contains(&path(&format!("f{number:04}"))), "{number}");
            assert!(directories.contains(&path(&format!("d{number:04}"))), "{number}");
        }
        seen_counts.insert(files.len());
        if is_last {
            assert_eq!((files.len(), directories.len()), (COUNT / 10, COUNT / 10));
            break;
        }
    }
    thread.join().unwrap();
    assert!(seen_counts.len() > 1, "nothing vanished during a listing");
}

/// The directories go with their last object, while the listing is in them.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_is_deleted_while_others_delete() {
    for vanishes in VANISHING {
        let (store, root) = store();
        let store = store.with_automatic_cleanup(true);
        fill(&root);
        let locations = store.list(None).map(|meta| Ok(meta.unwrap().location)).boxed();
        let mut deletions = store.delete_stream(locations);
        let mut deleted = BTreeSet::from([deletions.next().await.unwrap().unwrap()]);
        // Some of them the stream has deleted by now.
        for (directory, file) in objects().filter(|(directory, _)| vanishes(*directory)) {
            let _ = fs::remove_file(root.path().join(object(directory, file)));
        }
        while let Some(deletion) = deletions.next().await {
            match deletion {
                Ok(location) => assert!(deleted.insert(location), "deleted twice"),
                Err(Error::NotFound { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(deleted.is_superset(&kept(vanishes)));
        let left: Vec<_> = store.list(None).try_collect().await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}
