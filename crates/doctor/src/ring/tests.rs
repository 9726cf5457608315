//! Each way a ring can be refused, on trees that say why.

use std::fs;

use ringwise_measure::Sources;

use super::*;
use crate::finding::Status;

fn environment(disabled: Option<&str>, seccomp: &str) -> Environment {
    let directory = tempfile::tempdir().unwrap();
    let proc = directory.path().join("proc");
    fs::create_dir_all(proc.join("thread-self")).unwrap();
    fs::create_dir_all(proc.join("sys/kernel")).unwrap();
    if let Some(disabled) = disabled {
        fs::write(proc.join("sys/kernel/io_uring_disabled"), disabled).unwrap();
    }
    fs::write(proc.join("sys/kernel/io_uring_group"), "107\n").unwrap();
    fs::write(proc.join("thread-self/status"), format!("Seccomp:\t{seccomp}\n")).unwrap();
    Environment::read(&Sources::below(directory.path()))
}

fn works() -> Outcome {
    Outcome::Works {
        asked: SetupFlags::default(),
        granted: SetupFlags::default(),
        registered: true,
        idles: true,
        missing: vec![],
    }
}

fn refused(errno: Errno) -> Outcome {
    Outcome::Refused { errno: errno.raw_os_error(), message: errno.to_string() }
}

#[test]
fn the_sysctl_is_read_by_its_meaning() {
    let judged = |value| setting(&environment(value, "0"));
    assert_eq!(judged(Some("0")).status, Status::Ok);
    assert_eq!(judged(Some("1")).status, Status::Limited);
    assert!(judged(Some("1")).evidence.contains("group 107"));
    assert_eq!(judged(Some("2")).status, Status::Blocked);
    assert!(judged(Some("2")).remedy.unwrap().contains("io_uring_disabled=0"));
    assert_eq!(judged(Some("3")).status, Status::Unknown);
    assert_eq!(judged(Some("garbage")).status, Status::Unknown);
    assert_eq!(judged(None).status, Status::Ok);
}

#[test]
fn a_filter_is_blamed_only_where_it_can_be() {
    let judged =
        |opened, disabled, mode| seccomp(&opened, &environment(Some(disabled), mode)).status;
    assert_eq!(judged(works(), "0", "0"), Status::Ok);
    assert_eq!(judged(works(), "0", "2"), Status::Ok);
    assert_eq!(judged(refused(Errno::PERM), "0", "0"), Status::Ok);
    assert_eq!(judged(refused(Errno::PERM), "0", "2"), Status::Blocked);
    assert_eq!(judged(refused(Errno::PERM), "2", "2"), Status::Unknown);
    assert_eq!(judged(Outcome::Broken("x".into()), "0", "2"), Status::Limited);
    assert_eq!(judged(works(), "0", "garbage"), Status::Unknown);
}

#[test]
fn a_refusal_names_its_cause() {
    let remedy = |errno, disabled, mode| {
        let finding = setup(&refused(errno), &environment(Some(disabled), mode));
        assert_eq!(finding.status, Status::Blocked);
        finding.remedy.unwrap_or_default()
    };
    assert!(remedy(Errno::PERM, "2", "2").contains("io_uring.sysctl"));
    assert!(remedy(Errno::PERM, "0", "2").contains("in the filter"));
    assert!(remedy(Errno::PERM, "0", "0").contains("security module"));
    assert!(remedy(Errno::NOSYS, "0", "2").contains("in the filter"));
    assert!(remedy(Errno::NOSYS, "0", "0").contains("CONFIG_IO_URING"));
    assert!(remedy(Errno::NOMEM, "0", "0").contains("ulimit -l"));
    assert_eq!(remedy(Errno::INVAL, "0", "0"), "");
}

#[test]
fn a_ring_that_does_not_work_is_blocked() {
    let broken = Outcome::Broken("a ring opened but does not work: io_uring_enter: denied".into());
    let finding = setup(&broken, &environment(Some("0"), "0"));
    assert_eq!(finding.status, Status::Blocked);
    assert!(finding.remedy.unwrap().contains("gVisor"));
    assert_eq!(flags(&broken).status, Status::Unknown);
    assert_eq!(operations(&broken).status, Status::Unknown);
}

#[test]
fn missing_features_are_named() {
    let old = Outcome::Works {
        asked: SetupFlags::default(),
        granted: SetupFlags::default(),
        registered: false,
        idles: false,
        missing: vec![Opcode::SetLen, Opcode::Link],
    };
    let finding = operations(&old);
    assert_eq!(finding.status, Status::Limited);
    assert!(
        finding.evidence.ends_with("25 of 27 operations; not ftruncate link"),
        "{}",
        finding.evidence
    );
    assert_eq!(flags(&old).status, Status::Limited);
    assert_eq!(flags(&works()).status, Status::Ok);
    assert_eq!(waits(&old).status, Status::Limited);
    assert_eq!(waits(&works()).status, Status::Ok);
}

#[test]
fn a_submission_thread_is_dear_on_few_cores() {
    let mut environment = environment(Some("0"), "0");
    environment.cores_allowed = Fact::Known(2);
    assert_eq!(sqpoll(&Ok(Effect::Effective), &environment).status, Status::Limited);
    environment.cores_allowed = Fact::Known(8);
    assert_eq!(sqpoll(&Ok(Effect::Effective), &environment).status, Status::Ok);
    let idle = Effect::Ineffective("nothing was taken".into());
    assert!(sqpoll(&Ok(idle), &environment).evidence.contains("nothing was taken"));
    assert_eq!(sqpoll(&Err("no".into()), &environment).status, Status::Unknown);
}

#[test]
fn iopoll_without_a_file_is_unknown() {
    let file = ProbeFile { buffered: Err("full".into()), direct: Err("full".into()) };
    let finding = iopoll(&file);
    assert_eq!(finding.status, Status::Unknown);
    assert!(finding.evidence.contains("full"));
}
