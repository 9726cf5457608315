//! Whole examinations: of this machine, of memory, under a filter, of what does not exist.

use std::{collections::BTreeMap, path::Path, process::Command};

use ringwise_doctor::{Report, Sources, Status, examine};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

fn examined(path: &Path) -> Report {
    examine(path, &Sources::default()).unwrap()
}

fn status(report: &Report, name: &str) -> Status {
    let finding = report.finding(name);
    finding.unwrap_or_else(|| panic!("no {name} in {:#?}", report.findings)).status
}

#[test]
fn this_machine() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let report = examined(directory.path());
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "nothing is left behind");
    let names: Vec<&str> = report.findings.iter().map(|finding| finding.name).collect();
    let expected = [
        "io_uring.setup",
        "limits.memlock",
        "limits.nofile",
        "storage.filesystem",
        "storage.direct_alignment",
        "workers.buffered_write",
        "workers.direct_read",
        "io_uring.iopoll",
        "machine.cores",
        "machine.governor",
        "machine.frequency",
        "machine.virtualisation",
        "counters.hardware",
        "counters.energy",
        "io_uring.nvme_passthrough",
    ];
    for name in expected {
        assert!(names.contains(&name), "no {name}");
    }
    assert!(names.iter().all(|name| names.iter().filter(|other| *other == name).count() == 1));
    assert!(report.findings.iter().all(|finding| !finding.evidence.is_empty()));
    if status(&report, "io_uring.setup") != Status::Ok {
        assert!(std::env::var_os("CI").is_none(), "skipped in CI: no ring");
        return println!("skipped: no ring to compare with");
    }
    // A buffered read of cached data is made by whoever enters the ring, on every file system
    // that a build directory lies on but tmpfs and overlay.
    if status(&report, "storage.filesystem") == Status::Ok {
        assert_eq!(status(&report, "workers.buffered_read"), Status::Ok);
    }
}

#[test]
fn memory_is_told_from_a_device() {
    let path = Path::new("/dev/shm");
    if !path.is_dir() {
        assert!(std::env::var_os("CI").is_none(), "skipped in CI: no /dev/shm");
        return println!("skipped: no /dev/shm");
    }
    let report = examined(path);
    assert_eq!(status(&report, "storage.filesystem"), Status::Limited);
    assert_ne!(status(&report, "storage.device"), Status::Ok);
    assert!(report.finding("queue.io_poll").is_none());
}

#[test]
fn a_path_that_does_not_exist() {
    let error = examine(Path::new("/no/such/place"), &Sources::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("/no/such/place: No such file"), "{text}");
}

#[test]
fn no_source_at_all() {
    let empty = tempfile::tempdir().unwrap();
    let report = examine(empty.path(), &Sources::below(empty.path())).unwrap();
    for name in ["io_uring.seccomp", "limits.nofile", "machine.clock", "machine.cores"] {
        assert_eq!(status(&report, name), Status::Unknown, "{name}");
    }
}

#[test]
fn under_a_filter_that_answers_eperm() {
    under_a_filter("under_a_filter_that_answers_eperm", libc::EPERM, "Operation not permitted");
}

#[test]
fn under_a_filter_that_answers_enosys() {
    under_a_filter("under_a_filter_that_answers_enosys", libc::ENOSYS, "Function not implemented");
}

/// Runs the test again in a child, in which io_uring_setup answers `errno`.
fn under_a_filter(test: &str, errno: i32, answer: &str) {
    const MARK: &str = "RINGWISE_TEST_CHILD";
    if std::env::var_os(MARK).is_none() {
        let this = std::env::current_exe().unwrap();
        let child = Command::new(this).args(["--exact", test]).env(MARK, "1").output().unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let rules = BTreeMap::from([(libc::SYS_io_uring_setup, Vec::new())]);
    let refuse = SeccompAction::Errno(errno as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();

    let directory = tempfile::tempdir().unwrap();
    let report = examined(directory.path());
    let setup = report.finding("io_uring.setup").unwrap();
    assert_eq!(setup.status, Status::Blocked);
    assert!(setup.evidence.contains(answer) && setup.remedy.is_some(), "{setup:?}");
    assert_eq!(status(&report, "workers.buffered_write"), Status::Unknown);
}
