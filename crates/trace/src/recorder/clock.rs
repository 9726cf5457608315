//! The clocks of a recording.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// The time by which the kernel stamps events (`CLOCK_MONOTONIC`).
pub(super) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// The CPU time of this process, without its children.
pub(super) fn cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ProcessCPUTime))
}

fn nanoseconds(time: Timespec) -> u64 {
    let (seconds, rest) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}
