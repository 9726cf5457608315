//! Several threads read the parts of one file that is alone and not in memory into pipes. The tests copy
//! files that end in the middle of a part, change meanwhile, are killed, or whose blocks cannot be
//! allocated first. Trees are in `direct.rs`.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use crate::{
    data::{
        cold::is_past_memory,
        direct::{is_laid, random_bytes},
    },
    edges::mount_made,
    failures::{
        faults::{injected, place, threads_that, tree_traced},
        kills,
    },
    oracle::{
        machine::{self, Ran, Setting, Which},
        scene,
    },
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn copy(words: &[&str], at: &Path) -> Ran {
    machine::run(Which::Ours("--engine=auto"), words, at, &Setting::default())
}

fn started(at: &Path) -> Child {
    let words = ["--reflink=never", "s/f", "e"];
    Command::new(machine::ours()).args(words).current_dir(at).spawn().unwrap()
}

#[test]
fn every_end_of_a_file_comes_out_whole() {
    let scene = scene();
    let at = scene.path();
    let odd = 5 * MIB + 4095;
    for len in [64 * KIB + 1, 512 * KIB, 512 * KIB + 1, MIB - 1, 2 * MIB, odd] {
        let content = random_bytes(len);
        // Also over what is there, which is longer.
        for flag in ["--update=all", "--update=all", "--durable"] {
            if !is_laid(at, &[("f", &content)]) {
                return;
            }
            let ran = copy(&["--reflink=never", "--debug", flag, "s/f", "e"], at);
            assert_eq!((ran.status, &*ran.err), (Some(0), ""), "{len}");
            assert!(ran.out.contains("'e': past the page cache ("), "{len}: {ran:?}");
            assert!(fs::read(at.join("e")).unwrap() == content, "{len} bytes differ");
            fs::write(at.join("e"), vec![2; 2 * len]).unwrap();
        }
        fs::remove_file(at.join("e")).unwrap();
    }
}

#[test]
fn not_where_one_thread_or_another_way_was_asked_for() {
    let scene = scene();
    let content = random_bytes(MIB);
    for flag in ["--jobs=1", "--verify", "--engine=sync", "--engine=uring"] {
        if !is_laid(scene.path(), &[("f", &content)]) {
            return;
        }
        let words = ["--reflink=never", "--debug", flag, "s/f", "e"];
        let ran = machine::run(Which::Ours(flag), &words, scene.path(), &Setting::default());
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(!ran.out.contains("'e': past the page cache ("), "{flag}: {ran:?}");
        assert!(fs::read(scene.path().join("e")).unwrap() == content, "{flag}: it differs");
    }
}

#[test]
fn as_many_threads_read_as_there_may_be() {
    let Some(scene) = place() else { return };
    let at = scene.path().join("one");
    let content = random_bytes(24 * MIB);
    for (flag, count) in [("--jobs=3", 3), ("--update=all", 4)] {
        if !is_laid(&at, &[("f", &content)]) {
            return;
        }
        // None is done before the last has begun.
        let words = ["--reflink=never", flag, "s/f", "e"];
        let output = injected(&at, "splice:delay_exit=2000", &words);
        assert!(output.status.success() && output.stderr.is_empty(), "{flag}: {output:?}");
        let trace = fs::read_to_string(at.join("trace")).unwrap();
        assert_eq!(threads_that(&trace, "splice(").len(), count, "{flag}: {trace}");
        // Reads of 512 KiB and writes of 256.
        assert_eq!(trace.matches("splice(").count(), 48 + 96, "{flag}");
    }
}

#[test]
fn files_that_nobody_shares_are_written_in_short_parts() {
    let Some(scene) = place() else { return };
    let at = scene.path().join("tree");
    let content = random_bytes(2 * MIB);
    if !is_laid(&at, &[("f", &content), ("g", &content)]) {
        return;
    }
    fs::remove_dir(at.join("d")).unwrap();
    let trace = tree_traced(&at, &["trace=splice"], &["--reflink=never"]);
    // Reads of 512 KiB and writes of 64, for each.
    assert_eq!(trace.matches("splice(").count(), 2 * (4 + 32), "{trace}");
}

/// What went through the page cache is waited for.
#[test]
fn it_is_durable_before_the_end() {
    let Some(scene) = place() else { return };
    let at = scene.path().join("one");
    if !is_laid(&at, &[("f", &random_bytes(3 * MIB + 1))]) {
        return;
    }
    let words = ["--reflink=never", "--durable", "s/f", "e"];
    let output = injected(&at, "syncfs:delay_exit=1", &words);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let trace = fs::read_to_string(at.join("trace")).unwrap();
    assert_eq!(trace.matches("syncfs(").count(), 1, "{trace}");
    let output = injected(&at, "syncfs:error=EIO", &words);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn whatever_fails_on_the_way_is_done_another_way() {
    let Some(scene) = place() else { return };
    let at = scene.path().join("one");
    let content = random_bytes(2 * MIB + 77);
    let calls = ["splice:error=EINVAL", "pipe2:error=EMFILE", "fallocate:error=EINTR:when=1"];
    let later = (1..=10).map(|number| format!("splice:error=EIO:when={number}"));
    for inject in calls.map(str::to_owned).into_iter().chain(later) {
        if !is_laid(&at, &[("f", &content)]) {
            return;
        }
        let output = injected(&at, &inject, &["--reflink=never", "s/f", "e"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{inject}: {output:?}");
        assert!(fs::read(at.join("e")).unwrap() == content, "{inject}: it differs");
        fs::remove_file(at.join("e")).unwrap();
    }
}

/// A source without a zero in it, cut or grown during the copy: what is copied has none either.
#[test]
fn a_source_that_changes_its_length_is_copied_as_it_was_at_some_moment() {
    const WHOLE: usize = 24 * MIB;
    let scene = scene();
    let at = scene.path();
    let content = vec![0x55; WHOLE];
    let mut random = fastrand::Rng::with_seed(4);
    let mut have_grown = 0;
    for round in 0..12 {
        let _ = fs::remove_file(at.join("e"));
        if !is_laid(at, &[("f", &content)]) {
            return;
        }
        let mut child = started(at);
        // On a busy machine it begins late.
        while !at.join("e").exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(100));
        }
        // What is there when the copy ends has come with it.
        let is_cut = round % 2 == 0;
        std::thread::sleep(Duration::from_micros(if is_cut { random.u64(..8_000) } else { 0 }));
        let mut file = File::options().append(true).open(at.join("s/f")).unwrap();
        let len = if is_cut { random.usize(1..WHOLE) } else { WHOLE + 301 };
        match is_cut {
            true => file.set_len(len as u64).unwrap(),
            false => file.write_all(&[0x55; 301]).unwrap(),
        }
        assert_eq!(child.wait().unwrap().code(), Some(0), "round {round}");
        let copied = fs::read(at.join("e")).unwrap();
        assert!([len, WHOLE].contains(&copied.len()), "round {round}: {} of {len}", copied.len());
        have_grown += usize::from(copied.len() > WHOLE);
        let other = copied.iter().position(|byte| *byte != 0x55);
        assert_eq!(other, None, "round {round}: no byte of the source");
    }
    assert!(have_grown > 0, "what was added meanwhile was never copied");
}

/// Also at the moment when it gets its length.
#[test]
fn killed_at_any_moment_it_is_shorter_or_whole() {
    let scene = scene();
    let at = scene.path();
    let (source, copy) = (at.join("s/f"), at.join("e"));
    let content = kills::content(24 * MIB);
    let mut random = fastrand::Rng::with_seed(6);
    let mut shorter = 0;
    for round in 0..kills::rounds(12) {
        if !is_laid(at, &[("f", &content)]) {
            return;
        }
        let mut child = started(at);
        let len = || fs::metadata(&copy).map(|found| found.len() as usize);
        let wanted = if round % 3 == 0 { content.len() } else { 0 };
        while !len().is_ok_and(|len| len >= wanted) && child.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        if wanted == 0 {
            std::thread::sleep(Duration::from_micros(random.u64(..8_000)));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let left = kills::left(round, &source, &copy, &content);
        shorter += usize::from(left.is_some_and(|left| left < content.len()));
        let _ = fs::remove_file(&copy);
    }
    assert!(shorter > 0, "none was killed before its end");
}

/// Files of ext2 have no blocks before they are written.
#[test]
fn where_no_blocks_can_be_allocated_before_it_comes_out_whole() {
    let scene = scene();
    let other = scene.path().join("other");
    let made = "truncate -s 24M image && mkfs.ext2 -q -F image";
    let Some(mounted) = mount_made(scene.path(), made, &other) else { return };
    let content = random_bytes(3 * MIB + 100);
    if !is_laid(scene.path(), &[("f", &content)]) {
        return;
    }
    let ran = copy(&["--debug", "s/f", "other/e"], scene.path());
    assert!(
        ran.status == Some(0) && ran.out.contains("'other/e': past the page cache ("),
        "{ran:?}"
    );
    assert!(fs::read(other.join("e")).unwrap() == content, "it differs");
    // It was read past the page cache: nobody began again.
    assert!(is_past_memory(&scene.path().join("s/f")), "it was read again");
    mounted.unmount();
}

#[test]
fn no_space_is_an_error_and_nothing_looks_whole() {
    let scene = scene();
    let small = scene.path().join("small");
    let Some(mounted) = mount_made(scene.path(), crate::edges::SMALL_EXT4, &small) else {
        return;
    };
    let content = random_bytes(40 * MIB);
    if !is_laid(scene.path(), &[("f", &content)]) {
        return;
    }
    let ran = copy(&["s/f", "small/e"], scene.path());
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert_eq!(ran.err, "cp: error writing 'small/e': No space left on device\n");
    assert!(fs::metadata(small.join("e")).unwrap().len() < content.len() as u64);
    mounted.unmount();
}
