//! Facts read from /proc and /sys: a value, or the reason why there is none.
//!
//! [`Sources`] holds the roots of those trees, so that tests can use a tree of their own. This module does not
//! interpret values.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Serialize, Serializer, ser::SerializeMap};

/// A value, or the reason why it is unknown.
///
/// Serialised as the value itself, or as `{"unknown": reason}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact<T> {
    /// The source was read and understood.
    Known(T),
    /// The source was not read or not understood, with one line that says why.
    Unknown(String),
}

impl<T> Fact<T> {
    /// Makes a fact from a value, or from the reason if there is none.
    pub fn of(value: Option<T>, reason: impl FnOnce() -> String) -> Fact<T> {
        value.map_or_else(|| Fact::Unknown(reason()), Fact::Known)
    }

    /// Returns the value, if there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Fact::Known(value) => Some(value),
            Fact::Unknown(_) => None,
        }
    }

    /// Returns the reason, if there is no value.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Fact::Known(_) => None,
            Fact::Unknown(reason) => Some(reason),
        }
    }

    /// Applies a function to the value. A reason stays as it is.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Fact<U> {
        match self {
            Fact::Known(value) => Fact::Known(change(value)),
            Fact::Unknown(reason) => Fact::Unknown(reason),
        }
    }

    /// Applies a function that may itself find no value.
    pub fn and_then<U>(self, next: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Fact::Known(value) => next(value),
            Fact::Unknown(reason) => Fact::Unknown(reason),
        }
    }

    /// Combines two facts. If one is unknown, the result has its reason; if both are, the reason of the first.
    pub fn zip<'a, U>(&'a self, other: &'a Fact<U>) -> Fact<(&'a T, &'a U)> {
        match (self, other) {
            (Fact::Known(left), Fact::Known(right)) => Fact::Known((left, right)),
            (Fact::Unknown(reason), _) | (_, Fact::Unknown(reason)) => {
                Fact::Unknown(reason.clone())
            }
        }
    }
}

impl<T: fmt::Display> fmt::Display for Fact<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Known(value) => value.fmt(f),
            Fact::Unknown(reason) => write!(f, "unknown ({reason})"),
        }
    }
}

impl<T: Serialize> Serialize for Fact<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Fact::Known(value) => value.serialize(serializer),
            Fact::Unknown(reason) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("unknown", reason)?;
                map.end()
            }
        }
    }
}

/// The roots of the kernel's trees. [`Sources::default`] is this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The proc file system, `/proc`.
    pub proc: PathBuf,
    /// The sysfs file system, `/sys`.
    pub sys: PathBuf,
    /// The root directory, `/`. Container engines leave marker files below it.
    pub root: PathBuf,
}

impl Default for Sources {
    fn default() -> Self {
        Sources { proc: "/proc".into(), sys: "/sys".into(), root: "/".into() }
    }
}

impl Sources {
    /// Uses the trees below one directory: `DIR/proc`, `DIR/sys` and `DIR` itself.
    pub fn below(directory: impl AsRef<Path>) -> Self {
        let root = directory.as_ref().to_path_buf();
        Sources { proc: root.join("proc"), sys: root.join("sys"), root }
    }

    /// Reads a file under `/proc`, without the white space around its text.
    pub fn proc_text(&self, relative: impl AsRef<Path>) -> Fact<String> {
        text(&self.proc.join(relative))
    }

    /// Reads a file under `/sys`, without the white space around its text.
    pub fn sys_text(&self, relative: impl AsRef<Path>) -> Fact<String> {
        text(&self.sys.join(relative))
    }
}

/// Reads a file, without the white space around its text. Bytes that are not UTF-8 are replaced, because names in these
/// files may contain any byte.
pub fn text(path: &Path) -> Fact<String> {
    match fs::read(path) {
        Ok(bytes) => Fact::Known(String::from_utf8_lossy(&bytes).trim().to_owned()),
        Err(error) => Fact::Unknown(format!("{}: {}", path.display(), lowered(&error))),
    }
}

/// Reads and parses a file that holds one value.
pub fn value<T: FromStr>(path: &Path) -> Fact<T> {
    text(path).and_then(|text| understood(text.parse().ok(), &path.display().to_string(), &text))
}

/// Makes a fact from a parsed value, or a reason that quotes the text if it could not be parsed.
pub(crate) fn understood<T>(value: Option<T>, source: &str, text: &str) -> Fact<T> {
    Fact::of(value, || format!("{source}: not understood: {}", excerpt(text)))
}

/// Finds the value of a `Name:   value` line, without the white space around it.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// Finds the bytes of a `Name:   value kB` line.
pub(crate) fn kibibytes_field(text: &str, name: &str) -> Option<u64> {
    let kibibytes: u64 = field(text, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Formats an error with the system's text, without the ` (os error N)` that the standard library appends.
pub fn plain(error: &std::io::Error) -> String {
    plain_text(&error.to_string())
}

/// Removes each ` (os error N)` from a message.
pub fn plain_text(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// Formats an error in lower case, for the middle of a line.
pub(crate) fn lowered(error: &std::io::Error) -> String {
    plain(error).to_lowercase()
}

/// Quotes the beginning of a text on one line, for a message.
pub(crate) fn excerpt(text: &str) -> String {
    const CHARACTERS: usize = 40;
    let start: String = text.chars().take(CHARACTERS).collect();
    let more = if text.chars().count() > CHARACTERS { "..." } else { "" };
    format!("{start:?}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_garbled_files_are_reasons() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("value");
        assert!(
            value::<u64>(&path).reason().unwrap().ends_with("value: no such file or directory")
        );
        fs::write(&path, b"\xff\xfe\0garbage").unwrap();
        assert!(value::<u64>(&path).reason().unwrap().contains("not understood"));
        fs::write(&path, b"").unwrap();
        assert!(value::<u64>(&path).reason().is_some());
        fs::write(&path, b" 7\n").unwrap();
        assert_eq!(value::<u64>(&path), Fact::Known(7));
        assert!(value::<u64>(directory.path()).reason().is_some());
    }

    #[test]
    fn serialised_as_value_or_reason() {
        let known = serde_json::to_string(&Fact::Known(3)).unwrap();
        let unknown = serde_json::to_string(&Fact::<u8>::Unknown("because".into())).unwrap();
        assert_eq!((known.as_str(), unknown.as_str()), ("3", r#"{"unknown":"because"}"#));
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "Seccomp_filters:\t2\nSeccomp:\t1\n";
        assert_eq!(field(text, "Seccomp"), Some("1"));
        assert_eq!(field(text, "Threads"), None);
    }
}
