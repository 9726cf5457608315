//! The file system and the device below the path, and what direct I/O needs there.

use ringwise::{Local, Operation};
use ringwise_measure::{
    Fact,
    device::{Device, DeviceKind, Mount, Queue, Storage},
    filesystem::Filesystem,
};

use crate::{finding::Finding, probe_file::ProbeFile};

pub(crate) fn judge(storage: &Storage, file: &ProbeFile) -> Vec<Finding> {
    let mut findings = vec![
        Finding::of("storage.filesystem", &storage.filesystem, |filesystem| {
            judge_filesystem(filesystem, storage.mount.known())
        }),
        Finding::of("storage.device", &storage.device, judge_device),
        direct_io(file),
    ];
    if let Fact::Known(device) = &storage.device {
        findings.extend(judge_queue(&device.queue));
    }
    findings
}

fn judge_filesystem(filesystem: &Filesystem, mount: Option<&Mount>) -> Finding {
    const NAME: &str = "storage.filesystem";
    let (kind, place) = match mount {
        Some(mount) => (mount.kind.as_str(), format!(" on {}", mount.point.display())),
        None => (filesystem.name.as_str(), String::new()),
    };
    let evidence = format!("statfs, /proc/self/mountinfo: {kind}{place}");
    let elsewhere = "give a directory on a device to learn about that device";
    if filesystem.is_memory_backed() {
        return Finding::limited(
            NAME,
            format!("{evidence}: in memory; the ring hands every read and write to a worker"),
        )
        .remedy(elsewhere);
    }
    if filesystem.is_overlay() {
        return Finding::limited(
            NAME,
            format!("{evidence}: an overlay; the ring hands every read and write to a worker"),
        )
        .remedy("use a volume or a bind mount for data; ".to_owned() + elsewhere);
    }
    Finding::ok(NAME, evidence)
}

fn judge_device(device: &Device) -> Finding {
    const NAME: &str = "storage.device";
    let evidence = format!("{} ({:?}, {})", device.name, device.kind, device.number);
    match device.kind {
        DeviceKind::Loop => {
            let behind = device.backing_file.as_ref();
            let behind = behind.map_or("unknown".into(), |path| path.display().to_string());
            Finding::limited(NAME, format!("{evidence}: a file as a disk, {behind}"))
                .remedy("measure on the file system that holds the file: two caches lie between")
        }
        DeviceKind::Virtual => Finding::limited(
            NAME,
            format!("{evidence}: a virtual disk; the host may cache and reorder behind it"),
        ),
        DeviceKind::Network | DeviceKind::Memory => {
            Finding::limited(NAME, format!("{evidence}: not a disk of this machine"))
        }
        _ => Finding::ok(NAME, evidence),
    }
}

/// What direct I/O needs, by statx(2) on a file that took it.
fn direct_io(file: &ProbeFile) -> Finding {
    const NAME: &str = "storage.direct_io";
    let direct = match &file.direct {
        Ok(direct) => direct,
        Err(reason) => return Finding::blocked(NAME, reason),
    };
    let asked = Local::new().map_err(|error| error.to_string()).and_then(|mut local| {
        local
            .run(Operation::statx_descriptor(direct))
            .and_then(|done| done.metadata())
            .map_err(|error| error.to_string())
    });
    match asked {
        Ok(metadata) => match metadata.direct_alignment() {
            Some(alignment) => Finding::ok(
                NAME,
                format!(
                    "STATX_DIOALIGN: buffers at {} bytes, offsets and lengths at {}",
                    alignment.memory, alignment.offset
                ),
            ),
            None if metadata.refuses_direct() => Finding::limited(
                NAME,
                "O_DIRECT opens, but STATX_DIOALIGN says that it is not done",
            ),
            None => Finding::unknown(NAME, "STATX_DIOALIGN: not told here; 4096 is the safe guess"),
        },
        Err(reason) => Finding::unknown(NAME, reason),
    }
}

fn judge_queue(queue: &Queue) -> Vec<Finding> {
    let plain = |name, text: &Fact<String>| {
        Finding::of(name, text, |text| Finding::ok(name, format!("{}: {text}", source(name))))
    };
    let number = |name, value: &Fact<u64>| plain(name, &value.clone().map(|n| n.to_string()));
    let mut findings = vec![
        io_poll(&queue.io_poll),
        write_cache(queue),
        number("queue.fua", &queue.fua),
        number("queue.rotational", &queue.rotational),
        plain("queue.scheduler", &queue.scheduler),
        number("queue.nr_requests", &queue.nr_requests),
        number("queue.max_sectors_kb", &queue.max_sectors_kb),
    ];
    if let Some(queues) = &queue.nvme_poll_queues {
        findings.push(poll_queues(queues));
    }
    findings
}

/// `queue.io_poll` is read from `queue/io_poll`.
fn source(name: &str) -> String {
    name.replace('.', "/")
}

fn io_poll(io_poll: &Fact<u64>) -> Finding {
    const NAME: &str = "queue.io_poll";
    Finding::of(NAME, io_poll, |value| match value {
        0 => Finding::limited(NAME, "queue/io_poll: 0, completions come by interrupt only"),
        value => Finding::ok(NAME, format!("queue/io_poll: {value}")),
    })
}

fn write_cache(queue: &Queue) -> Finding {
    const NAME: &str = "queue.write_cache";
    Finding::of(NAME, &queue.write_cache, |cache| {
        let evidence = format!("queue/write_cache: {cache}");
        match queue.has_volatile_cache() {
            Some(true) => Finding::limited(
                NAME,
                format!("{evidence}: what was written is not durable until it is synced"),
            ),
            _ => Finding::ok(NAME, evidence),
        }
    })
}

fn poll_queues(queues: &Fact<u64>) -> Finding {
    const NAME: &str = "nvme.poll_queues";
    Finding::of(NAME, queues, |count| {
        let evidence = format!("/sys/module/nvme/parameters/poll_queues: {count}");
        match count {
            0 => Finding::limited(NAME, evidence)
                .remedy("boot with nvme.poll_queues=N to poll for completions"),
            _ => Finding::ok(NAME, evidence),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use ringwise_measure::Sources;

    use super::*;
    use crate::finding::Status;

    /// A tree with one NVMe disk, mounted on the root.
    fn nvme(poll_queues: &str, io_poll: &str, write_cache: &str) -> Vec<Finding> {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let disk = root.join("sys/block/nvme0n1");
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::create_dir_all(root.join("sys/dev/block")).unwrap();
        fs::create_dir_all(root.join("sys/module/nvme/parameters")).unwrap();
        fs::create_dir_all(root.join("proc/self")).unwrap();
        std::os::unix::fs::symlink(&disk, root.join("sys/dev/block/259:0")).unwrap();
        let mount = "1 1 259:0 / / rw - ext4 /dev/nvme0n1 rw\n";
        fs::write(root.join("proc/self/mountinfo"), mount).unwrap();
        fs::write(disk.join("dev"), "259:0\n").unwrap();
        fs::write(disk.join("queue/io_poll"), io_poll).unwrap();
        fs::write(disk.join("queue/write_cache"), write_cache).unwrap();
        fs::write(root.join("sys/module/nvme/parameters/poll_queues"), poll_queues).unwrap();
        let storage = Storage::of(&Sources::below(root), Path::new("/"));
        let file = ProbeFile { buffered: Err("none".into()), direct: Err("none".into()) };
        judge(&storage, &file)
    }

    fn status(findings: &[Finding], name: &str) -> Status {
        let found = findings.iter().find(|finding| finding.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {findings:#?}")).status
    }

    #[test]
    fn polling_queues_are_seen() {
        let with = nvme("4", "1", "write through");
        for name in ["nvme.poll_queues", "queue.io_poll", "queue.write_cache"] {
            assert_eq!(status(&with, name), Status::Ok, "{name}");
        }
        let without = nvme("0", "0", "write back");
        for name in ["nvme.poll_queues", "queue.io_poll", "queue.write_cache"] {
            assert_eq!(status(&without, name), Status::Limited, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_unknown_and_ends_nothing() {
        let findings = nvme("four", "", "write back");
        assert_eq!(status(&findings, "nvme.poll_queues"), Status::Unknown);
        assert_eq!(status(&findings, "queue.io_poll"), Status::Unknown);
        assert_eq!(status(&findings, "queue.scheduler"), Status::Unknown, "not even a file");
        assert_eq!(status(&findings, "storage.direct_io"), Status::Blocked);
    }
}
