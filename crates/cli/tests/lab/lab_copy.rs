//! `ringwise lab copy` as a user runs it: what it prints and writes, what it refuses and leaves.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use crate::harness::lab_results;

use lab_results::conforming;

fn run(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwise"));
    command.args(["lab", "copy", "--repeats", "1", "--json", "r.json"]).args(arguments);
    command.current_dir(directory).output().unwrap()
}

fn results(directory: &Path) -> Value {
    conforming(&directory.join("r.json"))
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn programs_are_compared_in_three_figures_and_nothing_is_left() {
    let directory = directory();
    let output =
        run(directory.path(), &["--verbose", "--sets", "32k,1m", "--engines", "ringwise,gnu"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["copy 32k, one file of 32k, warm", "copy 1m, one file of 1m, cold", "durable"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let results = results(directory.path());
    let rows = results["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 3, "sets, caches, programs and one of them again");
    for row in rows {
        assert!(row["void"].is_null(), "{row}");
        assert_eq!(row["samples"].as_array().unwrap().len(), 2, "{row}");
        let copy = &row["copy"];
        let wall_ns = row["latency_ns"]["p50"].as_u64().unwrap();
        assert!(copy["durable_ns"].as_u64().unwrap() >= wall_ns / 2, "{row}");
        assert!(row["cpu_ns_per_op"].as_f64().unwrap() > 0.0, "{row}");
        assert!(["32k", "1m"].contains(&row["data_set"].as_str().unwrap()));
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "the results and their page");
}

#[test]
fn a_study_varies_block_and_depth() {
    let directory = directory();
    if ringwise::Local::builder().backend(ringwise::BackendChoice::Uring).build().is_err() {
        assert!(std::env::var_os("CI").is_none(), "skipped in CI: no ring here");
        println!("skipped: no ring here");
        return;
    }
    let study =
        ["--study", "--block", "4k,1m", "--depth", "1,8", "--size", "3m", "--cache", "warm"];
    let output = run(directory.path(), &study);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let results = results(directory.path());
    let rows = results["results"].as_array().unwrap();
    let of = |name: &str| rows.iter().map(|row| row[name].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(
        (of("block_bytes"), of("depth")),
        (vec![4096, 4096, 1 << 20, 1 << 20], vec![1, 8, 1, 8])
    );
}

#[test]
fn a_copy_that_fails_is_void_and_a_program_that_is_missing_is_said() {
    let directory = directory();
    let programs = directory.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let script = "#!/bin/sh\necho nothing > \"$2\"\n";
    fs::write(programs.join("fcp"), script).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(programs.join("fcp"), executable).unwrap();
    let arguments = [
        "copy",
        "--verbose",
        "--repeats",
        "1",
        "--json",
        "r.json",
        "--sets",
        "1k",
        "--cache",
        "warm",
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_ringwise"))
        .arg("lab")
        .args(arguments)
        .args(["--engines", "ringwise,fcp,cpz"])
        .env("PATH", &programs)
        .current_dir(directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("fcp at files 1: ") && text.contains("differs from its source"),
        "{text}"
    );
    assert!(text.contains("cpz at files 1: not measurable here: cpz is not installed"), "{text}");
}
