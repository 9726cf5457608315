//! An operation in flight: the slot that owns it, the call that a backend performs, and what comes back.
//!
//! The parts follow an operation from its push to its last completion. They perform nothing: backends do.

cfg_if::cfg_if! {
    if #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
        pub(crate) mod advice;
        pub(crate) mod call;
        pub(crate) mod completion;
        pub(crate) mod slot;
    } else {
        pub(crate) use crate::unsupported::slot;
    }
}

pub(crate) mod refusal;
