//! `--resume`: a copy of a tree that was killed is taken up, comes out as if it never had been, and
//! what was whole is not copied again.

use std::{
    collections::BTreeMap, fs, os::unix::fs::symlink, path::Path, process::Command, time::Duration,
};

use serde_json::Value;

use crate::oracle::{
    machine::{self, Setting, Which},
    scene, snapshot,
};

fn build(source: &Path) {
    let mut random = fastrand::Rng::with_seed(11);
    for directory in ["", "a", "a/b", "c"] {
        fs::create_dir_all(source.join(directory)).unwrap();
        for number in 0..40 {
            let mut content = vec![0; random.usize(0..400_000) * usize::from(number % 5 != 0)];
            random.fill(&mut content);
            fs::write(source.join(directory).join(format!("f{number}")), content).unwrap();
        }
        symlink("f1", source.join(directory).join("l")).unwrap();
        fs::hard_link(source.join(directory).join("f2"), source.join(directory).join("h")).unwrap();
    }
}

/// Content of each regular file of a tree, by its name.
fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let Ok(entries) = fs::read_dir(&path) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
#[ignore = "slow: bash .ci/scheduled slow"]
fn killed_and_resumed_a_tree_comes_out_the_same_and_nothing_whole_is_copied_twice() {
    let scene = scene();
    let at = scene.path();
    build(&at.join("s"));
    let setting = Setting::default();
    let whole = machine::run(Which::Gnu, &["-a", "s", "expected"], at, &setting);
    assert_eq!(whole.status, Some(0));
    let since = std::time::SystemTime::now();
    let source = contents(&at.join("s"));
    let of = |root: &str| {
        let all = snapshot::take(at, since).into_iter();
        let root = Path::new(root).to_owned();
        all.filter_map(|(path, what)| Some((path.strip_prefix(&root).ok()?.to_owned(), what)))
            .collect::<BTreeMap<_, _>>()
    };
    let expected = of("expected");
    assert!(expected.len() > 170);
    let mut random = fastrand::Rng::new();
    let (mut kept_at_all, mut copied_at_all) = (0, 0);
    for engine in machine::engines() {
        for round in 0..5 {
            let mut words = vec![engine, "-a", "--reflink=never"];
            words.extend((round % 2 == 1).then_some("--atomic"));
            let mut child = Command::new(machine::ours())
                .args(&words)
                .args(["-T", "s", "d"])
                .current_dir(at)
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_micros(random.u64(500..60_000)));
            child.kill().unwrap();
            child.wait().unwrap();
            let there = contents(&at.join("d"));
            let kept = there.iter().filter(|(name, content)| source.get(*name) == Some(content));
            let kept: Vec<String> = kept.map(|(name, _)| format!("s/{name}")).collect();
            words.extend(["--resume", "--json", "-T", "s", "d"]);
            let ran = machine::run(Which::Ours("--depth=8"), &words, at, &setting);
            assert_eq!((ran.status, &*ran.err), (Some(0), ""), "{engine} {round}");
            // A name that only a killed --atomic can have left.
            for entry in fs::read_dir(at.join("d")).unwrap().flatten() {
                if entry.file_name().to_string_lossy().starts_with(".cp-") {
                    fs::remove_file(entry.path()).unwrap();
                }
            }
            let copied: Vec<String> = (ran.out.lines())
                .map(|line| serde_json::from_str::<Value>(line).unwrap())
                .filter(|event| event["event"] == "file" && event["way"] != "whole")
                .map(|event| event["source"].as_str().unwrap().to_owned())
                .collect();
            let twice: Vec<_> = copied.iter().filter(|name| kept.contains(name)).collect();
            (kept_at_all, copied_at_all) = (kept_at_all + kept.len(), copied_at_all + copied.len());
            assert!(twice.is_empty(), "{engine} {round}: {twice:?}");
            assert_eq!(contents(&at.join("d")), source, "{engine} {round}");
            let found = of("d");
            for (path, what) in &expected {
                assert_eq!(found.get(path), Some(what), "{engine} {round}: {}", path.display());
            }
            assert_eq!(found.len(), expected.len(), "{engine} {round}");
            fs::remove_dir_all(at.join("d")).unwrap();
        }
    }
    assert!(kept_at_all > 0 && copied_at_all > 0, "none was killed half-way");
}

/// The same length and time says nothing: content decides.
#[test]
fn a_file_of_the_same_length_with_other_content_is_copied() {
    let scene = scene();
    let (source, copy) = (scene.path().join("s"), scene.path().join("d"));
    for size in [1, 5000, 3 << 20] {
        for engine in machine::engines() {
            let mut content = vec![3; size];
            fs::write(&source, &content).unwrap();
            content[size - 1] = 4;
            fs::write(&copy, &content).unwrap();
            let words = ["-p", "--resume", "--debug", "s", "d"];
            let run =
                || machine::run(Which::Ours(engine), &words, scene.path(), &Setting::default());
            let ran = run();
            assert!(ran.status == Some(0) && !ran.out.contains("whole"), "{engine}: {ran:?}");
            assert!(fs::read(&copy).unwrap() == vec![3; size], "{engine} {size}");
            let again = run();
            assert!(again.out.contains("'d': whole (it is there"), "{engine}: {again:?}");
        }
    }
    let refused = ["--resume", "--backup", "s", "d"];
    let ran =
        machine::run(Which::Ours("--engine=sync"), &refused, scene.path(), &Setting::default());
    assert_eq!(ran.status, Some(1));
    assert!(ran.err.starts_with("cp: --resume takes up a copy"), "{}", ran.err);
}
