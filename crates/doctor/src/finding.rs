//! One thing that was found out.

use std::fmt;

use ringwise_measure::Fact;
use serde::Serialize;

/// What a finding means for io_uring here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As good as it gets.
    Ok,
    /// It works, but something costs more, or a feature is missing.
    Limited,
    /// It does not work.
    Blocked,
    /// It could not be found out.
    Unknown,
}

impl Status {
    /// Every status, for reports and schemas.
    pub const ALL: [Status; 4] = [Status::Ok, Status::Limited, Status::Blocked, Status::Unknown];

    /// The word that is printed.
    pub fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Limited => "limited",
            Status::Blocked => "blocked",
            Status::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One thing that was found out, with how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A name that stays the same: an area and a thing, such as `queue.io_poll`.
    pub name: &'static str,
    /// What it means.
    pub status: Status,
    /// The file that was read or the call that was made, and what it answered.
    pub evidence: String,
    /// What to do about it, where something can be done.
    pub remedy: Option<String>,
}

impl Finding {
    pub(crate) fn new(name: &'static str, status: Status, evidence: impl Into<String>) -> Self {
        Finding { name, status, evidence: evidence.into(), remedy: None }
    }

    pub(crate) fn ok(name: &'static str, evidence: impl Into<String>) -> Self {
        Self::new(name, Status::Ok, evidence)
    }

    pub(crate) fn limited(name: &'static str, evidence: impl Into<String>) -> Self {
        Self::new(name, Status::Limited, evidence)
    }

    pub(crate) fn blocked(name: &'static str, evidence: impl Into<String>) -> Self {
        Self::new(name, Status::Blocked, evidence)
    }

    pub(crate) fn unknown(name: &'static str, reason: impl Into<String>) -> Self {
        Self::new(name, Status::Unknown, reason)
    }

    /// Judges a fact; one that is not known is an `unknown` with its reason.
    pub(crate) fn of<T>(
        name: &'static str,
        fact: &Fact<T>,
        judge: impl FnOnce(&T) -> Finding,
    ) -> Self {
        match fact {
            Fact::Known(value) => judge(value),
            Fact::Unknown(reason) => Self::unknown(name, reason),
        }
    }

    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}
