//! What `/proc` says of a process: its descriptors, its threads, their names.
//!
//! Each answer holds for the moment of its question. Who asks has to know whether that moment matters.

use std::{
    fs,
    io::{self, Read},
    os::{linux::fs::MetadataExt, unix::fs::FileTypeExt},
    time::{SystemTime, UNIX_EPOCH},
};

use super::event::Described;
use crate::model::{FileKind, OpenFlags};

/// The most processes that are followed from one.
const PROCESSES_MAX: usize = 4096;

/// What a descriptor of a process refers to. None: it is closed, or may not be looked at.
pub(crate) fn describe(pid: u32, descriptor: i32) -> Option<Described> {
    let link = format!("/proc/{pid}/fd/{descriptor}");
    let name = fs::read_link(&link).ok()?.into_os_string();
    let metadata = fs::metadata(&link).ok()?;
    let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).ok()?;
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.map(str::trim)
    };
    let bits = i32::from_str_radix(field("flags:")?, 8).ok()?;
    let is_set = |flag: i32| bits & flag == flag;
    let file_type = metadata.file_type();
    let kind = if file_type.is_file() {
        FileKind::Regular
    } else if file_type.is_block_device() {
        FileKind::Block
    } else if file_type.is_socket() {
        FileKind::Socket
    } else if file_type.is_fifo() {
        FileKind::Pipe
    } else {
        FileKind::Other
    };
    let size_bytes = match kind {
        FileKind::Regular => Some(metadata.st_size()),
        FileKind::Block => block_device_bytes(metadata.st_rdev()),
        _ => None,
    };
    let has_position = matches!(kind, FileKind::Regular | FileKind::Block);
    let position = if has_position { field("pos:")?.parse().ok() } else { None };
    // Pages of a block device belong to its own inode, which stat(2) does not show.
    let identity = (metadata.st_dev(), metadata.st_ino());
    Some(Described {
        name,
        kind,
        size_bytes,
        flags: OpenFlags {
            is_direct: is_set(libc::O_DIRECT),
            is_append: is_set(libc::O_APPEND),
            is_sync: is_set(libc::O_SYNC),
            is_data_sync: is_set(libc::O_DSYNC),
        },
        is_close_on_exec: is_set(libc::O_CLOEXEC),
        position,
        identity,
        made_unix_ns: metadata.created().ok().and_then(since_1970_ns).filter(|_| has_position),
    })
}

fn since_1970_ns(time: SystemTime) -> Option<u64> {
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

fn block_device_bytes(device: u64) -> Option<u64> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let sectors = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/size")).ok()?;
    sectors.trim().parse::<u64>().ok()?.checked_mul(512)
}

/// All descriptors of a process that can be described.
///
/// # Errors
///
/// The process is gone, or its descriptors may not be listed.
pub(crate) fn descriptors(pid: u32) -> io::Result<Vec<(i32, Described)>> {
    let numbers = numbers(&format!("/proc/{pid}/fd"))?;
    let describe = |number: u32| {
        let number = i32::try_from(number).ok()?;
        describe(pid, number).map(|described| (number, described))
    };
    Ok(numbers.into_iter().filter_map(describe).collect())
}

/// Whether a process runs a 32-bit program, whose syscalls have other numbers (`EI_CLASS` in elf(5)).
pub(crate) fn is_foreign(pid: u32) -> bool {
    let mut start = [0; 5];
    let program = fs::File::open(format!("/proc/{pid}/exe"));
    let is_read = program.and_then(|mut program| program.read_exact(&mut start)).is_ok();
    is_read && start == *b"\x7fELF\x01"
}

/// The threads of a process.
pub(crate) fn threads(pid: u32) -> io::Result<Vec<u32>> {
    numbers(&format!("/proc/{pid}/task"))
}

/// The processes that a process has started, and those that they have, as far as they still run. Needs
/// `CONFIG_PROC_CHILDREN` (proc(5)); without it there are none.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied().filter(|_| found.len() < PROCESSES_MAX) {
        for thread in threads(parent).unwrap_or_default() {
            let path = format!("/proc/{parent}/task/{thread}/children");
            let children = fs::read_to_string(path).unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|own| own.parse::<u32>().ok()));
        }
        at += 1;
    }
    found.split_off(1)
}

fn numbers(directory: &str) -> io::Result<Vec<u32>> {
    let names =
        fs::read_dir(directory)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

/// The name of a thread. Empty: it ended.
pub(crate) fn thread_name(pid: u32, tid: u32) -> String {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(name.trim_ascii_end()).into_owned()
}

/// A field of `/proc/TID/status`.
pub(crate) fn status_number(tid: u32, name: &str) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

/// The thread that traces a thread.
pub(crate) fn tracer(tid: u32) -> Option<u32> {
    status_number(tid, "TracerPid:").filter(|tracer| *tracer != 0)
}

/// Whether a thread has ended and is listed still, because its process goes on or was not waited for.
pub(crate) fn is_zombie(tid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| state.trim_start().starts_with(['Z', 'X']))
}

/// The process of a thread.
pub(crate) fn process_of(tid: u32) -> Option<u32> {
    status_number(tid, "Tgid:")
}

#[cfg(test)]
mod tests {
    use std::{
        io::Seek,
        os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    };

    use super::*;

    #[test]
    fn a_descriptor_is_described() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        fs::write(&path, [0; 100]).unwrap();
        let mut options = fs::OpenOptions::new();
        let mut file =
            options.read(true).append(true).custom_flags(libc::O_DSYNC).open(&path).unwrap();
        file.read_exact(&mut [0; 7]).unwrap();
        let described = describe(std::process::id(), file.as_raw_fd()).unwrap();
        assert_eq!(described.name, path);
        assert_eq!((described.kind, described.size_bytes), (FileKind::Regular, Some(100)));
        assert_eq!(described.position, Some(file.stream_position().unwrap()));
        let flags = described.flags;
        assert!(flags.is_append && flags.is_data_sync && !flags.is_sync && !flags.is_direct);
        assert!(described.is_close_on_exec);
        let all = descriptors(std::process::id()).unwrap();
        assert!(all.iter().any(|(number, _)| *number == file.as_raw_fd()));
        assert_eq!(describe(std::process::id(), 100_000), None);
        assert!(!is_foreign(std::process::id()));
    }
}
