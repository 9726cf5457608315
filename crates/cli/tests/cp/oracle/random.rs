//! Random worlds and random flags, the same in each run. `RINGWISE_SEED` runs one case,
//! `RINGWISE_CASES` that many that nobody has seen before, from the clock.

use std::{fs, path::Path};

use fastrand::Rng;
use rustix::fs::{AtFlags, CWD, Gid, Uid, chownat};

use crate::oracle::{
    differences,
    machine::{self, NOBODY, Setting, Which},
    outcome, scene,
    world::{self, Kinds},
};

/// Seeds of cases that differed once.
const DIFFERED: [u64; 4] = [32_726_859_405, 311_973_085_215, 581_287_929_930, 1_063_446_452_536];

/// Cases that differ before a run ends.
const FAILURES_MAX: usize = 8;

const FLAGS: [&str; 47] = [
    "-r",
    "-r",
    "-r",
    "-R",
    "-a",
    "-a",
    "-a",
    "-p",
    "-d",
    "-P",
    "-L",
    "-H",
    "-l",
    "-s",
    "-f",
    "-f",
    "-n",
    "-u",
    "-v",
    "-v",
    "-x",
    "-T",
    "-b",
    "--backup=numbered",
    "--backup=simple",
    "--backup=existing",
    "-S.bak",
    "--remove-destination",
    "--attributes-only",
    "--parents",
    "--preserve=links",
    "--preserve=mode",
    "--preserve=timestamps",
    "--preserve=ownership",
    "--preserve=xattr",
    "--preserve=all",
    "--no-preserve=mode",
    "--no-preserve=ownership",
    "--no-preserve=timestamps",
    "--sparse=always",
    "--sparse=never",
    "--reflink=auto",
    "--reflink=never",
    "--strip-trailing-slashes",
    "-Z",
    "-i",
    "--preserve",
];

#[test]
fn random_trees_and_flags() {
    compare(machine::is_root(), false, 40);
}

#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn random_trees_and_flags_as_another() {
    if !machine::is_root() {
        return machine::skip("only root can become another");
    }
    compare(true, true, 40);
}

fn compare(root: bool, as_nobody: bool, cases: u64) {
    if !machine::has_oracle() {
        return;
    }
    let engines = machine::engines();
    let null = || {
        use std::os::unix::fs::MetadataExt;
        let null = fs::metadata("/dev/null").unwrap();
        (null.mode(), null.uid(), null.gid(), null.rdev())
    };
    let null_before = null();
    let mut failed = Vec::new();
    for seed in seeds(cases) {
        let kinds = Kinds { root, for_nobody: as_nobody, fifos: true };
        failed.extend(case(seed, engines[seed as usize % engines.len()], kinds));
        // A few tell as much as all.
        if failed.len() == FAILURES_MAX {
            break;
        }
    }
    assert_eq!(null(), null_before, "the machine's own device was changed");
    assert!(failed.is_empty(), "{} cases differ:\n{}", failed.len(), failed.join("\n"));
}

/// The same in each run, unless others are asked for.
fn seeds(cases: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse().unwrap());
    match (number("RINGWISE_SEED"), number("RINGWISE_CASES")) {
        (Some(seed), _) => vec![seed],
        (None, Some(cases)) => {
            let first = Rng::new().u64(..1 << 40);
            (first..first + cases).collect()
        }
        (None, None) => (0..cases).chain(DIFFERED).collect(),
    }
}

/// What is typed and how.
fn choose(rng: &mut Rng, sources: &Path, as_nobody: bool) -> (Vec<String>, Setting) {
    let mut words: Vec<String> = Vec::new();
    for _ in 0..rng.usize(0..5) {
        words.push(FLAGS[rng.usize(..FLAGS.len())].to_owned());
    }
    // GNU cp 9.1 puts the backup of a file in a directory into the current one (a bug mended in
    // 9.2), so backups are compared for a destination that is named itself.
    let backs_up = words.iter().any(|word| word.starts_with("--backup") || word == "-b")
        || words.iter().any(|word| word == "-S.bak");
    if backs_up {
        words.retain(|word| !matches!(&**word, "-r" | "-R" | "-a" | "--parents"));
        words.push("-T".into());
    }
    let is_recursive = words.iter().any(|word| matches!(&**word, "-r" | "-R" | "-a"));
    let mut named = Vec::new();
    for _ in 0..[1, 1, 1, 2, 3][rng.usize(..5)] {
        named.push(operand(rng, sources, is_recursive));
    }
    if words.iter().any(|word| word == "--parents") {
        // GNU cp 9.1 takes `s` for new where an operand before it made a directory on its way.
        named.sort_by_key(|name| name.trim_end_matches('/').contains('/'));
    }
    let target = ["d", "d", "d/", "new", "d/new", "d/a", "d/."][rng.usize(..7)];
    if rng.u8(..5) == 0 && !words.iter().any(|word| word == "-T") {
        words.push("-t".into());
        words.push(target.into());
        words.extend(named);
    } else {
        words.extend(named);
        words.push(target.into());
    }
    let umask = [0o022, 0o022, 0o077, 0o000, 0o027][rng.usize(..5)];
    let input = (0..50).map(|_| if rng.bool() { "y\n" } else { "n\n" }).collect();
    (words, Setting { umask, as_nobody, input, environment: Vec::new() })
}

fn operand(rng: &mut Rng, sources: &Path, is_recursive: bool) -> String {
    if is_recursive && rng.bool() {
        return ["s", "s/", "s/.", "./s", "s/../s"][rng.usize(..5)].to_owned();
    }
    let mut names: Vec<String> = fs::read_dir(sources)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        // What is read without -r may be waited for.
        .filter(|name| {
            is_recursive
                || fs::metadata(sources.join(name)).is_ok_and(|m| m.is_file() || m.is_dir())
        })
        .collect();
    names.sort();
    names.push("missing".into());
    format!("s/{}", names[rng.usize(..names.len())])
}

/// Runs one case. `Some`: how the two differ.
fn case(seed: u64, engine: &'static str, kinds: Kinds) -> Option<String> {
    let scene = scene();
    let sources = scene.path().join("s");
    world::make(&mut Rng::with_seed(seed), &sources, kinds);
    let mut rng = Rng::with_seed(seed ^ 0x5eed);
    let (words, setting) = choose(&mut rng, &sources, kinds.for_nobody);
    let times = world::times(&sources);
    let what_is_there = rng.u8(..5);
    let build = |at: &Path| {
        world::set_all_times(&times);
        world::make_device(at, kinds);
        let mut rng = Rng::with_seed(seed ^ 0xd0);
        let target = at.join("d");
        match what_is_there {
            0 => {}
            1 => {
                fs::write(&target, b"a file").unwrap();
                world::age(&target);
            }
            // Much of it bears the names of the sources.
            2 => world::make(&mut Rng::with_seed(seed), &target, Kinds { fifos: false, ..kinds }),
            _ => world::make(&mut rng, &target, Kinds { fifos: false, ..kinds }),
        }
        if kinds.for_nobody && target.exists() {
            let owner = (Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY)));
            chownat(CWD, &target, owner.0, owner.1, AtFlags::empty()).unwrap();
        }
    };
    let gnu = outcome(Which::Gnu, scene.path(), &words, &setting, &build);
    for entry in fs::read_dir(scene.path()).unwrap().map(|entry| entry.unwrap().path()) {
        if entry != sources {
            world::open_up(&entry);
            let _ = fs::remove_dir_all(&entry).or_else(|_| fs::remove_file(&entry));
        }
    }
    let ours = outcome(Which::Ours(engine), scene.path(), &words, &setting, &build);
    world::open_up(scene.path());
    let name = format!("RINGWISE_SEED={seed} {engine} {words:?} {setting:?}");
    differences(&name, &gnu, &ours)
}
