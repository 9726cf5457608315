//! Where the ranges of a request are in an object.
//!
//! An object has [`RANGES`] equal parts, as a file of Parquet has row groups, and a part has a slot for each
//! request, as a row group has a column. A request reads the second half of its slot in each part. Nobody
//! reads the first half: so no two requests read neighbouring bytes and none reads the beginning of the
//! object, which the kernel would take for a sequence and read ahead of.

use std::ops::Range;

use crate::{
    dataset::DataFile,
    sampling::job::{Job, Request},
};

/// Ranges of a request.
pub const RANGES: usize = 64;
/// One byte in so many is read.
pub(super) const OBJECT_PARTS: u64 = 2;

/// The least that an object has: room for one request.
pub(super) fn object_bytes_min(range_bytes: usize) -> u64 {
    OBJECT_PARTS * (RANGES * range_bytes) as u64
}

/// An object as long as what is read of it. The blocks of a job are then its requests.
pub(super) fn read_part(object: &DataFile) -> DataFile {
    DataFile { bytes: object.bytes / OBJECT_PARTS, ..object.clone() }
}

/// The ranges of a request, in the order of their offsets.
pub(super) fn ranges(job: &Job, request: Request) -> Vec<Range<u64>> {
    let range_bytes = (job.block_bytes / RANGES) as u64;
    let slot = request.offset / job.block_bytes as u64;
    let slots = job.blocks_per_file();
    let start = |part: u64| ((part * slots + slot) * OBJECT_PARTS + 1) * range_bytes;
    (0..RANGES as u64).map(|part| start(part)..start(part) + range_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn requests_share_no_byte_have_gaps_between_them_and_stay_within_the_object() {
        let range_bytes = 3000;
        let object = DataFile {
            path: "o".into(),
            number: 0,
            bytes: 5 * object_bytes_min(range_bytes) + 4096,
        };
        let job = Job {
            files: [read_part(&object)].into(),
            block_bytes: RANGES * range_bytes,
            ..testing::job()
        };
        assert_eq!(job.blocks(), 5);
        let mut all = Vec::new();
        for slot in 0..job.blocks() {
            let request = Request { file: 0, offset: slot * job.block_bytes as u64 };
            let own = ranges(&job, request);
            assert_eq!(own.len(), RANGES);
            all.extend(own);
        }
        all.sort_unstable_by_key(|range| range.start);
        assert_eq!(all[0].start, range_bytes as u64);
        assert!(all.iter().all(|range| range.end - range.start == range_bytes as u64));
        assert!(all.windows(2).all(|pair| pair[1].start == pair[0].end + range_bytes as u64));
        assert!(all.last().unwrap().end <= object.bytes);
    }
}
