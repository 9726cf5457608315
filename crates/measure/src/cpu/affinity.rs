//! Which processors a thread may run on.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Lists the processors that the calling thread may run on, in order.
///
/// # Errors
/// Returns the error of sched_getaffinity(2). It is EINVAL on a machine with more than 1024 processors.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Pins the calling thread to the given processors. Threads that it starts later inherit this, including io_uring's
/// workers.
///
/// # Errors
/// Returns InvalidInput if the list is empty or has a number above 1023, and otherwise the error of
/// sched_setaffinity(2) (EINVAL if none of the processors is online and allowed).
pub fn pin_current_thread(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            let message = format!("processor {cpu}: expected 0 to {}", CpuSet::MAX_CPU - 1);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        set.set(cpu);
    }
    if cpus.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no processor to pin to"));
    }
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_only_the_calling_thread() {
        let allowed = allowed_cpus().unwrap();
        let last = *allowed.last().unwrap();
        std::thread::spawn(move || {
            pin_current_thread(&[last]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [last]);
        })
        .join()
        .unwrap();
        assert_eq!(allowed_cpus().unwrap(), allowed);
    }

    #[test]
    fn bad_processors_are_errors() {
        assert_eq!(pin_current_thread(&[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(
            pin_current_thread(&[usize::MAX]).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert!(pin_current_thread(&[CpuSet::MAX_CPU - 1]).is_err());
    }
}
