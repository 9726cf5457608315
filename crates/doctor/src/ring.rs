//! Whether io_uring may be used, whether it works, and what this kernel's grants.
//!
//! A real ring is opened and a real operation made; settings and filters are read
//! only to explain a refusal.

use std::time::Duration;

use ringwise::{
    BackendChoice, Builder, Effect, FallbackReason, Local, Opcode, SetupError, SetupFlags,
};
use ringwise_measure::Fact;
use ringwise_measure::environment::Environment;

use crate::finding::Finding;
use crate::probe_file::ProbeFile;

/// `EPERM`, `EACCES` and `ENOSYS` as rustix names them.
use rustix::io::Errno;

/// What opening rings showed.
pub(crate) struct Ring {
    opened: Outcome,
    /// Whether a kernel thread took submissions.
    sqpoll: Result<Effect, String>,
}

/// How opening a ring with the default flags ended.
enum Outcome {
    /// It opened, and moved data.
    Works {
        asked: SetupFlags,
        granted: SetupFlags,
        registered: bool,
        idles: bool,
        missing: Vec<Opcode>,
    },
    /// The kernel refused, with this error number.
    Refused { errno: i32, message: String },
    /// It opened, and is of no use.
    Broken(String),
}

impl Ring {
    /// Opens a ring, and one with a submission thread.
    pub(crate) fn try_out() -> Self {
        Ring { opened: open(Local::builder()), sqpoll: try_sqpoll() }
    }
}

fn open(builder: Builder) -> Outcome {
    match builder.backend(BackendChoice::Uring).build() {
        Ok(local) => {
            let setup = local.setup();
            Outcome::Works {
                asked: setup.asked(),
                granted: setup.granted(),
                registered: setup.is_ring_registered(),
                idles: setup.waits_are_idle(),
                missing: of_rings().filter(|code| !local.supports(*code)).collect(),
            }
        }
        Err(SetupError::NoRing(FallbackReason::Refused(errno))) => {
            Outcome::Refused { errno: errno.raw(), message: errno.to_string() }
        }
        Err(error) => Outcome::Broken(error.to_string()),
    }
}

fn try_sqpoll() -> Result<Effect, String> {
    let builder = Local::builder().backend(BackendChoice::Uring);
    let local = builder.sqpoll(Some(Duration::from_millis(1))).build();
    local.map(|local| local.setup().sqpoll().clone()).map_err(|error| error.to_string())
}

pub(crate) fn judge(ring: &Ring, environment: &Environment) -> Vec<Finding> {
    vec![
        setting(environment),
        seccomp(&ring.opened, environment),
        setup(&ring.opened, environment),
        flags(&ring.opened),
        waits(&ring.opened),
        operations(&ring.opened),
        sqpoll(&ring.sqpoll, environment),
    ]
}

/// `kernel.io_uring_disabled` (since 6.6, Documentation/admin-guide/sysctl).
fn setting(environment: &Environment) -> Finding {
    const NAME: &str = "io_uring.sysctl";
    let evidence = |what: &str| format!("/proc/sys/kernel/io_uring_disabled: {what}");
    let allow = "sysctl -w kernel.io_uring_disabled=0";
    match &environment.io_uring_disabled {
        Fact::Known(0) => Finding::ok(NAME, evidence("0, everybody may")),
        Fact::Known(1) => {
            let group = &environment.io_uring_group;
            Finding::limited(
                NAME,
                evidence(&format!("1, only CAP_SYS_ADMIN or group {group} (io_uring_group) may")),
            )
            .remedy(format!(
                "{allow}, or sysctl -w kernel.io_uring_group=GID with a group of yours"
            ))
        }
        Fact::Known(2) => Finding::blocked(NAME, evidence("2, nobody may")).remedy(allow),
        Fact::Known(other) => Finding::unknown(NAME, evidence(&other.to_string())),
        Fact::Unknown(reason) if reason.ends_with("no such file or directory") => Finding::ok(
            NAME,
            evidence("not there (kernels before 6.6), nothing is forbidden by it"),
        ),
        Fact::Unknown(reason) => Finding::unknown(NAME, reason),
    }
}

fn seccomp(opened: &Outcome, environment: &Environment) -> Finding {
    const NAME: &str = "io_uring.seccomp";
    Finding::of(NAME, &environment.seccomp_mode, |mode| {
        let evidence = |what| format!("/proc/thread-self/status: Seccomp {mode}, {what}");
        match (mode, opened) {
            (0, _) => Finding::ok(NAME, evidence("no filter")),
            (_, Outcome::Works { .. }) => {
                Finding::ok(NAME, evidence("the filter lets io_uring through"))
            }
            (_, Outcome::Refused { .. }) if !is_disabled(environment) => {
                Finding::blocked(NAME, evidence("a filter, and io_uring_setup is refused"))
                    .remedy(ALLOW_IN_FILTER)
            }
            (_, Outcome::Broken(_)) => {
                Finding::limited(NAME, evidence("a filter, and io_uring works only in part"))
                    .remedy(ALLOW_IN_FILTER)
            }
            (_, Outcome::Refused { .. }) => Finding::unknown(
                NAME,
                evidence("a filter; whether it lets io_uring through is hidden by the sysctl"),
            ),
        }
    })
}

/// The operations that a ring can have.
fn of_rings() -> impl Iterator<Item = Opcode> {
    Opcode::ALL.into_iter().filter(|code| !code.is_for_threads())
}

const ALLOW_IN_FILTER: &str = "allow io_uring_setup, io_uring_enter and io_uring_register in the \
    filter (containers: --security-opt seccomp=PROFILE with a profile that has them)";

fn is_disabled(environment: &Environment) -> bool {
    environment.io_uring_disabled == Fact::Known(2)
}

fn setup(opened: &Outcome, environment: &Environment) -> Finding {
    const NAME: &str = "io_uring.setup";
    match opened {
        Outcome::Works { .. } => {
            Finding::ok(NAME, "io_uring_setup(2): a ring opened and moved data through a pipe")
        }
        Outcome::Refused { errno, message } => {
            let finding = Finding::blocked(NAME, format!("io_uring_setup(2): {message}"));
            match cause(*errno, environment) {
                Some(remedy) => finding.remedy(remedy),
                None => finding,
            }
        }
        Outcome::Broken(message) => Finding::blocked(NAME, format!("io_uring_setup(2): {message}"))
            .remedy(
                "an emulated kernel (gVisor) or a filter gives only a part of io_uring: \
                 use another runtime class, or stay with the classic backend",
            ),
    }
}

/// What stands behind a refusal, most certain first.
fn cause(errno: i32, environment: &Environment) -> Option<&'static str> {
    let filtered = environment.seccomp_mode.known().is_some_and(|mode| *mode != 0);
    let disabled = environment.io_uring_disabled.known().is_some_and(|mode| *mode != 0);
    match Errno::from_raw_os_error(errno) {
        Errno::PERM if disabled => Some("see io_uring.sysctl"),
        Errno::PERM | Errno::ACCESS | Errno::NOSYS if filtered => Some(ALLOW_IN_FILTER),
        Errno::PERM | Errno::ACCESS => {
            Some("a security module forbids it: look into its log (SELinux: ausearch -m avc)")
        }
        Errno::NOSYS => Some(
            "the kernel was built without CONFIG_IO_URING, is older than 5.1, or is emulated \
             (gVisor): use a kernel that has it",
        ),
        Errno::NOMEM => Some("raise the limit on locked memory: ulimit -l"),
        Errno::MFILE | Errno::NFILE => Some("raise the limit on open files: ulimit -n"),
        _ => None,
    }
}

fn flags(opened: &Outcome) -> Finding {
    const NAME: &str = "io_uring.flags";
    let Outcome::Works { asked, granted, registered, .. } = opened else {
        return Finding::unknown(NAME, "no ring to ask");
    };
    let refused: Vec<&str> = asked.iter().filter(|flag| !granted.has(flag)).collect();
    let ring = if *registered { "descriptor registered" } else { "descriptor not registered" };
    let evidence = format!("io_uring_setup(2): granted {granted}; {ring}");
    if refused.is_empty() && *registered {
        return Finding::ok(NAME, evidence);
    }
    let evidence = match refused.as_slice() {
        [] => evidence,
        refused => format!("{evidence}; refused {}", refused.join(" ")),
    };
    Finding::limited(NAME, evidence).remedy("a newer kernel (6.6 grants all of them)")
}

/// `IORING_ENTER_NO_IOWAIT` (Linux 6.15).
fn waits(opened: &Outcome) -> Finding {
    const NAME: &str = "io_uring.iowait";
    match opened {
        Outcome::Works { idles: true, .. } => Finding::ok(
            NAME,
            "io_uring_setup(2): FEAT_NO_IOWAIT, a processor counts as idle while a ring waits",
        ),
        Outcome::Works { idles: false, .. } => Finding::limited(
            NAME,
            "io_uring_setup(2): no FEAT_NO_IOWAIT, a processor counts as iowait while a ring waits",
        )
        .remedy("Linux 6.15; before, do not read iowait as load on the disk"),
        _ => Finding::unknown(NAME, "no ring to ask"),
    }
}

fn operations(opened: &Outcome) -> Finding {
    const NAME: &str = "io_uring.operations";
    let Outcome::Works { missing, .. } = opened else {
        return Finding::unknown(NAME, "no ring to ask");
    };
    let (all, call) = (of_rings().count(), "io_uring_register(2), IORING_REGISTER_PROBE");
    if missing.is_empty() {
        return Finding::ok(NAME, format!("{call}: all {all} operations"));
    }
    let names: Vec<&str> = missing.iter().map(|code| code.name()).collect();
    Finding::limited(
        NAME,
        format!("{call}: {} of {all} operations; not {}", all - missing.len(), names.join(" ")),
    )
    .remedy("a newer kernel (6.9 has all of them); meanwhile threads make those calls")
}

fn sqpoll(tried: &Result<Effect, String>, environment: &Environment) -> Finding {
    const NAME: &str = "io_uring.sqpoll";
    let cores = environment.cores_allowed.known().copied().unwrap_or(0);
    match tried {
        Ok(Effect::Effective) if (1..=2).contains(&cores) => Finding::limited(
            NAME,
            format!("io_uring_setup(2) with SQPOLL: granted, but its thread would take one of {cores} cores"),
        )
        .remedy("leave SQPOLL off here"),
        Ok(Effect::Effective) => Finding::ok(NAME, "io_uring_setup(2) with SQPOLL: granted"),
        Ok(effect) => Finding::limited(NAME, format!("io_uring_setup(2) with SQPOLL: {effect}")),
        Err(reason) => Finding::unknown(NAME, format!("no ring to ask ({reason})")),
    }
}

/// Whether completions can be polled for under the path: by one real read.
pub(crate) fn iopoll(file: &ProbeFile) -> Finding {
    const NAME: &str = "io_uring.iopoll";
    let file = match &file.direct {
        Ok(file) => file,
        Err(reason) => return Finding::unknown(NAME, format!("no direct file to read ({reason})")),
    };
    let builder = Local::builder().backend(BackendChoice::Uring).iopoll(true);
    match builder.build() {
        Ok(mut local) => match local.probe_iopoll(file) {
            Ok(Effect::Effective) => {
                Finding::ok(NAME, "one read through a ring with IOPOLL: completed")
            }
            Err(error) => Finding::unknown(NAME, format!("one read through such a ring: {error}")),
            Ok(effect) => {
                Finding::limited(NAME, format!("one read through a ring with IOPOLL: {effect}"))
                    .remedy(
                        "needs NVMe with polling queues (boot with nvme.poll_queues=N); \
                     leave IOPOLL off here",
                    )
            }
        },
        Err(error) => Finding::unknown(NAME, format!("no ring to ask ({error})")),
    }
}

#[cfg(test)]
mod tests;
