//! With `--durable` the files of a tree go from the page cache to the device through pipes. The tests
//! copy files that end in the middle of a block, change meanwhile, or find no room.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::Command,
    time::Duration,
};

use crate::{
    edges::{SMALL_EXT4, mount_made},
    oracle::{
        machine::{self, Ran, Setting, Which},
        scene,
    },
};

const WORDS: [&str; 6] = ["--reflink=never", "--durable", "--jobs=2", "-r", "s", "d"];
const MIB: usize = 1 << 20;

fn copy(flags: &[&str], at: &Path) -> Ran {
    let words = [flags, &WORDS[..]].concat();
    machine::run(Which::Ours("--engine=auto"), &words, at, &Setting::default())
}

/// Makes `s` with these files; false, and said so, where they do not go that way.
fn is_to_be_had(at: &Path, files: &[(String, Vec<u8>)]) -> bool {
    fs::create_dir(at.join("s")).unwrap();
    fs::write(at.join("s/try"), vec![1; MIB]).unwrap();
    let ran = copy(&["--debug"], at);
    let is_direct = ran.out.contains("'d/try': past the page cache (");
    if !is_direct {
        machine::skip(&format!("no direct writes here: {}", ran.out.trim()));
    }
    fs::remove_dir_all(at.join("d")).unwrap();
    fs::remove_file(at.join("s/try")).unwrap();
    for (name, content) in files {
        fs::write(at.join("s").join(name), content).unwrap();
    }
    is_direct
}

fn differ(at: &Path) -> String {
    let output = Command::new("diff").args(["-r", "s", "d"]).current_dir(at).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_end_of_a_file_comes_out_whole() {
    let scene = scene();
    let mut random = fastrand::Rng::with_seed(9);
    let sizes = [
        (64 << 10) + 1,
        128 << 10,
        (128 << 10) + 1,
        MIB - 1,
        MIB,
        MIB + 4095,
        3 * MIB + 4097,
        4 * MIB - 4096,
        4 * MIB,
    ];
    let files: Vec<(String, Vec<u8>)> = sizes
        .iter()
        .map(|size| {
            let mut content = vec![0; *size];
            random.fill(&mut content);
            (size.to_string(), content)
        })
        .collect();
    if !is_to_be_had(scene.path(), &files) {
        return;
    }
    let ran = copy(&["--debug"], scene.path());
    assert_eq!((ran.status, &*ran.err, differ(scene.path())), (Some(0), "", String::new()));
    assert_eq!(ran.out.matches(": past the page cache (").count(), sizes.len(), "{}", ran.out);
    // One that is alone goes the same way.
    let words = ["--reflink=never", "--durable", "--debug", "s/1048576", "alone"];
    let ran = machine::run(Which::Ours("--engine=auto"), &words, scene.path(), &Setting::default());
    assert!(ran.out.contains("'alone': past the page cache ("), "{ran:?}");
    assert!(fs::read(scene.path().join("alone")).unwrap() == files[4].1);
    // Once more over what is there, which is longer.
    for (name, content) in &files {
        fs::write(scene.path().join("d").join(name), vec![2; content.len() * 2]).unwrap();
    }
    let words = ["--reflink=never", "--durable", "--jobs=2", "-rT", "s", "d"];
    let ran = machine::run(Which::Ours("--engine=auto"), &words, scene.path(), &Setting::default());
    assert_eq!((ran.status, &*ran.err, differ(scene.path())), (Some(0), "", String::new()));
}

/// Sources without a zero in them, each cut and grown again once: what is copied has none either. The
/// kernel puts zeros behind a cut, into a page that a pipe may hold.
#[test]
fn sources_that_change_their_length_are_copied_as_they_were_at_some_moment() {
    const WHOLE: usize = 2 * MIB + 4000;
    let scene = scene();
    let at = scene.path();
    let files: Vec<_> = (0..24).map(|name| (format!("{name}"), vec![0x55; WHOLE])).collect();
    if !is_to_be_had(at, &files) {
        return;
    }
    let mut random = fastrand::Rng::with_seed(4);
    for round in 0..12 {
        // Written in one piece, they lie in large folios, all of which behind a cut are zeros at once.
        for (name, content) in &files {
            fs::remove_file(at.join("s").join(name)).unwrap();
            fs::write(at.join("s").join(name), content).unwrap();
        }
        let mut command = Command::new(machine::ours());
        let mut child = command.args(WORDS).current_dir(at).spawn().unwrap();
        // On a busy machine it begins late.
        while !at.join("d/0").exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_micros(100));
        }
        std::thread::sleep(Duration::from_micros(random.u64(..8_000)));
        for (name, _) in &files {
            let mut file = File::options().append(true).open(at.join("s").join(name)).unwrap();
            let len = random.usize(1..WHOLE);
            file.set_len(len as u64).unwrap();
            // For as long as a write takes: written over at once, the zeros are hardly ever taken.
            std::thread::sleep(Duration::from_millis(1));
            file.write_all(&vec![0x55; WHOLE - len]).unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(0), "round {round}");
        for (name, _) in &files {
            let copied = fs::read(at.join("d").join(name)).unwrap();
            let other = copied.iter().position(|byte| *byte != 0x55);
            assert_eq!(other, None, "round {round}, {name}: no byte of the source");
        }
        fs::remove_dir_all(at.join("d")).unwrap();
    }
}

/// On a file system of its own, too small for all of them.
#[test]
fn no_space_is_an_error_of_each_file_that_finds_none() {
    let scene = scene();
    let small = scene.path().join("small");
    let Some(mounted) = mount_made(scene.path(), SMALL_EXT4, &small) else { return };
    let files: Vec<_> = (0..12).map(|name| (format!("{name}"), vec![7; MIB + 100])).collect();
    let is_direct = is_to_be_had(&small, &files);
    let ran = copy(&[], &small);
    let lens: Vec<u64> = files
        .iter()
        .map(|(name, _)| fs::metadata(small.join("d").join(name)).map_or(0, |file| file.len()))
        .collect();
    let are_good = files.iter().zip(&lens).all(|((name, content), len)| {
        *len != content.len() as u64 || fs::read(small.join("d").join(name)).unwrap() == *content
    });
    mounted.unmount();
    if !is_direct {
        return;
    }
    let failed = lens.iter().filter(|len| **len != (MIB + 100) as u64).count();
    assert!((1..12).contains(&failed), "{lens:?}");
    assert_eq!((ran.status, ran.err.lines().count()), (Some(1), failed), "{ran:?}");
    assert!(ran.err.lines().all(|line| line.ends_with("': No space left on device")), "{ran:?}");
    assert!(are_good, "one only looks whole");
}

#[test]
fn a_limit_of_length_is_an_error_of_the_files_that_are_longer() {
    let scene = scene();
    let files = [("long".into(), vec![3; 2 * MIB]), ("short".into(), vec![4; 700_000])];
    if !is_to_be_had(scene.path(), &files) {
        return;
    }
    let program = machine::ours().display().to_string();
    // In blocks of 512 bytes.
    let script = format!("trap '' XFSZ; ulimit -f 2048; exec {program} {}", WORDS.join(" "));
    let output =
        Command::new("sh").args(["-c", &script]).current_dir(scene.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("'d/long'") && said.trim_end().ends_with("File too large"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(fs::read(scene.path().join("d/short")).unwrap(), vec![4; 700_000]);
    assert!(fs::metadata(scene.path().join("d/long")).unwrap().len() < 2 * MIB as u64);
}
