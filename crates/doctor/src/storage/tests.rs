//! Mounts and devices as different machines have them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ringwise_measure::Sources;

use super::*;
use crate::finding::Status;

fn no_file() -> ProbeFile {
    ProbeFile { buffered: Err("none".into()), direct: Err("none".into()) }
}

/// A mount of `kind` from `source` with a device number, and the queue of the
/// device behind it.
fn judged(mount: &str, device: &str, queue: &[(&str, &str)]) -> Vec<Finding> {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/self/mountinfo", mount);
    for (name, value) in queue {
        write(&format!("sys/devices/{device}/queue/{name}"), value);
    }
    write(&format!("sys/devices/{device}/dev"), "8:0");
    write("sys/module/nvme/parameters/poll_queues", "0");
    fs::create_dir_all(root.join("sys/dev/block")).unwrap();
    symlink(Path::new("../../devices").join(device), root.join("sys/dev/block/8:0")).unwrap();
    judge(&Storage::of(&Sources::below(root), Path::new("/")), &no_file())
}

fn find<'a>(findings: &'a [Finding], name: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("no {name}"))
}

const QUEUE: [(&str, &str); 7] = [
    ("io_poll", "0"),
    ("write_cache", "write back"),
    ("fua", "0"),
    ("rotational", "1"),
    ("scheduler", "none [mq-deadline]"),
    ("nr_requests", "64"),
    ("max_sectors_kb", "1280"),
];

#[test]
fn nvme_without_polling_queues_and_with_a_scheduler() {
    let found = judged("1 0 8:0 / / rw - xfs /dev/nvme0n1 rw\n", "nvme0n1", &QUEUE);
    assert_eq!(find(&found, "storage.filesystem").status, Status::Ok);
    assert!(find(&found, "storage.filesystem").evidence.contains("xfs on / from /dev/nvme0n1"));
    assert_eq!(find(&found, "storage.device").status, Status::Ok);
    assert_eq!(find(&found, "queue.io_poll").status, Status::Limited);
    assert!(find(&found, "queue.write_cache").evidence.contains("volatile"));
    assert!(find(&found, "queue.fua").evidence.contains("flush"));
    assert_eq!(find(&found, "queue.rotational").status, Status::Limited);
    assert_eq!(
        find(&found, "queue.scheduler").remedy.as_deref(),
        Some("echo none > /sys/block/nvme0n1/queue/scheduler")
    );
    assert_eq!(find(&found, "queue.nr_requests").status, Status::Limited);
    assert_eq!(find(&found, "queue.max_sectors_kb").status, Status::Ok);
    assert!(
        find(&found, "nvme.poll_queues").remedy.as_ref().unwrap().contains("nvme.poll_queues=N")
    );
}

#[test]
fn a_virtual_disk_is_the_hosts() {
    let found = judged("1 0 8:0 / / rw - ext4 /dev/vda rw\n", "vda", &QUEUE);
    assert_eq!(find(&found, "storage.device").status, Status::Limited);
    assert!(find(&found, "storage.device").evidence.contains("/sys/dev/block/8:0: vda"));
    assert_eq!(find(&found, "queue.rotational").status, Status::Ok);
    assert_eq!(find(&found, "queue.scheduler").status, Status::Ok);
    assert!(found.iter().all(|finding| finding.name != "nvme.poll_queues"));
}

#[test]
fn discard_is_told_with_the_mount() {
    let evidence = |options: &str, bytes: &str| {
        let mount = format!("1 0 8:0 / / rw - ext4 /dev/sda {options}\n");
        let found = judged(&mount, "sda", &[("discard_max_bytes", bytes)]);
        find(&found, "queue.discard_max_bytes").evidence.clone()
    };
    assert!(
        evidence("rw,discard", "4096").ends_with(": 4096, and the mount has the option discard")
    );
    assert!(evidence("rw", "4096").contains("fstrim(8)"));
    assert!(evidence("rw,discard", "0").ends_with(": 0, the device has no discard"));
}

#[test]
fn a_temperature_is_told_if_hwmon_has_it() {
    let mount = "1 0 8:0 / / rw - ext4 /dev/sda rw\n";
    let found = judged(mount, "sda", &[("../device/hwmon/hwmon0/temp1_input", "41900")]);
    let finding = find(&found, "storage.temperature");
    assert_eq!(finding.evidence, "hwmon, temp1_input: sda has 41 degrees Celsius");
    let found = judged(mount, "sda", &[]);
    assert!(found.iter().all(|finding| finding.name != "storage.temperature"));
}

#[test]
fn loop_memory_overlay_and_network_say_where_to_go() {
    let found = judged("1 0 8:0 / / rw - ext4 /dev/loop0 rw\n", "loop0", &[]);
    assert_eq!(find(&found, "storage.device").status, Status::Limited);
    assert!(find(&found, "storage.device").evidence.contains("loop device on a file"));
    assert_eq!(find(&found, "queue.io_poll").status, Status::Unknown);
    for (kind, word) in [
        ("tmpfs", "memory"),
        ("overlay", "stacked"),
        ("nfs4", "machine"),
        ("fuse.sshfs", "program"),
    ] {
        let found = judged(&format!("1 0 0:9 / / rw - {kind} none rw\n"), "sda", &[]);
        let filesystem = find(&found, "storage.filesystem");
        assert_eq!(filesystem.status, Status::Limited, "{kind}");
        assert!(filesystem.evidence.contains(word) && filesystem.remedy.is_some());
        assert_eq!(find(&found, "storage.device").status, Status::Limited);
        assert!(found.iter().all(|finding| !finding.name.starts_with("queue.")));
    }
}

#[test]
fn unreadable_sources_are_unknown_findings() {
    let found = judged("garbage\n", "sda", &[("io_poll", "x")]);
    assert_eq!(find(&found, "storage.device").status, Status::Unknown);
    assert_eq!(find(&found, "storage.direct_alignment").status, Status::Unknown);
    let found = judged("1 0 8:0 / / rw - ext4 /dev/sda rw\n", "sda", &[("io_poll", "x")]);
    assert_eq!(find(&found, "queue.io_poll").status, Status::Unknown);
    assert!(find(&found, "queue.io_poll").evidence.contains("not understood"));
}

#[test]
fn alignment_is_asked_of_a_real_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = ProbeFile::create(directory.path());
    let finding = direct_alignment(&metadata(&file));
    assert!(finding.evidence.contains("STATX_DIOALIGN"), "{finding:?}");
    assert_eq!(direct_alignment(&Err("no file".into())).status, Status::Unknown);
}
