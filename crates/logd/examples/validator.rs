//! What it costs to validate a line: each scanner beside the other, in turn, and serde_json in two ways. One
//! checks as much as the daemon does (the text is UTF-8, and JSON whose values are ignored), the other builds
//! values. `cargo run --release -p ringwise-logd --example validator
//! [FILE]` takes the lines of a file, or without one makes some.

use std::{hint::black_box, time::Instant};

use ringwise_logd::lines::json::{Rules, Scanner};

const ROUNDS: usize = 7;
const BYTES: usize = 1 << 20;

fn main() {
    match std::env::args_os().nth(1) {
        Some(path) => measure("lines of the file", &std::fs::read(path).expect("the file")),
        None => {
            let short = r#"{"ts":"now","level":"info","msg":"hello"}"#;
            let long = format!(
                r#"{{"ts":"2026-01-01T00:00:00Z","id":12345,"text":"{}"}}"#,
                "x".repeat(99)
            );
            let many =
                r#"{"a":1,"b":[true,null,-2.5e3],"c":{"d":"e\n","f":"\u00e9"},"g":"zw\u00f6lf"}"#;
            let other = "{\"message\":\"Gr\u{fc}\u{df}e aus K\u{f6}ln, \u{fc}bermorgen\",\
                         \"gr\u{f6}\u{df}e\":12,\"citt\u{e0}\":\"Forl\u{ec}\"}";
            for (name, line) in [
                ("42 bytes", short),
                ("150 bytes", &long),
                ("many tokens", many),
                ("beyond ASCII", other),
            ] {
                let text = format!("{line}\n");
                measure(name, text.repeat(BYTES / text.len()).as_bytes());
            }
        }
    }
}

fn measure(name: &str, text: &[u8]) {
    let rules = Rules::new(64, Vec::new());
    let by = |scanner| {
        let rules = &rules;
        move |bytes: &[u8], len| rules.check_by(scanner, bytes, len).is_ok()
    };
    println!("{name}: {} bytes", text.len());
    report("as the daemon", text, |bytes, len| rules.check_first(bytes, len).is_ok());
    report("by blocks", text, by(Scanner::ByBlock));
    report("by words", text, by(Scanner::ByWord));
    report("by bytes", text, by(Scanner::ByByte));
    report("serde ignored", text, |bytes, len| {
        std::str::from_utf8(&bytes[..len])
            .is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
    });
    report("serde values", text, |bytes, len| {
        serde_json::from_slice::<serde_json::Value>(&bytes[..len]).is_ok()
    });
}

/// The median of some rounds: nanoseconds for a line, and bytes in a nanosecond.
fn report(name: &str, text: &[u8], check: impl Fn(&[u8], usize) -> bool) {
    let mut rounds: Vec<(u128, usize)> = (0..ROUNDS)
        .map(|_| {
            let (mut start, mut lines) = (0, 0);
            let began = Instant::now();
            for end in memchr::memchr_iter(b'\n', text) {
                lines += usize::from(black_box(check(&text[start..], end - start)));
                start = end + 1;
            }
            (began.elapsed().as_nanos(), lines)
        })
        .collect();
    rounds.sort_unstable();
    let (time_ns, lines) = rounds[ROUNDS / 2];
    let each = time_ns as f64 / lines.max(1) as f64;
    println!(
        "  {name:14} {each:6.1} ns a line, {:.2} GB/s, {lines} valid",
        text.len() as f64 / time_ns as f64
    );
}
