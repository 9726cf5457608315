//! A destination that others change while it is written, and one that may not grow. On every engine.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::oracle::{
    machine::{self, Setting, Which},
    scene,
};

/// Does something over and over while `body` runs.
fn meanwhile(mut work: impl FnMut() + Send, body: impl FnOnce()) {
    let is_over = AtomicBool::new(false);
    /// A failed assertion has to end the thread too.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _ends = Ends(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                work();
            }
        });
        body();
    });
}

fn copy(engine: &'static str, flag: &str, at: &Path) -> machine::Ran {
    let words = [flag, "-r", "s", "d"];
    machine::run(Which::Ours(engine), &words, at, &Setting::default())
}

/// Whoever may write to the destination makes a directory there a link to where he may not.
#[test]
fn nothing_is_written_behind_a_link_that_takes_a_directorys_place() {
    let scene = scene();
    let at = scene.path();
    for directory in ["s/sub", "outside", "d/s/sub"] {
        fs::create_dir_all(at.join(directory)).unwrap();
    }
    for number in 0..40 {
        fs::write(at.join("s/sub").join(number.to_string()), "content").unwrap();
    }
    symlink("../../outside", at.join("link")).unwrap();
    let (sub, link) = (at.join("d/s/sub"), at.join("link"));
    let exchange = || renameat_with(CWD, &sub, CWD, &link, RenameFlags::EXCHANGE).unwrap();
    meanwhile(exchange, || {
        for engine in machine::engines() {
            for flag in ["--atomic", "--remove-destination", "-f", "-f", "-f", "-f"] {
                let ran = copy(engine, flag, at);
                assert!(matches!(ran.status, Some(0 | 1)), "{engine} {flag}: {ran:?}");
                let outside = fs::read_dir(at.join("outside")).unwrap().count();
                assert_eq!(outside, 0, "{engine} {flag}: written behind the link: {ran:?}");
            }
        }
    });
}

#[test]
fn a_limit_on_files_fails_the_long_ones_and_no_other() {
    let scene = scene();
    let at = scene.path();
    fs::create_dir(at.join("s")).unwrap();
    fs::write(at.join("s/long"), vec![1; 6 << 20]).unwrap();
    fs::write(at.join("s/short"), "short").unwrap();
    for engine in machine::engines() {
        let cp = machine::ours().display().to_string();
        // In units of 512 or 1024 bytes, as the shell has it: less than the long one in any case.
        let script = format!("trap '' XFSZ; ulimit -f 4000; exec {cp} {engine} -r s d");
        let mut command = std::process::Command::new("timeout");
        command.args(["60", "sh", "-c", &script]).current_dir(at).env("LC_ALL", "C");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{engine}: {said}");
        assert!(said.ends_with("File too large\n") && said.lines().count() == 1, "{said}");
        assert_eq!(fs::read(at.join("d/short")).unwrap(), b"short", "{engine}");
        assert!(fs::metadata(at.join("d/long")).unwrap().len() < 6 << 20, "{engine}");
        fs::remove_dir_all(at.join("d")).unwrap();
    }
}
