//! Retention: which segments are removed, and how.
//!
//! The oldest segments are removed first. If the files are too large, dead letters are removed before lines, so that a
//! client that sends garbage does not cost others their lines. The segments of a stream are removed in their order even
//! if the clock was set back, because a gap counts as a loss. The open segment stays. The index of a stream's last
//! segment stays too, because it has the number of the next line. A segment with lines of several tenants expires when
//! the lines of each tenant have expired by that tenant's rule. If an older segment has not expired then, the index
//! stays until that one is removed, so that there is no gap.
//!
//! Lines that are still to be shipped or uploaded do not expire. The limit of size holds for them too, after all others.
//!
//! Before a segment's lines are removed, the head of its index records the removal. `verify` reports any other missing
//! file as a loss. A head is 64 bytes within one sector, and a sector is written whole or not at all.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, HashSet},
    path::Path,
    time::Duration,
};

use ringwise::{ErrorKind, Local, OpenOptions};

use super::call::{is_space, open, read_all, sync, sync_directory, unlink, write_all};
use crate::{
    clients::tenants::Tenants,
    disk::segment::format::{
        entry::{ENTRY_BYTES, Entry, Kind, REMOVED},
        name::{Content, Part, Stream},
    },
};

/// How much is kept, and for how long. Without any limit everything is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Bytes of the files of all segments.
    pub(crate) bytes: Option<u64>,
    /// Bytes of the files of dead letters.
    pub(crate) dead_bytes: Option<u64>,
    /// Time since a segment was sealed.
    pub(crate) age: Option<Duration>,
}

/// The facts about a segment that retention needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) stream: Stream,
    pub(crate) serial: u64,
    /// Size of all its files.
    pub(crate) bytes: u64,
    /// When it ended, in milliseconds since 1970; nothing if it is open.
    pub(crate) ended_ms: Option<u64>,
    /// Whether it has a file of lines, packed or not.
    pub(crate) has_lines: bool,
    /// Whether its head says that its lines are removed. The removal was then interrupted.
    pub(crate) is_marked: bool,
    /// Whether it is the last of its stream.
    pub(crate) is_last: bool,
    /// Whether it has lines that are still to be shipped.
    pub(crate) is_unshipped: bool,
    /// Whether it is still to be uploaded.
    pub(crate) is_unuploaded: bool,
    /// Whether its index stays when its lines are removed. [`overdue`] decides this.
    pub(crate) keeps_index: bool,
    /// Bytes of lines of each tenant, by the tenant's place in the list. Empty if tenants have no rules.
    pub(crate) tenants: Vec<(usize, u64)>,
}

impl Kept {
    /// Whether somebody waits for it.
    fn is_awaited(&self) -> bool {
        self.is_unshipped || self.is_unuploaded
    }
}

/// Lists the segments to remove, oldest first. `all` is ordered by stream. `age_ms` returns the age of a time in
/// milliseconds since 1970.
pub(crate) fn overdue(
    all: &[Kept],
    policy: Policy,
    tenants: &Tenants,
    age_ms: impl Fn(u64) -> u64,
) -> Vec<Kept> {
    let is_dead = |one: &Kept| one.stream.content == Content::DeadLetters;
    let mut total: u64 = all.iter().map(|one| one.bytes).sum();
    let mut dead: u64 = all.iter().filter(|one| is_dead(one)).map(|one| one.bytes).sum();
    let ended = in_order(all);
    let mut ended: Vec<&Kept> = ended.iter().filter(|one| one.ended_ms.is_some()).collect();
    let old = expired(&mut ended, policy.age, tenants, age_ms);
    let is_old = |one: &Kept| old.contains(&(one.stream, one.serial));
    // Expired segments come before segments that are removed for their size, and those that nobody waits for before
    // others.
    ended.sort_by_key(|one| {
        let kind = (!is_old(one), one.is_awaited(), Reverse(one.stream.content));
        (kind, one.ended_ms, one.stream, one.serial)
    });
    // The segments of each stream that are left.
    let mut left: HashMap<Stream, BTreeSet<u64>> = HashMap::new();
    for one in all {
        left.entry(one.stream).or_default().insert(one.serial);
    }
    let mut overdue = Vec::new();
    for one in ended {
        let is_old = is_old(one);
        let is_much = policy.bytes.is_some_and(|bytes| total > bytes)
            || is_dead(one) && policy.dead_bytes.is_some_and(|bytes| dead > bytes);
        let left = left.entry(one.stream).or_default();
        let keeps_index = one.is_last || left.first() != Some(&one.serial);
        // Only its index exists, and that stays.
        let is_left = keeps_index && !one.has_lines;
        if (is_old || is_much || one.is_marked) && !is_left {
            total -= one.bytes;
            dead -= if is_dead(one) { one.bytes } else { 0 };
            if !keeps_index {
                left.remove(&one.serial);
            }
            overdue.push(Kept { keeps_index, ..(*one).clone() });
        }
    }
    overdue
}

/// Finds the segments whose lines have all expired, each tenant's by its own rule.
fn expired(
    ended: &mut [&Kept],
    age_max: Option<Duration>,
    tenants: &Tenants,
    age_ms: impl Fn(u64) -> u64,
) -> HashSet<(Stream, u64)> {
    // The bytes of each tenant in segments that ended later.
    let mut later = vec![0; tenants.accounts().len()];
    let mut expired = HashSet::new();
    ended.sort_by_key(|one| Reverse((one.ended_ms, one.serial)));
    for one in ended {
        let age_ms = u128::from(one.ended_ms.map_or(0, &age_ms));
        let is_old = |most: Option<Duration>| most.is_some_and(|most| age_ms > most.as_millis());
        let is_over = |(place, bytes): &(usize, u64)| {
            let keep = tenants.keep(*place);
            is_old(keep.age.or(age_max))
                || keep.bytes.is_some_and(|most| later[*place] + bytes > most)
        };
        // Lines of unknown tenants follow the rule for all.
        let is_known = !one.tenants.is_empty();
        let is_expired =
            (is_known && one.tenants.iter().all(is_over)) || (!is_known && is_old(age_max));
        if is_expired && !one.is_awaited() {
            expired.insert((one.stream, one.serial));
        }
        one.tenants.iter().for_each(|(place, bytes)| later[*place] += bytes);
    }
    expired
}

/// Puts the end times of each stream in order, in case the clock was set back.
fn in_order(all: &[Kept]) -> Vec<Kept> {
    let mut latest: Option<(Stream, u64)> = None;
    let ordered = all.iter().map(|one| {
        let before =
            latest.filter(|(stream, _)| *stream == one.stream).map_or(0, |(_, ended)| ended);
        let ended_ms = one.ended_ms.map(|own| own.max(before));
        latest = Some((one.stream, ended_ms.unwrap_or(0)));
        Kept { ended_ms, ..one.clone() }
    });
    ordered.collect()
}

/// Records the removal of a segment's lines in its head. A segment without a head has no acknowledged lines, or is
/// damaged.
fn mark(local: &mut Local, index: &Path) -> Result<(), ringwise::Error> {
    let options = OpenOptions::new().read(true).write(true);
    let index = match open(local, index, options) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let bytes = read_all(local, &index, 0, ENTRY_BYTES as u64)?;
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

/// Removes a segment. It marks the head, removes the lines and, when that is durable, the index, unless that stays.
///
/// # Errors
///
/// The error of a syscall. Another call continues the removal.
pub(crate) fn remove(
    local: &mut Local,
    directory: &Path,
    segment: &Kept,
) -> Result<(), ringwise::Error> {
    let index = directory.join(segment.stream.file(segment.serial, Part::Index));
    // A file system that does not write in place may have no space for the mark until lines are removed.
    let is_late = match mark(local, &index) {
        Err(error) if is_space(&error) => true,
        marked => marked.map(|()| false)?,
    };
    for part in [Part::Data, Part::Packed, Part::Packing, Part::Torn, Part::Uploaded] {
        unlink(local, &directory.join(segment.stream.file(segment.serial, part)))?;
    }
    if is_late {
        mark(local, &index)?;
    }
    if segment.keeps_index {
        return Ok(());
    }
    sync_directory(local, directory)?;
    unlink(local, &index)
}

#[cfg(test)]
mod tests {
    use ringwise::BackendChoice;

    use super::*;
    use crate::disk::segment::{
        format::name::Content,
        reading::{reader::verify, source::InDirectory},
        tests::write_one,
    };

    fn kept(number: u32, serial: u64, ended_ms: Option<u64>, is_last: bool) -> Kept {
        let stream = Stream { content: Content::Lines, number };
        let (has_lines, is_marked, keeps_index, bytes) = (true, false, false, 100);
        let tenants = Vec::new();
        Kept {
            stream,
            serial,
            bytes,
            ended_ms,
            has_lines,
            is_marked,
            is_last,
            is_unshipped: false,
            is_unuploaded: false,
            keeps_index,
            tenants,
        }
    }

    fn serials(all: &[Kept], policy: Policy, now_ms: u64) -> Vec<(u32, u64)> {
        serials_of(all, policy, &Tenants::new(&[]), now_ms)
    }

    fn serials_of(all: &[Kept], policy: Policy, tenants: &Tenants, now_ms: u64) -> Vec<(u32, u64)> {
        let overdue = overdue(all, policy, tenants, |ended_ms| now_ms.saturating_sub(ended_ms));
        overdue.iter().map(|one| (one.stream.number, one.serial)).collect()
    }

    #[test]
    fn the_oldest_segments_of_all_streams_go_first_and_an_open_one_never() {
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
        // A clock that was set back makes no segment old.
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
        assert_eq!(
            serials(&all, dead(199), 9000),
            [(0, 7)],
            "the limit of dead letters removes no lines"
        );
        assert_eq!(serials(&all, dead(0), 9000), [(0, 7), (0, 8)]);
        // Removing one for its age makes enough room.
        let age = Some(Duration::from_millis(7500));
        assert_eq!(serials(&all, policy(300, age), 9000), [(0, 0)]);
    }

    /// The clock was set back between two segments. The second was removed first and left a gap, which looked like a
    /// loss.
    #[test]
    fn segments_of_a_stream_go_in_order_even_if_the_clock_was_set_back() {
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

    /// Kafka is away: its lines wait for it, up to the limit of size. So do lines for object storage.
    #[test]
    fn lines_that_are_to_be_shipped_or_uploaded_go_last_and_only_for_size() {
        awaited_go_last(&|one| Kept { is_unshipped: true, ..one });
        awaited_go_last(&|one| Kept { is_unuploaded: true, ..one });
    }

    fn awaited_go_last(awaited: &dyn Fn(Kept) -> Kept) {
        let all = [
            awaited(kept(0, 0, Some(1000), false)),
            awaited(kept(0, 1, Some(2000), false)),
            kept(1, 0, Some(3000), false),
            awaited(kept(1, 1, Some(4000), false)),
        ];
        let age = Policy { age: Some(Duration::ZERO), ..Policy::default() };
        assert_eq!(serials(&all, age, 9000), [(1, 0)]);
        let bytes = |bytes| Policy { bytes: Some(bytes), ..Policy::default() };
        assert_eq!(serials(&all, bytes(300), 9000), [(1, 0)]);
        assert_eq!(serials(&all, bytes(200), 9000), [(1, 0), (0, 0)]);
        let rules = ["short,retain-age=1s"];
        let tenants = Tenants::new(&rules.map(|text| crate::clients::tenants::rule(text).unwrap()));
        let of_tenant = |one: Kept| Kept { tenants: vec![(0, 5)], ..one };
        let all = [of_tenant(all[2].clone()), of_tenant(all[3].clone())];
        assert_eq!(serials_of(&all, Policy::default(), &tenants, 90_000), [(1, 0)]);
    }

    #[test]
    fn what_has_a_copy_goes_before_dead_letters_that_have_none() {
        let letters = |serial, is_unuploaded| {
            let stream = Stream { content: Content::DeadLetters, number: 0 };
            Kept { stream, is_unuploaded, ..kept(0, serial, Some(1000), false) }
        };
        let all = [kept(0, 0, Some(2000), false), letters(0, true), letters(1, false)];
        let bytes = |bytes| Policy { bytes: Some(bytes), ..Policy::default() };
        let gone = |policy| {
            let gone = overdue(&all, policy, &Tenants::new(&[]), |_| 0);
            gone.iter().map(|one| (one.stream.content, one.serial)).collect::<Vec<_>>()
        };
        let order = [(Content::DeadLetters, 1), (Content::Lines, 0), (Content::DeadLetters, 0)];
        assert_eq!(gone(bytes(0)), order);
        let dead = |bytes| Policy { dead_bytes: Some(bytes), ..Policy::default() };
        assert_eq!(gone(dead(100)), [(Content::DeadLetters, 1)]);
        assert_eq!(gone(dead(99)), [(Content::DeadLetters, 1), (Content::DeadLetters, 0)]);
    }

    #[test]
    fn an_interrupted_removal_is_finished_and_the_last_index_stays() {
        let marked = Kept { is_marked: true, ..kept(0, 0, Some(1000), false) };
        let half = Kept { has_lines: false, serial: 1, ..marked.clone() };
        // The lines of this segment are lost, and only its index shows it.
        let lost = Kept { has_lines: false, ..kept(0, 2, Some(1000), false) };
        let left = Kept { has_lines: false, is_marked: true, ..kept(1, 0, Some(1000), true) };
        let kept = [marked, half, lost, left];
        assert_eq!(serials(&kept, Policy::default(), 1000), [(0, 0), (0, 1)]);
        let all = Policy { bytes: Some(0), dead_bytes: None, age: Some(Duration::ZERO) };
        let gone = [(0, 0), (0, 1), (0, 2)];
        assert_eq!(serials(&kept, all, 9000), gone);
    }

    #[test]
    fn a_segment_goes_when_the_lines_of_all_tenants_in_it_have_expired() {
        let rules = ["short,retain-age=1s", "long,retain-age=5s", "small,retain-size=150"];
        let tenants = Tenants::new(&rules.map(|text| crate::clients::tenants::rule(text).unwrap()));
        let of = |serial, ended_ms, shares: &[(usize, u64)]| Kept {
            tenants: shares.to_vec(),
            ..kept(0, serial, Some(ended_ms), false)
        };
        let (short, long, small, other) = (0, 1, 2, 3);
        let policy = Policy { age: Some(Duration::from_secs(3)), ..Policy::default() };
        let gone = |all: &[Kept], now_ms| serials_of(all, policy, &tenants, now_ms);
        let mixed = [of(0, 1000, &[(short, 9), (long, 1)]), of(1, 1000, &[(short, 9)])];
        assert_eq!(gone(&mixed, 2000), []);
        assert_eq!(gone(&mixed, 2001), [(0, 1)]);
        assert_eq!(gone(&mixed, 6001), [(0, 0), (0, 1)]);
        // The index of a segment that is removed before an older one stays, until that one is removed.
        let removed = |all: &[Kept], now_ms| {
            let age_ms = |ended_ms| now_ms - ended_ms;
            let overdue = overdue(all, policy, &tenants, age_ms).into_iter();
            overdue.map(|one| (one.serial, one.keeps_index)).collect::<Vec<_>>()
        };
        let next = kept(0, 2, None, true);
        let [older, newer] = mixed.clone();
        let all = [older.clone(), newer, next.clone()];
        assert_eq!(removed(&all, 2001), [(1, true)]);
        assert_eq!(removed(&all, 6001), [(0, false), (1, false)]);
        let index = Kept { has_lines: false, is_marked: true, ..of(1, 1000, &[]) };
        assert_eq!(removed(&[older, index.clone(), next.clone()], 2001), []);
        assert_eq!(removed(&[index, next], 2001), [(1, false)]);
        // Lines of a tenant without a rule follow the rule for all, and so do lines without a recorded tenant.
        let others = [of(0, 1000, &[(other, 9)]), of(1, 1000, &[])];
        assert_eq!(gone(&others, 4000), []);
        assert_eq!(gone(&others, 4001), [(0, 0), (0, 1)]);
        // The newest lines that fit are kept.
        let sizes = [
            of(0, 1000, &[(small, 100)]),
            of(1, 1100, &[(small, 100)]),
            of(2, 1200, &[(small, 50)]),
        ];
        assert_eq!(gone(&sizes, 1300), [(0, 0)]);
    }

    /// A segment whose lines had all expired was removed while an older one stayed. `verify` and `cat` reported its
    /// lines as missing.
    #[test]
    fn a_segment_that_is_removed_before_an_older_one_is_no_loss() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let stream = kept(0, 0, None, false).stream;
        (0..3).for_each(|serial| write_one(directory, stream, serial));
        // A daemon ended while it packed it.
        std::fs::write(directory.join(stream.file(1, Part::Packing)), "half").unwrap();
        let mut local = Local::builder().backend(BackendChoice::Classic).build().unwrap();
        let tenants =
            Tenants::new(&[crate::clients::tenants::rule("short,retain-age=1s").unwrap()]);
        let shares = |place| vec![(place, 2)];
        let all = [
            Kept { tenants: shares(1), ..kept(0, 0, Some(1000), false) },
            Kept { tenants: shares(0), ..kept(0, 1, Some(1000), false) },
            kept(0, 2, None, true),
        ];
        for segment in overdue(&all, Policy::default(), &tenants, |_| 5000) {
            remove(&mut local, directory, &segment).unwrap();
        }
        let is_there = |serial, part| directory.join(stream.file(serial, part)).exists();
        assert!(is_there(0, Part::Data) && !is_there(1, Part::Data) && is_there(2, Part::Data));
        assert!(!is_there(1, Part::Packing));
        let segments = InDirectory::new(directory, stream, vec![0, 1, 2]);
        assert_eq!(verify(&segments, |_| Ok(())).unwrap(), Vec::<String>::new());
    }
}
