//! Which segments have lines that are still to be shipped, or are still to be uploaded. It reads no files.

use std::sync::Arc;

use crate::{
    disk::segment::{
        format::name::{Content, Stream},
        retention::Kept,
    },
    ship::progress::Streams,
    upload::progress::{Uploads, Waiting},
};

/// How long a segment may wait for its seal, or to be packed, before its upload stops waiting for that.
const SETTLE_MS: u64 = 60_000;

/// Where copies of lines go, if anywhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    /// How far streams are shipped.
    pub(crate) shipped: Option<Arc<Streams>>,
    /// What is uploaded.
    pub(crate) uploads: Option<Arc<Uploads>>,
}

/// Lists the ended segments that are still to be uploaded. `is_settled` tells whether a segment is sealed, and packed if
/// it will be.
pub(super) fn waiting(
    kept: &[Kept],
    is_settled: impl Fn(&Kept) -> bool,
    age_ms: impl Fn(u64) -> u64,
) -> Vec<Waiting> {
    let of = |one: &Kept| {
        let ended_ms = one.ended_ms.filter(|_| one.is_unuploaded && !one.is_marked)?;
        let is_ready = is_settled(one) || age_ms(ended_ms) > SETTLE_MS;
        Some(Waiting { segment: (one.stream, one.serial), bytes: one.bytes, ended_ms, is_ready })
    };
    kept.iter().filter_map(of).collect()
}

/// Marks the segments with lines that are not shipped. `lines` has each segment's first line and the line after its
/// last one, as far as they are known.
pub(super) fn find_unshipped(
    kept: &mut [Kept],
    lines: &[(Option<u64>, Option<u64>)],
    shipped: &Streams,
) {
    let mut next: Option<(Stream, u64)> = None;
    for (one, (first, end)) in kept.iter_mut().zip(lines).rev() {
        // A segment that failed has no seal. It ends where the next one begins.
        let after = next.filter(|(stream, _)| *stream == one.stream).map(|(_, line)| line);
        let is_shipped = |end: u64| end <= shipped.of(one.stream.number).kept();
        let is_lines = one.stream.content == Content::Lines && one.has_lines;
        one.is_unshipped = is_lines && end.or(after).is_some_and(|end| !is_shipped(end));
        next = first.or(after).map(|line| (one.stream, line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is not shipped is known by lines: of a sealed segment by its seal, of another by the segment after it.
    #[test]
    fn segments_with_lines_that_are_not_shipped_are_found() {
        let of = |content, number, serial, has_lines| Kept {
            stream: Stream { content, number },
            serial,
            bytes: 1,
            ended_ms: Some(1),
            has_lines,
            is_marked: false,
            is_last: false,
            is_unshipped: false,
            is_unuploaded: false,
            keeps_index: false,
            tenants: Vec::new(),
        };
        let lines = |serial, has_lines| of(Content::Lines, 0, serial, has_lines);
        let mut kept = [
            // Of lines 0 to 9, 10 to 19 and so on.
            lines(0, true),
            lines(1, true),
            lines(2, true),
            // Only its index is left.
            lines(3, false),
            // The last one is open.
            lines(4, true),
            of(Content::Lines, 1, 0, true),
            of(Content::DeadLetters, 0, 0, true),
        ];
        let known = [
            (Some(0), Some(10)),
            // It failed.
            (Some(10), None),
            // Its head is damaged too.
            (None, None),
            (Some(30), Some(40)),
            (Some(40), None),
            (Some(0), Some(5)),
            (Some(0), Some(5)),
        ];
        let shipped = Streams::default();
        let mut found = |line| {
            shipped.of(0).keep(line);
            find_unshipped(&mut kept, &known, &shipped);
            kept.iter().map(|one| u8::from(one.is_unshipped)).collect::<Vec<_>>()
        };
        assert_eq!(found(0), [1, 1, 1, 0, 0, 1, 0]);
        assert_eq!(found(9), [1, 1, 1, 0, 0, 1, 0]);
        assert_eq!(found(10), [0, 1, 1, 0, 0, 1, 0]);
        // That the third begins at line 20 is not known, so the second is taken to end where the fourth begins.
        assert_eq!(found(29), [0, 1, 1, 0, 0, 1, 0]);
        assert_eq!(found(30), [0, 0, 0, 0, 0, 1, 0]);
        shipped.of(1).keep(5);
        assert_eq!(found(30), [0; 7]);
    }
}
