//! The functions of `fs` on names and directories, on every kind of ring.

use std::{fs::Permissions, os::unix::fs::PermissionsExt};

use crate::rings::places;
use futures::executor::block_on;
use ringwise::{ErrorKind, fs};

#[test]
fn a_tree_is_made_read_and_removed() {
    for place in places() {
        block_on(async {
            let (ring, top) = (&place.ring, place.path("tree"));
            fs::create_dir_all(ring, top.join("a/b/c")).await.unwrap();
            fs::create_dir_all(ring, top.join("a/b/c")).await.unwrap();
            // More than one read of names, and more than one batch of removals.
            for number in 0..1500 {
                let path = top.join(format!("a/b/file with a rather long name {number:04}"));
                fs::write(ring, path, "x").await.into_result().unwrap();
            }
            fs::symlink(ring, "a", top.join("link")).await.unwrap();
            let mut found = Vec::new();
            let mut names = fs::read_dir(ring, top.join("a/b")).await.unwrap();
            while let Some(entry) = names.next_entry().await.unwrap() {
                assert_eq!(entry.path(), top.join("a/b").join(entry.file_name()));
                let about = entry.metadata().await.unwrap();
                assert_eq!(about.file_type(), entry.file_type().await.unwrap());
                assert_eq!(about.inode(), entry.ino(), "{}", place.name);
                found.push(entry.file_name().into_string().unwrap());
            }
            found.sort();
            assert_eq!(found.len(), 1501, "{}", place.name);
            assert!(found[0] == "c" && found[1].ends_with(" 0000"), "{}", place.name);
            let wrong = fs::create_dir_all(ring, top.join("a/b").join(&found[5])).await;
            assert_eq!(wrong.unwrap_err().kind(), ErrorKind::AlreadyExists);
            let missing = fs::read_dir(ring, top.join("none")).await.unwrap_err();
            assert_eq!(missing.path(), Some(&*top.join("none")));
            // A link is removed, and not what it leads to.
            fs::remove_dir_all(ring, top.join("link")).await.unwrap();
            assert!(fs::try_exists(ring, top.join("a/b/c")).await.unwrap());
            fs::remove_dir_all(ring, &top).await.unwrap();
            assert!(!fs::try_exists(ring, &top).await.unwrap(), "{}", place.name);
            let gone = fs::remove_dir_all(ring, &top).await.unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::NotFound);
        });
    }
}

#[test]
fn a_tree_is_removed_without_what_its_links_lead_to() {
    for place in places() {
        block_on(async {
            let (ring, top) = (&place.ring, place.path("top"));
            fs::create_dir_all(ring, top.join("in")).await.unwrap();
            fs::create_dir_all(ring, place.path("kept")).await.unwrap();
            place.write("kept/file", b"kept");
            fs::symlink(ring, place.path("kept"), top.join("in/link")).await.unwrap();
            fs::remove_dir_all(ring, &top).await.unwrap();
            assert_eq!(place.read("kept/file"), b"kept", "{}", place.name);
        });
    }
}

#[test]
fn links_are_read_and_followed() {
    for place in places() {
        block_on(async {
            let ring = &place.ring;
            let top = fs::canonicalize(ring, place.path(".")).await.unwrap();
            fs::create_dir_all(ring, top.join("real/deep")).await.unwrap();
            place.write("real/file", b"text");
            fs::symlink(ring, "real/deep", top.join("near")).await.unwrap();
            fs::symlink(ring, top.join("near/../file"), top.join("far")).await.unwrap();
            fs::symlink(ring, "loop", top.join("loop")).await.unwrap();
            fs::symlink(ring, "nowhere", top.join("dangling")).await.unwrap();
            let told = fs::read_link(ring, top.join("near")).await.unwrap();
            assert_eq!(told.to_str(), Some("real/deep"));
            let real = fs::canonicalize(ring, top.join("./far")).await.unwrap();
            assert_eq!(real, top.join("real/file"), "{}", place.name);
            let error = fs::canonicalize(ring, top.join("loop")).await.unwrap_err();
            assert_eq!(error.errno(), libc::ELOOP, "{}", place.name);
            let error = fs::read_link(ring, top.join("real")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(!fs::try_exists(ring, top.join("dangling")).await.unwrap());
            let about = fs::symlink_metadata(ring, top.join("dangling")).await.unwrap();
            assert!(about.file_type().is_symlink());
            let existing = fs::symlink(ring, "x", top.join("far")).await.unwrap_err();
            assert_eq!(existing.path(), Some(&*top.join("far")));
        });
    }
}

#[test]
fn a_copy_has_the_content_and_the_permissions() {
    for place in places() {
        block_on(async {
            let (ring, from, to) = (&place.ring, place.path("from"), place.path("to"));
            let bytes: Vec<u8> = (0..(3 << 20) + 5_u32).map(|at| (at % 251) as u8).collect();
            place.write("from", &bytes);
            place.write("to", &vec![1; 4 << 20]);
            fs::set_permissions(ring, &from, Permissions::from_mode(0o640)).await.unwrap();
            assert_eq!(fs::copy(ring, &from, &to).await.unwrap(), bytes.len() as u64);
            assert!(place.read("to") == bytes, "{}", place.name);
            let about = fs::metadata(ring, &to).await.unwrap();
            assert_eq!(about.permissions().mode(), 0o640);
            assert!(about.modified() >= fs::metadata(ring, &from).await.unwrap().modified());
            let same = fs::copy(ring, &from, &from).await.unwrap_err();
            assert_eq!(same.kind(), ErrorKind::InvalidInput);
            assert!(place.read("from") == bytes, "a copy onto itself changes nothing");
            // A pipe was made as private as the source; so was /dev/null, of all users.
            let pipe = place.path("pipe");
            use rustix::fs::{CWD, FileType, Mode, mknodat};
            let _ = std::fs::remove_file(&pipe);
            mknodat(CWD, &pipe, FileType::Fifo, Mode::empty(), 0).unwrap();
            std::fs::set_permissions(&pipe, Permissions::from_mode(0o666)).unwrap();
            let reader = std::fs::File::options().read(true).write(true).open(&pipe).unwrap();
            place.write("short", b"text");
            fs::set_permissions(ring, place.path("short"), Permissions::from_mode(0o600))
                .await
                .unwrap();
            // A pipe has no positions, so its content is another matter.
            let _ = fs::copy(ring, place.path("short"), &pipe).await;
            assert_eq!(std::fs::metadata(&pipe).unwrap().permissions().mode() & 0o777, 0o666);
            drop(reader);
            place.write("text", b"not \xff text");
            let text = fs::read_to_string(ring, place.path("text")).await.unwrap_err();
            assert_eq!(text.errno(), libc::EILSEQ);
        });
    }
}
