//! Counts the bytes that this process read (/proc/self/io).
//!
//! `read_bytes` counts the bytes that were fetched from devices for this process. Divided by the bytes that the program
//! asked for, it gives the share that no cache served. Reads on io_uring count in `read_bytes` but not in `rchar` and
//! `syscr`, which count only the read(2) family.

use crate::fact::{Fact, Sources, field, understood};

/// Counts of /proc/self/io, since the process began or between two readings;
/// proc_pid_io(5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// Bytes that read(2) and similar syscalls returned, from a cache or not.
    pub rchar: u64,
    /// Bytes fetched from devices.
    pub read_bytes: u64,
}

impl ProcessIo {
    /// Reads the totals since the process began.
    pub fn read(sources: &Sources) -> Fact<ProcessIo> {
        let text = sources.proc_text("self/io");
        text.and_then(|text| understood(parse(&text), "/proc/self/io", &text))
    }

    /// Returns the counts added since `earlier`.
    pub fn since(&self, earlier: &ProcessIo) -> ProcessIo {
        ProcessIo {
            rchar: self.rchar.saturating_sub(earlier.rchar),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
        }
    }
}

fn parse(text: &str) -> Option<ProcessIo> {
    let number = |name| field(text, name)?.parse().ok();
    Some(ProcessIo { rchar: number("rchar")?, read_bytes: number("read_bytes")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_and_subtracted() {
        let text = "rchar: 10\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 6\ncancelled_write_bytes: 7\n";
        let io = parse(text).unwrap();
        assert_eq!((io.read_bytes, io.rchar), (4096, 10));
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
