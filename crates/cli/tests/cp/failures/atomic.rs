//! `--atomic`: a name leads to the old file or to the whole new one, whatever ends the run.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::oracle::{
    machine::{self, Ran, Setting, Which},
    scene,
};

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn ours(engine: &'static str, line: &str, at: &Path) -> Ran {
    let words: Vec<&str> = line.split(' ').collect();
    machine::run(Which::Ours(engine), &words, at, &Setting::default())
}

#[track_caller]
fn silent(ran: &Ran) {
    assert_eq!((ran.status, &*ran.out, &*ran.err), (Some(0), "", ""));
}

fn started(engine: &str, at: &Path) -> Child {
    let words = [engine, "--atomic", "--reflink=never", "--depth=4", "--block=16k", "s", "d"];
    let mut command = Command::new(machine::ours());
    command.args(words).current_dir(at).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn temporary_names(at: &Path) -> Vec<String> {
    let names = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with(".cp-")).collect()
}

#[test]
fn killed_at_any_moment_it_leaves_the_old_file_or_the_new_one() {
    let scene = scene();
    let at = scene.path();
    let (old, new) = (bytes(1, 3 << 20), bytes(2, 48 << 20));
    fs::write(at.join("s"), &new).unwrap();
    let mut survived = 0;
    for round in 0..20 {
        for (engine, is_there) in machine::engines().into_iter().zip([true, round % 2 == 0, true]) {
            let _ = fs::remove_file(at.join("d"));
            if is_there {
                fs::write(at.join("d"), &old).unwrap();
            }
            let mut child = started(engine, at);
            // Moments over the whole of it; a good part of them before its end.
            std::thread::sleep(Duration::from_millis(round * 2));
            child.kill().unwrap();
            child.wait().unwrap();
            match fs::read(at.join("d")) {
                Ok(copy) if copy == new => {}
                Ok(copy) => {
                    assert!(is_there && copy == old, "{engine} {round}: {} bytes", copy.len());
                    survived += 1;
                }
                Err(_) => {
                    assert!(!is_there, "{engine} {round}: nothing is left");
                    survived += 1;
                }
            }
            for name in temporary_names(at) {
                fs::remove_file(at.join(name)).unwrap();
            }
        }
    }
    assert!(survived > 0, "none was killed before its end");
}

/// The source is long enough that the signal comes in the middle.
#[test]
fn a_signal_removes_temporary_names_and_ends_it() {
    let scene = scene();
    let at = scene.path();
    let file = fs::File::create(at.join("s")).unwrap();
    file.set_len(4 << 30).unwrap();
    fs::write(at.join("d"), "old").unwrap();
    for engine in machine::engines() {
        for (name, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
            // Written in full it takes far longer than the signal; all of it fits on the disk.
            let words = [engine, "--atomic", "--sparse=never", "--reflink=never", "s", "d"];
            // What the tests' caller ignores is not ignored here: nohup(1) has SIGHUP so.
            let mut child = Command::new("env")
                .args(["--default-signal=HUP,INT,TERM", "--"])
                .arg(machine::ours())
                .args(words)
                .current_dir(at)
                .spawn()
                .unwrap();
            while temporary_names(at).is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let pid = child.id().to_string();
            assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
            let status = child.wait().unwrap();
            use std::os::unix::process::ExitStatusExt;
            assert_eq!(status.signal(), Some(number), "{engine}");
            assert_eq!(fs::read(at.join("d")).unwrap(), b"old", "{engine} {name}");
            assert_eq!(temporary_names(at), [""; 0], "{engine} {name}");
        }
    }
}

#[test]
fn a_signal_that_is_ignored_stays_so() {
    let scene = scene();
    let at = scene.path();
    let script = format!(
        "trap '' HUP INT; mkfifo p; {} --atomic --copy-contents s/p new & \
         exec 3>p; kill -HUP $!; kill -INT $!; echo all >&3; exec 3>&-; wait $!",
        machine::ours().display()
    );
    fs::create_dir(at.join("s")).unwrap();
    symlink("../p", at.join("s/p")).unwrap();
    let status = Command::new("timeout").args(["20", "sh", "-c", &script]).current_dir(at).status();
    assert!(status.unwrap().success());
    assert_eq!(fs::read(at.join("new")).unwrap(), b"all\n");
}

#[test]
fn a_failed_copy_leaves_the_old_file_and_no_temporary_name() {
    let scene = scene();
    let at = scene.path();
    fs::write(at.join("s"), bytes(3, 4 << 20)).unwrap();
    for engine in machine::engines() {
        fs::write(at.join("d"), "old").unwrap();
        for target in ["d", "new"] {
            // What is written behind 1 MiB fails with EFBIG, where the signal is ignored.
            let script = format!(
                "trap '' XFSZ; ulimit -f 1024; exec {} {engine} --atomic s {target}",
                machine::ours().display()
            );
            let output = Command::new("bash").args(["-c", &script]).current_dir(at).output();
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{engine}: {said}");
            assert!(said.contains("File too large"), "{engine}: {said}");
        }
        assert_eq!(fs::read(at.join("d")).unwrap(), b"old", "{engine}");
        assert!(!at.join("new").exists(), "{engine}");
        assert_eq!(temporary_names(at), [""; 0], "{engine}");
    }
}

#[test]
fn what_is_replaced_keeps_its_permissions_owner_and_link() {
    let scene = scene();
    let at = scene.path();
    fs::write(at.join("s"), "new").unwrap();
    for engine in machine::engines() {
        fs::write(at.join("d"), "old").unwrap();
        fs::set_permissions(at.join("d"), fs::Permissions::from_mode(0o4751)).unwrap();
        if machine::is_root() {
            std::os::unix::fs::chown(at.join("d"), Some(7), Some(8)).unwrap();
            fs::set_permissions(at.join("d"), fs::Permissions::from_mode(0o640)).unwrap();
        }
        let _ = symlink("d", at.join("link"));
        let before = fs::metadata(at.join("d")).unwrap();
        silent(&ours(engine, "--atomic s link", at));
        let after = fs::metadata(at.join("d")).unwrap();
        assert_eq!(fs::read(at.join("d")).unwrap(), b"new", "{engine}");
        assert!(fs::symlink_metadata(at.join("link")).unwrap().is_symlink(), "{engine}");
        assert_ne!(before.ino(), after.ino(), "{engine}: written over");
        if machine::is_root() {
            assert_eq!((after.uid(), after.gid(), after.mode()), (7, 8, 0o100640), "{engine}");
        }
        fs::remove_file(at.join("d")).unwrap();
    }
}

#[test]
fn trees_come_out_as_without_it() {
    let scene = scene();
    let at = scene.path();
    for directory in ["s/a/b", "s/c", "d/s/c"] {
        fs::create_dir_all(at.join(directory)).unwrap();
    }
    for (seed, name) in ["s/1", "s/a/2", "s/a/b/3", "s/c/4", "d/s/c/4"].into_iter().enumerate() {
        fs::write(at.join(name), bytes(seed as u64, 200_000 * seed)).unwrap();
    }
    fs::hard_link(at.join("s/1"), at.join("s/a/one")).unwrap();
    fs::hard_link(at.join("d/s/c/4"), at.join("d/other")).unwrap();
    symlink("1", at.join("s/link")).unwrap();
    fs::set_permissions(at.join("s/a/b"), fs::Permissions::from_mode(0o555)).unwrap();
    let plain = "rm -rf new && cp -a d new";
    for engine in machine::engines() {
        for flags in ["--jobs=1", "--jobs=4", "--durable", "--verify", "--remove-destination"] {
            let made = Command::new("sh").args(["-c", plain]).current_dir(at).status();
            assert!(made.unwrap().success());
            silent(&ours(engine, &format!("--atomic {flags} -a s new"), at));
            let compare = "diff -r --no-dereference s new/s && test $(stat -c %h new/s/1) = 2 \
                           && test $(stat -c %Y%a s/a/b) = $(stat -c %Y%a new/s/a/b) \
                           && test -z \"$(find . -name '.cp-*')\"";
            let same = Command::new("sh").args(["-c", compare]).current_dir(at).output().unwrap();
            assert!(same.status.success(), "{engine} {flags}: {same:?}");
        }
    }
    crate::oracle::world::open_up(at);
}

#[test]
fn two_sources_of_one_name_are_told_apart() {
    let scene = scene();
    let at = scene.path();
    for directory in ["one", "two", "d"] {
        fs::create_dir(at.join(directory)).unwrap();
    }
    fs::write(at.join("one/f"), bytes(1, 300_000)).unwrap();
    fs::write(at.join("two/f"), bytes(2, 300_000)).unwrap();
    for engine in machine::engines() {
        let ran = ours(engine, "--atomic --jobs=4 one/f two/f d", at);
        let said = "cp: will not overwrite just-created 'd/f' with 'two/f'\n";
        assert_eq!((ran.status, &*ran.err), (Some(1), said), "{engine}");
        assert!(fs::read(at.join("d/f")).unwrap() == bytes(1, 300_000), "{engine}");
        fs::remove_file(at.join("d/f")).unwrap();
    }
}

#[test]
fn durable_content_comes_before_the_name_and_the_name_before_the_end() {
    if Command::new("strace").arg("-V").output().is_err() {
        return machine::skip("no strace to see the order of system calls with");
    }
    let scene = scene();
    let at = scene.path();
    fs::write(at.join("s"), "new").unwrap();
    let calls = "trace=fsync,linkat,rename,renameat,renameat2,syncfs";
    for engine in machine::engines() {
        for existing in [false, true] {
            fs::write(at.join("d"), "old").unwrap();
            if !existing {
                fs::remove_file(at.join("d")).unwrap();
            }
            let traced = Command::new("strace")
                .args(["-f", "-e", calls, "-e", "signal=none", "-o", "trace"])
                .arg(machine::ours())
                .args([engine, "--atomic", "--durable", "s", "d"])
                .current_dir(at)
                .status();
            assert!(traced.unwrap().success());
            let trace = fs::read_to_string(at.join("trace")).unwrap();
            let called = trace.lines().filter(|line| line.ends_with("= 0"));
            let called = called.map(|line| line.split_once(' ').unwrap().1.trim_start());
            let names = called.map(|call| call.split('(').next().unwrap());
            // An older strace shows every call that it has no name for.
            let names: Vec<&str> = names.filter(|name| !name.starts_with("syscall_")).collect();
            let named = if existing { "renameat" } else { "linkat" };
            assert_eq!(names, ["fsync", named, "syncfs"], "{engine}: {trace}");
        }
    }
}

#[test]
fn what_cannot_be_had_together_is_refused() {
    let scene = scene();
    let ran = ours("--engine=auto", "--atomic -b a b", scene.path());
    assert_eq!(ran.status, Some(1));
    assert!(ran.err.contains("--atomic and --backup are mutually exclusive"), "{ran:?}");
}
