//! A results file of the lab, which has to be as its schema says: a part of the tests that run the lab. The test that
//! includes this also includes `conform.rs`.

use std::{fs, path::Path, process::Output};

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

/// What a run of the lab prints, and its results, which are with their page all that it leaves. It runs again where the
/// machine was so busy that nothing completed in the short time of a row.
#[track_caller]
pub fn compared(directory: &Path, name: &str, run: impl Fn() -> Output) -> (String, Value) {
    let files = ["html", "json"].map(|ending| directory.join(format!("{name}.{ending}")));
    let mut left = 5;
    loop {
        left -= 1;
        let output = run();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let mut found: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        assert_eq!(found, files);
        let results = conforming(&files[1]);
        let is_short = |row: &Value| row["void"].to_string().contains("in the measured time");
        if left == 0 || !results["results"].as_array().unwrap().iter().any(is_short) {
            return (text, results);
        }
    }
}
