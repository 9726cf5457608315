//! Trees of /proc and /sys as different machines have them.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

fn write(path: impl AsRef<Path>, text: &str) {
    fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn tree(mountinfo: &str) -> (TempDir, Sources) {
    let directory = tempfile::tempdir().unwrap();
    let sources = Sources::below(directory.path());
    write(sources.proc.join("self/mountinfo"), mountinfo);
    (directory, sources)
}

fn link(sources: &Sources, number: &str, device: &str) {
    let links = sources.sys.join("dev/block");
    fs::create_dir_all(&links).unwrap();
    symlink(Path::new("../../devices").join(device), links.join(number)).unwrap();
}

fn nvme(sources: &Sources) {
    let disk = sources.sys.join("devices/pci0/nvme/nvme0/nvme0n1");
    write(disk.join("dev"), "259:0\n");
    write(disk.join("nvme0n1p1/partition"), "1\n");
    write(disk.join("nvme0n1p1/dev"), "259:1\n");
    for (name, value) in [
        ("io_poll", "1"),
        ("write_cache", "write through"),
        ("fua", "1"),
        ("rotational", "0"),
        ("scheduler", "[none] mq-deadline"),
        ("nr_requests", "1023"),
        ("max_sectors_kb", "128"),
        ("logical_block_size", "512"),
        ("nomerges", "0"),
        ("discard_max_bytes", "2199023255040"),
        ("discard_granularity", "512"),
    ] {
        write(disk.join("queue").join(name), &format!("{value}\n"));
    }
    write(disk.join("stat"), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n");
    write(sources.sys.join("module/nvme/parameters/poll_queues"), "4\n");
    link(sources, "259:0", "pci0/nvme/nvme0/nvme0n1");
    link(sources, "259:1", "pci0/nvme/nvme0/nvme0n1/nvme0n1p1");
}

const ROOT: &str = "1 0 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw\n";

#[test]
fn a_partition_leads_to_its_nvme_disk() {
    let (_directory, sources) = tree(ROOT);
    nvme(&sources);
    let storage = Storage::of(&sources, Path::new("/"));
    assert_eq!(storage.mount.known().unwrap().kind, "ext4");
    let device = storage.device.known().unwrap();
    assert_eq!((device.name.as_str(), device.number.as_str()), ("nvme0n1", "259:0"));
    assert_eq!(device.kind, DeviceKind::Nvme);
    assert_eq!(device.queue.io_poll, Fact::Known(1));
    assert_eq!(device.queue.scheduler, Fact::Known("none".into()));
    assert_eq!(device.queue.nvme_poll_queues, Some(Fact::Known(4)));
    assert_eq!(device.queue.has_volatile_cache(), Some(false));
    assert_eq!(device.queue.discard_max_bytes, Fact::Known(2_199_023_255_040));
    assert_eq!(device.queue.discard_granularity, Fact::Known(512));
    assert!(DeviceCounters::read(&sources, &device.number).known().is_some());
}

#[test]
fn the_innermost_and_latest_mount_counts() {
    let (_directory, sources) = tree(&format!(
        "{ROOT}2 1 0:30 / /data rw - tmpfs tmpfs rw\n3 1 0:31 / /data rw - overlay overlay rw\n\
         4 1 0:32 / /data/deep rw - tmpfs tmpfs rw\n5 1 0:33 / /dat rw - ramfs none rw\n"
    ));
    let kind = |path: &str| Mount::of(&sources, Path::new(path)).known().unwrap().kind.clone();
    assert_eq!(kind("/data/file"), "overlay");
    assert_eq!(kind("/data/deep/file"), "tmpfs");
    assert_eq!(kind("/database"), "ext4");
}

#[test]
fn a_journal_is_told_by_the_thread_that_commits_it() {
    let (_directory, sources) = tree(ROOT);
    nvme(&sources);
    let mount = || Mount::of(&sources, Path::new("/")).known().unwrap().clone();
    assert_eq!((mount().has_journal, mount().kind_text().as_str()), (None, "ext4"));
    let told = sources.sys.join("fs/ext4/nvme0n1p1/journal_task");
    write(&told, "417\n");
    assert_eq!((mount().has_journal, mount().kind_text().as_str()), (Some(true), "ext4"));
    write(&told, "<none>\n");
    assert_eq!(mount().has_journal, Some(false));
    assert_eq!(mount().kind_text(), "ext4 without a journal");
}

#[test]
fn memory_and_overlay_have_no_device() {
    let (_directory, sources) = tree("1 0 0:30 / / rw - overlay overlay rw,lowerdir=/a\n");
    let storage = Storage::of(&sources, Path::new("/"));
    assert_eq!(storage.device.reason(), Some("overlay has no block device"));
}

#[test]
fn btrfs_is_followed_by_its_source() {
    let (_directory, sources) = tree("1 0 0:30 / / rw - btrfs /dev/nvme0n1p1 rw,subvol=/\n");
    nvme(&sources);
    write(sources.sys.join("class/block/nvme0n1p1/dev"), "259:1\n");
    let storage = Storage::of(&sources, Path::new("/"));
    assert_eq!(storage.device.known().unwrap().name, "nvme0n1");
}

#[test]
fn a_loop_device_names_its_file() {
    let (_directory, sources) = tree("1 0 7:3 / / rw - xfs /dev/loop3 rw\n");
    write(sources.sys.join("devices/virtual/block/loop3/loop/backing_file"), "/images/x.img\n");
    link(&sources, "7:3", "virtual/block/loop3");
    let device = Storage::of(&sources, Path::new("/")).device;
    let device = device.known().unwrap();
    assert_eq!(device.kind, DeviceKind::Loop);
    assert_eq!(device.backing_file.as_deref(), Some(Path::new("/images/x.img")));
    assert_eq!(device.number, "7:3");
    assert!(device.queue.io_poll.reason().unwrap().contains("no such file"));
    assert_eq!(device.queue.nvme_poll_queues, None);
}

#[test]
fn device_mapper_names_its_parts() {
    let (_directory, sources) = tree("1 0 253:0 / / rw - xfs /dev/mapper/root rw\n");
    let parts = sources.sys.join("devices/virtual/block/dm-0/slaves");
    write(parts.join("sdb/dev"), "8:16");
    write(parts.join("sda/dev"), "8:0");
    link(&sources, "253:0", "virtual/block/dm-0");
    let device = Storage::of(&sources, Path::new("/")).device;
    assert_eq!(device.known().unwrap().parts, ["sda", "sdb"]);
}

#[test]
fn missing_and_garbled_sources_are_reasons() {
    let (_directory, sources) = tree("\u{fffd} garbage\n\n1 2 3\n");
    let storage = Storage::of(&sources, Path::new("/"));
    assert!(storage.mount.reason().unwrap().contains("no mount holds /"));
    assert!(storage.device.reason().is_some());

    let empty = tempfile::tempdir().unwrap();
    let storage = Storage::of(&Sources::below(empty.path()), Path::new("/"));
    assert!(storage.mount.reason().unwrap().contains("mountinfo: no such file"));

    let (_directory, sources) = tree(ROOT);
    nvme(&sources);
    write(sources.sys.join("devices/pci0/nvme/nvme0/nvme0n1/queue/io_poll"), "\u{0}\u{1}");
    let device = Storage::of(&sources, Path::new("/")).device;
    assert!(device.known().unwrap().queue.io_poll.reason().unwrap().contains("not understood"));
}

#[test]
fn counters_fall_back_to_diskstats() {
    let (_directory, sources) = tree(ROOT);
    assert!(DeviceCounters::read(&sources, "259:0").reason().is_some());
    write(sources.proc.join("diskstats"), " 259 0 nvme0n1 7 0 8 0 0 0 0 0 0 0 5\n 8 0 sda x\n");
    assert!(DeviceCounters::read(&sources, "259:0").known().is_some());
    assert!(DeviceCounters::read(&sources, "8:0").reason().unwrap().contains("not understood"));
    assert_eq!(
        DeviceCounters::read(&sources, "9:9").reason(),
        Some("/proc/diskstats: no device 9:9")
    );
}

#[test]
fn this_machine_answers() {
    let storage = Storage::of(&Sources::default(), Path::new("."));
    assert!(storage.mount.known().is_some(), "{:?}", storage.mount);
    if let Fact::Known(device) = &storage.device {
        let counters = DeviceCounters::read(&Sources::default(), &device.number);
        assert!(counters.known().is_some(), "{counters:?}");
    }
}

#[test]
fn a_disk_has_the_node_and_the_interrupts_of_its_bus_device() {
    let (_directory, sources) = tree(ROOT);
    nvme(&sources);
    let bus = sources.sys.join("devices/pci0");
    write(bus.join("numa_node"), "1\n");
    for number in ["24", "25"] {
        write(bus.join("msi_irqs").join(number), "msix\n");
    }
    let interrupts = "            CPU0       CPU2       CPU9\n\
         \x20  4:          7          7          7   IO-APIC   4-edge      ttyS0\n\
         \x20 24:          0          0       1234   PCI-MSIX-0000:00:03.0   0-edge  nvme0q0\n\
         \x20 25:          5          0          0   PCI-MSIX-0000:00:03.0   1-edge  nvme0q1\n\
         \x20LOC:          9          9          9   Local timer interrupts\n";
    write(sources.proc.join("interrupts"), interrupts);
    // That of a partition is that of its disk.
    for number in ["259:0", "259:1"] {
        let placement = Placement::of(&sources, number);
        assert_eq!(placement.node, Fact::Known(1));
        assert_eq!(placement.interrupt_cpus, Fact::Known(vec![0, 9]));
    }
    write(bus.join("numa_node"), "-1\n");
    let node = Placement::of(&sources, "259:0").node;
    assert_eq!(node.reason(), Some("the firmware names no node"));
}

#[test]
fn a_temperature_is_read_where_hwmon_has_it() {
    let disk = "devices/pci0/nvme/nvme0/nvme0n1";
    let temperature = |sources: &Sources| {
        Device::numbered(sources, "259:1").known().unwrap().temperature_millidegrees.clone()
    };
    for own in ["device/hwmon3/temp1_input", "device/hwmon/hwmon3/temp1_input"] {
        let (_directory, sources) = tree(ROOT);
        nvme(&sources);
        let reason = temperature(&sources);
        assert_eq!(reason.reason(), Some("nvme0n1: no hwmon tells its temperature"));
        write(sources.sys.join(disk).join(own), "38850\n");
        assert_eq!(temperature(&sources), Fact::Known(38_850), "{own}");
        write(sources.sys.join(disk).join(own), "warm\n");
        assert!(temperature(&sources).reason().unwrap().contains("not understood"));
    }
}

#[test]
fn a_device_without_a_bus_has_no_place() {
    let (_directory, sources) = tree(ROOT);
    write(sources.sys.join("devices/virtual/block/loop0/dev"), "7:0\n");
    link(&sources, "7:0", "virtual/block/loop0");
    let placement = Placement::of(&sources, "7:0");
    let reason = placement.node.reason().unwrap();
    assert_eq!(reason, "loop0: no device that it belongs to has numa_node");
    assert!(placement.interrupt_cpus.reason().unwrap().ends_with("has msi_irqs"));
    let missing = Placement::of(&sources, "8:0");
    assert!(missing.node.reason().unwrap().ends_with("dev/block/8:0: no such file or directory"));
}
