//! Clients of `--http-intake` and `--fluent-intake`.

use std::{path::Path, process::Command};

use serde_json::Value;

use crate::{installed, send_over_a_kill};

/// A program of this directory in Python.
pub fn python(directory: &Path, program: &str) -> Command {
    let mut command = Command::new(directory.join("python/bin/python"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(program));
    command
}

/// A program of this directory in JavaScript.
pub fn node(directory: &Path, program: &str) -> Command {
    let mut command = Command::new("node");
    command.env("NODE_PATH", directory.join("node/node_modules"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(program));
    command
}

fn of_record(line: &Value) -> Option<u64> {
    line["attributes"]["n"].as_u64()
}

#[test]
fn elasticsearch_bulk_helper_of_python() {
    let Some(directory) = installed() else { return };
    let client = || python(&directory, "elasticsearch_bulk.py");
    send_over_a_kill("elasticsearch-py", "--http-intake", &[], client, |line| line["n"].as_u64());
}

#[test]
fn otlp_exporter_of_python() {
    let Some(directory) = installed() else { return };
    let client = || python(&directory, "otlp_exporter.py");
    send_over_a_kill("OTLP by Python", "--http-intake", &[], client, of_record);
}

#[test]
fn otlp_exporter_of_node() {
    let Some(directory) = installed() else { return };
    let client = || node(&directory, "otlp_exporter.cjs");
    send_over_a_kill("OTLP by Node", "--http-intake", &[], client, of_record);
}

#[test]
fn fluent_logger_of_node() {
    let Some(directory) = installed() else { return };
    let client = || node(&directory, "fluent_logger.cjs");
    send_over_a_kill("@fluent-org/logger", "--fluent-intake", &[], client, |line| {
        let number = line["record"]["n"].as_u64()?;
        // A number with nine digits behind its point, which serde_json reads as a float.
        let time = line["time"].as_f64()? - 1.6e9 - number as f64;
        assert!((-1e-6..1e-3).contains(&time), "{line}");
        Some(number)
    });
}
