//! The reasons for which a line is refused. `parser` and `fields` decide.

use std::fmt;

/// Why a line is refused, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Bytes before what is wrong.
    pub offset: usize,
    /// What is wrong.
    pub reason: Reason,
}

/// What is wrong with a line. `N` answers and dead letters have its word.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The line ends before the value does.
    Incomplete,
    /// A byte that is not allowed at its place.
    Syntax,
    /// Bytes after the value.
    Trailing,
    /// A control character in a string.
    Control,
    /// A wrong escape.
    Escape,
    /// An escaped surrogate without its other half.
    Surrogate,
    /// Bytes that are not UTF-8.
    Utf8,
    /// A wrong number.
    Number,
    /// Values nest too deeply.
    Depth,
    /// A required field is missing.
    Missing,
    /// A required field has another type.
    Type,
}

impl Reason {
    /// The word of the reason.
    pub fn code(self) -> &'static str {
        match self {
            Reason::Incomplete => "incomplete",
            Reason::Syntax => "syntax",
            Reason::Trailing => "trailing",
            Reason::Control => "control",
            Reason::Escape => "escape",
            Reason::Surrogate => "surrogate",
            Reason::Utf8 => "utf8",
            Reason::Number => "number",
            Reason::Depth => "depth",
            Reason::Missing => "missing-field",
            Reason::Type => "field-type",
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.reason.code(), self.offset)
    }
}
