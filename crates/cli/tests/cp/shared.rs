//! File systems that share blocks: who asks for that, and what comes of it where one file cannot.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::{
    edges::{mount, shell},
    faults::place,
    machine,
};

/// Copies a tree under strace; the threads that asked for shared blocks.
fn threads_that_share(at: &Path, inject: &str, flags: &[&str]) -> BTreeSet<String> {
    let mut command = Command::new("timeout");
    command.args(["60", "strace", "-f", "-q", "-o", "../trace", "-e", "trace=ioctl"]);
    command.args(["-e", inject]).arg(machine::ours()).args(flags).args(["-r", "s", "d"]);
    let output = command.current_dir(at).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{inject} {flags:?}: {output:?}");
    assert!(shell(at, "diff -r s d && rm -r d"), "{inject} {flags:?}");
    let trace = fs::read_to_string(at.join("../trace")).unwrap();
    let lines = trace.lines().filter(|line| line.contains("FICLONE"));
    lines.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
}

#[test]
fn threads_share_blocks_and_copy_what_shares_none() {
    let Some(scene) = place() else { return };
    let at = scene.path();
    if !machine::is_root() || !shell(at, "truncate -s 400M image && mkfs.xfs -q image") {
        return machine::skip("no XFS can be made");
    }
    let mounted = at.join("mounted");
    let Some(_mounted) = mount(&["-o", "loop", at.join("image").to_str().unwrap()], &mounted)
    else {
        return;
    };
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
