//! When a step may begin: at once, after the think time that the program had, or at its time in the recording.
//!
//! Where the program computed and its think time is kept, the replay computes as long: whoever waits for a device beside
//! it then has as little of the processor as in the recording. The last part of a wait spins, because a thread that slept
//! would begin with a cold processor, and late by what a wake-up takes.

use std::{
    thread,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

use super::script::Step;
use crate::sampling::{
    job::{Job, Window},
    lane::Lane,
};

/// The last part of a wait, which spins: more than a sleep is late by.
pub(crate) const SPIN_NS: u64 = 150_000;
/// The longest sleep before the interrupt is looked at again.
const SLEEP_NS_MAX: u64 = 10_000_000;

/// What is kept of the program's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The think time: if an operation takes longer, the replay takes longer by as much.
    #[default]
    Recorded,
    /// Nothing: each step begins as soon as it may.
    Asap,
    /// The begins. A step that has to wait for those before it takes longer by what it waits.
    Open,
}

impl Pace {
    /// When a step may begin whose last predecessor ended at `since_ns`.
    pub fn due_ns(self, step: &Step, since_ns: u64) -> u64 {
        match self {
            Pace::Recorded => since_ns.saturating_add(step.think_ns),
            Pace::Asap => since_ns,
            Pace::Open => since_ns.max(step.begin_ns),
        }
    }

    /// The same, if the steps that have ended did so at these times. None: too few have.
    pub fn due_after_ns(self, step: &Step, ends_ns: &[u64]) -> Option<u64> {
        let since_ns = match step.after {
            0 => 0,
            after => *ends_ns.get(after - 1)?,
        };
        Some(self.due_ns(step, since_ns))
    }

    /// A step begins now in a lane. Returns when its duration starts to count.
    pub fn begin(self, step: &Step, lane: &mut Lane) -> u64 {
        let now_ns = lane.clock();
        let since_ns = self.since_ns(step, now_ns);
        lane.begin_late(since_ns, now_ns);
        since_ns
    }

    /// When the duration of a step that begins now starts to count.
    fn since_ns(self, step: &Step, now_ns: u64) -> u64 {
        match self {
            Pace::Recorded | Pace::Asap => now_ns,
            Pace::Open => step.begin_ns.min(now_ns),
        }
    }
}

/// Computes as long as the program did before a step, if its think time is kept.
pub(crate) fn compute(pace: Pace, step: &Step, job: &Job) {
    // The end of each wait spins as long.
    if pace != Pace::Recorded || step.computed_ns <= SPIN_NS {
        return;
    }
    let (began_ns, whole_ns) = (processor_ns(), step.computed_ns);
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

    const STEP: Step = Step {
        kind: StepKind::Read,
        handle: 0,
        offset: 0,
        length: 0,
        bytes: 0,
        after: 1,
        think_ns: 5,
        begin_ns: 7,
        computed_ns: 0,
        recorded_ns: 0,
        interface: ringwise_trace::Interface::Syscall,
        makes: None,
        is_first: false,
    };

    #[test]
    fn a_step_is_due_by_what_is_kept_of_the_programs_times() {
        for (pace, due_ns, since_ns) in
            [(Pace::Recorded, [8, 14], 20), (Pace::Asap, [3, 9], 20), (Pace::Open, [7, 9], 7)]
        {
            let due = [3, 9].map(|end_ns| pace.due_after_ns(&STEP, &[end_ns]));
            assert_eq!(due, due_ns.map(Some), "{pace:?}");
            assert_eq!(pace.due_after_ns(&STEP, &[]), None, "{pace:?}");
            assert_eq!(pace.since_ns(&STEP, 20), since_ns, "{pace:?}");
        }
    }

    #[test]
    fn computing_takes_processor_time_unless_think_time_is_left_out_or_the_sample_ends() {
        let step = Step { computed_ns: 4_000_000, ..STEP };
        let job = crate::testing::job();
        let taken = |pace| {
            let before = processor_ns();
            compute(pace, &step, &job);
            processor_ns() - before
        };
        assert!(taken(Pace::Recorded) >= step.computed_ns);
        assert!(taken(Pace::Asap) < step.computed_ns);
        assert!(taken(Pace::Open) < step.computed_ns);
        job.failed.store(true, Ordering::Relaxed);
        assert!(taken(Pace::Recorded) < step.computed_ns);
    }
}
