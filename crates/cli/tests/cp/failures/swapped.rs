//! Names that lead elsewhere by the time that attributes are set: whoever may write to the
//! directory must not be given another's file. Moments are stretched by strace(1).

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    process::Output,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Uid, chownat, mknodat};

use crate::{
    failures::faults::{injected, place},
    oracle::machine,
};

const OTHER: u32 = 1000;

/// Does something once as soon as it is time, while a copy runs with its calls as `inject` has
/// them. `None`: it was never time.
fn copy_while(
    at: &Path,
    (inject, words): (&str, &[&str]),
    is_time: impl Fn() -> bool + Send,
    swap: impl FnOnce() + Send,
) -> Option<Output> {
    let is_over = &AtomicBool::new(false);
    let (output, swapped) = thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let until = Instant::now() + Duration::from_secs(30);
            while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                if is_time() {
                    swap();
                    return true;
                }
                thread::sleep(Duration::from_millis(1));
            }
            false
        });
        let output = injected(at, inject, words);
        is_over.store(true, Ordering::Relaxed);
        (output, waiting.join().unwrap())
    });
    swapped.then_some(output)
}

/// A file that is nobody else's business, and what it is.
fn secret(at: &Path) -> (PathBuf, impl Fn() -> (u32, u32, u32)) {
    let path = at.join("secret");
    fs::write(&path, "secret").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    (path.clone(), move || state(&path))
}

fn state(path: &Path) -> (u32, u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
}

fn give(path: &Path) {
    let (uid, gid) = (Uid::from_raw(OTHER), Gid::from_raw(OTHER));
    chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// A source that is another's, and a destination that he may write to.
fn of_another(at: &Path, kind: FileType) {
    fs::create_dir(at.join("d2")).unwrap();
    give(&at.join("d2"));
    if kind == FileType::Symlink {
        symlink("anywhere", at.join("node")).unwrap();
    } else {
        mknodat(CWD, at.join("node"), kind, Mode::from_raw_mode(0o755), 0).unwrap();
    }
    give(&at.join("node"));
}

#[test]
fn a_directory_that_has_its_new_owner_leads_to_nobody_elses_file() {
    let Some(scene) = root_place() else { return };
    let at = scene.path();
    let (path, is) = secret(at);
    for directory in ["b/u/a", "k"] {
        fs::create_dir_all(at.join(directory)).unwrap();
    }
    fs::write(at.join("b/u/a/f"), "content").unwrap();
    for directory in ["b/u", "b/u/a"] {
        chown(at.join(directory), Some(OTHER), Some(OTHER)).unwrap();
    }
    let (above, below) = (at.join("k/b/u"), at.join("k/b/u/a"));
    let ran = copy_while(
        at,
        ("fchownat,fchown:delay_exit=200000", &["-p", "--parents", "b/u/a/f", "k"]),
        || fs::metadata(&above).is_ok_and(|above| above.uid() == OTHER),
        || {
            fs::rename(&below, above.join("away")).unwrap();
            symlink(&path, &below).unwrap();
        },
    );
    let ran = ran.expect("it never got its owner");
    assert_eq!(is(), (0, 0, 0o600), "{ran:?}");
    assert!(ran.status.success(), "all was copied by then: {ran:?}");
    assert_eq!(state(&above.join("away")).0, OTHER);
    assert_eq!(fs::read(above.join("away/f")).unwrap(), b"content");
}

#[test]
fn a_link_in_place_of_what_was_made_leads_to_nobody_elses_file() {
    for kind in [FileType::Fifo, FileType::Socket] {
        for inject in ["mknodat:delay_exit=200000", "fchownat:delay_enter=200000"] {
            let Some(scene) = root_place() else { return };
            let at = scene.path();
            let (path, is) = secret(at);
            of_another(at, kind);
            let made = at.join("d2/node");
            let ran = copy_while(
                at,
                (inject, &["-a", "node", "d2"]),
                || fs::symlink_metadata(&made).is_ok(),
                || {
                    fs::rename(&made, at.join("d2/away")).unwrap();
                    symlink(&path, &made).unwrap();
                },
            );
            let ran = ran.expect("nothing was made");
            assert_eq!(is(), (0, 0, 0o600), "{inject}: {ran:?}");
        }
    }
}

/// A hard link is no symbolic one, and yet another's file.
#[test]
fn a_second_name_in_place_of_what_was_made_is_left_alone() {
    let Some(scene) = root_place() else { return };
    let at = scene.path();
    of_another(at, FileType::Fifo);
    let owned = at.join("owned");
    mknodat(CWD, &owned, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let made = at.join("d2/node");
    let ran = copy_while(
        at,
        ("mknodat:delay_exit=200000", &["-a", "node", "d2"]),
        || fs::symlink_metadata(&made).is_ok(),
        || {
            fs::remove_file(&made).unwrap();
            fs::hard_link(&owned, &made).unwrap();
        },
    );
    let ran = ran.expect("nothing was made");
    assert_eq!(state(&owned), (0, 0, 0o600), "{ran:?}");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(said, "cp: skipping file 'd2/node', as it was replaced while being copied\n");
    assert_eq!(ran.status.code(), Some(1));
}

/// The destination directory itself leads elsewhere, where a file of the same name is.
#[test]
fn a_target_directory_stays_the_one_that_it_was() {
    for kind in [FileType::Symlink, FileType::Fifo] {
        let Some(scene) = root_place() else { return };
        let at = scene.path();
        of_another(at, kind);
        fs::create_dir(at.join("elsewhere")).unwrap();
        let owned = at.join("elsewhere/node");
        match kind {
            FileType::Symlink => symlink("anywhere", &owned).unwrap(),
            _ => mknodat(CWD, &owned, kind, Mode::from_raw_mode(0o600), 0).unwrap(),
        }
        let before = state(&owned);
        let made = at.join("d2/node");
        let ran = copy_while(
            at,
            ("mknodat,symlinkat:delay_exit=200000", &["-a", "node", "d2"]),
            || fs::symlink_metadata(&made).is_ok(),
            || {
                fs::rename(at.join("d2"), at.join("away")).unwrap();
                symlink("elsewhere", at.join("d2")).unwrap();
            },
        );
        let ran = ran.expect("nothing was made");
        assert_eq!(state(&owned), before, "{kind:?}: {ran:?}");
        assert!(ran.status.success(), "{kind:?}: {ran:?}");
        assert_eq!(state(&at.join("away/node")).0, OTHER, "{kind:?}");
    }
}

#[test]
fn a_new_directory_is_opened_to_its_owner_and_no_other_is() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    for (directory, mode) in [("t", 0o555), ("private", 0o500), ("d2", 0o755)] {
        fs::create_dir(at.join(directory)).unwrap();
        fs::set_permissions(at.join(directory), fs::Permissions::from_mode(mode)).unwrap();
    }
    let made = at.join("d2/t");
    let ran = copy_while(
        at,
        ("fchmodat,fchmod:delay_enter=200000", &["-r", "t", "d2"]),
        || fs::symlink_metadata(&made).is_ok(),
        || {
            fs::remove_dir(&made).unwrap();
            symlink("../private", &made).unwrap();
        },
    );
    let ran = ran.expect("nothing was made");
    assert_eq!(state(&at.join("private")).2, 0o500, "{ran:?}");
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
}

fn root_place() -> Option<tempfile::TempDir> {
    if !machine::is_root() {
        machine::skip("only root can give files away");
        return None;
    }
    place()
}
