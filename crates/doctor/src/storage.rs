//! The file system, the device and its queue under the path.

use ringwise::{Local, Metadata, Operation};
use ringwise_measure::Fact;
use ringwise_measure::device::{Device, DeviceKind, Mount, Storage};
use ringwise_measure::quantity::bytes_text;

use crate::finding::Finding;
use crate::probe_file::ProbeFile;

pub(crate) fn judge(storage: &Storage, file: &ProbeFile) -> Vec<Finding> {
    let mut findings = vec![filesystem(storage), device(storage)];
    if let Fact::Known(device) = &storage.device {
        findings.extend(queue(device));
        findings.push(discard(device, storage));
        findings.extend(temperature(device));
    }
    findings.push(direct_alignment(&metadata(file)));
    findings
}

fn filesystem(storage: &Storage) -> Finding {
    const NAME: &str = "storage.filesystem";
    let elsewhere = "to measure a device, give a PATH on a disk";
    let Fact::Known(mount) = &storage.mount else {
        return Finding::of(NAME, &storage.filesystem, |by_magic| {
            Finding::ok(NAME, format!("statfs(2): {}", by_magic.name))
        });
    };
    let free = match &storage.filesystem {
        Fact::Known(filesystem) => format!("{} free", bytes_text(filesystem.free_bytes)),
        Fact::Unknown(reason) => reason.clone(),
    };
    let evidence = format!(
        "/proc/self/mountinfo: {} on {} from {}; {free}",
        mount.kind_text(),
        mount.point.display(),
        mount.source
    );
    match mount_class(mount) {
        Class::Disk => Finding::ok(NAME, evidence),
        Class::Memory => {
            Finding::limited(NAME, format!("{evidence}; in memory, O_DIRECT reaches no device"))
                .remedy(elsewhere)
        }
        Class::Overlay => Finding::limited(
            NAME,
            format!("{evidence}; stacked, and io_uring hands its operations to worker threads"),
        )
        .remedy("use a volume or bind mount of a disk for data"),
        Class::Remote => {
            Finding::limited(NAME, format!("{evidence}; another machine or program answers"))
                .remedy(elsewhere)
        }
    }
}

enum Class {
    Disk,
    Memory,
    Overlay,
    Remote,
}

fn mount_class(mount: &Mount) -> Class {
    match mount.kind.as_str() {
        "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => Class::Memory,
        "overlay" | "aufs" | "ecryptfs" => Class::Overlay,
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "ceph" | "virtiofs" => Class::Remote,
        kind if kind == "fuse" || kind.starts_with("fuse.") => Class::Remote,
        _ => Class::Disk,
    }
}

fn device(storage: &Storage) -> Finding {
    const NAME: &str = "storage.device";
    let device = match &storage.device {
        Fact::Known(device) => device,
        // A file system that never has a device says so itself.
        Fact::Unknown(reason) if reason.ends_with("has no block device") => {
            return Finding::limited(NAME, format!("/proc/self/mountinfo: {reason}"));
        }
        Fact::Unknown(reason) => return Finding::unknown(NAME, reason),
    };
    let evidence =
        |what: &str| format!("/sys/dev/block/{}: {}, {what}", device.number, device.name);
    match device.kind {
        DeviceKind::Nvme => Finding::ok(NAME, evidence("NVMe")),
        DeviceKind::Scsi => Finding::ok(NAME, evidence("SCSI or SATA")),
        DeviceKind::Card => Finding::ok(NAME, evidence("a card")),
        DeviceKind::Other => Finding::ok(NAME, evidence("a kind this program does not know")),
        DeviceKind::DeviceMapper | DeviceKind::Raid => {
            Finding::ok(NAME, evidence(&format!("made of {}", device.parts.join(" "))))
        }
        DeviceKind::Virtual => Finding::limited(
            NAME,
            evidence("a virtual disk: the host's cache, scheduler and other guests are below it"),
        )
        .remedy("compare engines within one run only; absolute figures are the host's"),
        DeviceKind::Loop => {
            let file = device.backing_file.as_deref();
            let file = file.map_or("a file".to_owned(), |file| file.display().to_string());
            Finding::limited(NAME, evidence(&format!("a loop device on {file}")))
                .remedy("give a PATH on the disk itself")
        }
        DeviceKind::Memory => Finding::limited(NAME, evidence("memory as a disk"))
            .remedy("to measure a device, give a PATH on a disk"),
        DeviceKind::Network => Finding::limited(NAME, evidence("a disk over a network")),
    }
}

fn queue(device: &Device) -> Vec<Finding> {
    let queue = &device.queue;
    let file = |name: &str| format!("/sys/block/{}/queue/{name}", device.name);
    type Judge<'a> = &'a dyn Fn(&'static str, u64, String) -> Finding;
    let number = |name: &'static str, fact: &Fact<u64>, judge: Judge<'_>| {
        Finding::of(name, fact, |value| {
            let short = name.trim_start_matches("queue.");
            judge(name, *value, format!("{}: {value}", file(short)))
        })
    };
    let mut findings = vec![
        number("queue.io_poll", &queue.io_poll, &|name, value, evidence| match value {
            0 => Finding::limited(name, format!("{evidence}, completions cannot be polled for")),
            _ => Finding::ok(name, evidence),
        }),
        Finding::of("queue.write_cache", &queue.write_cache, |value| {
            let what = match value.as_str() {
                "write back" => ", volatile: a sync waits for the device to flush it",
                "write through" => ", a completed write is on the medium",
                _ => "",
            };
            Finding::ok("queue.write_cache", format!("{}: {value}{what}", file("write_cache")))
        }),
        number("queue.fua", &queue.fua, &|name, value, evidence| {
            let what = if value == 0 { ", a synchronous write costs a flush" } else { "" };
            Finding::ok(name, format!("{evidence}{what}"))
        }),
        number("queue.rotational", &queue.rotational, &|name, value, evidence| match (
            value,
            device.kind,
        ) {
            (0, _) => Finding::ok(name, evidence),
            (_, DeviceKind::Virtual) => {
                Finding::ok(name, format!("{evidence}, which virtual disks often say"))
            }
            _ => Finding::limited(name, format!("{evidence}, seeks bound what depth can gain")),
        }),
        scheduler(device, &file("scheduler")),
        number("queue.nr_requests", &queue.nr_requests, &|name, value, evidence| {
            if value >= NR_REQUESTS_MIN {
                return Finding::ok(name, evidence);
            }
            let evidence = format!("{evidence}, deeper submitters wait inside the submission");
            let remedy = format!("echo {NR_REQUESTS_MIN} > {}", file("nr_requests"));
            Finding::limited(name, evidence).remedy(remedy)
        }),
        number("queue.max_sectors_kb", &queue.max_sectors_kb, &|name, _, evidence| {
            Finding::ok(name, format!("{evidence}, larger operations are split"))
        }),
    ];
    findings.extend(queue.nvme_poll_queues.as_ref().map(nvme_poll_queues));
    findings
}

/// Without discard a flash device takes blocks of removed files for data, and slows down as it fills up.
fn discard(device: &Device, storage: &Storage) -> Finding {
    const NAME: &str = "queue.discard_max_bytes";
    Finding::of(NAME, &device.queue.discard_max_bytes, |bytes| {
        let evidence = format!("/sys/block/{}/queue/discard_max_bytes: {bytes}", device.name);
        let mount = storage.mount.known().map(Mount::discards);
        let what = match (bytes, mount) {
            (0, _) => "the device has no discard",
            (_, Some(true)) => "and the mount has the option discard",
            (_, Some(false)) => {
                "the mount has no option discard: free blocks are told by fstrim(8) only"
            }
            (_, None) => "the mount is not known",
        };
        Finding::ok(NAME, format!("{evidence}, {what}"))
    })
}

/// Few devices tell it: an unknown one is no finding.
fn temperature(device: &Device) -> Option<Finding> {
    let degrees = device.temperature_millidegrees.known()? / 1000;
    let evidence = format!("hwmon, temp1_input: {} has {degrees} degrees Celsius", device.name);
    Some(Finding::ok("storage.temperature", evidence))
}

/// Less than the greatest depth that the lab measures by default.
const NR_REQUESTS_MIN: u64 = 128;

fn scheduler(device: &Device, file: &str) -> Finding {
    const NAME: &str = "queue.scheduler";
    Finding::of(NAME, &device.queue.scheduler, |scheduler| {
        let evidence = format!("{file}: {scheduler}");
        if device.kind != DeviceKind::Nvme || scheduler == "none" {
            return Finding::ok(NAME, evidence);
        }
        Finding::limited(NAME, format!("{evidence}, which costs CPU time per request on NVMe"))
            .remedy(format!("echo none > {file}"))
    })
}

fn nvme_poll_queues(poll_queues: &Fact<u64>) -> Finding {
    const NAME: &str = "nvme.poll_queues";
    Finding::of(NAME, poll_queues, |count| {
        let evidence = format!("/sys/module/nvme/parameters/poll_queues: {count}");
        if *count > 0 {
            return Finding::ok(NAME, evidence);
        }
        Finding::limited(NAME, format!("{evidence}, completions come by interrupt only"))
            .remedy("boot with nvme.poll_queues=N, a queue for each polling core")
    })
}

fn metadata(file: &ProbeFile) -> Result<Metadata, String> {
    let file = file.buffered.as_ref().map_err(Clone::clone)?;
    let mut local = Local::new().map_err(|error| error.to_string())?;
    let done = local.run(Operation::statx_descriptor(file)).and_then(|done| done.metadata());
    done.map_err(|error| error.to_string())
}

fn direct_alignment(metadata: &Result<Metadata, String>) -> Finding {
    const NAME: &str = "storage.direct_alignment";
    let metadata = match metadata {
        Ok(metadata) => metadata,
        Err(reason) => return Finding::unknown(NAME, format!("statx(2): {reason}")),
    };
    match metadata.direct_alignment() {
        Some(alignment) => Finding::ok(
            NAME,
            format!(
                "statx(2), STATX_DIOALIGN: memory {} bytes, offset and length {} bytes",
                alignment.memory, alignment.offset
            ),
        ),
        None if metadata.refuses_direct() => {
            Finding::blocked(NAME, "statx(2), STATX_DIOALIGN: no direct I/O on files here")
                .remedy("use buffered I/O here, or a PATH on another file system")
        }
        None => Finding::unknown(
            NAME,
            "statx(2), STATX_DIOALIGN: not answered (kernels before 6.1, and some file systems); \
             4096 bytes are safe",
        ),
    }
}

#[cfg(test)]
mod tests;
