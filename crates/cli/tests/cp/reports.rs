//! `--json` and `--progress`: what a run reports, where, and what survives an interrupted run.

use std::{
    fs,
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    conform::conform,
    oracle::{
        machine::{self, Setting, Which},
        scene,
    },
};

fn events(text: &str) -> Vec<Value> {
    let schema =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/schema/cp-1.json");
    let schema: Value = serde_json::from_str(&fs::read_to_string(schema).unwrap()).unwrap();
    let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
    events.inspect(|event| conform(event, &schema, &schema, "$")).collect()
}

#[test]
fn events_tell_each_file_and_each_error() {
    let scene = scene();
    let source = scene.path().join("s");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("a"), "12345").unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"\xff\n\"");
    fs::write(source.join(odd), vec![7; 300_000]).unwrap();
    for engine in machine::engines() {
        let words = ["--json", "-rv", "s", "missing", "d"];
        fs::create_dir(scene.path().join("d")).unwrap();
        let ran = machine::run(Which::Ours(engine), &words, scene.path(), &Setting::default());
        fs::remove_dir_all(scene.path().join("d")).unwrap();
        assert_eq!(ran.status, Some(1));
        assert_eq!(ran.err, "cp: cannot stat 'missing': No such file or directory\n");
        let events = events(&ran.out);
        let of =
            |name: &str| events.iter().filter(|event| event["event"] == name).collect::<Vec<_>>();
        assert_eq!((&events[0]["event"], of("file").len()), (&Value::from("start"), 2), "{engine}");
        assert_eq!(of("error")[0]["text"], "cannot stat 'missing': No such file or directory");
        assert_eq!(of("output").len(), 3, "-v: a directory and two files");
        let file = |bytes: u64| *of("file").iter().find(|file| file["bytes"] == bytes).unwrap();
        assert_eq!((&file(5)["target"], &file(5)["ok"]), (&"d/s/a".into(), &true.into()));
        assert_eq!(file(300_000)["source_bytes"], Value::from(b"s/\xff\n\"".to_vec()));
        let end = events.last().unwrap();
        assert_eq!(
            (&end["event"], &end["ok"], &end["files"]),
            (&"end".into(), &false.into(), &2.into())
        );
        if !file(300_000)["way"].as_str().unwrap().contains("shared") {
            assert_eq!(end["bytes"], 300_005, "{engine}");
        }
    }
}

#[test]
fn progress_is_lines_where_it_is_demanded_and_nothing_where_nobody_looks() {
    let scene = scene();
    fs::write(scene.path().join("s"), vec![1; 3 << 20]).unwrap();
    for engine in machine::engines() {
        let run = |flag: &str| {
            let words = [flag, "--reflink=never", "s", "d"];
            machine::run(Which::Ours(engine), &words, scene.path(), &Setting::default())
        };
        for flag in ["--progress", "--progress=auto", "--progress=never"] {
            let ran = run(flag);
            assert_eq!((ran.status, &*ran.out, &*ran.err), (Some(0), "", ""), "{flag}");
        }
        let ran = run("--progress=always");
        let last = ran.err.lines().last().unwrap();
        assert!(last.starts_with("cp: 1 files, 3.0 MiB, "), "{engine}: {}", ran.err);
        assert_eq!(run("--progress=soon").status, Some(1));
    }
}

/// In a terminal of its own, by script(1).
#[test]
fn a_bar_goes_away_at_the_end_and_before_a_signal() {
    let scene = scene();
    fs::write(scene.path().join("s"), vec![1; 1 << 20]).unwrap();
    let in_terminal = |command: &str| {
        let output = Command::new("script")
            .args(["-q", "-e", "-c", command, "/dev/null"])
            .current_dir(scene.path())
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .output();
        output.ok().map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let cp = machine::ours();
    let Some(shown) = in_terminal(&format!("{} -v --progress s d; echo end", cp.display())) else {
        return machine::skip("no script(1) to make a terminal with");
    };
    let cleared = |shown: &str| {
        let tail = shown.rsplit("\x1b[2K").next().unwrap_or(shown);
        !tail.contains('%')
    };
    assert!(shown.contains("'s' -> 'd'") && shown.contains("end"), "{shown:?}");
    assert!(cleared(&shown), "{shown:?}");
    // A fifo keeps it waiting until the signal comes. Scripts start tests with SIGINT ignored, which cp keeps.
    let wait = format!(
        "mkfifo f; (sleep 1; kill -INT $(cat pid)) & exec 3<>f; sh -c 'echo $$ > pid; \
         exec env --default-signal=INT {} --progress --copy-contents -r f e'; echo end",
        cp.display()
    );
    let shown = in_terminal(&wait).unwrap_or_default();
    assert!(shown.contains("0 files"), "it was there: {shown:?}");
    assert!(cleared(&shown), "{shown:?}");
}

#[test]
fn help_that_nobody_can_take_is_an_error() {
    let scene = scene();
    for flag in ["--help", "--version"] {
        let script = format!("exec {} {flag} >/dev/full", machine::ours().display());
        let output = Command::new("sh").args(["-c", &script]).env("LC_ALL", "C").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, "cp: write error: No space left on device\n", "{flag}");
        assert_eq!(output.status.code(), Some(1), "{flag}");
        let words = [flag];
        let ran =
            machine::run(Which::Ours("--engine=auto"), &words, scene.path(), &Setting::default());
        assert!(ran.status == Some(0) && ran.err.is_empty() && ran.out.ends_with('\n'), "{flag}");
        assert!(!ran.out.ends_with("\n\n"), "{flag}");
    }
}

/// A program in Rust has `/dev/null` where a stream was closed; that is not what was asked for.
#[test]
fn streams_that_are_closed_or_cannot_be_read_are_told() {
    if !machine::has_oracle() {
        return;
    }
    let scene = scene();
    let run = |cp: &str, line: &str| {
        fs::write(scene.path().join("a"), "new").unwrap();
        fs::write(scene.path().join("b"), "old").unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {cp} {line}")]).current_dir(scene.path());
        let output = shell.env("LC_ALL", "C").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said, fs::read(scene.path().join("b")).unwrap())
    };
    for line in [
        "-v a b >&-",
        "a b >&-",
        "--help >&-",
        "--version >&-",
        "-i a b <&-",
        "a b <&-",
        "-i a b < .",
        "-iv a b <&- >&-",
        "-v a b 2>&-",
        "missing b 2>&-",
        "-v a b >/dev/null",
        "-i a b </dev/null",
    ] {
        let gnu = run("cp", line);
        for engine in machine::engines() {
            let ours = run(&format!("{} {engine}", machine::ours().display()), line);
            assert_eq!(ours, gnu, "{engine} {line}");
        }
    }
}
