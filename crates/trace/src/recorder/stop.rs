//! Stops of traced threads: waits for them, and reads what the kernel says of them.
//!
//! The crate nix cannot: it refuses the status of a thread that got a real-time signal, which is lost then. Only the
//! children and the traced threads of this thread are waited for, because another one can calibrate at the same time.

use rustix::{
    io::{Errno, Result},
    process::{WaitOptions, wait},
};

use nix::unistd::Pid;

/// Children and traced threads of this thread only.
const OWN: WaitOptions =
    WaitOptions::from_bits_retain((libc::__WALL | libc::__WNOTHREAD).cast_unsigned());

/// Why a thread has stopped, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Exited(i32),
    /// It ended by this signal.
    Killed(i32),
    /// This signal is about to be delivered.
    Signal(i32),
    /// A syscall begins or ends.
    Syscall,
    /// An event (`PTRACE_EVENT_*`), with its signal.
    Event(i32, i32),
}

/// Waits until a thread stops or ends, and takes all that have. So those that stop often do not keep the others waiting:
/// the kernel looks for them in the order of its list.
///
/// # Errors
///
/// ECHILD: nothing is left to wait for.
pub(super) fn next(stops: &mut Vec<(Pid, Stop)>) -> Result<()> {
    let mut found = one(WaitOptions::empty())?;
    while let Some(stop) = found {
        stops.push(stop);
        // An error is told when nothing was found.
        found = one(WaitOptions::NOHANG).unwrap_or(None);
    }
    Ok(())
}

/// Waits until this child stops or ends.
pub(super) fn of_child(child: Pid) -> Result<Stop> {
    loop {
        match rustix::process::waitpid(rustix::process::Pid::from_raw(child.as_raw()), OWN) {
            Ok(Some((_, status))) => return Ok(Stop::of(status.as_raw())),
            Ok(None) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn one(more: WaitOptions) -> Result<Option<(Pid, Stop)>> {
    loop {
        match wait(OWN | more) {
            Ok(found) => {
                let stop = |(pid, status): (rustix::process::Pid, rustix::process::WaitStatus)| {
                    (Pid::from_raw(pid.as_raw_nonzero().get()), Stop::of(status.as_raw()))
                };
                return Ok(found.map(stop));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

impl Stop {
    /// Reads a status of wait(2), as of ptrace(2).
    fn of(status: i32) -> Stop {
        let (low, signal, event) = (status & 0x7f, status >> 8 & 0xff, status >> 16);
        match (status & 0xff, event) {
            (0x7f, 0) if signal == libc::SIGTRAP | 0x80 => Stop::Syscall,
            (0x7f, 0) => Stop::Signal(signal),
            (0x7f, event) => Stop::Event(event, signal),
            _ if low == 0 => Stop::Exited(signal),
            _ => Stop::Killed(low),
        }
    }

    pub(super) fn is_end(self) -> bool {
        matches!(self, Stop::Exited(_) | Stop::Killed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_documented() {
        assert_eq!(Stop::of(3 << 8), Stop::Exited(3));
        assert_eq!(Stop::of(libc::SIGKILL), Stop::Killed(libc::SIGKILL));
        assert_eq!(Stop::of(libc::SIGSEGV | 0x80), Stop::Killed(libc::SIGSEGV), "with a core");
        assert_eq!(Stop::of(34 << 8 | 0x7f), Stop::Signal(34), "a real-time signal");
        assert_eq!(Stop::of((libc::SIGTRAP | 0x80) << 8 | 0x7f), Stop::Syscall);
        let event = libc::PTRACE_EVENT_STOP << 16 | libc::SIGSTOP << 8 | 0x7f;
        assert_eq!(Stop::of(event), Stop::Event(libc::PTRACE_EVENT_STOP, libc::SIGSTOP));
    }
}
