//! Retention: which segments go, oldest first, and how one goes.
//!
//! For size dead letters go before lines: who sends what is none removes nobody's lines by it.
//! A segment that is written to never goes. Of the last one of a stream the index stays, since it
//! knows the number of the next line. Of a stream they go in their order, whatever the clock said when
//! they ended: what is left is its end, and a gap in it is a loss.
//!
//! Before the lines go that is recorded in the head of the index, so that lines that went for another
//! reason are told as lost. A head is 64 bytes in one sector, which is written whole or not.

use std::{cmp::Reverse, path::Path, time::Duration};

use ringwise::{ErrorKind, Local, OpenOptions, Operation};

use super::{
    call::{is_space, open_directory, read, run, sync, write_all},
    entry::{ENTRY_BYTES, Entry, Kind, REMOVED},
    name::{Content, Part, Stream},
};

/// How much is kept, and for how long; nothing set is for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Bytes of all files of all segments.
    pub(crate) bytes: Option<u64>,
    /// Bytes of those of dead letters.
    pub(crate) dead_bytes: Option<u64>,
    /// Since a segment was sealed.
    pub(crate) age: Option<Duration>,
}

/// A segment as retention sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) stream: Stream,
    pub(crate) serial: u64,
    /// Of all of its files.
    pub(crate) bytes: u64,
    /// When it ended, in milliseconds since 1970; nothing if it may be written to.
    pub(crate) ended_ms: Option<u64>,
    /// Whether it has lines, packed or not.
    pub(crate) has_lines: bool,
    /// Whether its head says that its lines go: that was cut short.
    pub(crate) is_marked: bool,
    /// Whether no other of its stream comes after it.
    pub(crate) is_last: bool,
}

/// Those of all, which come in the order of their streams, that are to go, oldest first. `age_ms`: how
/// long ago that was, by a time in milliseconds since 1970.
pub(crate) fn overdue(all: &[Kept], policy: Policy, age_ms: impl Fn(u64) -> u64) -> Vec<Kept> {
    let is_dead = |one: &Kept| one.stream.content == Content::DeadLetters;
    let mut total: u64 = all.iter().map(|one| one.bytes).sum();
    let mut dead: u64 = all.iter().filter(|one| is_dead(one)).map(|one| one.bytes).sum();
    let ended = in_order(all);
    let mut ended: Vec<&Kept> = ended.iter().filter(|one| one.ended_ms.is_some()).collect();
    let is_old = |one: &Kept| {
        let age_ms = one.ended_ms.map_or(0, &age_ms);
        policy.age.is_some_and(|age| u128::from(age_ms) > age.as_millis())
    };
    // Those that go for their age make room before any goes for size.
    ended.sort_by_key(|one| {
        (!is_old(one), Reverse(one.stream.content), one.ended_ms, one.stream, one.serial)
    });
    let mut overdue = Vec::new();
    for one in ended {
        let is_old = is_old(one);
        let is_much = policy.bytes.is_some_and(|bytes| total > bytes)
            || is_dead(one) && policy.dead_bytes.is_some_and(|bytes| dead > bytes);
        // Of one that is over, and whose index stays, there is nothing more to remove.
        let is_left = one.is_last && !one.has_lines;
        if (is_old || is_much || one.is_marked) && !is_left {
            total -= one.bytes;
            dead -= if is_dead(one) { one.bytes } else { 0 };
            overdue.push(*one);
        }
    }
    overdue
}

/// The same, none of which ended before one that comes before it in its stream, as it may seem to where
/// the clock was set back.
fn in_order(all: &[Kept]) -> Vec<Kept> {
    let mut before: Option<Kept> = None;
    let ended = all.iter().map(|one| {
        let latest =
            before.filter(|before| before.stream == one.stream).and_then(|one| one.ended_ms);
        let ordered =
            Kept { ended_ms: one.ended_ms.map(|own| own.max(latest.unwrap_or(0))), ..*one };
        before = Some(ordered);
        ordered
    });
    ended.collect()
}

/// Records that a segment's lines go. One without an index, or without a head in it, has none that
/// were acknowledged, or is damaged anyway.
fn mark(local: &mut Local, index: &Path) -> Result<(), ringwise::Error> {
    let options = OpenOptions::new().read(true).write(true);
    let index = match run(local, || Operation::open(index, options)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?.into_descriptor()?,
    };
    let mut bytes = Vec::new();
    read(local, &index, 0, ENTRY_BYTES as u64, |more| bytes.extend_from_slice(more))?;
    let Some(head) = Entry::decode(&bytes).filter(|entry| entry.kind == Kind::Head) else {
        return Ok(());
    };
    if head.flags & REMOVED != 0 {
        return Ok(());
    }
    let marked = Entry { flags: head.flags | REMOVED, ..head };
    write_all(local, &index, &marked.encode(), 0)?;
    sync(local, &index)
}

/// Removes a segment: first the lines, which the index's head has to say before, and when that is
/// durable the index.
///
/// # Errors
///
/// What a call failed with. Doing it again goes on where it ended.
pub(crate) fn remove(
    local: &mut Local,
    directory: &Path,
    segment: &Kept,
) -> Result<(), ringwise::Error> {
    let index = directory.join(segment.stream.file(segment.serial, Part::Index));
    // Where even that takes space (a file system that never writes in place) there is some afterwards.
    let is_late = match mark(local, &index) {
        Err(error) if is_space(&error) => true,
        marked => marked.map(|()| false)?,
    };
    let mut unlink = |part| {
        let path = directory.join(segment.stream.file(segment.serial, part));
        match run(local, || Operation::unlink(&path)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    };
    for part in [Part::Data, Part::Packed, Part::Torn] {
        unlink(part)?;
    }
    if is_late {
        mark(local, &index)?;
    }
    if segment.is_last {
        return Ok(());
    }
    let handle = open_directory(local, directory)?;
    sync(local, &handle)?;
    match run(local, || Operation::unlink(&index)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::name::Content;

    fn kept(number: u32, serial: u64, ended_ms: Option<u64>, is_last: bool) -> Kept {
        let stream = Stream { content: Content::Lines, number };
        Kept { stream, serial, bytes: 100, ended_ms, has_lines: true, is_marked: false, is_last }
    }

    fn serials(all: &[Kept], policy: Policy, now_ms: u64) -> Vec<(u32, u64)> {
        let overdue = overdue(all, policy, |ended_ms| now_ms.saturating_sub(ended_ms));
        overdue.iter().map(|one| (one.stream.number, one.serial)).collect()
    }

    #[test]
    fn the_oldest_of_all_streams_go_first_and_one_that_is_open_never() {
        let all = [
            kept(0, 0, Some(1000), false),
            kept(0, 1, Some(3000), false),
            kept(0, 2, None, true),
            kept(1, 7, Some(2000), false),
            kept(1, 8, Some(4000), true),
        ];
        let bytes = |bytes| Policy { bytes: Some(bytes), ..Policy::default() };
        assert_eq!(serials(&all, bytes(500), 9000), []);
        assert_eq!(serials(&all, bytes(499), 9000), [(0, 0)]);
        assert_eq!(serials(&all, bytes(250), 9000), [(0, 0), (1, 7), (0, 1)]);
        assert_eq!(serials(&all, bytes(0), 9000).len(), 4);
        let age = Policy { bytes: None, dead_bytes: None, age: Some(Duration::from_millis(6500)) };
        assert_eq!(serials(&all, age, 9000), [(0, 0), (1, 7)]);
        // A clock that was set back makes nothing old.
        assert_eq!(serials(&all, age, 0), []);
        assert_eq!(serials(&all, Policy::default(), u64::MAX), []);
    }

    #[test]
    fn for_size_dead_letters_go_before_lines() {
        let stream = Stream { content: Content::DeadLetters, number: 0 };
        let letters = |serial, ended| Kept { stream, ..kept(0, serial, Some(ended), false) };
        let all = [
            kept(0, 0, Some(1000), false),
            kept(0, 1, Some(2000), false),
            letters(7, 5000),
            letters(8, 4000),
        ];
        let policy = |bytes, age| Policy { bytes: Some(bytes), dead_bytes: None, age };
        assert_eq!(serials(&all, policy(399, None), 9000), [(0, 7)]);
        assert_eq!(serials(&all, policy(199, None), 9000), [(0, 7), (0, 8), (0, 0)]);
        let dead = |bytes| Policy { dead_bytes: Some(bytes), ..Policy::default() };
        assert_eq!(serials(&all, dead(200), 9000), []);
        assert_eq!(serials(&all, dead(199), 9000), [(0, 7)], "no lines, however many there are");
        assert_eq!(serials(&all, dead(0), 9000), [(0, 7), (0, 8)]);
        // One that goes for its age makes the room.
        let age = Some(Duration::from_millis(7500));
        assert_eq!(serials(&all, policy(300, age), 9000), [(0, 0)]);
    }

    /// The clock was set back between the two: the second went first, and left a gap like a loss.
    #[test]
    fn of_a_stream_they_go_in_their_order_whatever_the_clock_said() {
        let all = [
            kept(0, 0, Some(5000), false),
            kept(0, 1, Some(1000), false),
            kept(0, 2, None, true),
            kept(1, 0, Some(3000), false),
        ];
        let bytes = |bytes| Policy { bytes: Some(bytes), ..Policy::default() };
        assert_eq!(serials(&all, bytes(300), 9000), [(1, 0)]);
        assert_eq!(serials(&all, bytes(100), 9000), [(1, 0), (0, 0), (0, 1)]);
        let age = Policy { bytes: None, dead_bytes: None, age: Some(Duration::from_millis(4500)) };
        assert_eq!(serials(&all, age, 9000), [(1, 0)]);
        assert_eq!(serials(&all, age, 10_000), [(1, 0), (0, 0), (0, 1)]);
    }

    #[test]
    fn what_was_removed_halfway_is_removed_and_what_is_left_stays() {
        let marked = Kept { is_marked: true, ..kept(0, 0, Some(1000), false) };
        let half = Kept { has_lines: false, serial: 1, ..marked };
        // Its lines are lost, and the index is all that tells of them.
        let lost = Kept { has_lines: false, ..kept(0, 2, Some(1000), false) };
        let left = Kept { has_lines: false, is_marked: true, ..kept(1, 0, Some(1000), true) };
        assert_eq!(serials(&[marked, half, lost, left], Policy::default(), 1000), [(0, 0), (0, 1)]);
        let all = Policy { bytes: Some(0), dead_bytes: None, age: Some(Duration::ZERO) };
        let gone = [(0, 0), (0, 1), (0, 2)];
        assert_eq!(serials(&[marked, half, lost, left], all, 9000), gone);
    }
}
