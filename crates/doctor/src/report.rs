//! The findings as text, one line each, and as JSON.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

use ringwise_measure::environment::Environment;
use serde::Serialize;

use crate::finding::{Finding, Status};

/// The name and version of the JSON report's schema, docs/reference/schema/doctor-1.json.
pub const SCHEMA: &str = "ringwise.doctor/1";

/// Whether the text is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Plain text.
    Never,
    /// With escape sequences.
    Always,
}

impl Color {
    /// Coloured on a terminal, unless `NO_COLOR` is set and not empty (no-color.org).
    pub fn auto(out: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if out.is_terminal() && !refused { Color::Always } else { Color::Never }
    }
}

/// What an examination found out.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The path whose file system and device were examined.
    pub path: PathBuf,
    /// Everything that was found out, in the order of the examination.
    pub findings: Vec<Finding>,
    /// The machine.
    pub environment: Environment,
}

impl Report {
    /// The finding of a name.
    pub fn finding(&self, name: &str) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.name == name)
    }

    /// Writes a line per finding: status, name, evidence; a remedy is indented
    /// below.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_text(&self, out: &mut impl Write, color: Color) -> io::Result<()> {
        let width = self.findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
        for finding in &self.findings {
            let (begin, end) = match color {
                Color::Never => ("", ""),
                Color::Always => (escape(finding.status), "\x1b[0m"),
            };
            let (status, evidence) = (finding.status, one_line(&finding.evidence));
            writeln!(out, "{begin}{status:<7}{end}  {:<width$}  {evidence}", finding.name)?;
            if let Some(remedy) = &finding.remedy {
                writeln!(out, "{:>9}remedy: {}", "", one_line(remedy))?;
            }
        }
        Ok(())
    }

    /// Writes the whole report as JSON and a newline.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }
}

fn escape(status: Status) -> &'static str {
    match status {
        Status::Ok => "\x1b[32m",
        Status::Limited => "\x1b[33m",
        Status::Blocked => "\x1b[31m",
        Status::Unknown => "\x1b[36m",
    }
}

/// Evidence may quote paths and files: control characters must not break the line
/// or reach the terminal.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use ringwise_measure::Sources;

    use super::*;

    fn report() -> Report {
        let empty = tempfile::tempdir().unwrap();
        Report {
            schema: SCHEMA,
            path: "/data".into(),
            findings: vec![
                Finding::ok("a.b", "one\ntwo \x1b[31m"),
                Finding::limited("long.name", "evidence").remedy("do this"),
            ],
            environment: Environment::read(&Sources::below(empty.path())),
        }
    }

    fn text(color: Color) -> String {
        let mut out = Vec::new();
        report().write_text(&mut out, color).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_aligned_and_stay_lines() {
        let expected = "ok       a.b        one\\ntwo \\u{1b}[31m\n\
                        limited  long.name  evidence\n\
                        \x20        remedy: do this\n";
        assert_eq!(text(Color::Never), expected);
    }

    #[test]
    fn colour_only_where_asked_for() {
        assert!(!text(Color::Never).contains('\x1b'));
        assert!(text(Color::Always).starts_with("\x1b[32mok     \x1b[0m  a.b"));
    }

    #[test]
    fn json_has_the_schema_and_null_for_no_remedy() {
        let mut out = Vec::new();
        report().write_json(&mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(json["schema"], "ringwise.doctor/1");
        assert_eq!(json["findings"][0]["status"], "ok");
        assert!(json["findings"][0]["remedy"].is_null());
        assert_eq!(json["findings"][1]["remedy"], "do this");
        assert!(json["environment"]["kernel"]["unknown"].is_string());
    }
}
