//! `ringwise lab scale` as a user runs it: threads over two directories, the lab's own cost, load that is offered, bad
//! input, and what it leaves behind.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use crate::harness::lab_results::conforming;

fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["lab", "scale"]).args(arguments).current_dir(directory).output().unwrap()
}

/// A directory with the directories `a` and `b`.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for name in ["a", "b"] {
        fs::create_dir(directory.path().join(name)).unwrap();
    }
    directory
}

#[test]
fn threads_read_in_two_directories_and_load_is_offered_and_nothing_is_left() {
    let directory = directory();
    let mut arguments = vec!["--dir", "a,b", "--threads", "1,2", "--depth", "4", "--size", "16m"];
    // Within less, a thread may not get a processor.
    arguments.extend(["--duration", "60ms", "--repeats", "2", "--verbose", "--json", "s.json"]);
    let output = run(directory.path(), &arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    if told.contains("O_DIRECT") {
        assert!(std::env::var_os("CI").is_none(), "skipped in CI: {told}");
        return println!("skipped: {told}");
    }
    assert!(output.status.success(), "{text}{told}");
    let results = conforming(&directory.path().join("s.json"));
    let rows = results["results"].as_array().unwrap();
    if rows.iter().any(|row| row["void"].as_str().is_some_and(|void| void.contains("io_uring"))) {
        assert!(std::env::var_os("CI").is_none(), "skipped in CI: no io_uring");
        return println!("skipped: no io_uring");
    }
    let titles: Vec<&str> = results["sections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|section| section["title"].as_str().unwrap())
        .collect();
    assert_eq!(titles.len(), 3, "{titles:?}");
    assert!(titles[0].starts_with("scale direct random, 4k blocks, 4 in flight"), "{titles:?}");
    assert!(titles[2].starts_with("scale, offered load on "), "{titles:?}");
    let of = |section: u64| rows.iter().filter(move |row| row["section"] == section);
    let names = |section| -> Vec<String> {
        of(section)
            .map(|row| format!("{}@{}", row["engine"].as_str().unwrap(), row["depth"]))
            .collect()
    };
    let one = ["sync@1", "threads@1", "uring@1", "uring@1"].map(str::to_owned);
    assert_eq!(names(0)[..4], one);
    assert_eq!(names(1), ["null@1", "null@1", "null@2", "null@8", "null@32"]);
    for row in of(0).filter(|row| row["void"].is_null()) {
        assert!(row["figures"]["scaling"].as_f64().unwrap() > 0.0, "{row:#}");
        // All bytes came from the devices, of as many threads as the row says.
        assert!(
            row["in_flight"].as_f64().unwrap() > 0.5 * row["depth"].as_f64().unwrap(),
            "{row:#}"
        );
    }
    for row in of(2).filter(|row| row["void"].is_null()) {
        let kept = row["figures"]["kept_share"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&kept) && row["figures"]["due_reads"].as_f64() > Some(0.0));
    }
    assert_has_findings(&results);
    for part in ["the lab's own CPU time per read", "every block read is verified", "open loop"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert_has_a_page_and_nothing_else(directory.path());
}

#[track_caller]
fn assert_has_findings(results: &Value) {
    let answers = results["answers"].as_array().unwrap();
    let effects: Vec<&str> =
        answers.iter().map(|answer| answer["effect"].as_str().unwrap()).collect();
    // The last is the answer where noise hides it.
    let scaling = "uring scales up to |uring does not scale|whether uring scales beyond ";
    for part in [scaling, "the knee of |keeps none of the rates"] {
        let is_there = part.split('|').any(|part| effects.iter().any(|own| own.contains(part)));
        assert!(is_there, "{part}: {effects:?}");
    }
}

#[track_caller]
fn assert_has_a_page_and_nothing_else(directory: &Path) {
    let page = fs::read_to_string(directory.join("s.html")).unwrap();
    assert!(page.contains("p99 from the intended start, the median over samples, by offered load"));
    let mut left: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    left.sort();
    assert_eq!(left, ["a", "b", "s.html", "s.json"]);
    for name in ["a", "b"] {
        assert_eq!(fs::read_dir(directory.join(name)).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn bad_input_is_one_line_and_leaves_nothing() {
    let directory = directory();
    fs::write(directory.path().join("file"), "x").unwrap();
    for (arguments, status, expected) in [
        (
            ["--threads", "0"],
            2,
            "--threads: invalid value '0': expected 1 to 1024, or all for all processors",
        ),
        (
            ["--threads", "2,x"],
            2,
            "--threads: invalid value 'x': expected 1 to 1024, or all for all processors",
        ),
        (["--dir", "a,none"], 1, "--dir none: does not exist; name existing directories"),
        (["--dir", "a,file"], 1, "--dir file: is not a directory; name existing directories"),
        (
            ["--dir", "a,./a"],
            2,
            "--dir: invalid value './a': named twice; expected different directories",
        ),
        (["--engines", "uring"], 2, "--engines is for the workloads "),
    ] {
        let output = run(directory.path(), &arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(text.starts_with(&format!("ringwise: lab: {expected}")), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let output = run(directory.path(), &["--dir", "a,b", "--size", "1000t"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        text.contains("free") && text.contains("--size") && text.lines().count() == 1,
        "{text}"
    );
    let left = |name: &str| fs::read_dir(directory.path().join(name)).unwrap().count();
    assert_eq!((left("a"), left("b")), (0, 0));
}
