//! A large file alone is copied in memory from its beginning and by the device from its end: what
//! comes of it where it ends anywhere, changes meanwhile, finds no room, or one side fails.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use crate::{
    edges::{SMALL_EXT4, mount_made, shell},
    faults, kills,
    machine::{self, Ran, Setting, Which},
    oracle::scene,
};

const MIB: usize = 1 << 20;
const AUTO: Which = Which::Ours("--engine=auto");

fn copy(flags: &[&str], at: &Path) -> Ran {
    let words = [flags, &["s", "d"]].concat();
    machine::run(AUTO, &words, at, &Setting::default())
}

fn started(at: &Path) -> Child {
    Command::new(machine::ours()).args(["s", "d"]).current_dir(at).spawn().unwrap()
}

/// The way that one file of this length goes here.
fn way(at: &Path, bytes: usize, flags: &[&str]) -> String {
    fs::write(at.join("s"), vec![1; bytes]).unwrap();
    let ran = copy(&[flags, &["--debug"]].concat(), at);
    let way = ran.out.strip_prefix("'d': ").and_then(|rest| rest.split(" (").next());
    let way = way.unwrap_or_else(|| panic!("{ran:?}")).to_owned();
    assert_eq!(fs::read(at.join("d")).unwrap(), vec![1; bytes]);
    fs::remove_file(at.join("s")).unwrap();
    fs::remove_file(at.join("d")).unwrap();
    way
}

/// Whether files of this directory go that way: direct writes and a ring are needed.
fn is_to_be_had(at: &Path) -> bool {
    let way = way(at, 16 * MIB, &[]);
    if way != "split" {
        machine::skip(&format!("no file is split here: {way}"));
    }
    way == "split"
}

#[test]
fn it_is_the_way_of_one_large_file_where_nothing_else_was_asked_for() {
    let scene = scene();
    if !is_to_be_had(scene.path()) {
        return;
    }
    for (flags, expected) in [
        (&["--jobs=1"][..], "copy_file_range"),
        (&["--engine=sync"], "copy_file_range"),
        (&["--engine=uring"], "ring"),
        (&["-r"], "copy_file_range"),
        (&["--durable"], "mapped"),
        (&["--atomic"], "split"),
        (&["--depth=1", "--block=64k"], "split"),
    ] {
        assert_eq!(way(scene.path(), 16 * MIB, flags), expected, "{flags:?}");
    }
    assert_eq!(way(scene.path(), MIB, &[]), "copy_file_range");
    fs::write(scene.path().join("s"), vec![1; 16 * MIB]).unwrap();
    let ran = copy(&["--json"], scene.path());
    assert!(ran.out.contains("\"split\""), "{ran:?}");
}

#[test]
fn every_end_of_a_file_comes_out_whole() {
    let scene = scene();
    if !is_to_be_had(scene.path()) {
        return;
    }
    let mut random = fastrand::Rng::with_seed(13);
    let mut content = vec![0; 33 * MIB];
    random.fill(&mut content);
    for size in [
        8 * MIB,
        8 * MIB + 1,
        9 * MIB - 1,
        16 * MIB + 4096,
        16 * MIB + 4097,
        16 * MIB + (64 << 10),
        16 * MIB + (64 << 10) + 1,
        32 * MIB + 4095,
    ] {
        let content = &content[..size];
        fs::write(scene.path().join("s"), content).unwrap();
        for flags in [&[][..], &["--block=64k", "--depth=3"], &["--block=1k", "--depth=1"]] {
            let ran = copy(flags, scene.path());
            assert_eq!((ran.status, &*ran.err), (Some(0), ""), "{size} {flags:?}");
            let copied = fs::read(scene.path().join("d")).unwrap();
            assert!(copied == content, "{size} bytes, {flags:?}: {} bytes", copied.len());
            // Once more over what is there, which is longer or shorter.
            fs::write(scene.path().join("d"), vec![2; size / 2 * (1 + flags.len())]).unwrap();
            assert_eq!(copy(flags, scene.path()).status, Some(0));
            assert!(fs::read(scene.path().join("d")).unwrap() == content, "{size}: over another");
            fs::remove_file(scene.path().join("d")).unwrap();
        }
    }
}

/// A source without a zero in it, cut or grown during the copy: what is copied has none either.
#[test]
fn a_source_that_changes_its_length_is_copied_as_it_was_at_some_moment() {
    let scene = scene();
    if !is_to_be_had(scene.path()) {
        return;
    }
    const WHOLE: usize = 48 * MIB + 4000;
    let mut random = fastrand::Rng::with_seed(17);
    for round in 0..24 {
        let source = scene.path().join("s");
        fs::write(&source, vec![0x55; WHOLE]).unwrap();
        let mut child = started(scene.path());
        std::thread::sleep(Duration::from_micros(random.u64(500..25_000)));
        let mut file = File::options().append(true).open(&source).unwrap();
        let len = match round % 3 {
            at @ 0..2 => {
                // In its last block no write fails, and the block's rest becomes zeros.
                let len = random.usize([1, WHOLE - 3999][at]..WHOLE);
                file.set_len(len as u64).unwrap();
                len
            }
            _ => {
                file.write_all(&vec![0x55; 300_001]).unwrap();
                WHOLE + 300_001
            }
        };
        assert_eq!(child.wait().unwrap().code(), Some(0), "round {round}");
        let copied = fs::read(scene.path().join("d")).unwrap();
        assert!([len, WHOLE].contains(&copied.len()), "round {round}: {} of {len}", copied.len());
        let other = copied.iter().position(|byte| *byte != 0x55);
        assert_eq!(other, None, "round {round}: no byte of the source");
        fs::remove_file(scene.path().join("d")).unwrap();
    }
}

/// Its thread is held up while bytes that it has copied already are changed.
#[test]
fn a_source_that_is_written_meanwhile_is_copied_again() {
    let Some(scene) = faults::place() else { return };
    let at = scene.path();
    if !is_to_be_had(at) {
        return;
    }
    fs::write(at.join("s"), vec![0x55; 64 * MIB]).unwrap();
    let mut command = Command::new("timeout");
    command.args(["60", "strace", "-f", "-q", "-o", "trace", "-e", "trace=copy_file_range"]);
    command.args(["-e", "inject=copy_file_range:delay_enter=1500000:when=2"]);
    let mut child = command.arg(machine::ours()).args(["s", "d"]).current_dir(at).spawn().unwrap();
    let has_begun = || fs::metadata(at.join("d")).is_ok_and(|found| found.len() > 0);
    while !has_begun() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none(), "nothing held it up");
    let mut source = File::options().write(true).open(at.join("s")).unwrap();
    source.write_all(&[0x66; 4096]).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(fs::read(at.join("d")).unwrap() == fs::read(at.join("s")).unwrap());
}

#[test]
fn killed_at_any_moment_it_is_shorter_or_whole() {
    let scene = scene();
    if !is_to_be_had(scene.path()) {
        return;
    }
    let (source, copy) = (scene.path().join("s"), scene.path().join("d"));
    let content = kills::content(48 << 20);
    fs::write(&source, &content).unwrap();
    let mut random = fastrand::Rng::with_seed(19);
    let mut begun = 0;
    for round in 0..kills::rounds(24) {
        let mut child = started(scene.path());
        std::thread::sleep(Duration::from_micros(random.u64(1000..25_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let left = kills::left(round, &source, &copy, &content);
        begun += usize::from(left.is_some_and(|len| len > 0 && len < content.len()));
        let _ = fs::remove_file(&copy);
    }
    assert!(begun > 0, "none was killed in the middle");
}

/// On a file system of its own, too small for it.
#[test]
fn no_space_is_an_error_and_leaves_it_shorter() {
    let scene = scene();
    let small = scene.path().join("small");
    let Some(_mounted) = mount_made(scene.path(), SMALL_EXT4, &small) else { return };
    fs::write(small.join("s"), vec![1; 12 * MIB]).unwrap();
    let ran = copy(&["--debug"], &small);
    let copied = fs::metadata(small.join("d")).map(|found| found.len());
    assert!(shell(scene.path(), "umount small"));
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.out.contains("'d': split ("), "{ran:?}");
    assert!(ran.err.ends_with("No space left on device\n"), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(copied.is_ok_and(|len| len < 12 << 20), "it looks whole");
}

/// What one side does not do, or nobody can, is done again by ordinary calls, which tell.
#[test]
fn a_side_that_fails_is_made_up_for() {
    let Some(scene) = faults::place() else { return };
    let at = scene.path();
    if !is_to_be_had(at) {
        return;
    }
    let mut content = vec![0; 24 * MIB];
    fastrand::Rng::with_seed(23).fill(&mut content);
    fs::write(at.join("s"), &content).unwrap();
    for inject in [
        // The third that the thread makes, which is the only one that makes three.
        "copy_file_range:error=EIO:when=3",
        "copy_file_range:error=EINTR:when=2",
        "copy_file_range:retval=0:when=2",
        "copy_file_range:error=EXDEV",
        "clone3,clone:error=EAGAIN",
        "fallocate:error=EOPNOTSUPP",
        "ftruncate:error=EIO:when=1",
        "io_uring_enter:error=EINTR:when=1",
    ] {
        let output = faults::injected(at, inject, &["s", "d"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{inject}: {said}");
        assert!(fs::read(at.join("d")).unwrap() == content, "{inject}");
    }
    let output = faults::injected(at, "copy_file_range:error=EIO", &["s", "d"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said, "cp: error copying 's' to 'd': Input/output error\n");
}

/// The second open file comes from /proc.
#[test]
fn without_proc_it_goes_another_way() {
    let scene = scene();
    if !is_to_be_had(scene.path()) {
        return;
    }
    if !shell(scene.path(), "unshare --mount true") {
        return machine::skip("no mounts of its own");
    }
    fs::write(scene.path().join("s"), vec![1; 12 * MIB]).unwrap();
    let cp = machine::ours().canonicalize().unwrap();
    let hidden = format!("mount -t tmpfs none /proc && exec {} cp s d", cp.display());
    assert!(shell(scene.path(), &format!("unshare --mount sh -c '{hidden}'")));
    assert!(fs::read(scene.path().join("d")).unwrap() == vec![1; 12 * MIB]);
}
