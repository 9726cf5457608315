//! When a step may begin: at once, or after the think time that the program had.
//!
//! A program thinks with its processor, so the last part of a wait spins: a thread that slept would begin with a cold
//! processor, and late by what a wake-up takes.

use std::{thread, time::Duration};

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

    /// The same, if the steps that have ended did so at these times. None: too few have.
    pub fn due_after_ns(self, step: &Step, ends_ns: &[u64]) -> Option<u64> {
        let since_ns = match step.after {
            0 => 0,
            after => *ends_ns.get(after - 1)?,
        };
        Some(self.due_ns(step, since_ns))
    }
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
