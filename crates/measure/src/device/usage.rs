//! The work of a block device, as the kernel counts it.

use std::time::Instant;

use serde::Serialize;

use crate::fact::{Fact, Sources, understood};

/// Sectors in these files have 512 bytes, whatever the sector size of the device.
const SECTOR_BYTES: u64 = 512;

/// A device's totals since boot; the kernel's `Documentation/block/stat.rst`.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceCounters {
    taken_at: Instant,
    reads: u64,
    sectors_read: u64,
    writes: u64,
    sectors_written: u64,
    flushes: Option<u64>,
    in_queue_ms: u64,
}

/// What a device did between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DeviceUse {
    /// Reads completed, after merging.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes completed, after merging.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes of the device's cache completed; the kernel counts them since 5.5.
    /// A device without a volatile cache gets none.
    pub flushes: Option<u64>,
    /// Requests in the device's queue on average: the time that requests spent there, divided by the elapsed time.
    pub queue_depth_mean: f64,
}

impl DeviceCounters {
    /// Reads the totals of the device with a number `MAJOR:MINOR`.
    pub fn read(sources: &Sources, number: &str) -> Fact<DeviceCounters> {
        let fields = match sources.sys_text(format!("dev/block/{number}/stat")) {
            Fact::Unknown(_) => from_diskstats(sources, number),
            own => own,
        };
        let taken_at = Instant::now();
        let source = format!("statistics of {number}");
        fields.and_then(|text| understood(parse(&text, taken_at), &source, &text))
    }

    /// Returns what the device did since `earlier`, for all processes together.
    pub fn since(&self, earlier: &DeviceCounters) -> DeviceUse {
        let elapsed = self.taken_at.saturating_duration_since(earlier.taken_at);
        let in_queue_ms = self.in_queue_ms.saturating_sub(earlier.in_queue_ms) as f64;
        let bytes =
            |later: u64, earlier: u64| later.saturating_sub(earlier).saturating_mul(SECTOR_BYTES);
        DeviceUse {
            reads: self.reads.saturating_sub(earlier.reads),
            read_bytes: bytes(self.sectors_read, earlier.sectors_read),
            writes: self.writes.saturating_sub(earlier.writes),
            written_bytes: bytes(self.sectors_written, earlier.sectors_written),
            flushes: self.flushes.zip(earlier.flushes).map(|(now, then)| now.saturating_sub(then)),
            queue_depth_mean: in_queue_ms / (elapsed.as_secs_f64() * 1e3).max(f64::MIN_POSITIVE),
        }
    }
}

/// Finds the fields after the device's name in /proc/diskstats.
fn from_diskstats(sources: &Sources, number: &str) -> Fact<String> {
    sources.proc_text("diskstats").and_then(|text| {
        let found = text.lines().find_map(|line| {
            let mut fields = line.split_whitespace();
            let own = format!("{}:{}", fields.next()?, fields.next()?);
            (own == number).then(|| fields.skip(1).collect::<Vec<_>>().join(" "))
        });
        Fact::of(found, || format!("/proc/diskstats: no device {number}"))
    })
}

fn parse(text: &str, taken_at: Instant) -> Option<DeviceCounters> {
    let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    (fields.len() >= 11).then(|| DeviceCounters {
        taken_at,
        reads: fields[0],
        sectors_read: fields[2],
        writes: fields[4],
        sectors_written: fields[6],
        in_queue_ms: fields[10],
        flushes: fields.get(15).copied(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn depth_is_time_in_queue_over_time() {
        let start = Instant::now();
        let earlier = parse("10 0 80 5 1 0 8 1 0 5 1000 0 0 0 0 3 1", start).unwrap();
        let later =
            parse("110 0 880 5 3 0 24 1 0 5 33000 0 0 0 0 4 1", start + Duration::from_secs(1))
                .unwrap();
        let used = later.since(&earlier);
        assert_eq!((used.reads, used.read_bytes), (100, 800 * 512));
        assert_eq!((used.writes, used.written_bytes, used.flushes), (2, 16 * 512, Some(1)));
        assert!((used.queue_depth_mean - 32.0).abs() < 1e-9);
        assert_eq!(later.since(&later).reads, 0);
        assert!(later.since(&later).queue_depth_mean.is_finite());
    }

    #[test]
    fn old_kernels_have_no_flushes_and_garbage_is_none() {
        let old = parse("1 2 3 4 5 6 7 8 9 10 11", Instant::now()).unwrap();
        assert_eq!(old.since(&old).flushes, None);
        assert_eq!(parse("1 2 3 x 5 6 7 8 9 10 11", Instant::now()), None);
        assert_eq!(parse("", Instant::now()), None);
    }
}
