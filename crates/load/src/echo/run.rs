//! A run from its plan to its outcome, by a crew of threads.

use std::sync::{Arc, atomic::AtomicBool};

use super::{outcome::Outcome, plan::Plan, worker};
use crate::{
    crew::{Course, Crew, Moment},
    error::LoadError,
    limits,
};

/// Does what the plan says, and calls `at` when the measured time begins and ends. A signal that
/// sets `interrupted` ends it early.
///
/// # Errors
///
/// [`LoadError`]: nothing could be measured. Connections that fail among others that do not are
/// counted in the [`Outcome`].
pub fn run(
    plan: &Plan,
    interrupted: &Arc<AtomicBool>,
    at: &mut dyn FnMut(Moment),
) -> Result<Outcome, LoadError> {
    limits::check_process(plan.server_pid)?;
    let (own, seed) = (Arc::new(plan.clone()), fastrand::u64(..));
    let work = move |post| worker::run(&own, seed, post);
    let course = Course {
        warm_up: plan.warm_up,
        duration: plan.duration,
        server_pid: plan.server_pid,
        has_idle: plan.idle > 0,
        opens_later: plan.mode.is_by_connection(),
    };
    let crew = Crew::start(plan.threads, &plan.processors, interrupted, work)?;
    Ok(Outcome::of(crew.conduct(&course, at)?))
}
