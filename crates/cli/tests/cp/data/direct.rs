//! Files of a tree that are not in memory are read past the page cache. The tests copy files that end in
//! the middle of a part, change meanwhile, or find no room. One file alone is in `piped.rs`.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use crate::{
    data::cold::{forget, is_past_memory},
    disk::{Device, Disk},
    edges::{SMALL_EXT4, mount_made, shell},
    failures::kills,
    oracle::{
        machine::{self, Ran, Setting, Which},
        scene,
    },
};

const MIB: usize = 1 << 20;
const PAST: &str = "past the page cache";
/// The beginning of a command line, and how the plan calls the way that larger files of `s` go then.
/// A long hole is one file more, which goes another way.
type Way = (&'static str, &'static [&'static str]);
const WAYS: [Way; 3] = [
    (PAST, &["--jobs=2", "--reflink=never", "-r", "hole"]),
    (PAST, &["--jobs=2", "--reflink=never", "--durable", "-r", "hole"]),
    (PAST, &["--jobs=2", "--reflink=never", "-r"]),
];
const HOLE_BYTES: u64 = 128 << 20;

fn copy(words: &[&str], at: &Path, setting: &Setting) -> Ran {
    machine::run(Which::Ours("--engine=auto"), words, at, setting)
}

fn started((_, begin): Way, at: &Path) -> Child {
    Command::new(machine::ours()).args(begin).args(["s", "d"]).current_dir(at).spawn().unwrap()
}

/// Makes `s` with these files and has none of them in memory. False: it stays there, and that is said.
pub fn is_laid(at: &Path, files: &[(&str, &[u8])]) -> bool {
    fs::create_dir_all(at.join("s")).unwrap();
    fs::create_dir_all(at.join("d")).unwrap();
    File::create(at.join("hole")).unwrap().set_len(HOLE_BYTES).unwrap();
    for (name, content) in files {
        fs::write(at.join("s").join(name), content).unwrap();
    }
    is_forgotten(at, files)
}

fn is_forgotten(at: &Path, files: &[(&str, &[u8])]) -> bool {
    rustix::fs::syncfs(File::open(at).unwrap()).unwrap();
    let is_cold = files.iter().all(|(name, _)| forget(&at.join("s").join(name)));
    if !is_cold {
        machine::skip("what is in memory stays there, or nobody tells");
    }
    is_cold
}

pub fn random_bytes(len: usize) -> Vec<u8> {
    let mut content = vec![0; len];
    fastrand::Rng::with_seed(len as u64).fill(&mut content);
    content
}

fn differ(at: &Path) -> String {
    let output = Command::new("diff").args(["-r", "s", "d/s"]).current_dir(at).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_end_of_a_file_comes_out_whole() {
    let scene = scene();
    let sizes = [MIB, MIB + 1, 3 * MIB / 2 - 4096, 2 * MIB - 1, 13 * MIB, 13 * MIB + 4095];
    let contents: Vec<(String, Vec<u8>)> =
        sizes.iter().map(|len| (len.to_string(), random_bytes(*len))).collect();
    let files: Vec<(&str, &[u8])> =
        contents.iter().map(|(name, content)| (name.as_str(), content.as_slice())).collect();
    for (way, begin) in WAYS {
        if !is_laid(scene.path(), &files) {
            return;
        }
        let words = [begin, &["--debug", "s", "d"]].concat();
        let ran = copy(&words, scene.path(), &Setting::default());
        let is_past =
            |(name, _): &(&str, &[u8])| is_past_memory(&scene.path().join("s").join(name));
        let past: Vec<bool> = files.iter().map(is_past).collect();
        let found = (ran.status, &*ran.err, differ(scene.path()));
        assert_eq!(found, (Some(0), "", String::new()), "{begin:?}");
        assert_eq!(past, vec![true; files.len()], "{begin:?}: in memory afterwards: {}", ran.out);
        let count = ran.out.matches(&format!(": {way} (")).count();
        assert_eq!(count, sizes.len(), "{begin:?}: {}", ran.out);
        // Once more over what is there, which is longer.
        for (name, content) in &files {
            fs::write(scene.path().join("d/s").join(name), vec![2; content.len() * 2]).unwrap();
        }
        assert!(is_forgotten(scene.path(), &files));
        let ran = copy(&[begin, &["s", "d"]].concat(), scene.path(), &Setting::default());
        let found = (ran.status, &*ran.err, differ(scene.path()));
        assert_eq!(found, (Some(0), "", String::new()), "{begin:?}: over others");
        fs::remove_dir_all(scene.path().join("d")).unwrap();
    }
}

/// Nobody may open the copy once more here, so all of it goes through the page cache.
#[test]
fn a_copy_that_may_not_be_written_by_name_comes_out_whole() {
    if !machine::is_root() {
        return machine::skip("needs root, to become somebody else");
    }
    let scene = scene();
    let at = scene.path();
    let content = random_bytes(130 * MIB + 5);
    if !is_laid(at, &[("f", &content)]) {
        return;
    }
    assert!(shell(at, "chmod 777 . && chmod 444 s/f"));
    let nobody = Setting { as_nobody: true, ..Setting::default() };
    let ran = copy(&["s/f", "e"], at, &nobody);
    assert_eq!((ran.status, &*ran.err), (Some(0), ""));
    assert!(fs::read(at.join("e")).unwrap() == content, "it differs");
}

/// A source without a zero in it, cut or grown during the copy: what is copied has none either.
#[test]
fn a_source_that_changes_its_length_is_copied_as_it_was_at_some_moment() {
    // A multiple of what is read at a time: no read tells that there is more.
    const WHOLE: usize = 24 * MIB;
    let scene = scene();
    let at = scene.path();
    let content = vec![0x55; WHOLE];
    let mut random = fastrand::Rng::with_seed(3);
    let mut have_grown = 0;
    for round in 0..18 {
        if !is_laid(at, &[("f", &content)]) {
            return;
        }
        let mut child = started(WAYS[round % 3], at);
        // On a busy machine it begins late.
        while !at.join("d/s/f").exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(100));
        }
        // What is there when the copy ends has come with it.
        let is_cut = round % 6 < 3;
        std::thread::sleep(Duration::from_micros(if is_cut { random.u64(..12_000) } else { 0 }));
        let mut file = File::options().append(true).open(at.join("s/f")).unwrap();
        let len = match is_cut {
            true => random.usize(1..WHOLE),
            false => WHOLE + 301,
        };
        match is_cut {
            true => file.set_len(len as u64).unwrap(),
            false => file.write_all(&[0x55; 301]).unwrap(),
        }
        assert_eq!(child.wait().unwrap().code(), Some(0), "round {round}");
        let copied = fs::read(at.join("d/s/f")).unwrap();
        assert!([len, WHOLE].contains(&copied.len()), "round {round}: {} of {len}", copied.len());
        have_grown += usize::from(copied.len() > WHOLE);
        let other = copied.iter().position(|byte| *byte != 0x55);
        assert_eq!(other, None, "round {round}: no byte of the source");
        fs::remove_dir_all(at.join("d")).unwrap();
    }
    assert!(have_grown > 0, "what was added meanwhile was never copied");
}

/// Also at the moment when it gets its length.
#[test]
fn killed_at_any_moment_it_is_shorter_or_whole() {
    let scene = scene();
    let at = scene.path();
    let (source, copy) = (at.join("s/f"), at.join("d/s/f"));
    let content = kills::content(48 * MIB);
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..kills::rounds(12) {
        if !is_laid(at, &[("f", &content)]) {
            return;
        }
        let mut child = started(WAYS[round % 3], at);
        let len = || fs::metadata(&copy).map(|found| found.len() as usize);
        let wanted = if round % 2 == 0 { 0 } else { content.len() };
        while !len().is_ok_and(|len| len >= wanted) && child.try_wait().unwrap().is_none() {
            std::hint::spin_loop();
        }
        if wanted == 0 {
            std::thread::sleep(Duration::from_micros(random.u64(..30_000)));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills::left(round, &source, &copy, &content);
        let _ = fs::remove_dir_all(at.join("d"));
    }
}

/// On a file system of its own, too small for all of them.
#[test]
fn no_space_is_an_error_of_each_file_that_finds_none() {
    let scene = scene();
    let small = scene.path().join("small");
    let Some(mounted) = mount_made(scene.path(), SMALL_EXT4, &small) else { return };
    let content = vec![7; 3 * MIB + 100];
    let names: Vec<String> = (0..12).map(|name| name.to_string()).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &content[..])).collect();
    // The sources are elsewhere.
    let is_cold = is_laid(scene.path(), &files);
    for (_, begin) in WAYS {
        let target = small.join("d");
        fs::create_dir(&target).unwrap();
        let words = [begin, &["s", target.to_str().unwrap()]].concat();
        let ran = copy(&words, scene.path(), &Setting::default());
        let whole = names.iter().filter(|name| {
            let copied = fs::read(target.join("s").join(name)).unwrap_or_default();
            assert!(copied.len() != content.len() || copied == content, "one only looks whole");
            copied.len() == content.len()
        });
        let failed = names.len() - whole.count();
        assert!((1..names.len()).contains(&failed) || !is_cold, "{begin:?}: {failed}");
        assert_eq!((ran.status, ran.err.lines().count()), (Some(1), failed), "{ran:?}");
        assert!(
            ran.err.lines().all(|line| line.ends_with("': No space left on device")),
            "{ran:?}"
        );
        fs::remove_dir_all(target).unwrap();
    }
    mounted.unmount();
}

#[test]
fn a_limit_of_length_is_an_error_of_the_files_that_are_longer() {
    let scene = scene();
    // The first finds no room for its blocks; the second, which is one write, none for that.
    let files =
        [("long", vec![3; 4 * MIB]), ("middle", vec![4; 409_600]), ("short", vec![5; 200_000])];
    let files = files.each_ref().map(|(name, content)| (*name, content.as_slice()));
    for (_, begin) in WAYS {
        if !is_laid(scene.path(), &files) {
            return;
        }
        let program = machine::ours().display().to_string();
        // In blocks of 512 bytes.
        let words = begin.join(" ");
        let script = format!("trap '' XFSZ; ulimit -f 512; exec {program} {words} s d");
        let output =
            Command::new("sh").args(["-c", &script]).current_dir(scene.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let hole = begin.contains(&"hole").then_some("'d/hole'");
        let failed: Vec<&str> = hole.into_iter().chain(["'d/s/long'", "'d/s/middle'"]).collect();
        let found = (output.status.code(), said.lines().count());
        assert_eq!(found, (Some(1), failed.len()), "{said}");
        for name in failed {
            let line = said.lines().find(|line| line.contains(name));
            assert!(line.is_some_and(|line| line.ends_with(": File too large")), "{said}");
        }
        assert!(fs::read(scene.path().join("d/s/short")).unwrap() == files[2].1);
        for (name, content) in &files[..2] {
            let len = fs::metadata(scene.path().join("d/s").join(name)).unwrap().len();
            assert!(len < content.len() as u64, "{name} looks whole");
        }
        fs::remove_dir_all(scene.path().join("d")).unwrap();
    }
}

#[test]
fn many_of_them_need_few_descriptors() {
    let scene = scene();
    let content = random_bytes(MIB + 7);
    let names: Vec<String> = (0..30).map(|name| name.to_string()).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &content[..])).collect();
    for (_, begin) in WAYS {
        if !is_laid(scene.path(), &files) {
            return;
        }
        let cp = machine::ours().display().to_string();
        let words = begin.join(" ");
        let script = format!("ulimit -n 40; {cp} {words} s d && diff -r s d/s && rm -r d/s");
        let output =
            Command::new("sh").args(["-c", &script]).current_dir(scene.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}

/// Whatever is written straight to it: what goes through the page cache fails later.
#[test]
fn a_device_that_fails_fails_the_copy() {
    if !machine::is_root() {
        return machine::skip("only root can mount");
    }
    let scene = scene();
    let Some(disk) = Disk::mount(Device::Failing) else { return };
    let content = random_bytes(2 * MIB + 9);
    if !is_laid(scene.path(), &[("one", &content), ("two", &content)]) {
        return;
    }
    let target = disk.path().join("d");
    fs::create_dir(&target).unwrap();
    let words = ["--jobs=2", "--durable", "-r", "hole", "s", target.to_str().unwrap()];
    disk.fail(true);
    let ran = copy(&words, scene.path(), &Setting::default());
    disk.fail(false);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.err.ends_with(": Input/output error\n"), "{ran:?}");
}
