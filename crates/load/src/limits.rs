//! What a generator needs of the machine: descriptors for its connections, processors for its
//! threads.

use ringwise_measure::{
    Sources,
    cpu::{ForeignProcess, allowed_cpus},
};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::error::{LoadError, plain};

/// Descriptors beside those of connections: standard streams, epoll, timers, files in /proc.
const OTHER_DESCRIPTORS: u64 = 32;

/// Raises the soft limit of open files to the hard one, where it is too low for so many connections.
///
/// # Errors
///
/// [`LoadError::Failed`] where the hard limit is too low too.
pub(crate) fn raise_open_files(connections: usize, threads: usize) -> Result<(), LoadError> {
    let needed = connections as u64 + 2 * threads as u64 + OTHER_DESCRIPTORS;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|soft| soft >= needed) {
        return Ok(());
    }
    if let Some(hard) = limit.maximum.filter(|&hard| hard < needed) {
        return Err(LoadError::Failed(format!(
            "{connections} connections need {needed} open files, and the hard limit is {hard}: \
             raise it (ulimit -Hn {needed}), or use fewer connections"
        )));
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).map_err(|error| {
        LoadError::Failed(format!("raising the limit of open files to {needed}: {error}"))
    })
}

/// Says which of the processors that were typed may not be used.
pub(crate) fn check_processors(wanted: &[usize]) -> Result<(), LoadError> {
    let allowed = allowed_cpus()
        .map_err(|error| LoadError::Failed(format!("processors: {}", plain(&error))))?;
    let Some(other) = wanted.iter().find(|processor| !allowed.contains(processor)) else {
        return Ok(());
    };
    let allowed: Vec<String> = allowed.iter().map(usize::to_string).collect();
    let allowed = allowed.join(", ");
    let message = format!("--pin: invalid value '{other}': expected processors of {allowed}");
    Err(LoadError::Usage(message))
}

/// Says where there is no process of the number that was typed.
pub(crate) fn check_process(pid: Option<u32>) -> Result<(), LoadError> {
    let exists = |pid: &u32| ForeignProcess::read(&Sources::default(), *pid).exists();
    match pid.filter(|pid| !exists(pid)) {
        Some(pid) => Err(LoadError::Failed(format!(
            "--server-pid {pid}: no such process; name one that runs"
        ))),
        None => Ok(()),
    }
}
