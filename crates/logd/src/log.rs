//! What the daemon says of itself, on standard error: a line for each remark, as text or as JSON,
//! and no more of one kind than somebody reads.
//!
//! A client that does something wrong a thousand times a second fills no disk: of each kind there
//! are [`BURST`] lines at once and then one each second; the next says how many were left out.

use std::{
    collections::HashMap,
    fmt::Display,
    io::Write,
    sync::{Mutex, OnceLock, PoisonError},
    time::Instant,
};

use clap::ValueEnum;
use serde_json::json;

/// Lines of a kind that are printed whatever came before.
const BURST: f64 = 10.0;
/// Kinds are few and known; one more than these is counted with the others.
const KINDS_MAX: usize = 64;

/// How remarks are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// A line for people
    Text,
    /// An object: time_ms, kind, message, and suppressed where lines of the kind were left out
    Json,
}

static FORM: OnceLock<Form> = OnceLock::new();
static LIMIT: OnceLock<Mutex<Limit>> = OnceLock::new();

/// Says how remarks are to be printed, once.
pub(crate) fn set_form(form: Form) {
    // A second one of the same process is the first one's.
    let _ = FORM.set(form);
}

/// Prints a remark, unless there were too many of its kind.
pub(crate) fn remark(kind: &'static str, message: impl Display) {
    let mut limit =
        LIMIT.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let Some(suppressed) = limit.admit(kind, Instant::now()) else { return };
    let form = FORM.get().copied().unwrap_or(Form::Text);
    let line = line(form, kind, &message.to_string(), suppressed);
    // Nobody reads it: then there is nothing to say it to.
    let _ = writeln!(std::io::stderr(), "{line}");
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
        let is_known = self.0.contains_key(kind) || self.0.len() < KINDS_MAX;
        let kind = if is_known { kind } else { "other" };
        let new = Allowance { left: BURST, at: now, suppressed: 0 };
        let own = self.0.entry(kind).or_insert(new);
        own.left = (own.left + now.duration_since(own.at).as_secs_f64()).min(BURST);
        own.at = now;
        if own.left < 1.0 {
            own.suppressed += 1;
            return None;
        }
        own.left -= 1.0;
        Some(std::mem::take(&mut own.suppressed))
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
