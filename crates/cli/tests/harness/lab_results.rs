//! A results file of the lab, which has to be as its schema says: a part of the tests that run the lab. The test that
//! includes this also includes `conform.rs`.

use std::{fs, path::Path};

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
