//! Writes a stream: the rules of commits, what runs them on a loop, and the end of a segment.

pub(crate) mod appender;
pub(crate) mod commit;
pub(crate) mod staging;
pub(crate) mod unsealed;
