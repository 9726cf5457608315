//! Whether a ring can be had, what of it works, and its polling modes: all tried.

use std::time::Duration;

use ringwise::{BackendChoice, Effect, Local, Opcode, Setup, SetupError};
use ringwise_measure::environment::Environment;

use crate::{finding::Finding, probe_file::ProbeFile};

/// A ring that was opened, or the reason why none could be.
pub(crate) struct Ring(Result<Opened, SetupError>);

struct Opened {
    setup: Setup,
    missing: Vec<Opcode>,
    sqpoll: Effect,
}

impl Ring {
    /// Opens a ring as the library does, with its real operation through a pipe.
    pub(crate) fn try_out() -> Ring {
        let uring = || Local::builder().backend(BackendChoice::Uring);
        Ring(uring().build().map(|local| {
            let missing = Opcode::ALL.into_iter().filter(|opcode| !local.supports(*opcode));
            let polling = uring().sqpoll(Some(Duration::from_millis(1))).build();
            let sqpoll = match polling {
                Ok(local) => local.setup().sqpoll().clone(),
                Err(error) => Effect::Ineffective(error.to_string()),
            };
            Opened { setup: local.setup().clone(), missing: missing.collect(), sqpoll }
        }))
    }
}

pub(crate) fn judge(ring: &Ring, environment: &Environment) -> Vec<Finding> {
    let mut findings = vec![sysctl(environment), seccomp(environment), setup(ring)];
    if let Ok(opened) = &ring.0 {
        findings.push(flags(&opened.setup));
        findings.push(operations(&opened.missing));
        findings.push(sqpoll(&opened.sqpoll, environment));
    }
    findings
}

fn sysctl(environment: &Environment) -> Finding {
    const NAME: &str = "io_uring.sysctl";
    Finding::of(NAME, &environment.io_uring_disabled, |disabled| {
        let evidence = format!("/proc/sys/kernel/io_uring_disabled: {disabled}");
        match disabled {
            0 => Finding::ok(NAME, evidence),
            1 => Finding::limited(NAME, format!("{evidence} (only for a group)")).remedy(
                "run as a member of kernel.io_uring_group, with CAP_SYS_ADMIN, or set \
                 kernel.io_uring_disabled=0",
            ),
            _ => Finding::blocked(NAME, evidence).remedy("sysctl kernel.io_uring_disabled=0"),
        }
    })
}

fn seccomp(environment: &Environment) -> Finding {
    const NAME: &str = "io_uring.seccomp";
    Finding::of(NAME, &environment.seccomp_mode, |mode| {
        let evidence = format!("/proc/self/status: Seccomp {mode}");
        match mode {
            0 => Finding::ok(NAME, format!("{evidence} (no filter)")),
            _ => Finding::limited(NAME, format!("{evidence} (a filter is in force)")).remedy(
                "where io_uring.setup is blocked, allow io_uring_setup, io_uring_enter and \
                 io_uring_register in the container's seccomp profile",
            ),
        }
    })
}

fn setup(ring: &Ring) -> Finding {
    const NAME: &str = "io_uring.setup";
    match &ring.0 {
        Ok(_) => Finding::ok(NAME, "a ring opened, and bytes went through it and came back"),
        Err(error) => {
            let text = error.to_string();
            // The library's reason, and behind it what can be done.
            match text.split_once("; ") {
                Some((reason, advice)) => Finding::blocked(NAME, reason).remedy(advice),
                None => Finding::blocked(NAME, text),
            }
        }
    }
}

fn flags(setup: &Setup) -> Finding {
    const NAME: &str = "io_uring.flags";
    let refused: Vec<&str> =
        setup.asked().iter().filter(|flag| !setup.granted().has(flag)).collect();
    let granted = format!("io_uring_setup granted {}", setup.granted());
    if refused.is_empty() {
        return Finding::ok(NAME, granted);
    }
    Finding::limited(NAME, format!("{granted}; refused {}", refused.join(" ")))
        .remedy("a newer kernel has them: 6.1 defers completion work, 6.6 drops an index array")
}

fn operations(missing: &[Opcode]) -> Finding {
    const NAME: &str = "io_uring.operations";
    let all = Opcode::ALL.len();
    if missing.is_empty() {
        return Finding::ok(NAME, format!("IORING_REGISTER_PROBE: all {all} that are used"));
    }
    let names: Vec<&str> = missing.iter().map(|opcode| opcode.name()).collect();
    Finding::limited(NAME, format!("IORING_REGISTER_PROBE: not {}", names.join(" ")))
        .remedy("they work all the same, made by threads; a newer kernel has them in the ring")
}

fn sqpoll(effect: &Effect, environment: &Environment) -> Finding {
    const NAME: &str = "io_uring.sqpoll";
    let cores = environment.cores_allowed.known();
    match effect {
        Effect::Effective if cores.is_some_and(|&cores| cores <= 2) => Finding::limited(
            NAME,
            format!(
                "a submission thread started; while it polls it takes one of {} processors",
                cores.unwrap_or(&1)
            ),
        ),
        Effect::Effective => Finding::ok(NAME, "a submission thread started and took operations"),
        effect => Finding::limited(NAME, effect.to_string()),
    }
}

/// Reads once through a ring that polls: on most devices it opens and then fails each read.
pub(crate) fn iopoll(file: &ProbeFile) -> Finding {
    const NAME: &str = "io_uring.iopoll";
    let direct = match &file.direct {
        Ok(direct) => direct,
        Err(reason) => return Finding::unknown(NAME, reason),
    };
    let ring = Local::builder().backend(BackendChoice::Uring).iopoll(true).build();
    let mut ring = match ring {
        Ok(ring) => ring,
        Err(error) => return Finding::unknown(NAME, error.to_string()),
    };
    match ring.probe_iopoll(direct) {
        Effect::Effective => Finding::ok(NAME, "a polled direct read returned its bytes"),
        Effect::Ineffective(reason) => Finding::limited(NAME, reason).remedy(
            "only devices with polling queues poll: NVMe with the module parameter \
             nvme.poll_queues=N",
        ),
        effect => Finding::unknown(NAME, effect.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ringwise_measure::Sources;

    use super::*;
    use crate::finding::Status;

    fn environment(disabled: &str, status: &str) -> Environment {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("proc/sys/kernel")).unwrap();
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::write(root.join("proc/sys/kernel/io_uring_disabled"), disabled).unwrap();
        fs::write(root.join("proc/self/status"), status).unwrap();
        Environment::read(&Sources::below(root))
    }

    #[test]
    fn the_sysctl_blocks_limits_or_allows() {
        for (value, status) in [
            ("0", Status::Ok),
            ("1", Status::Limited),
            ("2", Status::Blocked),
            ("x", Status::Unknown),
        ] {
            let finding = sysctl(&environment(value, ""));
            assert_eq!(finding.status, status, "{value}: {}", finding.evidence);
            let wants_remedy = matches!(status, Status::Limited | Status::Blocked);
            assert_eq!(finding.remedy.is_some(), wants_remedy);
        }
    }

    #[test]
    fn a_filter_is_told() {
        assert_eq!(seccomp(&environment("0", "Seccomp:\t0\n")).status, Status::Ok);
        let filtered = seccomp(&environment("0", "Seccomp:\t2\n"));
        assert_eq!(filtered.status, Status::Limited);
        assert!(filtered.evidence.contains("Seccomp 2"), "{}", filtered.evidence);
        assert_eq!(seccomp(&environment("0", "")).status, Status::Unknown);
    }

    #[test]
    fn missing_operations_are_named() {
        assert_eq!(operations(&[]).status, Status::Ok);
        let finding = operations(&[Opcode::SetLen, Opcode::Link]);
        assert_eq!(finding.status, Status::Limited);
        assert!(finding.evidence.ends_with("not ftruncate link"), "{}", finding.evidence);
    }
}
