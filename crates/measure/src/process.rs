//! What this process read and wrote, by its own account (/proc/self/io).
//!
//! `read_bytes` is what was fetched from devices on the process's behalf: over
//! the bytes that a program asked for it gives the share that no cache served.
//! io_uring's reads are in `read_bytes` but not in `rchar` and `syscr`, which
//! only the read(2) family counts.

use serde::Serialize;

use crate::fact::{Fact, Sources, excerpt, field};

/// Counts of /proc/self/io, since the process began or between two readings;
/// proc_pid_io(5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessIo {
    /// Bytes that read(2) and its kin returned, from a cache or not.
    pub rchar: u64,
    /// Bytes that write(2) and its kin took.
    pub wchar: u64,
    /// Calls of read(2) and its kin.
    pub syscr: u64,
    /// Calls of write(2) and its kin.
    pub syscw: u64,
    /// Bytes fetched from devices.
    pub read_bytes: u64,
    /// Bytes sent to devices, or to become so at writeback.
    pub write_bytes: u64,
}

impl ProcessIo {
    /// Reads the totals since the process began.
    pub fn read(sources: &Sources) -> Fact<ProcessIo> {
        sources.proc_text("self/io").and_then(|text| match parse(&text) {
            Some(io) => Fact::Known(io),
            None => Fact::Unknown(format!("/proc/self/io: not understood: {}", excerpt(&text))),
        })
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &ProcessIo) -> ProcessIo {
        ProcessIo {
            rchar: self.rchar.saturating_sub(earlier.rchar),
            wchar: self.wchar.saturating_sub(earlier.wchar),
            syscr: self.syscr.saturating_sub(earlier.syscr),
            syscw: self.syscw.saturating_sub(earlier.syscw),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
        }
    }
}

fn parse(text: &str) -> Option<ProcessIo> {
    let number = |name| field(text, name)?.parse().ok();
    Some(ProcessIo {
        rchar: number("rchar")?,
        wchar: number("wchar")?,
        syscr: number("syscr")?,
        syscw: number("syscw")?,
        read_bytes: number("read_bytes")?,
        write_bytes: number("write_bytes")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_and_subtracted() {
        let text = "rchar: 10\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        let io = parse(text).unwrap();
        assert_eq!((io.read_bytes, io.write_bytes, io.rchar), (4096, 6, 10));
        assert_eq!(io.since(&io), ProcessIo::default());
        assert_eq!(parse("rchar: x\n"), None);
    }

    #[test]
    fn own_reads_are_counted_or_there_is_a_reason() {
        let sources = Sources::default();
        let (Fact::Known(before), text) = (ProcessIo::read(&sources), "Cargo.toml") else {
            assert!(ProcessIo::read(&sources).reason().unwrap().contains("self/io"));
            return;
        };
        let length = std::fs::read(text).unwrap().len() as u64;
        let after = *ProcessIo::read(&sources).known().unwrap();
        assert!(after.since(&before).rchar >= length);
    }
}
