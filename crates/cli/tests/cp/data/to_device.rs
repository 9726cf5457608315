//! With `--durable` a file alone goes from the page cache to the device by direct writes. The tests
//! copy files that end in the middle of a block, change meanwhile, or find no room.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use crate::{
    edges::{SMALL_EXT4, mount_made},
    failures::{
        faults::{place, threads_that, tree_traced},
        kills,
    },
    oracle::{
        machine::{self, Ran, Setting, Which},
        scene,
    },
};

const AUTO: Which = Which::Ours("--engine=auto");
/// A run that waits for the device sends all of them that way.
const FLAGS: [&str; 2] = ["--reflink=never", "--durable"];

fn copy(flags: &[&str], at: &Path) -> Ran {
    let words: Vec<&str> = FLAGS.iter().chain(flags).copied().chain(["s", "d"]).collect();
    machine::run(AUTO, &words, at, &Setting::default())
}

fn started(engine: &str, at: &Path) -> Child {
    let mut command = Command::new(machine::ours());
    command.arg(engine).args(FLAGS).args(["s", "d"]).current_dir(at).spawn().unwrap()
}

/// Whether files of this directory go that way: direct writes are needed.
fn is_to_be_had(at: &Path) -> bool {
    fs::write(at.join("s"), vec![1; 5 << 20]).unwrap();
    let ran = copy(&["--debug"], at);
    fs::remove_file(at.join("s")).unwrap();
    fs::remove_file(at.join("d")).unwrap();
    let is_direct = ran.out.contains("'d': past the page cache (");
    if !is_direct {
        machine::skip(&format!("no direct writes here: {}", ran.out.trim()));
    }
    is_direct
}

#[test]
fn every_end_of_a_file_comes_out_whole() {
    let scene = scene();
    if !is_to_be_had(scene.path()) {
        return;
    }
    const MIB: usize = 1 << 20;
    let mut random = fastrand::Rng::with_seed(7);
    for size in [
        (64 << 10) + 1,
        128 << 10,
        (128 << 10) + 1,
        MIB - 1,
        4 * MIB,
        4 * MIB + 1,
        4 * MIB + (64 << 10),
        4 * MIB + (64 << 10) + 1,
        9 * MIB + 4095,
    ] {
        let mut content = vec![0; size];
        random.fill(&mut content);
        fs::write(scene.path().join("s"), &content).unwrap();
        for flags in [&[][..], &["--block=64k", "--depth=3"], &["--block=1k", "--depth=1"]] {
            let ran = copy(flags, scene.path());
            assert_eq!((ran.status, &*ran.err), (Some(0), ""), "{size} {flags:?}");
            let copied = fs::read(scene.path().join("d")).unwrap();
            assert!(copied == content, "{size} bytes, {flags:?}: {} bytes", copied.len());
            // Once more over what is there, which is longer or shorter.
            fs::write(scene.path().join("d"), vec![2; size / 2]).unwrap();
            assert_eq!(copy(flags, scene.path()).status, Some(0));
            assert!(fs::read(scene.path().join("d")).unwrap() == content, "{size}: over another");
            fs::remove_file(scene.path().join("d")).unwrap();
        }
    }
}

/// A source without a zero in it, cut or grown during the copy: what is copied has none either. On
/// every engine; what is copied from its start to its end may end anywhere between both lengths.
#[test]
fn a_source_that_changes_its_length_is_copied_as_it_was_at_some_moment() {
    let scene = scene();
    if !is_to_be_had(scene.path()) {
        return;
    }
    const WHOLE: usize = (24 << 20) + 4000;
    let mut random = fastrand::Rng::with_seed(3);
    for round in 0..36 {
        let engines = machine::engines();
        let engine = engines[round / 3 % engines.len()];
        let source = scene.path().join("s");
        fs::write(&source, vec![0x55; WHOLE]).unwrap();
        let mut child = started(engine, scene.path());
        std::thread::sleep(Duration::from_micros(random.u64(500..15_000)));
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
        assert_eq!(child.wait().unwrap().code(), Some(0), "{engine} round {round}");
        let copied = fs::read(scene.path().join("d")).unwrap();
        let is_of_a_moment = match engine {
            "--engine=auto" => [len, WHOLE].contains(&copied.len()),
            _ => (len.min(WHOLE)..=len.max(WHOLE)).contains(&copied.len()),
        };
        assert!(is_of_a_moment, "{engine} round {round}: {} of {len}", copied.len());
        let other = copied.iter().position(|byte| *byte != 0x55);
        assert_eq!(other, None, "{engine} round {round}: no byte of the source");
        fs::remove_file(scene.path().join("d")).unwrap();
    }
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
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..kills::rounds(8) {
        let mut child = started("--engine=auto", scene.path());
        std::thread::sleep(Duration::from_micros(random.u64(1000..60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        kills::left(round, &source, &copy, &content);
        let _ = fs::remove_file(&copy);
    }
}

/// On a file system of its own, too small for it.
#[test]
fn no_space_is_an_error_of_that_file_and_leaves_it_shorter() {
    let scene = scene();
    let small = scene.path().join("small");
    let Some(mounted) = mount_made(scene.path(), SMALL_EXT4, &small) else { return };
    fs::create_dir(small.join("s")).unwrap();
    fs::write(small.join("s/big"), vec![1; 12 << 20]).unwrap();
    fs::write(small.join("s/after"), "").unwrap();
    let words = [&FLAGS[..], &["-r", "s", "d"]].concat();
    let ran = machine::run(AUTO, &words, &small, &Setting::default());
    let big = fs::metadata(small.join("d/big")).map(|found| found.len());
    let after = small.join("d/after").exists();
    mounted.unmount();
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(after && ran.err.lines().count() == 1, "{ran:?}");
    assert!(ran.err.contains("'d/big': No space left on device"), "{ran:?}");
    assert!(big.is_ok_and(|len| len < 12 << 20), "it looks whole");
}

/// A place for a tree `s` that is to be traced, where its files can go that way.
fn tree() -> Option<(tempfile::TempDir, PathBuf)> {
    let scene = place()?;
    let at = scene.path().join("tree");
    fs::create_dir(&at).unwrap();
    if !is_to_be_had(&at) {
        return None;
    }
    fs::create_dir(at.join("s")).unwrap();
    Some((scene, at))
}

/// Who reads copies back waits for the device: the processors alone do not say how many pay.
#[test]
fn more_threads_read_copies_back() {
    let Some((_scene, at)) = tree() else { return };
    for number in 0..12_u8 {
        fs::write(at.join("s").join(number.to_string()), vec![number; 3 << 20]).unwrap();
    }
    let readers = |flags: &[&str]| {
        let slow = ["inject=fdatasync:delay_enter=50000"];
        let flags = [&["--verify", "--reflink=never"], flags].concat();
        threads_that(&tree_traced(&at, &slow, &flags), "fdatasync(").len()
    };
    assert_eq!((readers(&[]), readers(&["--jobs=2"])), (6, 2));
}

#[test]
fn many_of_them_need_few_descriptors() {
    let scene = scene();
    fs::create_dir(scene.path().join("s")).unwrap();
    for number in 0..60_u8 {
        let name = scene.path().join("s").join(number.to_string());
        fs::write(name, vec![number; 200_000 + usize::from(number)]).unwrap();
    }
    for flags in [FLAGS.join(" "), String::new()] {
        let cp = machine::ours().display().to_string();
        let copy = format!("ulimit -n 40; {cp} {flags} -r s d && diff -r s d && rm -r d");
        let output =
            Command::new("sh").args(["-c", &copy]).current_dir(scene.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}

/// What is at the name changes between a file, a link that leads elsewhere and a pipe, all the time.
#[test]
fn a_source_that_is_swapped_is_copied_as_what_it_is_or_refused() {
    let scene = scene();
    let at = scene.path();
    fs::create_dir(at.join("s")).unwrap();
    fs::write(at.join("secret"), vec![b'S'; 300_000]).unwrap();
    let names = ["file", "link", "pipe"];
    fs::write(at.join("file"), vec![b'A'; 300_000]).unwrap();
    std::os::unix::fs::symlink("../secret", at.join("link")).unwrap();
    let made = Command::new("mkfifo").arg(at.join("pipe")).status();
    assert!(made.unwrap().success());
    fs::hard_link(at.join("file"), at.join("s/f")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // A failed assertion has to end the thread too.
        let _ends = Ends(&is_over);
        scope.spawn(|| {
            for name in names.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // A second name of each: renames replace what is there at once.
                let _ = fs::hard_link(at.join(name), at.join("next"));
                fs::rename(at.join("next"), at.join("s/f")).unwrap();
                let _ = fs::remove_file(at.join("next"));
            }
        });
        for round in 0..30 {
            let engine = machine::ENGINES[round % 3];
            if !machine::engines().contains(&engine) {
                continue;
            }
            let words = [&FLAGS[..], &["-r", "s", "d"]].concat();
            let ran = machine::run(Which::Ours(engine), &words, at, &Setting::default());
            let copied = fs::symlink_metadata(at.join("d/f"));
            if copied.as_ref().is_ok_and(fs::Metadata::is_file) {
                let content = fs::read(at.join("d/f")).unwrap();
                assert!(content == vec![b'A'; 300_000], "{engine}: another's content");
            }
            let is_good = match ran.status {
                Some(0) => copied.is_ok() && ran.err.is_empty(),
                Some(1) => copied.is_err() && ran.err.lines().count() == 1,
                _ => false,
            };
            assert!(is_good, "{engine}: {ran:?}");
            let _ = fs::remove_dir_all(at.join("d"));
        }
    });
}

/// Sets a flag when it goes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_limit_on_files_is_an_error_and_no_death() {
    let scene = scene();
    if !is_to_be_had(scene.path()) {
        return;
    }
    fs::write(scene.path().join("s"), vec![1; 6 << 20]).unwrap();
    // In units of 512 or 1024 bytes, as the shell has it: less than the source in any case.
    let script = format!(
        "trap '' XFSZ; ulimit -f 4000; exec {} {} s d",
        machine::ours().display(),
        FLAGS.join(" ")
    );
    let output =
        Command::new("sh").args(["-c", &script]).current_dir(scene.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("cp: error ") && said.ends_with("File too large\n"), "{said}");
    assert!(fs::metadata(scene.path().join("d")).unwrap().len() < 6 << 20);
}

/// One thread is held up while others have copied what is changed then.
#[test]
fn a_source_that_is_written_meanwhile_is_copied_again() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    if !is_to_be_had(at) {
        return;
    }
    fs::write(at.join("s"), vec![0x55; 16 << 20]).unwrap();
    let mut command = Command::new("timeout");
    command.args(["60", "strace", "-f", "-q", "-o", "trace", "-e", "trace=splice"]);
    command.args(["-e", "inject=splice:delay_enter=1500000:when=3"]).arg(machine::ours());
    let mut child = command.args(FLAGS).args(["s", "d"]).current_dir(at).spawn().unwrap();
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
