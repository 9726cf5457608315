//! Sources that are not in memory are read ahead: they come out whole, whatever their size, and the
//! plan says so.

use std::{
    fs::{self, File},
    path::Path,
    thread,
    time::Duration,
};

use ringwise::Descriptor;

use crate::{
    failures::faults::{place, threads_that, tree_traced},
    oracle::{
        machine::{self, Setting, Which},
        scene,
    },
};

/// Has the kernel forget a file that is on its device. False: it does not, or does not tell. Pages that it moves at the
/// moment, to have free memory in one piece, stay: it is asked again.
pub fn forget(path: &Path) -> bool {
    let file = Descriptor::from(File::open(path).unwrap());
    for _ in 0..1000 {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        match ringwise::page_cache(&file, 0, 0) {
            Ok(state) if state.cached_pages > 0 => thread::sleep(Duration::from_millis(1)),
            state => return state.is_ok(),
        }
    }
    false
}

/// Whether nothing of a file is in memory. False: something is, or nobody tells.
pub fn is_past_memory(path: &Path) -> bool {
    let file = Descriptor::from(File::open(path).unwrap());
    ringwise::page_cache(&file, 0, 0).is_ok_and(|state| state.cached_pages == 0)
}

#[test]
fn what_is_not_in_memory_comes_out_whole() {
    let scene = scene();
    let source = scene.path().join("s");
    fs::create_dir(&source).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    // More than are handed over at once, and of each kind some: read ahead as a whole or not.
    let sizes =
        (0..40).map(|number| number * 1600).chain([65_537, 4 << 20, (4 << 20) + 1, 9 << 20]);
    for (number, size) in sizes.enumerate() {
        let mut content = vec![0; size];
        random.fill(&mut content);
        fs::write(source.join(number.to_string()), content).unwrap();
    }
    rustix::fs::syncfs(File::open(&source).unwrap()).unwrap();
    for flags in [&["-r"][..], &["-r", "--jobs=1", "--atomic"], &["-r", "--verify"]] {
        for engine in machine::engines() {
            let names: Vec<_> =
                fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().path()).collect();
            if !names.iter().all(|name| forget(name)) {
                return machine::skip("what is in memory stays there, or nobody tells");
            }
            let words: Vec<&str> =
                flags.iter().copied().chain(["--debug", "--reflink=never", "s", "d"]).collect();
            let ran = machine::run(Which::Ours(engine), &words, scene.path(), &Setting::default());
            assert_eq!((ran.status, &*ran.err), (Some(0), ""), "{engine} {flags:?}");
            let ahead = ran.out.lines().filter(|line| line.contains("not in memory")).count();
            let expected = match engine {
                "--engine=uring" => 0,
                // A ring of its own, or threads: else a small file is waited for in any case.
                "--engine=auto" if !flags.contains(&"--jobs=1") => names.len() - 1,
                _ => 4,
            };
            // Who alone has one processor has no threads.
            let may_be_fewer = thread::available_parallelism().unwrap().get() == 1;
            assert!(ahead == expected || may_be_fewer, "{engine} {flags:?}: {}", ran.out);
            for name in &names {
                let copy = scene.path().join("d").join(name.file_name().unwrap());
                assert!(fs::read(name).unwrap() == fs::read(copy).unwrap(), "{}", name.display());
            }
            fs::remove_dir_all(scene.path().join("d")).unwrap();
        }
    }
}

/// While some wait for the device others do not: the processors alone do not say how many pay.
#[test]
fn more_threads_copy_small_files_that_are_not_in_memory() {
    let Some(scene) = place() else { return };
    let at = scene.path().join("tree");
    let directories = || (0..6).map(|number| at.join("s").join(number.to_string()));
    for directory in directories() {
        fs::create_dir_all(&directory).unwrap();
        for number in 0..100_u8 {
            fs::write(directory.join(number.to_string()), vec![number; 9000]).unwrap();
        }
    }
    let makers = || {
        let trace = tree_traced(&at, &["trace=openat"], &["--reflink=never"]);
        threads_that(&trace, "O_CREAT|O_EXCL").len()
    };
    let in_memory = makers();
    rustix::fs::syncfs(File::open(&at).unwrap()).unwrap();
    let files = directories().flat_map(|directory| fs::read_dir(directory).unwrap());
    if !files.map(|file| forget(&file.unwrap().path())).fold(true, |all, is| all & is) {
        return machine::skip("what is in memory stays there, or nobody tells");
    }
    let processors = thread::available_parallelism().unwrap().get();
    let cold = makers();
    assert!(cold > in_memory || processors > 3, "{cold} threads, and {in_memory} from memory");
}
