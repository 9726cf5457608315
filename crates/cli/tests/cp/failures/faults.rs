//! System calls that fail, by strace(1), and a device that fails, which reaches a ring's operations
//! too: whether there is a way around it, and that it is told where there is none.

use std::{
    collections::BTreeSet,
    fs,
    io::{Seek, SeekFrom, Write},
    path::Path,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use crate::{
    disk::{Device, Disk},
    edges::shell,
    oracle::{
        machine::{self, Setting, Which},
        scene,
    },
};

const BYTES: usize = 300_000;

fn content() -> Vec<u8> {
    (0..BYTES as u32).map(|at| (at % 251) as u8).collect()
}

/// A place with a source, and whether calls can be made to fail.
pub fn place() -> Option<tempfile::TempDir> {
    let scene = scene();
    fs::write(scene.path().join("s"), content()).unwrap();
    let traced = Command::new("strace").args(["-e", "trace=none", "true"]).output();
    if !traced.is_ok_and(|output| output.status.success()) {
        machine::skip("no strace");
        return None;
    }
    Some(scene)
}

pub fn injected(at: &Path, inject: &str, words: &[&str]) -> Output {
    traced(at, inject, &[], words)
}

/// The same for calls on the copy alone.
fn injected_on_copy(at: &Path, inject: &str, words: &[&str]) -> Output {
    let copy = at.join("d");
    traced(at, inject, &["-P", copy.to_str().unwrap()], words)
}

fn traced(at: &Path, inject: &str, flags: &[&str], words: &[&str]) -> Output {
    let _ = fs::remove_file(at.join("d"));
    let inject = format!("inject={inject}");
    let mut command = Command::new("timeout");
    command.args(["60", "strace", "-f", "-q", "-o", "trace", "-e", &inject]).args(flags);
    command.arg(machine::ours()).args(words).current_dir(at).env("LC_ALL", "C").output().unwrap()
}

/// Copies the tree `s` and back to nothing: the calls that were written down meanwhile.
pub fn tree_traced(at: &Path, expressions: &[&str], flags: &[&str]) -> String {
    let mut command = Command::new("timeout");
    command.args(["60", "strace", "-f", "-q", "-o", "../trace"]);
    command.args(expressions.iter().flat_map(|expression| ["-e", expression]));
    command.arg(machine::ours()).args(flags).args(["-r", "s", "d"]);
    let output = command.current_dir(at).output().unwrap();
    let said = format!("{expressions:?} {flags:?}: {output:?}");
    assert!(output.status.success() && output.stderr.is_empty(), "{said}");
    assert!(shell(at, "diff -r s d && rm -r d"), "{said}");
    fs::read_to_string(at.join("../trace")).unwrap()
}

/// The threads that made a call with this in it.
pub fn threads_that(trace: &str, part: &str) -> BTreeSet<String> {
    let lines = trace.lines().filter(|line| line.contains(part));
    lines.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
}

#[test]
fn what_the_kernel_refuses_is_done_another_way() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    for inject in [
        "copy_file_range:error=EPERM",
        "copy_file_range:error=ENOENT",
        "copy_file_range:error=EXDEV",
        "copy_file_range:error=ENOSYS",
        "copy_file_range:error=EOPNOTSUPP",
        "copy_file_range:retval=0",
        "ioctl:error=EPERM",
        "ioctl:error=EACCES",
        "ioctl:error=ETXTBSY",
        "io_uring_setup:error=ENOMEM",
        "io_uring_setup:error=EPERM",
        "fallocate:error=EOPNOTSUPP",
        "fadvise64:error=EINVAL",
        "statx:error=ENOSYS",
        "clone3,clone:error=EAGAIN",
    ] {
        for words in [&["s", "d"][..], &["--durable", "s", "d"], &["--reflink=never", "s", "d"]] {
            let output = injected(at, inject, words);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{inject} {words:?}: {said}");
            assert!(fs::read(at.join("d")).unwrap() == content(), "{inject} {words:?}");
        }
    }
}

/// Nor may the kernel make one for what a ring's operations have to wait for.
#[test]
fn who_may_have_no_thread_has_his_copies() {
    if !machine::is_root() {
        return machine::skip("only root can become one who may have no thread");
    }
    let scene = scene();
    let at = scene.path();
    fs::create_dir(at.join("s")).unwrap();
    for number in 0..40_usize {
        fs::write(at.join("s").join(number.to_string()), &content()[..number * 7000]).unwrap();
    }
    // Somebody who runs nothing else.
    let alone = ["60", "setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "prlimit"];
    for engine in machine::engines() {
        for flag in ["--sparse=auto", "--durable", "--verify"] {
            let mut command = Command::new("timeout");
            command.args(alone).arg("--nproc=1:1").arg(machine::ours());
            command.args([engine, flag, "--jobs=2", "-r", "s", "d"]);
            let output = command.current_dir(at).env("LC_ALL", "C").output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{engine} {flag}: {said}");
            for number in 0..40_usize {
                let copy = fs::read(at.join("d").join(number.to_string())).unwrap();
                assert!(copy == content()[..number * 7000], "{engine} {flag}: {number}");
            }
            fs::remove_dir_all(at.join("d")).unwrap();
        }
    }
}

#[test]
fn calls_that_were_interrupted_are_made_again() {
    let Some(scene) = place() else { return };
    for call in ["copy_file_range", "ftruncate"] {
        let inject = format!("{call}:error=EINTR:when=1..3");
        let output = injected(scene.path(), &inject, &["--durable", "s", "d"]);
        assert!(output.status.success(), "{inject}");
        assert!(fs::read(scene.path().join("d")).unwrap() == content(), "{inject}");
    }
    // Only those of the content: others are the loader's and the runtime's.
    let inject = "write:error=EINTR:when=1";
    let words = ["--engine=sync", "--reflink=never", "s", "d"];
    let output = injected(scene.path(), inject, &words);
    assert!(output.status.success(), "{inject}");
    assert!(fs::read(scene.path().join("d")).unwrap() == content(), "{inject}");
}

#[test]
fn what_fails_is_told_once_and_fails_the_run() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    for (inject, words, told) in [
        ("copy_file_range:error=EIO", &["s", "d"][..], "cp: error copying 's' to 'd': "),
        ("copy_file_range:error=EIO:when=2+", &["s", "d"], ""),
        (
            "write:error=EIO:when=1",
            &["--engine=sync", "--reflink=never", "s", "d"],
            "cp: error writing 'd': ",
        ),
        ("utimensat:error=EIO", &["-p", "s", "d"], "cp: preserving times for 'd': "),
        ("syncfs:error=EIO", &["--durable", "s", "d"], "cp: "),
        (
            "fcntl:error=EIO",
            &["--durable", "--engine=sync", "s", "d"],
            "cp: syncing the file system of 'd': ",
        ),
    ] {
        let output = injected(at, inject, words);
        let said = String::from_utf8_lossy(&output.stderr);
        if told.is_empty() {
            assert!(output.status.success(), "{inject}: one call is enough: {said}");
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{inject}: {said}");
        let is_told = said.starts_with(told) && said.ends_with("Input/output error\n");
        assert!(is_told && said.lines().count() == 1, "{inject}: {said}");
    }
}

/// An error that comes when the file is closed, as those of NFS do.
#[test]
fn an_error_at_the_end_is_an_error() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    for words in [&["s", "d"][..], &["--durable", "s", "d"], &["--engine=uring", "s", "d"]] {
        let output = injected_on_copy(at, "close:error=EDQUOT", words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert_eq!(said, "cp: failed to close 'd': Disk quota exceeded\n", "{words:?}");
    }
}

/// The device gives other bytes than it was given: here, a read of the copy that changes nothing.
#[test]
fn what_comes_back_otherwise_is_told() {
    let Some(scene) = place() else { return };
    for engine in machine::engines() {
        let words = [engine, "--verify", "s", "d"];
        let inject = format!("pread64:retval={BYTES}:when=1");
        let output = injected_on_copy(scene.path(), &inject, &words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{engine}: {said}");
        let told = "cp: 'd' differs from what was read of 's' between bytes 0 and 1048576; copy it \
                    again\n";
        assert_eq!(said, told, "{engine}");
    }
}

/// What is read and written by nobody else is never open to others, not even for a moment.
#[test]
fn a_copy_is_not_open_to_others_before_it_has_its_owner() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    for words in [&["-p", "s", "d"][..], &["-a", "--atomic", "s", "d"]] {
        let output = injected(at, "fchown:error=EINTR:when=100", words);
        assert!(output.status.success());
        let trace = fs::read_to_string(at.join("trace")).unwrap();
        let made = trace.lines().filter(|line| line.contains("open") && line.contains("O_WRONLY"));
        let made: Vec<&str> = made.collect();
        assert!(!made.is_empty(), "{trace}");
        for line in made {
            // In two lines where another thread did something meanwhile.
            let is_closed = line.contains(", 0600)") || line.contains(", 0600 <unfinished");
            assert!(is_closed, "{words:?}: {line}");
        }
    }
}

/// A device that fails every write: ring operations and write-back alike.
#[test]
fn a_device_that_fails_fails_the_copy() {
    if !machine::is_root() {
        return machine::skip("only root can mount");
    }
    let Some(disk) = Disk::mount(Device::Failing) else { return };
    let at = disk.path();
    fs::create_dir(at.join("s")).unwrap();
    for name in ["one", "two"] {
        fs::write(at.join("s").join(name), content()).unwrap();
    }
    rustix::fs::sync();
    disk.fail(true);
    for engine in machine::engines() {
        for flag in ["--durable", "--verify"] {
            let words = [flag, "-r", "s", "d"];
            let ran = machine::run(Which::Ours(engine), &words, &at, &Setting::default());
            assert_eq!(ran.status, Some(1), "{engine} {flag}: {ran:?}");
            assert!(ran.err.contains("Input/output error"), "{engine} {flag}: {ran:?}");
            let _ = fs::remove_dir_all(at.join("d"));
        }
    }
    disk.fail(false);
}

/// Between two questions about a source with holes it grows: no hole is made of what came.
#[test]
fn what_comes_while_holes_are_looked_for_is_no_hole() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    for trial in 0..4 {
        let mut source = fs::File::create(at.join("s")).unwrap();
        source.set_len(1 << 20).unwrap();
        source.seek(SeekFrom::End(0)).unwrap();
        let output = thread::scope(|scope| {
            scope.spawn(|| {
                // Now and then one falls between two of the calls, each of which takes 10 ms; without
                // an end it would never be copied to its end.
                for _ in 0..12 {
                    source.write_all(&[b'x'; 4096]).unwrap();
                    thread::sleep(Duration::from_millis(27 + 5 * trial));
                }
            });
            injected(at, "lseek:delay_exit=10000", &["--reflink=never", "s", "d"])
        });
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (source, copy) = (fs::read(at.join("s")).unwrap(), fs::read(at.join("d")).unwrap());
        assert!(copy.len() >= 1 << 20 && source.starts_with(&copy), "{} bytes", copy.len());
    }
}

/// Its length is what it was: only its time of change says that pages may have gone to the device while
/// they were changed.
#[test]
fn a_source_that_changes_while_the_device_takes_it_is_copied_again() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    let (old, new) = (vec![b'x'; 8 << 20], vec![b'y'; 8 << 20]);
    fs::write(at.join("s"), &old).unwrap();
    let is_whole = || fs::metadata(at.join("d")).is_ok_and(|copy| copy.len() == old.len() as u64);
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + Duration::from_secs(20);
            while !is_whole() && Instant::now() < until {
                thread::sleep(Duration::from_millis(2));
            }
            fs::OpenOptions::new().write(true).open(at.join("s")).unwrap().write_all(&new).unwrap();
        });
        // The last of them asks whether the source is what it was.
        injected(at, "fstat:delay_enter=400000", &["--durable", "s", "d"])
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read(at.join("d")).unwrap() == new, "as it was before the change");
}
