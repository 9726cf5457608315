//! Spans of `tracing`: one for each operation of a ring, from its future to its last result, and
//! one for each syscall that the caller's own thread made instead.
//!
//! A span closes when the future has returned the result, or is dropped. The fields of a span are
//! computed only if somebody subscribes to it.

use std::os::fd::AsRawFd;

use tracing::{Span, field::Empty};

use crate::{
    descriptor::Descriptor,
    flight::completion::Completion,
    op::{Opcode, Operation},
    settings::{failure::FallbackReason, setup::Setup},
};

/// Makes the span of an operation that is submitted.
pub(crate) fn of(operation: &Operation) -> Span {
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

/// Records the result of an operation.
pub(crate) fn end(span: &Span, completion: &Completion) {
    span.record("result", completion.raw_result());
}

/// Reports a read, write, receive or send by the caller's own thread. The span closes at once: only
/// after the call it is known whether the thread could serve the request. If not, the ring reports it.
pub(crate) fn tell_inline(
    opcode: Opcode,
    descriptor: &Descriptor,
    offset: Option<u64>,
    bytes: usize,
    count: usize,
) {
    tracing::trace_span!(
        "operation",
        name = opcode.name(),
        descriptor = descriptor.as_raw_fd(),
        offset,
        bytes,
        result = count as i64,
        inline = true,
    );
}

/// Warns that a ring runs on classic syscalls although nobody chose that.
pub(crate) fn warn_fallback(setup: &Setup) {
    match setup.fallback() {
        None | Some(FallbackReason::Chosen) => {}
        Some(reason) => tracing::warn!(%reason, "the ring runs on classic calls"),
    }
}

/// Warns that operations wait for room in their loop. No lock may be held.
pub(crate) fn warn_full(count: usize) {
    tracing::warn!(
        count,
        reason = "as many operations work at once as the completion queue has room for",
        "operations wait for room in the ring: raise Builder::completion_entries"
    );
}
