//! `--json`: what happens, an object a line on standard output; docs/reference/schema/cp-1.json.
//!
//! Errors are said on standard error too, as without it. Names that are not UTF-8 are given with
//! replacement characters, and their bytes beside them.

use serde_json::{Map, Value, json};

use crate::{
    command::options::Options,
    messages::{progress::Meter, report::Line},
};

const SCHEMA: &str = "ringwise.cp/1";

fn event(name: &str, fields: Vec<(&str, Value)>) -> Line {
    let mut object = Map::new();
    object.insert("schema".to_owned(), json!(SCHEMA));
    object.insert("event".to_owned(), json!(name));
    object.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Line::Event(Value::Object(object).to_string().into_bytes())
}

fn text(bytes: &[u8]) -> Value {
    json!(String::from_utf8_lossy(bytes))
}

/// The run begins.
pub(crate) fn start(options: &Options) -> Line {
    use std::os::unix::ffi::OsStrExt;
    let sources: Vec<Value> =
        options.sources.iter().map(|source| text(source.as_bytes())).collect();
    event("start", vec![("version", json!(env!("CARGO_PKG_VERSION"))), ("sources", json!(sources))])
}

/// A regular file has its copy, or has none.
pub(crate) fn file((source, target): (&[u8], &[u8]), bytes: u64, way: &str, ok: bool) -> Line {
    let mut fields = vec![
        ("source", text(source)),
        ("target", text(target)),
        ("bytes", json!(bytes)),
        ("way", json!(way)),
        ("ok", json!(ok)),
    ];
    for (key, path) in [("source_bytes", source), ("target_bytes", target)] {
        if std::str::from_utf8(path).is_err() {
            fields.push((key, json!(path)));
        }
    }
    event("file", fields)
}

/// What is said on standard output without `--json`.
pub(crate) fn output(line: &[u8]) -> Line {
    event("output", vec![("text", text(line))])
}

/// What is said on standard error.
pub(crate) fn error(line: &[u8]) -> Line {
    event("error", vec![("text", text(line))])
}

/// The run is over.
pub(crate) fn end(meter: &Meter, ok: bool) -> Line {
    let fields = vec![
        ("files", json!(meter.files())),
        ("bytes", json!(meter.bytes())),
        ("elapsed_s", json!(meter.elapsed().as_secs_f64())),
        ("ok", json!(ok)),
    ];
    event("end", fields)
}
