//! The facts of a block device's queue, from sysfs.

use std::path::Path;

use serde::Serialize;

use super::DeviceKind;
use crate::fact::{self, Fact, Sources};

/// The content of `/sys/block/NAME/queue`; sysfs-block in the kernel's ABI documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Queue {
    /// Whether the device supports polled completions: 0 or 1.
    pub io_poll: Fact<u64>,
    /// `write back` (the device has a volatile cache) or `write through`.
    pub write_cache: Fact<String>,
    /// Whether a single write can be forced through the cache: 0 or 1.
    pub fua: Fact<u64>,
    /// Whether the device reports that it rotates: 0 or 1. Virtual disks often report 1.
    pub rotational: Fact<u64>,
    /// The scheduler in use.
    pub scheduler: Fact<String>,
    /// The number of requests that the queue takes before a submitter waits.
    pub nr_requests: Fact<u64>,
    /// The largest request in KiB; a larger operation is split.
    pub max_sectors_kb: Fact<u64>,
    /// The smallest unit that can be addressed, in bytes.
    pub logical_block_size: Fact<u64>,
    /// 0 merges neighbouring requests, 1 only simple ones, 2 none.
    pub nomerges: Fact<u64>,
    /// The most bytes that one discard can name; 0 means that the device has no discard.
    pub discard_max_bytes: Fact<u64>,
    /// The unit in bytes that the device can discard.
    pub discard_granularity: Fact<u64>,
    /// The nvme module's `poll_queues`, on NVMe only. 0 means that there are no queues for polling.
    pub nvme_poll_queues: Option<Fact<u64>>,
}

impl Queue {
    pub(super) fn read(sources: &Sources, device: &Path, kind: DeviceKind) -> Queue {
        let queue = device.join("queue");
        let number = |name: &str| fact::value(&queue.join(name));
        let text = |name: &str| fact::text(&queue.join(name));
        Queue {
            io_poll: number("io_poll"),
            write_cache: text("write_cache"),
            fua: number("fua"),
            rotational: number("rotational"),
            scheduler: text("scheduler").map(|text| chosen(&text)),
            nr_requests: number("nr_requests"),
            max_sectors_kb: number("max_sectors_kb"),
            logical_block_size: number("logical_block_size"),
            nomerges: number("nomerges"),
            discard_max_bytes: number("discard_max_bytes"),
            discard_granularity: number("discard_granularity"),
            nvme_poll_queues: (kind == DeviceKind::Nvme)
                .then(|| fact::value(&sources.sys.join("module/nvme/parameters/poll_queues"))),
        }
    }

    /// Returns whether the device may lose unflushed writes when the power fails.
    pub fn has_volatile_cache(&self) -> Option<bool> {
        self.write_cache.known().map(|kind| kind == "write back")
    }
}

/// Returns the scheduler in brackets: `none [mq-deadline] kyber`. A single scheduler has no brackets.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(name, _)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduler_in_brackets() {
        assert_eq!(chosen("none [mq-deadline] kyber bfq"), "mq-deadline");
        assert_eq!(chosen("[none] mq-deadline"), "none");
        assert_eq!(chosen("none"), "none");
        assert_eq!(chosen("[broken"), "[broken");
    }
}
