//! A results file of the lab, which has to be as its schema says: a part of the tests that run the lab. The test that
//! includes this also includes `conform.rs`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::Value;

use super::conform::conform;

/// Reads a results file, and checks it.
#[track_caller]
pub fn conforming(path: &Path) -> Value {
    let results: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(results["schema"], "ringwise.lab/1");
    let schema = include_str!("../../../../docs/reference/schema/lab-1.json");
    let schema: Value = serde_json::from_str(schema).unwrap();
    conform(&results, &schema, &schema, "$");
    results
}

/// What a directory holds, with all below it.
pub fn content(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(content(&path));
        }
        found.push(path);
    }
    found.sort();
    found
}

/// What a run leaves: its results file, and the page beside it.
pub fn results_and_page(directory: &Path, name: &str) -> [PathBuf; 2] {
    ["html", "json"].map(|ending| directory.join(format!("{name}.{ending}")))
}

/// What a run of the lab prints, and its results, which are with their page all that it leaves. It runs again where the
/// machine was so busy that nothing completed in the short time of a row.
#[track_caller]
pub fn compared(directory: &Path, name: &str, run: impl Fn() -> Output) -> (String, Value) {
    let files = results_and_page(directory, name);
    let mut left = 5;
    loop {
        left -= 1;
        let output = run();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(content(directory), files);
        let results = conforming(&files[1]);
        let is_short = |row: &Value| row["void"].to_string().contains("in the measured time");
        if left == 0 || !results["results"].as_array().unwrap().iter().any(is_short) {
            return (text, results);
        }
    }
}
