//! Directories of many small files, whose names threads get: what is made and said is the same, in
//! the same order, as if one file were copied after the other.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    edges::shell,
    failures::faults::{place, threads_that, tree_traced},
    oracle::{
        machine::{self, Setting, Which},
        outcome, same, scene,
    },
};

/// Copies the tree `s`, with each call that makes a file written down: its thread.
fn makers(at: &Path, flags: &[&str]) -> BTreeSet<String> {
    threads_that(&tree_traced(at, &["trace=openat"], flags), "O_CREAT|O_EXCL")
}

#[test]
fn threads_make_the_files_of_new_directories() {
    let Some(scene) = place() else { return };
    let at = scene.path().join("here");
    fs::create_dir_all(at.join("s")).unwrap();
    for directory in 0..6 {
        let directory = at.join("s").join(directory.to_string());
        fs::create_dir(&directory).unwrap();
        for number in 0..50_usize {
            fs::write(directory.join(number.to_string()), vec![7; number * 100]).unwrap();
        }
    }
    assert!(makers(&at, &["--jobs=2"]).len() > 1, "the walk made them all");
    for flags in [&["--jobs=1"][..], &["--jobs=2", "--atomic"], &["--jobs=2", "--verify"]] {
        assert!(makers(&at, flags).len() <= 1, "{flags:?}");
    }
}

/// Names of one directory are made under its lock. Where that is what takes the time, a second thread
/// would only wait for the first.
#[test]
fn one_thread_makes_the_names_of_a_directory_where_that_takes_the_time() {
    let Some(scene) = place() else { return };
    let at = scene.path().join("here");
    fs::create_dir_all(at.join("s")).unwrap();
    for number in 0..400_usize {
        fs::write(at.join("s").join(number.to_string()), vec![7; number]).unwrap();
    }
    let makers = |slow: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["60", "strace", "-f", "-q", "-o", "../trace", "-e", "trace=openat"]);
        // Only calls in the directory that is made.
        command.args(["-P", at.join("d").to_str().unwrap()]).args(slow).arg(machine::ours());
        let copy = command.args(["--jobs=2", "--reflink=never", "-r", "s", "d"]).current_dir(&at);
        assert!(copy.status().unwrap().success());
        assert!(shell(&at, "diff -r s d && rm -r d"));
        threads_that(&fs::read_to_string(at.join("../trace")).unwrap(), "O_CREAT|O_EXCL").len()
    };
    // On a busy machine a thread may lose its processor at a name, which looks like waiting for the other, or between two
    // names, which looks like other work.
    assert!((0..5).any(|_| makers(&[]) == 3), "the walk and two threads");
    let mut tries = (0..5).map(|_| makers(&["-e", "inject=openat:delay_exit=3000"]));
    assert!(tries.any(|threads| threads == 2), "the walk and one thread");
}

/// All that there is beside small files, among them.
const CROWD: &str = "mkdir -p s/x/deep s/y && cd s && \
    for d in . x x/deep y; do for n in $(seq 1 70); do echo $d $n > $d/$n; done; done && \
    truncate -s 300000 x/13 && head -c 200000 /dev/urandom > x/20 && rm x/31 && ln x/30 x/31 && \
    rm y/40 && ln x/41 y/40 && rm x/50 && mkfifo x/50 && rm x/51 && ln -s 52 x/51 && \
    chmod 000 x/9 x/60 x/61 x/62 y/66 && chmod 444 y/2 && chmod 4755 y/3 && \
    setfattr -n user.note -v remember y/4 2>/dev/null; \
    touch -hd 2001-01-01 $(find . ! -type d) && chmod 555 x/deep && chmod 2775 y && \
    touch -d 2002-02-02 x/deep x y .";

#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn what_is_made_and_said_is_gnus_in_its_order() {
    let scene = scene();
    if !machine::has_oracle() {
        return;
    }
    assert!(shell(scene.path(), CROWD));
    let nobody = Setting { as_nobody: true, ..Setting::default() };
    let empty = |at: &Path| {
        assert!(shell(
            at,
            "find d new -type d -exec chmod u+rwx {} + 2>/dev/null; rm -rf d new && mkdir d && chmod 777 . d"
        ));
    };
    let lines = [
        "-rv s d",
        "-av s new",
        "-r --preserve=mode s d",
        "-a --no-preserve=links s/. new",
        "-rlv s d",
        "-rx --sparse=always s d",
        "-rv s/x s/y d",
        "-rv s/x/1 s/x s/y/1 s/y s d",
        "-rv --attributes-only s d",
        "-rvLn s d",
    ];
    for (at, line) in lines.into_iter().enumerate() {
        for setting in [&Setting::default(), &nobody] {
            if setting.as_nobody && !machine::is_root() {
                continue;
            }
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let gnu = outcome(Which::Gnu, scene.path(), &words, setting, &empty);
            // As another user, each line is copied by one engine, in turn.
            let engines = machine::engines();
            let turn = at % engines.len();
            let engines = if setting.as_nobody { &engines[turn..=turn] } else { &engines[..] };
            for &engine in engines {
                let ours = outcome(Which::Ours(engine), scene.path(), &words, setting, &empty);
                same(&format!("{engine} {line}"), &gnu, &ours);
            }
        }
    }
    empty(scene.path());
}

/// What fails once a copy is made is not begun again, which would find that copy.
#[test]
fn a_copy_that_cannot_be_looked_at_is_told_of_as_that() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    assert!(shell(at, "rm s && mkdir s && for n in $(seq 60); do echo $n > s/$n; done"));
    let copies: Vec<_> = (1..=60).map(|number| at.join(format!("d/{number}"))).collect();
    let mut command = Command::new("timeout");
    command.args(["60", "strace", "-f", "-q", "-o", "trace", "-e", "inject=statx,fstat:error=EIO"]);
    for copy in &copies[40..44] {
        command.arg("-P").arg(copy);
    }
    command.arg(machine::ours()).args(["--jobs=2", "-r", "s", "d"]).env("LC_ALL", "C");
    let output = command.current_dir(at).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 4), "{said}");
    let is_told = |line: &str| {
        line.starts_with("cp: cannot fstat 'd/4") && line.ends_with("': Input/output error")
    };
    assert!(said.lines().all(is_told), "{said}");
    assert!(copies.iter().all(|copy| copy.exists()));
}

/// Who asks for a new file's times has the write after that mark its inode as changed once more.
#[test]
fn a_copy_is_not_asked_for_its_times_before_it_is_written() {
    let Some(scene) = place() else { return };
    let at = scene.path().join("here");
    fs::create_dir_all(at.join("s")).unwrap();
    for name in 0..40 {
        fs::write(at.join("s").join(name.to_string()), "content").unwrap();
    }
    // To be told from what else is looked at, and empty.
    assert!(shell(&at, "chmod 601 s/*"));
    let trace = tree_traced(&at, &["trace=fstat,statx"], &["--reflink=never"]);
    let asked = trace.lines().filter(|line| line.contains("S_IFREG|0601"));
    let asked: Vec<_> = asked.filter(|line| line.contains("_size=0,")).collect();
    assert_eq!(asked.len(), 40, "{trace}");
    let is_of_times = |line: &&str| !line.contains("stx_mask=STATX_TYPE|STATX_MODE|");
    assert_eq!(asked.into_iter().find(is_of_times), None);
}

/// Files that are handed over when there are more of them keep waiting what is said of the names behind
/// them: not of any number of names.
#[test]
fn what_fails_is_told_long_before_all_is_seen() {
    let Some(scene) = place() else { return };
    let at = scene.path().join("here");
    for directory in ["files", "links", "d"] {
        fs::create_dir_all(at.join(directory)).unwrap();
    }
    for number in 0..4 {
        fs::write(at.join("files").join(number.to_string()), "small").unwrap();
    }
    for number in 0..9000 {
        let link = at.join("links").join(format!("link{number}"));
        std::os::unix::fs::symlink("nowhere", link).unwrap();
    }
    let mut command = Command::new("timeout");
    command.args(["60", "strace", "-f", "-q", "-o", "../trace", "-e", "trace=%file,write"]);
    command.arg(machine::ours()).args(["--jobs=2", "-rL", "files", "links", "d"]);
    let output = command.current_dir(&at).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr.iter().filter(|byte| **byte == b'\n').count(), 9000);
    let trace = fs::read_to_string(at.join("../trace")).unwrap();
    let before = trace.lines().take_while(|line| !line.contains("write(2,"));
    let failed = before.filter(|line| line.contains("\"link") && line.contains("ENOENT")).count();
    assert!(failed < 5000, "{failed} names failed before the first of them was told of");
}

/// A directory that was named, and is a copy whose files are still with the threads: what it is to be
/// in the end is what is copied, and all that is in it.
#[test]
fn a_directory_that_this_run_made_is_a_source_when_it_has_its_files_and_attributes() {
    let scene = scene();
    if !machine::has_oracle() {
        return;
    }
    let tree = "mkdir -p s/sub && cd s/sub && for n in $(seq 220); do echo $n > $n; done && \
        touch -d 2001-01-01 * && chmod 2775 . && touch -d 2002-02-02 . ..";
    assert!(shell(scene.path(), tree));
    let empty = |at: &Path| assert!(shell(at, "rm -rf d && mkdir d"));
    for line in ["-a s d/s/sub d", "-r --preserve=mode,timestamps s d/s/sub d"] {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let gnu = outcome(Which::Gnu, scene.path(), &words, &Setting::default(), &empty);
        for _ in 0..5 {
            let auto = Which::Ours("--engine=auto");
            let ours = outcome(auto, scene.path(), &words, &Setting::default(), &empty);
            same(line, &gnu, &ours);
        }
    }
}

/// Each is what it was at some moment, or is told; nobody waits for a pipe's writer.
#[test]
fn names_that_are_swapped_are_copied_as_what_they_are_or_refused() {
    let scene = scene();
    let at = scene.path();
    for directory in ["s", "from"] {
        fs::create_dir(at.join(directory)).unwrap();
    }
    fs::write(at.join("secret"), "secret").unwrap();
    for number in 0..60 {
        fs::write(at.join("s").join(number.to_string()), "small").unwrap();
    }
    assert!(shell(
        at,
        "echo -n small > from/file && ln -s ../secret from/link && mkfifo from/pipe"
    ));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let kinds = ["link", "pipe", "file"];
            for round in 0_usize.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let kind = at.join("from").join(kinds[round % 3]);
                let _ = fs::hard_link(kind, at.join("next"));
                let number = 30 + round / 3 % 10;
                let _ = fs::rename(at.join("next"), at.join("s").join(number.to_string()));
                let _ = fs::remove_file(at.join("next"));
            }
        });
        let result = std::panic::catch_unwind(|| {
            for round in 0..45 {
                let engine = machine::ENGINES[round % 3];
                if machine::engines().contains(&engine) {
                    copy_swapped(engine, at);
                }
            }
        });
        is_over.store(true, Ordering::Relaxed);
        result.unwrap();
    });
}

fn copy_swapped(engine: &'static str, at: &Path) {
    let words = ["--jobs=2", "-r", "s", "d"];
    let ran = machine::run(Which::Ours(engine), &words, at, &Setting::default());
    let mut there = 0;
    for entry in fs::read_dir(at.join("d")).unwrap().map(|entry| entry.unwrap()) {
        there += 1;
        if entry.file_type().unwrap().is_file() {
            assert_eq!(fs::read(entry.path()).unwrap(), b"small", "{engine}: {ran:?}");
        }
    }
    let told = ran.err.lines().count();
    assert_eq!((there + told, ran.status), (60, Some(i32::from(told > 0))), "{engine}: {ran:?}");
    fs::remove_dir_all(at.join("d")).unwrap();
}
