//! The daemon's remarks on standard error, a line each, as text or as JSON.
//!
//! Of each kind [`BURST`] lines are printed at once and then one each second, so that a client that errs a
//! thousand times a second fills no disk. The next line says how many were left out.
//!
//! A thread of its own prints them (`ringwise_serve::Printer`). A remark that it has no room for is left out too.

use std::{
    collections::HashMap,
    fmt::Display,
    sync::{Mutex, OnceLock, PoisonError},
    time::Instant,
};

use clap::ValueEnum;
use ringwise_serve::Printer;
use serde_json::json;

/// Lines of a kind that are printed at once.
const BURST: f64 = 10.0;
/// Further kinds are counted together.
const KINDS_MAX: usize = 64;

/// How remarks are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A line of text
    Text,
    /// An object with time_ms, kind, message, and suppressed if messages of the kind were left out
    Json,
}

static FORM: OnceLock<Form> = OnceLock::new();
static LIMIT: OnceLock<Mutex<Limit>> = OnceLock::new();
static PRINTER: OnceLock<Printer> = OnceLock::new();

/// Sets how remarks are printed, once.
pub(crate) fn set_form(form: Form) {
    // A second daemon in the process has the first one's.
    let _ = FORM.set(form);
}

/// Prints a remark soon, unless there were too many of its kind. It waits only if the system had no thread to
/// print remarks.
pub(crate) fn remark(kind: &'static str, message: impl Display) {
    let mut limit =
        LIMIT.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let Some(suppressed) = limit.admit(kind, Instant::now()) else { return };
    let form = FORM.get().copied().unwrap_or(Form::Text);
    let line = line(form, kind, &message.to_string(), suppressed);
    if !PRINTER.get_or_init(Printer::start).print(&line) {
        limit.leave_out(kind, suppressed + 1);
    }
}

/// Waits until all remarks are printed, for a second at most. If nobody reads them they are lost.
pub(crate) fn flush() {
    if let Some(printer) = PRINTER.get() {
        printer.flush();
    }
}

fn line(form: Form, kind: &str, message: &str, suppressed: u64) -> String {
    if form == Form::Text {
        return match suppressed {
            0 => format!("ringwise: logd: {message}"),
            count => format!("ringwise: logd: {message} ({count} like it were not printed)"),
        };
    }
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    let time_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let mut record = json!({ "time_ms": time_ms, "kind": kind, "message": message });
    if suppressed > 0 {
        record["suppressed"] = suppressed.into();
    }
    record.to_string()
}

/// How many lines of each kind may still be printed.
#[derive(Default)]
struct Limit(HashMap<&'static str, Allowance>);

struct Allowance {
    left: f64,
    at: Instant,
    suppressed: u64,
}

impl Limit {
    /// Whether a line may be printed now, and how many before it were not.
    fn admit(&mut self, kind: &'static str, now: Instant) -> Option<u64> {
        let own = self.own(kind, now);
        own.left = (own.left + now.duration_since(own.at).as_secs_f64()).min(BURST);
        own.at = now;
        if own.left < 1.0 {
            own.suppressed += 1;
            return None;
        }
        own.left -= 1.0;
        Some(std::mem::take(&mut own.suppressed))
    }

    /// Counts lines that were admitted and could not be printed.
    fn leave_out(&mut self, kind: &'static str, lines: u64) {
        self.own(kind, Instant::now()).suppressed += lines;
    }

    fn own(&mut self, kind: &'static str, now: Instant) -> &mut Allowance {
        let is_known = self.0.contains_key(kind) || self.0.len() < KINDS_MAX;
        let kind = if is_known { kind } else { "other" };
        self.0.entry(kind).or_insert(Allowance { left: BURST, at: now, suppressed: 0 })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_is_ten_lines_and_one_each_second_which_says_what_is_missing() {
        let (mut limit, start) = (Limit::default(), Instant::now());
        let count = (0..1000).filter(|_| limit.admit("flood", start).is_some()).count();
        assert_eq!(count, 10);
        assert_eq!(limit.admit("other", start), Some(0), "each kind has its own");
        assert_eq!(limit.admit("flood", start + Duration::from_secs(1)), Some(990));
        assert_eq!(limit.admit("flood", start + Duration::from_secs(1)), None);
        assert_eq!(limit.admit("flood", start + Duration::from_secs(100)), Some(1));
    }

    #[test]
    fn each_form_is_one_line() {
        let text = line(Form::Text, "kind", "said", 0);
        assert_eq!(text, "ringwise: logd: said");
        let text = line(Form::Json, "kind", "a\n\"b\"", 3);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["message"], &value["suppressed"]), (&"a\n\"b\"".into(), &3.into()));
        assert!(!text.contains('\n') && value["time_ms"].as_u64() > Some(0));
    }
}
