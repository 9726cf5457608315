//! Follows a path to its mount, its block device and the device's queue.
//!
//! It follows the kernel's answers: a partition leads to its disk, a loop device names its file, and tmpfs, overlay and
//! network file systems have no device. Only the kind of a device is concluded from its name.

mod directory;
mod mount;
mod placement;
mod queue;
mod temperature;
mod usage;

pub use mount::Mount;
pub use placement::Placement;
pub use queue::Queue;
pub use usage::{DeviceCounters, DeviceUse};

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use self::directory::{disk_of, names_in};
use crate::fact::{self, Fact, Sources, lowered};
use crate::filesystem::Filesystem;

/// The storage below a path.
#[derive(Clone, Debug, Serialize)]
pub struct Storage {
    /// The path, with symbolic links followed.
    pub path: PathBuf,
    /// The mount that holds it.
    pub mount: Fact<Mount>,
    /// The file system, by statfs(2).
    pub filesystem: Fact<Filesystem>,
    /// The block device, or why there is none.
    pub device: Fact<Device>,
}

impl Storage {
    /// Looks up everything below `path`.
    pub fn of(sources: &Sources, path: &Path) -> Self {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let mount = Mount::of(sources, &path);
        let device = mount.clone().and_then(|mount| Device::of(sources, &mount));
        let filesystem = Filesystem::of(&path);
        Storage { path, mount, filesystem, device }
    }
}

/// The kind of a block device, as far as the kernel's name for it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// NVMe.
    Nvme,
    /// A disk that the hypervisor provides (virtio, Xen).
    Virtual,
    /// SCSI, SATA or USB.
    Scsi,
    /// A file used as a disk.
    Loop,
    /// Device mapper: LVM, encryption, multipath.
    DeviceMapper,
    /// Software RAID.
    Raid,
    /// Memory used as a disk (zram, brd, pmem).
    Memory,
    /// A disk over a network.
    Network,
    /// A card (eMMC, SD).
    Card,
    /// None of these.
    Other,
}

/// A whole block device (not a partition).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// The kernel's name, such as `nvme0n1`.
    pub name: String,
    /// The device number, `MAJOR:MINOR`.
    pub number: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// The file behind a loop device.
    pub backing_file: Option<PathBuf>,
    /// The devices that this one is made of (device mapper, RAID).
    pub parts: Vec<String>,
    /// Its temperature in thousandths of a degree Celsius.
    pub temperature_millidegrees: Fact<i64>,
    /// The facts of its queue.
    pub queue: Queue,
}

impl Device {
    /// Finds the device below a mount.
    pub fn of(sources: &Sources, mount: &Mount) -> Fact<Device> {
        device_number(sources, mount).and_then(|number| Device::numbered(sources, &number))
    }

    /// Finds the device with a number `MAJOR:MINOR`. For a partition it is the disk.
    pub fn numbered(sources: &Sources, number: &str) -> Fact<Device> {
        let link = sources.sys.join("dev/block").join(number);
        let directory = match fs::canonicalize(&link) {
            Ok(directory) => disk_of(directory),
            Err(error) => return Fact::Unknown(format!("{}: {}", link.display(), lowered(&error))),
        };
        let Some(name) = directory.file_name().map(|name| name.to_string_lossy().into_owned())
        else {
            return Fact::Unknown(format!("{}: has no name", directory.display()));
        };
        let kind = kind_of(&name);
        Fact::Known(Device {
            number: fact::text(&directory.join("dev"))
                .known()
                .cloned()
                .unwrap_or(number.to_owned()),
            backing_file: fact::text(&directory.join("loop/backing_file"))
                .known()
                .map(PathBuf::from),
            parts: names_in(&directory.join("slaves")),
            temperature_millidegrees: temperature::millidegrees(&directory),
            queue: Queue::read(sources, &directory, kind),
            kind,
            name,
        })
    }
}

/// Finds the number of the device below a mount. Major 0 is not a device: file systems that span devices (btrfs) or
/// stack them (bcachefs) have it, and still name a device as their source.
fn device_number(sources: &Sources, mount: &Mount) -> Fact<String> {
    if !mount.device_number.starts_with("0:") {
        return Fact::Known(mount.device_number.clone());
    }
    let none = || Fact::Unknown(format!("{} has no block device", mount.kind));
    let Some(name) = mount.source.strip_prefix("/dev/") else { return none() };
    // A name in a directory (mapper/x) is a link to the device with the kernel's name.
    let node = fs::canonicalize(&mount.source).unwrap_or_else(|_| PathBuf::from(name));
    let Some(name) = node.file_name() else { return none() };
    match fact::text(&sources.sys.join("class/block").join(name).join("dev")) {
        Fact::Known(number) => Fact::Known(number),
        Fact::Unknown(_) => none(),
    }
}

fn kind_of(name: &str) -> DeviceKind {
    const KINDS: [(&str, DeviceKind); 16] = [
        ("nvme", DeviceKind::Nvme),
        ("xvd", DeviceKind::Virtual),
        ("vd", DeviceKind::Virtual),
        ("sd", DeviceKind::Scsi),
        ("sr", DeviceKind::Scsi),
        ("loop", DeviceKind::Loop),
        ("dm-", DeviceKind::DeviceMapper),
        ("md", DeviceKind::Raid),
        ("zram", DeviceKind::Memory),
        ("ram", DeviceKind::Memory),
        ("pmem", DeviceKind::Memory),
        ("nbd", DeviceKind::Network),
        ("rbd", DeviceKind::Network),
        ("drbd", DeviceKind::Network),
        ("mmcblk", DeviceKind::Card),
        ("nullb", DeviceKind::Memory),
    ];
    let known = KINDS.iter().find(|(prefix, _)| name.starts_with(prefix));
    known.map_or(DeviceKind::Other, |(_, kind)| *kind)
}

#[cfg(test)]
mod tests;
