//! The bytes of one simulated file: the current ones, and those that a crash may leave.
//!
//! A file has an image that reads see (the page cache), an image that is certainly on the disk, and
//! a list of the changes since the last sync. A disk writes a sector of 512 bytes as a whole. If
//! its cache is volatile, it may keep any of the unsynced versions of each sector, independently of
//! the other sectors. Changes of length and holes are metadata, which file systems keep in order. A
//! crash keeps the first few of these changes, and only the data that they reach.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use crate::sim::random::Random;

/// The bytes of a sector, which a disk writes as a whole.
pub(crate) const SECTOR: u64 = 512;

type Sector = Arc<[u8; SECTOR as usize]>;

/// A file's bytes at one moment. Missing sectors are zeros.
#[derive(Clone, Debug, Default)]
struct Image {
    sectors: BTreeMap<u64, Sector>,
    len: u64,
}

impl Image {
    fn sector(&self, number: u64) -> Sector {
        self.sectors.get(&number).cloned().unwrap_or_else(|| Arc::new([0; SECTOR as usize]))
    }

    /// Makes a range of bytes read as zeros.
    fn zero(&mut self, range: &Range<u64>) {
        let whole = range.start.div_ceil(SECTOR)..range.end / SECTOR;
        if whole.start < whole.end {
            let kept_after = self.sectors.split_off(&whole.start).split_off(&whole.end);
            self.sectors.extend(kept_after);
        }
        for number in edges(range) {
            if let Some(sector) = self.sectors.get_mut(&number) {
                zero_within(sector, number, range);
            }
        }
    }

    /// Sets the length. Bytes beyond it are gone.
    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(&(len..u64::MAX));
        }
        self.len = len;
    }
}

/// Returns the sectors at the ends of a range, which it may cover only in part.
fn edges(range: &Range<u64>) -> [u64; 2] {
    [range.start / SECTOR, range.end / SECTOR]
}

/// Zeros the part of a sector that a range covers.
fn zero_within(sector: &mut Sector, number: u64, range: &Range<u64>) {
    let first = number * SECTOR;
    let start = range.start.clamp(first, first + SECTOR) - first;
    let end = range.end.clamp(first, first + SECTOR) - first;
    if start < end {
        Arc::make_mut(sector)[start as usize..end as usize].fill(0);
    }
}

/// A change of a file since its last sync.
#[derive(Clone, Debug)]
enum Event {
    Data { number: u64, sector: Sector },
    Grow(u64),
    Cut(u64),
    Hole(Range<u64>),
}

impl Event {
    /// Returns the bytes that read as zeros after this change.
    fn zeroed(&self) -> Option<Range<u64>> {
        match self {
            Event::Cut(len) => Some(*len..u64::MAX),
            Event::Hole(range) => Some(range.clone()),
            Event::Data { .. } | Event::Grow(_) => None,
        }
    }
}

/// One file's bytes.
#[derive(Debug, Default)]
pub(crate) struct Content {
    now: Image,
    durable: Image,
    unsynced: Vec<Event>,
    /// The number of events above which the oldest are thinned out.
    thin_at: usize,
}

/// What a crash left of an unsynced file, for the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remains {
    /// The number of sectors with unsynced bytes, and how many of them kept some of these bytes.
    pub(crate) unsynced: usize,
    pub(crate) kept: usize,
    pub(crate) len_before: u64,
    pub(crate) len: u64,
}

/// The number of latest events that are never thinned out.
const EVENTS_KEPT: usize = 4096;

impl Content {
    pub(crate) fn len(&self) -> u64 {
        self.now.len
    }

    /// Returns the number of sectors that hold data, in whole blocks of 4096 bytes.
    pub(crate) fn sectors(&self) -> u64 {
        const SECTORS_OF_BLOCK: u64 = 8;
        let mut blocks: Vec<u64> =
            self.now.sectors.keys().map(|number| number / SECTORS_OF_BLOCK).collect();
        blocks.dedup();
        blocks.len() as u64 * SECTORS_OF_BLOCK
    }

    /// Returns the bytes from `offset`, at most `len`.
    pub(crate) fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.now.len);
        let mut bytes = vec![0; end.saturating_sub(offset) as usize];
        if bytes.is_empty() {
            return bytes;
        }
        for (number, sector) in self.now.sectors.range(offset / SECTOR..=(end - 1) / SECTOR) {
            let first = number * SECTOR;
            let (from, to) = (offset.max(first), end.min(first + SECTOR));
            let part = &sector[(from - first) as usize..(to - first) as usize];
            bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
        }
        bytes
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let number = at / SECTOR;
            let first = number * SECTOR;
            let to = end.min(first + SECTOR);
            let mut sector = self.now.sector(number);
            let part = &bytes[(at - offset) as usize..(to - offset) as usize];
            Arc::make_mut(&mut sector)[(at - first) as usize..(to - first) as usize]
                .copy_from_slice(part);
            self.now.sectors.insert(number, sector.clone());
            self.note(Event::Data { number, sector });
            at = to;
        }
        if end > self.now.len && !bytes.is_empty() {
            self.now.len = end;
            self.note(Event::Grow(end));
        }
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        let event = if len < self.now.len { Event::Cut(len) } else { Event::Grow(len) };
        if len != self.now.len {
            self.now.set_len(len);
            self.note(event);
        }
    }

    /// Makes a range read as zeros without changing the length.
    pub(crate) fn punch(&mut self, range: Range<u64>) {
        self.now.zero(&range);
        self.note(Event::Hole(range));
    }

    /// Puts all changes on the disk.
    pub(crate) fn sync(&mut self) {
        for event in self.unsynced.drain(..) {
            match event {
                Event::Data { number, sector } => {
                    self.durable.sectors.insert(number, sector);
                }
                Event::Grow(len) => self.durable.len = len,
                Event::Cut(len) => self.durable.set_len(len),
                Event::Hole(range) => self.durable.zero(&range),
            }
        }
        // After a failed sync the length on the disk may differ. Synced data must lie within it.
        self.durable.len = self.now.len;
    }

    /// Fails a sync. The disk keeps what it happened to write before, and the rest is never
    /// written.
    pub(crate) fn lose(&mut self, random: &mut Random) -> Option<Remains> {
        if self.unsynced.is_empty() {
            return None;
        }
        let (durable, kept, unsynced) = self.survivor(random);
        self.durable = durable;
        self.unsynced.clear();
        Some(Remains { unsynced, kept, len_before: self.now.len, len: self.durable.len })
    }

    /// Loses what the disk does not have, because the power fails. Returns the remains if the file
    /// was not synced.
    pub(crate) fn crash(&mut self, random: &mut Random) -> Option<Remains> {
        let remains = self.lose(random);
        self.now = self.durable.clone();
        remains
    }

    fn note(&mut self, event: Event) {
        self.unsynced.push(event);
        if self.unsynced.len() > self.thin_at.max(2 * EVENTS_KEPT) {
            self.thin_out();
            self.thin_at = 2 * self.unsynced.len();
        }
    }

    /// Forgets old versions that newer ones replaced, so that a file that is never synced does not
    /// take memory without end. A disk could still keep any of the versions that are left.
    fn thin_out(&mut self) {
        let old = self.unsynced.len() - EVENTS_KEPT;
        let mut keep = vec![true; self.unsynced.len()];
        let mut newer = BTreeMap::new();
        for at in (0..old).rev() {
            match &self.unsynced[at] {
                Event::Data { number, .. } => keep[at] = newer.insert(Some(*number), ()).is_none(),
                Event::Grow(_) => keep[at] = newer.insert(None, ()).is_none(),
                Event::Cut(_) | Event::Hole(_) => newer.clear(),
            }
        }
        let mut keep = keep.into_iter();
        self.unsynced.retain(|_| keep.next().unwrap_or(true));
    }

    /// Picks one of the images that the disk may hold now. Also returns how many sectors of
    /// unsynced bytes it has, and how many there were.
    fn survivor(&self, random: &mut Random) -> (Image, usize, usize) {
        let survival = survival(random);
        let metadata = self.metadata_kept(random);
        let mut versions = Versions::default();
        let mut image = self.durable.clone();
        for event in &self.unsynced[..metadata] {
            match event {
                Event::Data { number, sector } => versions.add(*number, sector),
                Event::Grow(len) => image.len = *len,
                Event::Cut(len) => image.set_len(*len),
                Event::Hole(range) => image.zero(range),
            }
            if let Some(range) = event.zeroed() {
                versions.zero(&range);
            }
        }
        // Data in place needs no metadata, unless an earlier event freed its sectors.
        let mut gone: Vec<Range<u64>> = Vec::new();
        for event in &self.unsynced[metadata..] {
            if let Event::Data { number, sector } = event {
                let bytes = number * SECTOR..(number + 1) * SECTOR;
                if gone.iter().all(|gone| gone.end <= bytes.start || bytes.end <= gone.start) {
                    versions.add(*number, sector);
                }
            }
            gone.extend(event.zeroed());
        }
        let (mut kept, unsynced) = (0, versions.0.len());
        for (number, versions) in versions.0 {
            if random.chance(survival) {
                kept += 1;
                image.sectors.insert(number, one_of(&versions, random));
            }
        }
        let len = image.len;
        image.zero(&(len..u64::MAX));
        (image, kept, unsynced)
    }

    /// Picks how many events have their metadata on the disk. Later events have none there.
    fn metadata_kept(&self, random: &mut Random) -> usize {
        let all = self.unsynced.len();
        match random.below(4) {
            0 => 0,
            1 => random.below(all as u64 + 1) as usize,
            _ => all,
        }
    }
}

/// Picks the probability that a disk kept something. It is often near 0 or near 1, since programs
/// break there.
pub(super) fn survival(random: &mut Random) -> f64 {
    [0.0, 0.1, 0.5, 0.9, 1.0][random.below(5) as usize]
}

/// The unsynced versions of each sector that the disk may hold.
#[derive(Default)]
struct Versions(BTreeMap<u64, Vec<Sector>>);

impl Versions {
    fn add(&mut self, number: u64, sector: &Sector) {
        self.0.entry(number).or_default().push(sector.clone());
    }

    fn zero(&mut self, range: &Range<u64>) {
        self.0.retain(|number, _| {
            let bytes = number * SECTOR..(number + 1) * SECTOR;
            bytes.start < range.start || range.end < bytes.end
        });
        for number in edges(range) {
            for sector in self.0.get_mut(&number).into_iter().flatten() {
                zero_within(sector, number, range);
            }
        }
    }
}

/// Picks one version: the last one half of the time, since a disk mostly gets there.
fn one_of(versions: &[Sector], random: &mut Random) -> Sector {
    let last = versions.len() - 1;
    let at = if random.chance(0.5) { last } else { random.below(versions.len() as u64) as usize };
    versions[at].clone()
}

#[cfg(test)]
mod tests;
