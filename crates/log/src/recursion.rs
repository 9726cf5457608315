//! Which threads' events are not sent: those that write an event at this moment, and the client's own.
//!
//! Writing an event may record others, and so may the callback for what happens to the client. Each would make a line,
//! which would make the next one, without an end.

use std::cell::Cell;

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// This thread is one of the client's: its events are not sent.
pub(crate) fn keep_out() {
    IS_INSIDE.set(true);
}

/// While it lives, this thread's events are not sent.
pub(crate) struct Inside(());

impl Inside {
    /// Nothing if the thread's events are not sent. The value must not be made then: its end would let them in.
    pub(crate) fn enter() -> Option<Inside> {
        if IS_INSIDE.replace(true) { None } else { Some(Inside(())) }
    }
}

/// Also after a panic of a field.
impl Drop for Inside {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}
