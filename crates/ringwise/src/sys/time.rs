//! A time span in the kernel's form.

use std::time::Duration;

/// A `struct __kernel_timespec`, at a stable address while its box lives.
#[derive(Debug)]
pub(crate) struct Timespec(libc::timespec);

// The ring takes `struct __kernel_timespec`: two 64-bit fields (include/uapi/linux/time_types.h).
const _: () = assert!(size_of::<libc::timespec>() == 16, "needs a 64-bit time_t");

impl Timespec {
    pub(crate) fn as_ptr(&self) -> *const libc::timespec {
        &raw const self.0
    }
}

impl From<Duration> for Timespec {
    /// Spans beyond what the kernel takes are cut to its longest, some 292 years: `KTIME_MAX`.
    fn from(duration: Duration) -> Timespec {
        const SECONDS_MAX: u64 = (i64::MAX / 1_000_000_000) as u64 - 1;
        let seconds = duration.as_secs().min(SECONDS_MAX);
        Timespec(libc::timespec {
            tv_sec: seconds as libc::time_t,
            tv_nsec: libc::c_long::from(duration.subsec_nanos()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_span_stays_positive() {
        let longest = Timespec::from(Duration::MAX);
        assert!(longest.0.tv_sec > 0);
        let short = Timespec::from(Duration::from_millis(1500));
        assert_eq!((short.0.tv_sec, short.0.tv_nsec), (1, 500_000_000));
    }
}
