//! Why a recording could not begin or go on: what failed, which permission is missing, and the remedy.

use std::{fmt, fs, io, os::unix::fs::MetadataExt, path::Path};

/// Why a program could not be recorded, in one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecordError {
    /// Something failed: the message says what, on what, and what to do.
    Failed(String),
    /// Tracing by perf events is not allowed. Tracing by ptrace(2) can be.
    NotAllowed(String),
    /// The command did not begin. It has said why on standard error.
    NotStarted {
        /// The exit status that a shell would give: 126 or 127.
        status: u8,
    },
}

impl RecordError {
    pub(crate) fn on(what: &str, path: impl AsRef<Path>, error: &io::Error) -> RecordError {
        RecordError::Failed(format!("{what} {}: {}", path.as_ref().display(), plain(error)))
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Failed(message) | RecordError::NotAllowed(message) => f.write_str(message),
            RecordError::NotStarted { status } => {
                write!(f, "the command did not begin (status {status})")
            }
        }
    }
}

impl std::error::Error for RecordError {}

/// An error without Rust's number at its end.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}

/// Tracepoints could not be read.
pub(crate) fn tracefs(error: &io::Error) -> RecordError {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "mount it: mount -t tracefs nodev /sys/kernel/tracing",
        io::ErrorKind::PermissionDenied => {
            "run as root, or let your group read it: mount -o remount,gid=GROUP /sys/kernel/tracing"
        }
        _ => "use a kernel with CONFIG_FTRACE_SYSCALLS",
    };
    RecordError::NotAllowed(format!("reading tracefs: {}; {remedy}", plain(error)))
}

/// perf_event_open(2) failed.
pub(crate) fn perf(error: &io::Error) -> RecordError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            let level = level.map_or("unknown".to_owned(), |level| level.trim().to_owned());
            RecordError::NotAllowed(format!(
                "perf_event_open: {}; run as root, give ringwise CAP_PERFMON, or set kernel.perf_event_paranoid \
                 (now {level}) to -1",
                plain(error)
            ))
        }
        Some(libc::ESRCH) => RecordError::Failed("the process has ended".to_owned()),
        Some(libc::EMFILE) => RecordError::Failed(
            "perf_event_open: too many open files; raise the limit (ulimit -n): each thread needs 8 for each processor"
                .to_owned(),
        ),
        Some(libc::ENOSYS) => RecordError::NotAllowed(
            "perf_event_open: not in this kernel, or forbidden by a seccomp filter of the container; allow it there"
                .to_owned(),
        ),
        _ => RecordError::NotAllowed(format!("perf_event_open: {}", plain(error))),
    }
}

/// A ring could not be mapped.
pub(crate) fn ring(error: &io::Error) -> RecordError {
    if is_denied(error) || error.raw_os_error() == Some(libc::ENOMEM) {
        return RecordError::NotAllowed(format!(
            "mapping a ring of perf events: {}; ask for less with --memory, or raise kernel.perf_event_mlock_kb",
            plain(error)
        ));
    }
    RecordError::NotAllowed(format!("mapping a ring of perf events: {}", plain(error)))
}

/// ptrace(2) failed.
pub(crate) fn ptrace(error: impl Into<io::Error>) -> RecordError {
    let remedy = match scope() {
        3 => "kernel.yama.ptrace_scope is 3, which forbids it until the next boot",
        2 => "kernel.yama.ptrace_scope is 2: run as root, or set it to 1",
        _ => "run as root or with CAP_SYS_PTRACE, and let the container allow ptrace(2)",
    };
    RecordError::Failed(format!("ptrace: {}; {remedy}", plain(&error.into())))
}

/// Attaching to a running process by ptrace(2) failed.
pub(crate) fn attach(pid: u32, error: nix::errno::Errno) -> RecordError {
    attach_in(scope(), pid, error)
}

fn attach_in(scope: u8, pid: u32, error: nix::errno::Errno) -> RecordError {
    let remedy = match scope {
        3 => "kernel.yama.ptrace_scope is 3, which forbids it until the next boot",
        1 | 2 => {
            "run as root or with CAP_SYS_PTRACE, set kernel.yama.ptrace_scope to 0, or let `record` start the program"
        }
        _ => "run as root or with CAP_SYS_PTRACE, and let the container allow ptrace(2)",
    };
    RecordError::Failed(format!("process {pid}: ptrace: {}; {remedy}", plain(&error.into())))
}

/// Who may trace whom, by the security module Yama. 0: it adds no rule.
fn scope() -> u8 {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    scope.ok().and_then(|scope| scope.trim().parse().ok()).unwrap_or(0)
}

/// A running process may not be looked at.
pub(crate) fn process(pid: u32, error: &io::Error) -> RecordError {
    let why = match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => "no such process".to_owned(),
        Some(libc::EACCES | libc::EPERM) => {
            let owner = fs::metadata(format!("/proc/{pid}")).map(|process| process.uid());
            denied(owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw()))
        }
        _ => plain(error),
    };
    RecordError::Failed(format!("process {pid}: {why}"))
}

fn denied(is_own: bool) -> String {
    match is_own {
        // It changed its rights, or asked for it (PR_SET_DUMPABLE in prctl(2)).
        true => "it may not be looked at; run as root or with CAP_SYS_PTRACE".to_owned(),
        false => "it belongs to another user; run as that user, as root, or with CAP_SYS_PTRACE"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_what_is_missing_and_the_remedy() {
        let of = |errno| io::Error::from_raw_os_error(errno);
        let told = |error: RecordError| error.to_string();
        for (message, parts) in [
            (told(tracefs(&of(libc::ENOENT))), ["tracefs: No such file", "mount -t tracefs"]),
            (
                told(tracefs(&of(libc::EACCES))),
                ["Permission denied", "run as root, or let your group"],
            ),
            (
                told(tracefs(&io::ErrorKind::Unsupported.into())),
                ["tracefs", "CONFIG_FTRACE_SYSCALLS"],
            ),
            (told(perf(&of(libc::EACCES))), ["perf_event_open: Permission denied", "CAP_PERFMON"]),
            (told(perf(&of(libc::EPERM))), ["kernel.perf_event_paranoid (now ", "to -1"]),
            (told(perf(&of(libc::ESRCH))), ["the process has ended", ""]),
            (told(perf(&of(libc::EMFILE))), ["too many open files", "ulimit -n"]),
            (told(perf(&of(libc::ENOSYS))), ["seccomp filter of the container", "allow it there"]),
            (told(ring(&of(libc::EPERM))), ["a ring of perf events", "less with --memory"]),
            (told(ring(&of(libc::ENOMEM))), ["Cannot allocate", "kernel.perf_event_mlock_kb"]),
            (
                told(ptrace(nix::errno::Errno::EPERM)),
                ["ptrace: Operation not permitted", "run as root"],
            ),
            (
                told(attach_in(0, 1, nix::errno::Errno::EPERM)),
                ["process 1: ptrace", "CAP_SYS_PTRACE"],
            ),
            (
                told(attach_in(1, 1, nix::errno::Errno::EPERM)),
                ["ptrace_scope to 0", "let `record` start"],
            ),
            (told(attach_in(3, 1, nix::errno::Errno::EPERM)), ["ptrace_scope is 3", "next boot"]),
            (told(process(1, &of(libc::ESRCH))), ["process 1: no such process", ""]),
            (denied(false), ["belongs to another user", "CAP_SYS_PTRACE"]),
            (denied(true), ["may not be looked at", "CAP_SYS_PTRACE"]),
        ] {
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
            assert!(!message.contains('\n'), "one line: {message}");
        }
    }
}
