//! What is no object and no name of one: directories, links that lead out, and names of other kinds.

use std::{fs, os::unix::fs::symlink, process::Command};

use futures::{StreamExt, TryStreamExt};
use object_store::{ObjectStore, ObjectStoreExt, PutMode, path::Path};
use ringwise_object_store::RingFileSystem;

use crate::{content, kind, names, path, refused, store, uploads::Disk};

#[tokio::test(flavor = "multi_thread")]
async fn names_never_lead_out_of_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(directory.path().join("secret"), "secret").unwrap();
    let store = RingFileSystem::new_with_prefix(&inner).unwrap();

    for name in ["..", "../secret", "a/../../secret", "./a", "a//b", "a\0b", "a\nb"] {
        assert!(Path::parse(name).is_err(), "{name}");
    }
    // These are names like others, with a percent sign in them.
    for name in ["..%2Fsecret", "%2E%2E/secret", "a%2Fb", "%2e%2e%2fsecret"] {
        assert_eq!(refused(store.get(&path(name)).await), "NotFound");
        store.put(&path(name), name.to_owned().into()).await.unwrap();
        assert_eq!(content(&store, name).await, name);
        assert_eq!(fs::read_to_string(inner.join(name)).unwrap(), name);
    }
    store.put(&Path::from("../secret"), "encoded".into()).await.unwrap();
    assert_eq!(fs::read_to_string(directory.path().join("secret")).unwrap(), "secret");
    assert_eq!(names(directory.path()), ["inner", "secret"]);

    for name in ["", "#1", "a/b#22"] {
        assert_eq!(refused(store.get(&path(name)).await), "InvalidPath", "{name:?}");
        assert_eq!(refused(store.put(&path(name), "".into()).await), "InvalidPath");
        assert_eq!(refused(store.delete(&path(name)).await), "InvalidPath");
        assert_eq!(refused(store.copy(&path("a%2Fb"), &path(name)).await), "InvalidPath");
        assert_eq!(refused(store.put_multipart(&path(name)).await), "InvalidPath");
    }
    let long = "x".repeat(256);
    assert_eq!(refused(store.get(&path(&long)).await), "Generic");
    assert_eq!(refused(store.put(&path(&long), "".into()).await), "Generic");
    assert!(!names(&inner).iter().any(|name| name.starts_with('#')));
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_lead_out_of_the_store_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("inner");
    fs::create_dir_all(inner.join("own")).unwrap();
    fs::create_dir(directory.path().join("other")).unwrap();
    fs::write(directory.path().join("other/secret"), "secret").unwrap();
    fs::write(inner.join("own/object"), "object").unwrap();
    symlink("../other/secret", inner.join("file")).unwrap();
    symlink("../other", inner.join("directory")).unwrap();
    symlink(directory.path().join("other"), inner.join("absolute")).unwrap();
    symlink("own/object", inner.join("inside")).unwrap();
    symlink("own", inner.join("within")).unwrap();
    symlink("nowhere", inner.join("broken")).unwrap();
    symlink("..", inner.join("own/circle")).unwrap();
    let store = RingFileSystem::new_with_prefix(&inner).unwrap();

    for name in ["file", "directory/secret", "absolute/secret", "own/circle/file"] {
        let name = path(name);
        assert_eq!(refused(store.get(&name).await), "PermissionDenied", "{name}");
        assert_eq!(refused(store.head(&name).await), "PermissionDenied", "{name}");
        assert_eq!(refused(store.get_ranges(&name, &[0..1]).await), "PermissionDenied", "{name}");
        assert_eq!(refused(store.copy(&name, &path("copy")).await), "PermissionDenied", "{name}");
        assert_eq!(refused(store.rename(&name, &path("copy")).await), "PermissionDenied");
    }
    for name in ["directory/new", "absolute/secret", "directory/a/b"] {
        let name = path(name);
        assert_eq!(refused(store.put(&name, "new".into()).await), "PermissionDenied", "{name}");
        assert_eq!(refused(store.put_multipart(&name).await), "PermissionDenied", "{name}");
        assert_eq!(refused(store.delete(&name).await), "PermissionDenied", "{name}");
        assert_eq!(refused(store.copy(&path("own/object"), &name).await), "PermissionDenied");
        assert_eq!(refused(store.rename(&path("own/object"), &name).await), "PermissionDenied");
    }
    assert_eq!(names(directory.path().join("other")), ["secret"]);
    assert_eq!(refused(store.get(&path("broken")).await), "NotFound");

    assert_eq!(content(&store, "inside").await, "object");
    assert_eq!(content(&store, "within/object").await, "object");
    let listed: Vec<_> = store.list(None).map_ok(|meta| meta.location).try_collect().await.unwrap();
    let mut listed: Vec<_> = listed.iter().map(Path::as_ref).collect();
    listed.sort_unstable();
    assert_eq!(listed, ["inside", "own/object", "within/object"]);
    let level = store.list_with_delimiter(None).await.unwrap();
    assert_eq!(level.common_prefixes, [path("own"), path("within")]);
    assert_eq!(level.objects.len(), 1);

    // A put replaces the link and not what it leads to.
    store.put(&path("file"), "own".into()).await.unwrap();
    assert_eq!(content(&store, "file").await, "own");
    assert_eq!(fs::read(directory.path().join("other/secret")).unwrap(), b"secret");
    store.delete(&path("inside")).await.unwrap();
    assert_eq!(content(&store, "own/object").await, "object");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_is_no_object() {
    let (store, directory) = store();
    store.put(&path("a/b/c"), "content".into()).await.unwrap();
    for name in ["a", "a/b", "a/b/c/d"] {
        let name = path(name);
        assert_eq!(refused(store.get(&name).await), "NotFound", "{name}");
        assert_eq!(refused(store.head(&name).await), "NotFound", "{name}");
        assert_eq!(refused(store.get_ranges(&name, &[]).await), "NotFound", "{name}");
        assert_eq!(refused(store.delete(&name).await), "NotFound", "{name}");
        assert_eq!(refused(store.copy(&name, &path("x")).await), "NotFound", "{name}");
        assert_eq!(refused(store.rename(&name, &path("x")).await), "NotFound", "{name}");
    }
    assert_eq!(refused(store.put(&path("a/b"), "".into()).await), "Generic");
    assert_eq!(
        refused(store.put_opts(&path("a/b"), "".into(), PutMode::Create.into()).await),
        "AlreadyExists"
    );
    assert_eq!(refused(store.copy(&path("a/b/c"), &path("a/b")).await), "Generic");
    assert_eq!(content(&store, "a/b/c").await, "content");
    assert_eq!(names(&directory), ["a"]);
    assert_eq!(names(directory.path().join("a")), ["b"]);
}

/// It was `NotFound`, as if an object were missing.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_put_below_an_object() {
    let (store, directory) = store();
    for name in ["object", "other"] {
        store.put(&path(name), name.to_owned().into()).await.unwrap();
    }
    for below in ["object/a", "object/a/b"] {
        let below = path(below);
        let errors = [
            store.put(&below, "".into()).await.unwrap_err(),
            store.put_opts(&below, "".into(), PutMode::Create.into()).await.unwrap_err(),
            store.put_multipart(&below).await.map(drop).unwrap_err(),
            store.copy(&path("other"), &below).await.unwrap_err(),
            store.rename(&path("other"), &below).await.unwrap_err(),
            store.rename_if_not_exists(&path("other"), &below).await.unwrap_err(),
        ];
        for error in errors {
            assert_eq!(kind(&error), "Generic", "{error}");
            let text = format!("{below}: a part of the path is an object");
            assert!(error.to_string().contains(&text), "{error}");
        }
        assert_eq!(refused(store.get(&below).await), "NotFound");
        assert_eq!(refused(store.copy(&below, &path("copy")).await), "NotFound");
    }
    symlink("nowhere", directory.path().join("broken")).unwrap();
    assert_eq!(refused(store.put(&path("broken/a"), "".into()).await), "Generic");
    assert_eq!(names(&directory), ["broken", "object", "other"]);
    assert_eq!(content(&store, "object").await, "object");
}

/// They were removed.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_object_is_not_deleted() {
    let (store, directory) = store();
    let place = |name: &str| directory.path().join(name);
    fs::create_dir(place("directory")).unwrap();
    fs::write(place("object"), "").unwrap();
    symlink("directory", place("to_directory")).unwrap();
    symlink("nowhere", place("broken")).unwrap();
    symlink("/dev/null", place("outside")).unwrap();
    symlink("object", place("to_object")).unwrap();
    symlink("fifo", place("to_fifo")).unwrap();
    assert!(Command::new("mkfifo").arg(place("fifo")).status().unwrap().success());
    for name in ["directory", "to_directory", "broken", "fifo", "to_fifo", "outside"] {
        let error = store.delete(&path(name)).await.unwrap_err();
        assert_eq!(kind(&error), refused(store.get(&path(name)).await), "{name}: {error}");
        assert!(fs::symlink_metadata(place(name)).is_ok(), "{name}");
    }
    store.delete(&path("to_object")).await.unwrap();
    assert!(place("object").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifo_is_no_object_and_nobody_waits_for_it() {
    let (store, directory) = store();
    let made = Command::new("mkfifo").arg(directory.path().join("fifo")).status();
    assert!(made.unwrap().success());
    assert_eq!(refused(store.get(&path("fifo")).await), "NotFound");
    assert_eq!(refused(store.head(&path("fifo")).await), "NotFound");
    assert!(store.list(None).try_collect::<Vec<_>>().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_location_has_is_an_error_of_the_listing_and_the_rest_is_listed() {
    let (store, directory) = store();
    fs::write(directory.path().join("line\nbreak"), "").unwrap();
    store.put(&path("object"), "".into()).await.unwrap();
    let listed = store.list(None).collect::<Vec<_>>().await;
    assert_eq!(listed.len(), 2);
    let (good, bad): (Vec<_>, Vec<_>) = listed.into_iter().partition(Result::is_ok);
    assert_eq!(good.into_iter().next().unwrap().unwrap().location, path("object"));
    assert_eq!(refused(bad.into_iter().next().unwrap()), "InvalidPath");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_or_copy_onto_another_name_of_the_same_file_leaves_what_it_says() {
    let (store, directory) = store();
    let [a, b] = [path("a"), path("b")];
    store.put(&a, "content".into()).await.unwrap();
    store.copy(&a, &b).await.unwrap();
    store.copy(&a, &b).await.unwrap();
    assert_eq!(names(&directory), ["a", "b"]);
    store.rename(&a, &a).await.unwrap();
    assert_eq!(names(&directory), ["a", "b"]);
    store.rename(&a, &b).await.unwrap();
    assert_eq!(names(&directory), ["b"]);
    assert_eq!(content(&store, "b").await, "content");
}

/// The link was copied, and led to another object from the copy's directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_link_is_a_copy_of_what_it_leads_to() {
    let (store, directory) = store();
    store.put(&path("a/data"), "of a".into()).await.unwrap();
    store.put(&path("b/data"), "of b".into()).await.unwrap();
    symlink("data", directory.path().join("a/current")).unwrap();
    store.copy(&path("a/current"), &path("b/copy")).await.unwrap();
    store.copy_if_not_exists(&path("a/current"), &path("b/other")).await.unwrap();
    assert_eq!(content(&store, "b/copy").await, "of a");
    assert_eq!(content(&store, "b/other").await, "of a");
}

/// A rename said that a link leads out of the store. A copy showed itself before it was whole.
#[tokio::test(flavor = "multi_thread")]
async fn objects_go_to_another_file_system_and_are_whole_there() {
    let Some(disk) = Disk::mount() else {
        crate::skip("no small file system can be mounted");
        return;
    };
    // The store has both: one directory beside the disk, and the disk.
    let outer = tempfile::tempdir_in(disk.path().parent().unwrap()).unwrap();
    let store = RingFileSystem::new_with_prefix(outer.path().parent().unwrap()).unwrap();
    let name = |directory: &std::path::Path, file: &str| {
        path(&format!("{}/{file}", directory.file_name().unwrap().to_str().unwrap()))
    };
    let (from, to) = (name(outer.path(), "object"), name(&disk.path(), "object"));
    store.put(&from, "content".into()).await.unwrap();
    store.copy_if_not_exists(&from, &to).await.unwrap();
    assert_eq!(refused(store.copy_if_not_exists(&from, &to).await), "AlreadyExists");
    assert_eq!(content(&store, to.as_ref()).await, "content");
    store.put(&from, "other".into()).await.unwrap();
    assert_eq!(refused(store.rename_if_not_exists(&from, &to).await), "AlreadyExists");
    store.rename(&from, &to).await.unwrap();
    assert_eq!(content(&store, to.as_ref()).await, "other");
    assert_eq!((names(&outer).len(), names(disk.path())), (0, vec!["object".to_owned()]));
}

/// The copy that another file system would have needed was removed in the place of the object.
#[tokio::test(flavor = "multi_thread")]
async fn a_rename_to_the_same_name_behind_another_mount_keeps_the_object() {
    let Some(disk) = Disk::mount() else {
        crate::skip("no small file system can be mounted");
        return;
    };
    for name in ["own", "mounted"] {
        fs::create_dir(disk.path().join(name)).unwrap();
    }
    let mounted = disk.path().join("mounted");
    let mut bind = Command::new("mount");
    bind.arg("--bind").arg(disk.path().join("own")).arg(&mounted);
    assert!(bind.status().unwrap().success());
    let store = RingFileSystem::new_with_prefix(disk.path()).unwrap();
    let [own, same, other] = ["own/a", "mounted/a", "mounted/b"].map(path);
    store.put(&own, "content".into()).await.unwrap();
    let renamed = store.rename(&own, &same).await;
    let found = store.get(&own).await.map(drop);
    store.put(&own, "content".into()).await.unwrap();
    store.copy(&own, &path("own/b")).await.unwrap();
    // Two names of one file, behind two mounts.
    let renamed_other = store.rename(&own, &other).await;
    let left = (names(disk.path().join("own")), content(&store, "own/b").await);
    assert!(Command::new("umount").arg(&mounted).status().unwrap().success());
    for result in [renamed, found, renamed_other] {
        result.unwrap();
    }
    assert_eq!(left, (vec!["b".to_owned()], "content".to_owned()));
}

/// The place is the directory, and not its path.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_goes_with_its_directory_when_that_is_renamed() {
    let outer = tempfile::tempdir().unwrap();
    let [place, moved] = ["place", "moved"].map(|name| outer.path().join(name));
    fs::create_dir(&place).unwrap();
    let store = RingFileSystem::new_with_prefix(&place).unwrap();
    store.put(&path("object"), "first".into()).await.unwrap();
    fs::rename(&place, &moved).unwrap();
    fs::create_dir(&place).unwrap();
    fs::write(place.join("object"), "of another directory").unwrap();
    assert_eq!(content(&store, "object").await, "first");
    store.put(&path("new"), "new".into()).await.unwrap();
    assert_eq!(
        (names(&place), names(&moved)),
        (vec!["object".into()], vec!["new".into(), "object".into()])
    );
    let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert_eq!(listed.len(), 2);
    let same = fs::canonicalize(&place).unwrap().join("object");
    assert_eq!(store.path_to_filesystem(&path("object")).unwrap(), same);

    // What is made in a directory that was removed is nowhere.
    fs::remove_dir_all(&moved).unwrap();
    assert_eq!(refused(store.get(&path("object")).await), "NotFound");
    assert_eq!(refused(store.put(&path("object"), "".into()).await), "Generic");
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_directories_go_with_their_last_object_if_that_is_asked_for() {
    let (store, directory) = store();
    store.put(&path("a/b/c"), "".into()).await.unwrap();
    store.put(&path("a/d"), "".into()).await.unwrap();
    store.delete(&path("a/b/c")).await.unwrap();
    assert_eq!(names(directory.path().join("a")), ["b", "d"]);
    store.put(&path("a/b/c"), "".into()).await.unwrap();
    let store = store.with_automatic_cleanup(true);
    store.delete(&path("a/b/c")).await.unwrap();
    assert_eq!(names(directory.path().join("a")), ["d"]);
    store.delete(&path("a/d")).await.unwrap();
    assert!(names(&directory).is_empty());
}
