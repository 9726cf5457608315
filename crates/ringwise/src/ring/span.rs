//! Spans of `tracing`: one for each operation of a ring, from its future to its last result. What the
//! caller's own thread reads or writes makes none (`RingStats::inline_hits` counts them).
//!
//! A span is open as long as somebody can be given the result: it closes when the future has given
//! it, or is dropped. What an operation is about is looked at only where somebody listens.

use tracing::{Span, field::Empty};

use crate::{completion::Completion, op::Operation};

/// The span of an operation that is handed in.
pub(super) fn of(operation: &Operation) -> Span {
    tracing::trace_span!(
        "operation",
        name = operation.opcode().name(),
        descriptor = operation.descriptor(),
        path = operation.path().map(|path| path.display().to_string()),
        offset = operation.offset(),
        bytes = operation.byte_count(),
        result = Empty,
    )
}

/// Notes what it came to.
pub(super) fn end(span: &Span, completion: &Completion) {
    span.record("result", completion.raw_result());
}
