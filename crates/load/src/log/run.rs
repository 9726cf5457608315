//! A run from its plan to its outcome, by a crew of threads.

use std::sync::{Arc, atomic::AtomicBool};

use super::{outcome::Outcome, plan::Plan, stored, worker};
use crate::{
    crew::{Course, Crew},
    error::LoadError,
    limits,
};

/// Does what the plan says. A signal that sets `interrupted` ends the measured time early.
///
/// # Errors
///
/// [`LoadError`]: nothing could be measured, or the target's files could not be read. Connections
/// that fail among others that do not are counted in the [`Outcome`].
pub fn run(plan: &Plan, interrupted: &Arc<AtomicBool>) -> Result<Outcome, LoadError> {
    limits::check_process(plan.server_pid)?;
    let Some(lines) = plan.source.lines(plan.protocol, fastrand::u64(..)) else {
        return Err(LoadError::Failed(
            "--lines: the file has no lines; name one with at least one".to_owned(),
        ));
    };
    let (own, lines) = (Arc::new(plan.clone()), Arc::new(lines));
    let of_threads = lines.clone();
    let work = move |post| worker::run(&own, &of_threads, post);
    let course = Course {
        warm_up: plan.warm_up,
        duration: plan.duration,
        server_pid: plan.server_pid,
        has_idle: plan.idle > 0,
        opens_later: false,
    };
    let crew = Crew::start(plan.threads, &plan.processors, interrupted, work)?;
    let mut conducted = crew.conduct(&course, &mut |_| ())?;
    let mut sent = Vec::new();
    conducted.ledgers.iter_mut().for_each(|ledger| sent.append(&mut ledger.sent_by));
    let mut outcome = Outcome::of(plan, conducted);
    if let Some(path) = &plan.stored {
        outcome.stored = Some(stored::look(path, &lines, &sent)?);
    }
    Ok(outcome)
}
