//! What GNU cp has not: engines, jobs, depths, `--durable`, `--verify`, `--debug`; and trees and
//! limits that it copes with by other means.

use std::{
    fs,
    os::unix::fs::{FileExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
};

use crate::oracle::{
    machine::{self, Ran, Setting, Which},
    scene,
};

fn ours(engine: &'static str, line: &str, at: &Path) -> Ran {
    let words: Vec<&str> = line.split(' ').collect();
    machine::run(Which::Ours(engine), &words, at, &Setting::default())
}

#[track_caller]
fn silent(ran: &Ran) {
    assert_eq!((ran.status, &*ran.out, &*ran.err), (Some(0), "", ""));
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

/// Sizes about which blocks end, in blocks of 4 KiB.
const SIZES: [usize; 10] = [1, 4095, 4096, 4097, 8191, 8192, 65_536, 65_537, 300_000, 1 << 20];

#[test]
fn every_size_depth_and_block_comes_out_whole() {
    let scene = scene();
    let source = scene.path().join("s");
    fs::create_dir(&source).unwrap();
    for (seed, size) in SIZES.into_iter().enumerate() {
        fs::write(source.join(size.to_string()), bytes(seed as u64, size)).unwrap();
    }
    for engine in machine::engines() {
        for flags in [
            "--depth=1 --block=1k",
            "--depth=2 --block=4k",
            "--depth=3 --block=1000000",
            "--jobs=3",
            "--jobs=4 --verify",
            "--verify --depth=5 --block=4k",
            "--sparse=always --verify",
            "--durable",
        ] {
            let target = scene.path().join("d");
            silent(&ours(engine, &format!("{flags} -r s d"), scene.path()));
            for size in SIZES {
                let name = size.to_string();
                let (one, other) = (fs::read(source.join(&name)), fs::read(target.join(&name)));
                assert!(one.unwrap() == other.unwrap(), "{engine} {flags}: {size} bytes");
            }
            fs::remove_dir_all(target).unwrap();
        }
    }
}

#[test]
fn a_tree_deeper_than_a_path_may_be_long_is_copied_with_few_descriptors() {
    let scene = scene();
    let name = "d".repeat(200);
    let depth = 60;
    // Paths of 12,000 bytes: made and looked at from one directory to the next.
    let script = format!(
        "mkdir s && cd -P s && i=0 && while [ $i -lt {depth} ]; do mkdir {name} && cd -P {name} \
         && echo $i > f && ln f g && ln -s f l && i=$((i+1)); done"
    );
    let made = Command::new("sh").args(["-c", &script]).current_dir(scene.path()).status();
    assert!(made.unwrap().success());
    for engine in machine::engines() {
        // 40 descriptors are fewer than two for each directory.
        let copy = format!(
            "ulimit -n 40 && {} {engine} -a s d && diff -r --no-dereference s d",
            machine::ours().display()
        );
        let output = Command::new("sh").args(["-c", &copy]).current_dir(scene.path()).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // diff has the limit on paths that the copy has not; it says so, and no more.
        assert!(!said.contains("cp:"), "{engine}: {said}");
        let count =
            "find d -name f | wc -l; find d -name g -links 2 | wc -l; find d -type l | wc -l";
        let output = Command::new("sh").args(["-c", count]).current_dir(scene.path()).output();
        let counts = String::from_utf8(output.unwrap().stdout).unwrap();
        let counts: Vec<usize> = counts.split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert_eq!(counts, [depth; 3], "{engine}");
        let removed = Command::new("rm").args(["-rf", "d"]).current_dir(scene.path()).status();
        assert!(removed.unwrap().success());
    }
    let removed = Command::new("rm").args(["-rf", "s"]).current_dir(scene.path()).status();
    assert!(removed.unwrap().success());
}

#[test]
fn many_files_are_copied_with_few_descriptors() {
    let scene = scene();
    let source = scene.path().join("s");
    fs::create_dir(&source).unwrap();
    for number in 0..300 {
        fs::write(source.join(number.to_string()), bytes(number, 70_000)).unwrap();
    }
    for engine in machine::engines() {
        for jobs in ["", "--jobs=64"] {
            let copy = format!(
                "ulimit -n 40 && {} {engine} {jobs} -r s d && diff -r s d && rm -r d",
                machine::ours().display()
            );
            let output = Command::new("sh").args(["-c", &copy]).current_dir(scene.path()).output();
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{engine} {jobs}: {said}");
        }
    }
}

/// As few as GNU cp copies a tree with.
#[test]
fn ten_descriptors_are_enough_for_a_tree() {
    let scene = scene();
    let script = "mkdir -p s/d/e/f/g/h s/d/i && for n in 1 2 3; do echo $n > s/d/e/f/g/$n; \
                  echo $n > s/d/$n; ln -s $n s/d/i/$n; done && mkfifo s/d/e/fifo";
    let made = Command::new("sh").args(["-c", script]).current_dir(scene.path()).status();
    assert!(made.unwrap().success());
    for engine in ["--engine=auto", "--engine=sync"] {
        for flags in ["-r", "-a", "-a --jobs=4", "-a --verify"] {
            // What this test has open is the copy's no more.
            let copy = format!(
                "for n in 3 4 5 6 7 8 9; do eval \"exec $n>&-\"; done; mkdir d; ulimit -n 10; \
                 {} {engine} {flags} s d && diff -r --no-dereference s/d/e/f d/s/d/e/f",
                machine::ours().display()
            );
            let output = Command::new("sh").args(["-c", &copy]).current_dir(scene.path()).output();
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{engine} {flags}: {said}");
            assert!(scene.path().join("d/s/d/e/fifo").exists(), "{engine} {flags}");
            fs::remove_dir_all(scene.path().join("d")).unwrap();
        }
    }
}

/// Files that share an inode at the destination are written one after the other, never mixed.
#[test]
fn copies_onto_one_inode_are_not_mixed() {
    let scene = scene();
    let (source, target) = (scene.path().join("s"), scene.path().join("d/s"));
    fs::create_dir(&source).unwrap();
    fs::create_dir_all(&target).unwrap();
    for number in 0..20_u8 {
        fs::write(source.join(number.to_string()), vec![number; 900_000]).unwrap();
    }
    for engine in machine::engines() {
        for jobs in ["--depth=64", "--jobs=4"] {
            fs::write(target.join("0"), "").unwrap();
            for number in 1..20 {
                fs::hard_link(target.join("0"), target.join(number.to_string())).unwrap();
            }
            silent(&ours(engine, &format!("{jobs} -r s d"), scene.path()));
            let content = fs::read(target.join("7")).unwrap();
            assert_eq!(content.len(), 900_000, "{engine} {jobs}");
            assert!(content.iter().all(|byte| *byte == content[0]), "{engine} {jobs}: mixed");
            fs::remove_dir_all(&target).unwrap();
            fs::create_dir(&target).unwrap();
        }
    }
}

#[test]
fn what_is_said_keeps_the_order_of_the_sources() {
    let scene = scene();
    let source = scene.path().join("s");
    fs::create_dir(&source).unwrap();
    for number in 0..60 {
        // Large ones between small ones, so that files in flight end out of order.
        let len = if number % 7 == 0 { 3_000_000 } else { 80_000 };
        fs::write(source.join(number.to_string()), bytes(number, len)).unwrap();
    }
    let lines = |engine| {
        let ran = ours(engine, "-rv --jobs=4 s d", scene.path());
        fs::remove_dir_all(scene.path().join("d")).unwrap();
        ran.out
    };
    let first = lines("--engine=sync");
    assert_eq!(first.lines().count(), 61);
    for engine in machine::engines() {
        assert_eq!(lines(engine), first, "{engine}");
    }
}

/// A source that is longer than it says, as those of /proc, and one that is another's output.
#[test]
fn sources_without_a_size_are_read_to_their_end() {
    let scene = scene();
    for engine in machine::engines() {
        silent(&ours(engine, "/proc/cpuinfo new", scene.path()));
        assert!(fs::metadata(scene.path().join("new")).unwrap().len() > 0);
        fs::remove_file(scene.path().join("new")).unwrap();
        let script = format!("echo hello | {} {engine} /dev/stdin new", machine::ours().display());
        let ran = Command::new("sh").args(["-c", &script]).current_dir(scene.path()).output();
        assert!(ran.unwrap().status.success());
        assert_eq!(fs::read(scene.path().join("new")).unwrap(), b"hello\n");
        let ran = ours(engine, "new /dev/stdout", scene.path());
        assert_eq!((ran.status, &*ran.out), (Some(0), "hello\n"));
        fs::remove_file(scene.path().join("new")).unwrap();
    }
}

#[test]
fn a_full_disk_fails_the_files_that_it_hits_and_no_other() {
    if !machine::is_root() {
        return machine::skip("only root can mount a small file system");
    }
    let scene = scene();
    let small = scene.path().join("small");
    fs::create_dir_all(&small).unwrap();
    let mount =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&small).status();
    if !mount.is_ok_and(|status| status.success()) {
        return machine::skip("no small file system can be mounted");
    }
    let source = scene.path().join("s");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("big"), bytes(1, 4_000_000)).unwrap();
    fs::create_dir(source.join("sub")).unwrap();
    fs::write(source.join("sub/empty"), "").unwrap();
    for engine in machine::engines() {
        for jobs in ["--jobs=1", "--jobs=3"] {
            let ran = ours(engine, &format!("{jobs} -r s small/d"), scene.path());
            let failed = ran.err.lines().count() == 1
                && ran.err.contains("small/d/big': No space left on device");
            let partial = fs::metadata(small.join("d/big")).map(|metadata| metadata.len());
            let rest = small.join("d/sub/empty").exists();
            let _ = fs::remove_dir_all(small.join("d"));
            if !(failed && ran.status == Some(1) && rest && partial.is_ok_and(|n| n < 4_000_000)) {
                let _ = Command::new("umount").arg(&small).status();
                panic!("{engine} {jobs}: {ran:?}");
            }
        }
    }
    assert!(Command::new("umount").arg(&small).status().unwrap().success());
}

/// Killed half-way, a copy is shorter than its source, so that nobody takes it for one; where it
/// does not go straight to the device, it is a beginning of it.
#[test]
fn a_copy_that_was_killed_does_not_look_whole() {
    let scene = scene();
    let content = bytes(5, 64 << 20);
    fs::write(scene.path().join("s"), &content).unwrap();
    for engine in machine::engines() {
        for wait in [1, 3, 9, 20] {
            let mut child = Command::new(machine::ours())
                .args([engine, "--reflink=never", "--depth=16", "s", "d"])
                .current_dir(scene.path())
                .spawn()
                .unwrap();
            // At a random moment: any is a good one, the file may even be whole.
            std::thread::sleep(std::time::Duration::from_millis(wait));
            child.kill().unwrap();
            child.wait().unwrap();
            let copy = fs::read(scene.path().join("d")).unwrap_or_default();
            let is_beginning = content.starts_with(&copy);
            let is_shorter = engine == "--engine=auto" && copy.len() < content.len();
            assert!(is_beginning || is_shorter, "{engine} {wait} ms: {} bytes", copy.len());
            let _ = fs::remove_file(scene.path().join("d"));
        }
    }
}

#[test]
fn durable_syncs_each_file_system_once_before_it_ends() {
    if Command::new("strace").arg("-V").output().is_err() {
        return machine::skip("no strace to count system calls with");
    }
    let scene = scene();
    fs::create_dir(scene.path().join("s")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(scene.path().join("s").join(name), name).unwrap();
    }
    symlink("a", scene.path().join("s/l")).unwrap();
    for engine in machine::engines() {
        let count = |flags: &[&str]| {
            let output = Command::new("strace")
                .args(["-f", "-e", "trace=syncfs,fsync,fdatasync,close,write", "-o", "trace"])
                .arg(machine::ours())
                .arg(engine)
                .args(flags)
                .args(["-r", "s", "d"])
                .current_dir(scene.path())
                .output()
                .unwrap();
            assert!(output.status.success());
            fs::remove_dir_all(scene.path().join("d")).unwrap();
            let trace = fs::read_to_string(scene.path().join("trace")).unwrap();
            trace.lines().filter(|line| line.contains("sync") && line.contains("= 0")).count()
        };
        assert_eq!(count(&[]), 0, "{engine}");
        assert_eq!(count(&["--durable"]), 1, "{engine}");
    }
}

#[test]
fn the_plan_names_the_way_and_the_reason() {
    let scene = scene();
    fs::write(scene.path().join("small"), "x").unwrap();
    fs::write(scene.path().join("empty"), "").unwrap();
    let holes = fs::File::create(scene.path().join("holes")).unwrap();
    holes.write_all_at(b"end", 1 << 20).unwrap();
    fs::create_dir(scene.path().join("d")).unwrap();
    let said = ours("--engine=sync", "--debug small holes d", scene.path()).out;
    assert!(said.contains("'d/holes': holes (the source has holes)"), "{said}");
    assert!(said.contains("'d/small': "), "{said}");
    if machine::engines().contains(&"--engine=uring") {
        let said = ours("--engine=uring", "--plan small d", scene.path()).out;
        assert!(said.contains("'d/small': ring (") || said.contains("shared blocks"), "{said}");
    }
}

#[test]
fn update_none_keeps_and_none_fail_refuses() {
    let scene = scene();
    fs::write(scene.path().join("a"), "new").unwrap();
    fs::write(scene.path().join("b"), "old").unwrap();
    silent(&ours("--engine=auto", "--update=none a b", scene.path()));
    let ran = ours("--engine=auto", "--update=none-fail a b", scene.path());
    assert_eq!((ran.status, &*ran.err), (Some(1), "cp: not replacing 'b'\n"));
    assert_eq!(fs::read(scene.path().join("b")).unwrap(), b"old");
    silent(&ours("--engine=auto", "--update=all a b", scene.path()));
    assert_eq!(fs::read(scene.path().join("b")).unwrap(), b"new");
}

/// GNU cp 9.1 has it in the current directory; the place of a backup is beside the file.
#[test]
fn a_backup_in_a_directory_is_beside_its_file() {
    let scene = scene();
    fs::write(scene.path().join("a"), "new").unwrap();
    fs::create_dir(scene.path().join("d")).unwrap();
    fs::write(scene.path().join("d/a"), "old").unwrap();
    silent(&ours("--engine=auto", "-b a d", scene.path()));
    assert_eq!(fs::read(scene.path().join("d/a~")).unwrap(), b"old");
    assert_eq!(fs::read(scene.path().join("d/a")).unwrap(), b"new");
    assert!(!scene.path().join("a~").exists());
}

/// GNU cp 9.1 copies its copy again and again here, until paths are too long.
#[test]
fn a_copy_that_meets_itself_through_a_link_ends() {
    let scene = scene();
    fs::create_dir_all(scene.path().join("dir/sub")).unwrap();
    symlink("../..", scene.path().join("dir/sub/up")).unwrap();
    let ran = ours("--engine=auto", "-RL dir new", scene.path());
    assert_eq!(ran.status, Some(1));
    assert!(ran.err.contains("cannot copy a directory, 'dir', into itself, 'new'"), "{ran:?}");
    assert!(!scene.path().join("new/sub/up/new/sub").exists());
}

/// What could not be opened gives the backup its name back.
#[test]
fn a_failed_copy_restores_the_backup() {
    if !machine::is_root() {
        return machine::skip("only root can make files that another cannot read");
    }
    let scene = scene();
    fs::write(scene.path().join("a"), "secret").unwrap();
    fs::set_permissions(scene.path().join("a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(scene.path().join("b"), "old").unwrap();
    let setting = Setting { as_nobody: true, ..Setting::default() };
    let ran = machine::run(Which::Ours("--engine=auto"), &["-b", "a", "b"], scene.path(), &setting);
    assert_eq!(ran.status, Some(1));
    assert_eq!(fs::read(scene.path().join("b")).unwrap(), b"old");
    assert!(!scene.path().join("b~").exists());
}

#[test]
fn the_subcommand_and_the_name_are_one() {
    let scene = scene();
    fs::write(scene.path().join("-n"), "x").unwrap();
    let run = |words: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_ringwise"))
            .args(words)
            .current_dir(scene.path())
            .output()
            .unwrap();
        (ran.status.code(), String::from_utf8(ran.stderr).unwrap())
    };
    assert_eq!(run(&["cp", "--", "-n", "--"]), (Some(0), String::new()));
    assert!(scene.path().join("--").exists());
    let (status, said) = run(&["cp", "--mirror", "a", "b"]);
    assert_eq!(status, Some(1));
    assert!(said.starts_with("cp: unrecognized option '--mirror'"), "{said}");
    let ran = ours("--engine=auto", "--help", scene.path());
    assert!(ran.status == Some(0) && ran.out.contains("--remove-destination"));
}
