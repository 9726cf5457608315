//! A submitted operation that has several results.
//!
//! Like [`Pending`](crate::ring::Pending) it is only a number, and may be dropped at any moment. Then the
//! operation is cancelled, and results that nobody took are freed.

use std::task::{Context, Poll};

use crate::{
    flight::completion::Completion,
    op::Operation,
    ring::{
        Ring,
        hub::order::{Admission, Key},
    },
};

/// A submitted operation with several results.
pub(crate) struct Flow {
    ring: Ring,
    /// None after the last result.
    key: Option<Key>,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl Flow {
    /// Starts an operation, of which `credit` results may lie untaken. If it cannot start, returns
    /// a completion with the reason.
    pub(crate) fn begin(
        ring: &Ring,
        operation: Operation,
        credit: usize,
        context: &Context<'_>,
    ) -> Result<Flow, Completion> {
        if ring.is_foreign() {
            return Err(Completion::refused(operation, libc::EOWNERDEAD));
        }
        #[cfg(feature = "tracing")]
        let span = super::span::of(&operation);
        match ring.hub().submit_flow(operation, credit, context.waker().clone()) {
            Admission::Taken(key, next) => {
                ring.follow(next);
                Ok(Flow {
                    ring: ring.clone(),
                    key: Some(key),
                    #[cfg(feature = "tracing")]
                    span,
                })
            }
            Admission::Refused(operation) => Err(Completion::refused(operation, libc::ESHUTDOWN)),
        }
    }

    /// Returns the next result, and none after the last.
    pub(crate) fn poll_next(&mut self, context: &Context<'_>) -> Poll<Option<Completion>> {
        let Some(key) = self.key else { return Poll::Ready(None) };
        if self.ring.is_foreign() {
            return Poll::Pending;
        }
        let Some(part) = self.ring.hub().poll_flow(key, context.waker()) else {
            return Poll::Pending;
        };
        if !part.has_more() {
            self.key = None;
            #[cfg(feature = "tracing")]
            super::span::end(&std::mem::replace(&mut self.span, tracing::Span::none()), &part);
        }
        Poll::Ready(Some(part))
    }

    /// Asks the driver to cancel the operation, whose results are taken later. Until then they keep
    /// no buffers from other operations.
    pub(crate) fn set_aside(&self) {
        if let Some(key) = self.key
            && !self.ring.is_foreign()
        {
            self.ring.hub().set_flow_aside(key);
            self.ring.follow(self.ring.hub().cancel(key));
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.key.is_none()
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        if let Some(key) = self.key
            && !self.ring.is_foreign()
        {
            let (next, parts) = self.ring.hub().abandon_flow(key);
            self.ring.follow(next);
            drop(parts);
        }
    }
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flow").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}
