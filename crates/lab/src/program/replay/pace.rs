//! When a step may begin: at once, or after the think time that the program had.
//!
//! Where the program computed, the replay computes as long: whoever waits for a device beside it then has as little of
//! the processor as in the recording. The last part of a wait spins, because a thread that slept would begin with a cold
//! processor, and late by what a wake-up takes.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use super::script::Step;
use crate::sampling::job::{Job, Window};

/// The last part of a wait, which spins: more than a sleep is late by.
pub(crate) const SPIN_NS: u64 = 150_000;
/// The longest sleep before the interrupt is looked at again.
const SLEEP_NS_MAX: u64 = 10_000_000;

/// Whether think time is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As recorded.
    #[default]
    Recorded,
    /// Without any: each step begins as soon as it may.
    Asap,
}

impl Pace {
    /// When a step may begin whose last predecessor ended at `since_ns`.
    pub fn due_ns(self, step: &Step, since_ns: u64) -> u64 {
        match self {
            Pace::Recorded => since_ns.saturating_add(step.think_ns),
            Pace::Asap => since_ns,
        }
    }

    /// The same, if the steps that have ended did so at these times, and the step before began at that one. None: too
    /// few have.
    ///
    /// A thread with several steps in flight computes between two begins, so they are at least as far apart. Else the
    /// replay would keep more in flight than the program could.
    pub fn due_after_ns(self, step: &Step, ends_ns: &[u64], began_ns: u64) -> Option<u64> {
        let since_ns = match step.after {
            0 => 0,
            after => *ends_ns.get(after - 1)?,
        };
        let due_ns = self.due_ns(step, since_ns);
        Some(match self {
            Pace::Recorded if step.is_asynchronous => due_ns.max(began_ns + step.computed_ns),
            _ => due_ns,
        })
    }
}

/// Computes as long as the program did before a step, while none was in flight.
pub(crate) fn compute(pace: Pace, step: &Step, job: &Job) {
    // It may have computed before the replay begins, or while steps were in flight.
    let whole_ns = step.computed_ns.min(step.think_ns);
    // The end of each wait spins as long.
    if pace == Pace::Asap || whole_ns <= SPIN_NS {
        return;
    }
    let began_ns = processor_ns();
    let mut left_ns = whole_ns;
    while left_ns > 0 && !job.is_stopped() {
        // The clock of the thread is a syscall. It does not go while another thread has the processor.
        let began = Instant::now();
        while (began.elapsed().as_nanos() as u64) < left_ns && !job.is_stopped() {
            std::hint::spin_loop();
        }
        left_ns = whole_ns.saturating_sub(processor_ns() - began_ns);
    }
}

/// How long this thread had a processor.
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).map_or(0, |time| time.as_nanos() as u64)
}

/// Waits until a time of the window, or until the sample is stopped.
pub(crate) fn wait_until(due_ns: u64, window: &Window, job: &Job) {
    while !job.is_stopped() {
        let Some(left_ns) = due_ns.checked_sub(window.now_ns()).filter(|left_ns| *left_ns > 0)
        else {
            return;
        };
        match left_ns.checked_sub(SPIN_NS) {
            Some(sleep_ns @ 1..) => thread::sleep(Duration::from_nanos(sleep_ns.min(SLEEP_NS_MAX))),
            _ => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::program::replay::script::StepKind;

    fn step() -> Step {
        Step {
            kind: StepKind::Read,
            handle: 0,
            offset: 0,
            length: 0,
            bytes: 0,
            after: 0,
            think_ns: 5_000_000,
            computed_ns: 4_000_000,
            recorded_ns: 0,
            is_asynchronous: false,
        }
    }

    #[test]
    fn requests_of_a_ring_are_as_far_apart_as_the_thread_computed_between_them() {
        let step = Step { after: 1, think_ns: 10, computed_ns: 50, ..step() };
        let due_ns = |pace: Pace, is_asynchronous, ends_ns: &[u64], began_ns| {
            pace.due_after_ns(&Step { is_asynchronous, ..step }, ends_ns, began_ns)
        };
        assert_eq!(due_ns(Pace::Recorded, true, &[], 100), None);
        assert_eq!(due_ns(Pace::Recorded, true, &[120], 100), Some(150));
        assert_eq!(due_ns(Pace::Recorded, true, &[170], 100), Some(180));
        assert_eq!(due_ns(Pace::Recorded, false, &[120], 100), Some(130));
        assert_eq!(due_ns(Pace::Asap, true, &[120], 100), Some(120));
    }

    #[test]
    fn computing_takes_processor_time_unless_think_time_is_left_out_or_the_sample_ends() {
        let step = step();
        let job = crate::testing::job();
        let taken = |pace| {
            let before = processor_ns();
            compute(pace, &step, &job);
            processor_ns() - before
        };
        assert!(taken(Pace::Recorded) >= step.computed_ns);
        assert!(taken(Pace::Asap) < step.computed_ns);
        job.failed.store(true, Ordering::Relaxed);
        assert!(taken(Pace::Recorded) < step.computed_ns);
    }
}
