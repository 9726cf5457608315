//! Whether one thread is enough for what a ring's tasks do.
//!
//! Tasks that are woken one after the other stay on one thread, which is the cheapest as long as they
//! do little between two operations. Where they compute, or there are more results than a thread can
//! take, it never comes to rest; then they are woken all at once for a while, for as many threads as
//! the runtime has, before it is tried again. Nothing of that changes what a task gets.
//!
//! A thread that never comes to rest may also wait: for the device, which has as many requests as it
//! takes, so that the kernel keeps whoever submits. Another thread would only wait beside it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use crate::ring::hub::Spread;

/// How long tasks go one after the other without a rest before they are spread over all threads. A
/// thousand results and more are handed out in that time.
const PATIENCE: Duration = Duration::from_millis(4);
/// For how many times as long they are spread, the first time, and at most: so little is lost where
/// it does not help that it is tried again.
const TIMES: u32 = 4;
const TIMES_MAX: u32 = 128;

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Since when there was always somebody whose turn was to come.
    busy_since: Option<Busy>,
    spread_until: Option<Instant>,
    /// How often one thread was not enough since it last was: at most what makes `TIMES_MAX`.
    failures: u32,
}

/// When a time without a rest began, and what was used by then.
#[derive(Clone, Copy, Debug)]
struct Busy {
    at: Instant,
    used: Used,
}

/// What a thread has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    thread: ThreadId,
    /// Its CPU time.
    cpu: Duration,
    /// In calls that hand operations over, whichever thread made them.
    submitting: Duration,
}

/// Where the time comes from.
pub(super) trait Clock {
    fn now(&self) -> Instant;
    fn used(&self) -> Used;
}

/// The time that calls which hand operations over take.
#[derive(Debug, Default)]
pub(super) struct Submitting {
    ns: AtomicU64,
}

impl Submitting {
    /// Makes such a call.
    pub(super) fn time<T>(&self, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = call();
        let ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.ns.fetch_add(ns, Ordering::Relaxed);
        result
    }
}

impl Clock for Submitting {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn used(&self) -> Used {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Used {
            thread: thread::current().id(),
            // Neither part of a CPU time is ever negative.
            cpu: Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32),
            submitting: Duration::from_nanos(self.ns.load(Ordering::Relaxed)),
        }
    }
}

impl Busy {
    fn begin(at: Instant, clock: &impl Clock) -> Busy {
        Busy { at, used: clock.used() }
    }

    /// Whether the thread waited for a quarter of the time and more, and no longer than operations
    /// took to be handed over. Where the turns went to another thread that is not known, and there
    /// are two at it already.
    fn has_waited(&self, busy: Duration, now: Used) -> bool {
        let waited = busy.saturating_sub(now.cpu.saturating_sub(self.used.cpu));
        let submitting = now.submitting.saturating_sub(self.used.submitting);
        now.thread != self.used.thread || (waited >= busy / 4 && waited <= submitting)
    }
}

impl Pace {
    /// How the results that are there are handed out. The clock is read only where it matters.
    pub(super) fn spread(&mut self, clock: &impl Clock) -> Spread {
        if let Some(until) = self.spread_until {
            if clock.now() < until {
                return Spread::AtOnce;
            }
            (self.spread_until, self.busy_since) = (None, None);
        }
        let Some(since) = self.busy_since else { return Spread::InTurn };
        let now = clock.now();
        let busy = now.saturating_duration_since(since.at);
        if busy < PATIENCE {
            return Spread::InTurn;
        }
        if since.has_waited(busy, clock.used()) {
            self.busy_since = Some(Busy::begin(now, clock));
            return Spread::InTurn;
        }
        let times = TIMES << self.failures;
        self.failures = (self.failures + 1).min((TIMES_MAX / TIMES).ilog2());
        self.spread_until = now.checked_add(busy.saturating_mul(times));
        Spread::AtOnce
    }

    /// Others wait for their turn.
    pub(super) fn go_on(&mut self, clock: &impl Clock) {
        self.busy_since.get_or_insert_with(|| Busy::begin(clock.now(), clock));
    }

    /// Nobody does: one thread was enough, if it was tried.
    pub(super) fn rest(&mut self) {
        if self.spread_until.is_none() && self.busy_since.take().is_some() {
            self.failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that stands still.
    #[derive(Clone, Copy)]
    struct Still(Instant, Used);

    impl Clock for Still {
        fn now(&self) -> Instant {
            self.0
        }

        fn used(&self) -> Used {
            self.1
        }
    }

    impl Still {
        fn start() -> Still {
            let thread = thread::current().id();
            Still(Instant::now(), Used { thread, cpu: Duration::ZERO, submitting: Duration::ZERO })
        }

        /// So many milliseconds later, all of which the thread worked.
        fn after(self, ms: u64) -> Still {
            self.after_waiting(ms, ms, 0)
        }

        fn after_waiting(self, ms: u64, cpu_ms: u64, submitting_ms: u64) -> Still {
            let Still(at, used) = self;
            let cpu = used.cpu + Duration::from_millis(cpu_ms);
            let submitting = used.submitting + Duration::from_millis(submitting_ms);
            Still(at + Duration::from_millis(ms), Used { cpu, submitting, ..used })
        }
    }

    /// Tasks that always leave somebody waiting for a turn, `ms` each time.
    fn overload(pace: &mut Pace, start: Still, ms: u64) -> (Spread, Still) {
        assert_eq!(pace.spread(&start), Spread::InTurn);
        pace.go_on(&start);
        let end = start.after(ms);
        (pace.spread(&end), end)
    }

    #[test]
    fn one_thread_is_enough_until_it_never_rests() {
        let mut pace = Pace::default();
        let start = Still::start();
        assert_eq!(overload(&mut pace, start, 3).0, Spread::InTurn);
        pace.rest();
        // A rest in between: it begins anew.
        assert_eq!(overload(&mut pace, start.after(3), 3).0, Spread::InTurn);
        assert_eq!(pace.spread(&start.after(7)), Spread::AtOnce);
    }

    #[test]
    fn a_thread_that_waits_for_the_device_needs_no_other() {
        // Four milliseconds without a rest: CPU time, time in submits, what comes of it.
        for (cpu_ms, submitting_ms, spread) in [
            (1, 4, Spread::InTurn),
            (3, 3, Spread::InTurn),
            // It works nearly all of the time.
            (4, 4, Spread::AtOnce),
            // It waits for something else: a task that blocks.
            (1, 2, Spread::AtOnce),
        ] {
            let (mut pace, start) = (Pace::default(), Still::start());
            pace.go_on(&start);
            let end = start.after_waiting(4, cpu_ms, submitting_ms);
            assert_eq!(pace.spread(&end), spread, "{cpu_ms} {submitting_ms}");
        }
    }

    #[test]
    fn it_is_measured_anew_after_a_wait_and_on_another_thread() {
        let (mut pace, start) = (Pace::default(), Still::start());
        pace.go_on(&start);
        let waited = start.after_waiting(4, 1, 4);
        assert_eq!(pace.spread(&waited), Spread::InTurn);
        assert_eq!(pace.spread(&waited.after(3)), Spread::InTurn);
        let mut elsewhere = waited.after(4);
        elsewhere.1.thread = thread::spawn(|| thread::current().id()).join().unwrap();
        assert_eq!(pace.spread(&elsewhere), Spread::InTurn);
        assert_eq!(pace.spread(&elsewhere.after(4)), Spread::AtOnce);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no clock of a thread's CPU time")]
    fn what_is_submitted_takes_time() {
        let submitting = Submitting::default();
        let before = submitting.used();
        submitting.time(|| thread::sleep(Duration::from_millis(2)));
        let after = submitting.used();
        assert!(after.submitting - before.submitting >= Duration::from_millis(2));
        assert_eq!(after.thread, before.thread);
    }

    #[test]
    fn it_is_tried_again_and_each_time_later() {
        let mut pace = Pace::default();
        let mut now = Still::start();
        for times in [4, 8, 16, 32, 64, 128, 128] {
            let (spread, end) = overload(&mut pace, now, 10);
            assert_eq!(spread, Spread::AtOnce);
            // To come to rest with all threads says nothing of one.
            pace.rest();
            let until = end.after(10 * times);
            assert_eq!(pace.spread(&end.after(10 * times - 1)), Spread::AtOnce);
            now = until;
        }
        assert_eq!(pace.spread(&now), Spread::InTurn);
        pace.go_on(&now);
        pace.rest();
        let (_, end) = overload(&mut pace, now, 10);
        assert_eq!(pace.spread(&end.after(40)), Spread::InTurn);
    }
}
