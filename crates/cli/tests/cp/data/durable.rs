//! `--durable`: exit status 0 is said of what the device has, whatever kind of name it is and
//! whether this run made it.

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    process::Command,
};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{
    failures::faults::place,
    oracle::machine::{self, Setting, Which},
};

/// What the run synced, by its path.
fn synced(at: &Path, engine: &str, words: &[&str]) -> Vec<String> {
    let mut command = Command::new("timeout");
    command.args(["60", "strace", "-f", "-y", "-e", "trace=syncfs", "-o", "trace"]);
    command.arg(machine::ours()).args([engine, "--durable"]).args(words).current_dir(at);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{engine} {words:?}: {output:?}");
    let trace = fs::read_to_string(at.join("trace")).unwrap();
    // One that failed would have failed the run.
    let calls = trace.lines().filter(|line| line.contains("syncfs("));
    calls.map(|line| line.split(['<', '>']).nth(1).unwrap().to_owned()).collect()
}

#[test]
fn names_without_content_are_synced() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    symlink("s", at.join("link")).unwrap();
    mknodat(CWD, at.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    fs::create_dir(at.join("t")).unwrap();
    fs::write(at.join("t/f"), "content").unwrap();
    for engine in machine::engines() {
        for words in [
            &["-P", "link", "new"][..],
            &["-s", "s", "new"],
            &["-a", "fifo", "new"],
            &["-l", "s", "new"],
            &["-al", "s", "new"],
            &["-a", "--parents", "t/f", "new"],
            &["-l", "--parents", "t/f", "new"],
        ] {
            let new = at.join("new");
            if words.contains(&"--parents") {
                fs::create_dir(&new).unwrap();
            }
            let synced = synced(at, engine, words);
            assert_eq!(synced.len(), 1, "{engine} {words:?}: {synced:?}");
            assert!(Path::new(&synced[0]).starts_with(at), "{engine} {words:?}: {synced:?}");
            fs::remove_file(&new).or_else(|_| fs::remove_dir_all(&new)).unwrap();
        }
    }
}

/// An earlier run may have left it in memory.
#[test]
fn what_is_kept_is_synced_where_it_is() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    let far = tempfile::tempdir_in("/dev/shm").ok();
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    let Some(far) = far.filter(|far| device(far.path()) != device(at)) else {
        return machine::skip("no second file system");
    };
    fs::write(at.join("near"), "kept").unwrap();
    fs::write(far.path().join("far"), "kept").unwrap();
    symlink(far.path().join("far"), at.join("link")).unwrap();
    for engine in machine::engines() {
        for flag in ["-n", "-u", "--update=none"] {
            let near = synced(at, engine, &[flag, "s", "near"]);
            assert_eq!(near.len(), 1, "{engine} {flag}: {near:?}");
            assert!(Path::new(&near[0]).starts_with(at), "{engine} {flag}: {near:?}");
            let both = synced(at, engine, &[flag, "s", "link"]);
            let is_there = |place: &Path| both.iter().any(|one| Path::new(one).starts_with(place));
            assert!(is_there(at) && is_there(far.path()), "{engine} {flag}: {both:?}");
        }
    }
    assert_eq!(fs::read(far.path().join("far")).unwrap(), b"kept");
}

/// Names may be made in a directory that nobody can open to sync it.
#[test]
fn what_cannot_be_synced_is_told() {
    if !machine::is_root() {
        return machine::skip("only root can become another");
    }
    let Some(scene) = place() else { return };
    let at = scene.path();
    let script = "mkdir drop && ln -s s link && chmod 733 drop";
    assert!(Command::new("sh").args(["-c", script]).current_dir(at).status().unwrap().success());
    let setting = Setting { as_nobody: true, ..Setting::default() };
    let words = ["--durable", "-P", "link", "drop"];
    let ran = machine::run(Which::Ours("--engine=auto"), &words, at, &setting);
    let told = "cp: syncing the file system of 'drop/link': Permission denied\n";
    assert_eq!((ran.status, &*ran.err), (Some(1), told));
    assert!(fs::symlink_metadata(at.join("drop/link")).unwrap().is_symlink());
}
