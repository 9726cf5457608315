//! File systems that share blocks: who asks for that, and what comes of it where one file cannot.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{
    edges::{mount_made, shell},
    failures::faults::{place, threads_that, tree_traced},
    oracle::{
        machine::{self, Setting, Which},
        outcome, same,
    },
};

/// Copies a tree under strace; the threads that asked for shared blocks.
fn threads_that_share(at: &Path, inject: &str, flags: &[&str]) -> BTreeSet<String> {
    threads_that(&tree_traced(at, &["trace=ioctl", inject], flags), "FICLONE")
}

const XFS: &str = "truncate -s 400M image && mkfs.xfs -q image";

#[test]
fn threads_share_blocks_and_copy_what_shares_none() {
    let Some(scene) = place() else { return };
    let mounted = scene.path().join("mounted");
    let Some(_mounted) = mount_made(scene.path(), XFS, &mounted) else { return };
    fs::create_dir(mounted.join("s")).unwrap();
    for number in 0..120_usize {
        let name = mounted.join("s").join(number.to_string());
        fs::write(name, vec![number as u8; number * 1500]).unwrap();
    }
    let none = "trace=ioctl";
    assert!(threads_that_share(&mounted, none, &["--jobs=2"]).len() > 1, "the walk did it all");
    // Who waits for the device saves CPU time.
    assert_eq!(threads_that_share(&mounted, none, &["--jobs=2", "--durable"]).len(), 1);
    // Counted for each thread: the walk has two for terminals.
    let fails = "inject=ioctl:error=EINVAL:when=5+";
    assert!(threads_that_share(&mounted, fails, &["--jobs=2"]).len() > 1);
}

/// Directories, some of which cannot be read, nor some of their files.
const DIRECTORIES: &str = "mkdir s && for d in $(seq 40); do mkdir -p s/$d/in; \
    for n in $(seq 12); do echo $d $n > s/$d/$n; done; done; \
    for d in 3 7 11 12 20 35 39; do chmod 000 s/$d/5; done; ln s/1/1 s/30/link; \
    ln s/22/2 s/2/link; chmod 000 s/17; chmod 555 s/18; chmod 777 .; \
    touch -hd 2001-02-03 $(find s ! -type d); touch -d 2002-02-02 s/*/in s/* s";

/// Names of directories in the order in which they were made.
fn made(at: &Path) -> Vec<String> {
    let trace = tree_traced(at, &["trace=mkdirat"], &["--jobs=2"]);
    let names = trace.lines().filter_map(|line| line.split('"').nth(1));
    names.filter(|name| name.parse::<u8>().is_ok()).map(str::to_owned).collect()
}

#[test]
fn directories_taken_in_another_order_are_told_of_in_that_of_gnu_cp() {
    let Some(scene) = place() else { return };
    let mounted = scene.path().join("mounted");
    let Some(_mounted) = mount_made(scene.path(), XFS, &mounted) else { return };
    assert!(shell(&mounted, DIRECTORIES));
    let listed = machine::run(
        Which::Ours("--engine=auto"),
        &["-rv", "s", "d"],
        &mounted,
        &Setting::default(),
    );
    assert!(shell(&mounted, "rm -r d"));
    let of_directory = |line: &str| Some(line.strip_prefix("'s/")?.split_once('\'')?.0.to_owned());
    let listed = listed.out.lines().filter_map(of_directory).filter(|name| !name.contains('/'));
    let (listed, made): (Vec<String>, _) = (listed.collect(), made(&mounted));
    assert_eq!((listed.len(), made.len()), (40, 40));
    assert_ne!(made, listed, "they are taken as they are listed");
    if !machine::has_oracle() {
        return;
    }
    let empty = |at: &Path| assert!(shell(at, "rm -rf d"));
    for line in ["-r s d", "-a s d", "-r --preserve=mode s d", "-r s/. d"] {
        for as_nobody in [false, true] {
            let setting = Setting { as_nobody, ..Setting::default() };
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let gnu = outcome(Which::Gnu, &mounted, &words, &setting, &empty);
            assert_eq!(gnu.ran.err.lines().count() >= 8, as_nobody, "{:?}", gnu.ran);
            let auto = Which::Ours("--engine=auto");
            let ours = outcome(auto, &mounted, &words, &setting, &empty);
            same(&format!("{line} {setting:?}"), &gnu, &ours);
        }
    }
}
