//! Which reads serve the ranges of a request.

use std::ops::Range;

use bytes::Bytes;

/// Returns the ranges to read, in their order in the file. Those that overlap are one, and so are those that
/// are at most `gap` bytes apart. Empty ranges are left out.
pub(crate) fn join(ranges: &[Range<u64>], gap: u64) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges.iter().filter(|range| !range.is_empty()).cloned().collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start < last.end || range.start - last.end <= gap => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// Returns the bytes of a range, out of what was read for all.
pub(crate) fn part(joined: &[Range<u64>], read: &[Bytes], range: &Range<u64>) -> Bytes {
    if range.is_empty() {
        return Bytes::new();
    }
    let at = joined.partition_point(|whole| whole.start <= range.start) - 1;
    let skipped = joined[at].start;
    read[at].slice((range.start - skipped) as usize..(range.end - skipped) as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn near_ranges_are_joined_and_empty_ones_are_not_read() {
        let ranges = [20..30, 0..10, 12..15, 25..40, 7..7];
        assert_eq!(join(&ranges, 0), [0..10, 12..15, 20..40]);
        assert_eq!(join(&ranges, 2), [0..15, 20..40]);
        assert_eq!(join(&ranges, 5), vec![0..40; 1]);
        assert_eq!(join(&ranges, u64::MAX), vec![0..40; 1]);
        assert!(join(&ranges[4..], 0).is_empty());
    }

    proptest! {
        #[test]
        fn every_range_is_served_by_one_read(
            ranges in prop::collection::vec((0..2_000_u64, 0..300_u64), 0..20),
            gap in 0..200_u64,
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, len)| start..start + len).collect();
            let file: Bytes = (0..2_300).map(|at: u32| (at ^ (at >> 8)) as u8).collect();
            let of_file = |range: &Range<u64>| file.slice(range.start as usize..range.end as usize);
            let joined = join(&ranges, gap);
            let is_apart = |pair: &[Range<u64>]| pair[0].end + gap < pair[1].start;
            prop_assert!(joined.windows(2).all(is_apart), "{joined:?}");
            let read: Vec<_> = joined.iter().map(of_file).collect();
            for range in &ranges {
                prop_assert_eq!(part(&joined, &read, range), of_file(range));
            }
        }
    }
}
