//! Resource limits of this process, from /proc/self/limits.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::fact::{Fact, Sources};

/// A soft limit. Serialised as a number, or as `"unlimited"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// No more than this.
    At(u64),
    /// No limit.
    Unlimited,
}

impl Limit {
    /// Whether `amount` is within the limit.
    pub fn allows(self, amount: u64) -> bool {
        match self {
            Limit::At(limit) => amount <= limit,
            Limit::Unlimited => true,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::At(limit) => limit.fmt(f),
            Limit::Unlimited => f.write_str("unlimited"),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Limit::At(limit) => serializer.serialize_u64(*limit),
            Limit::Unlimited => serializer.serialize_str("unlimited"),
        }
    }
}

/// The limits that matter to I/O; getrlimit(2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Memory that may be locked, in bytes. Registered buffers count against it, and before Linux 5.12 rings too.
    pub memlock_bytes: Fact<Limit>,
    /// Open descriptors.
    pub open_files: Fact<Limit>,
    /// The hard limit: open descriptors that the soft limit may be raised to.
    pub open_files_hard: Fact<Limit>,
}

impl Limits {
    pub(super) fn read(sources: &Sources) -> Limits {
        let text = sources.proc_text("self/limits");
        let limit = |name: &str, column: usize| {
            let reason = || format!("/proc/self/limits: no {name} there");
            text.clone().and_then(|text| Fact::of(parse(&text, name, column), reason))
        };
        Limits {
            memlock_bytes: limit("Max locked memory", 0),
            open_files: limit("Max open files", 0),
            open_files_hard: limit("Max open files", 1),
        }
    }
}

/// `Max open files            1024                 524288               files`
fn parse(text: &str, name: &str, column: usize) -> Option<Limit> {
    let values = text.lines().find_map(|line| line.strip_prefix(name))?;
    match values.split_whitespace().nth(column)? {
        "unlimited" => Some(Limit::Unlimited),
        number => number.parse().ok().map(Limit::At),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Limit                     Soft Limit           Hard Limit           Units     \n\
        Max open files            1024                 524288               files     \n\
        Max locked memory         unlimited            unlimited            bytes     \n\
        Max address space         x                    y                    bytes     \n";

    #[test]
    fn soft_hard_and_unlimited() {
        assert_eq!(parse(TEXT, "Max open files", 0), Some(Limit::At(1024)));
        assert_eq!(parse(TEXT, "Max open files", 1), Some(Limit::At(524_288)));
        assert_eq!(parse(TEXT, "Max locked memory", 0), Some(Limit::Unlimited));
        assert_eq!(parse(TEXT, "Max address space", 0), None);
        assert_eq!(parse(TEXT, "Max stack size", 0), None);
        assert!(
            Limit::Unlimited.allows(u64::MAX) && Limit::At(2).allows(2) && !Limit::At(2).allows(3)
        );
    }

    #[test]
    fn serialised_as_number_or_word() {
        let json = serde_json::to_string(&[Limit::At(5), Limit::Unlimited]).unwrap();
        assert_eq!(json, r#"[5,"unlimited"]"#);
    }
}
