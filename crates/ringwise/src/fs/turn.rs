//! How long a thread goes on with reads and writes that need no waiting before its other tasks run.
//!
//! A task whose every read is in the page cache never waits: without an end to its turn it would keep
//! its thread for itself, and neither other tasks nor a runtime's timers would get on.

use std::cell::Cell;

/// What is copied in a turn; tens to hundreds of microseconds.
const TURN_BYTES: usize = 1 << 20;
/// What a call takes beside its copy, as bytes that are copied in that time.
const CALL_BYTES: usize = 4 << 10;

thread_local! {
    static COPIED: Cell<usize> = const { Cell::new(0) };
}

/// So much was copied on this thread: lets other tasks run if its turn is over.
#[inline]
pub(super) async fn copied(bytes: usize) {
    let copied = COPIED.get() + bytes + CALL_BYTES;
    if copied < TURN_BYTES {
        COPIED.set(copied);
        return;
    }
    COPIED.set(0);
    yield_now().await;
}

/// tokio's own would wait for ever if another executor polls on a thread of its runtime: it wakes the task when the
/// runtime's thread is free again.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
