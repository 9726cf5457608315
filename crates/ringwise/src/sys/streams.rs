//! Which standard streams were closed when the process began.
//!
//! The standard library opens `/dev/null` in their places before `main` (sanitize_standard_fds in
//! library/std/src/sys/pal/unix/mod.rs), so that no other file gets their numbers. Who would tell an
//! error of a stream that is closed cannot see it after that. So it is looked before: by a function
//! in `.init_array`, which the C library calls ahead of `main`.
//!
//! Only with the feature `standard-streams`: a library has no business there unless it is asked to.
//!
//! # Safety
//!
//! `look` runs before the runtime of Rust: it has no thread beside it, allocates nothing, cannot
//! panic, calls fcntl(2) on three numbers, and stores an atomic. An entry of `.init_array` is called
//! as a C function (System V ABI, gABI chapter 5); that it is given arguments which it does not take
//! harms nothing by the C calling convention, where the caller removes them.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each number.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: the section holds pointers to C functions, and this is one (see the file's header).
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for number in 0..3 {
        // SAFETY: F_GETFD reads no memory and changes nothing, whatever the number is.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
            CLOSED.fetch_or(1 << number, Ordering::Relaxed);
        }
    }
}

/// A stream that a process has from its start.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "standard-streams")] {
/// use ringwise::{StandardStream, was_closed_at_start};
///
/// if was_closed_at_start(StandardStream::Output) {
///     eprintln!("nobody can read the output");
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandardStream {
    /// Descriptor 0.
    Input = 0,
    /// Descriptor 1.
    Output = 1,
    /// Descriptor 2.
    Error = 2,
}

/// Whether a stream was closed when the process began; what has its number now is `/dev/null`.
///
/// ```sh
/// program >&-    # was_closed_at_start(StandardStream::Output) is true
/// ```
pub fn was_closed_at_start(stream: StandardStream) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << stream as u8) != 0
}
