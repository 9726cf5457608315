//! A shipment: consecutive lines of a stream that a destination takes as one.
//!
//! It is cut from batches, which may be larger or smaller. The limits keep a shipment below one mebibyte in Kafka, with
//! all that is sent beside each line.

use std::{sync::Arc, vec::IntoIter};

use super::{destination::Reached, follower::Piece};
use crate::disk::segment::format::record::StoredPart;

/// The most bytes of lines, except that one line may be longer.
pub(crate) const BYTES_MAX: usize = 256 << 10;
/// The most lines.
pub(crate) const LINES_MAX: u64 = 4096;

/// Lines of a shipment from one sender, which arrived at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) tenant: Option<Arc<str>>,
    /// When they arrived, in milliseconds since 1970.
    pub(crate) time_ms: u64,
    pub(crate) lines: u64,
}

/// Consecutive lines of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shipment {
    pub(crate) first_line: u64,
    pub(crate) lines: u64,
    /// Its parts, which add up to its lines.
    pub(crate) parts: Vec<Part>,
    /// The lines, each with its line feed.
    pub(crate) bytes: Vec<u8>,
}

impl Shipment {
    /// Returns the number of the line after its last one.
    pub(crate) fn line_end(&self) -> u64 {
        self.first_line + self.lines
    }

    /// Returns how far a destination is that has it.
    pub(crate) fn end(&self) -> Reached {
        let lines = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
        let last = memchr::memrchr(b'\n', lines).map_or(lines, |before| &lines[before + 1..]);
        Reached { line: self.line_end(), checksum: Some(crc32fast::hash(last)) }
    }

    /// Returns each line without its line feed, with its part.
    #[cfg(test)]
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Part, &[u8])> {
        let mut rest = &self.bytes[..];
        let parts = self.parts.iter().flat_map(|part| (0..part.lines).map(move |_| part));
        parts.map(move |part| {
            let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            (part, line)
        })
    }
}

/// What is left of a batch.
pub(crate) struct Rest {
    bytes: Vec<u8>,
    at: usize,
    /// The number of the next line.
    line: u64,
    parts: IntoIter<StoredPart>,
    part: Option<StoredPart>,
}

impl Rest {
    /// Takes a batch, without the lines before `from`.
    pub(crate) fn new(piece: Piece, from: u64) -> Rest {
        let Piece { first_line, parts, bytes } = piece;
        let mut rest =
            Rest { bytes, at: 0, line: first_line, parts: parts.into_iter(), part: None };
        while rest.line < from && rest.take_line().is_some() {}
        rest
    }

    /// Returns the number of the next line.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Returns the bytes of the lines that are left.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Moves lines to a shipment. False means that the shipment is full and lines are left.
    pub(crate) fn fill(&mut self, shipment: &mut Shipment) -> bool {
        if shipment.lines == 0 {
            shipment.first_line = self.line;
        }
        while let Some(part) = self.part() {
            let (bytes, lines) = (part.bytes as usize, part.lines);
            let (tenant, time_ms) = (tenant_of(part), part.time_ms);
            let begin = self.at;
            let fits = |bytes: usize, lines: u64, shipment: &Shipment| {
                shipment.bytes.len() + bytes <= BYTES_MAX && shipment.lines + lines <= LINES_MAX
            };
            let mut taken = 0;
            if fits(bytes, lines, shipment) {
                (self.at, self.line, self.part, taken) =
                    (self.at + bytes, self.line + lines, None, lines);
            } else {
                while let Some(bytes) = self.line_bytes()
                    && (fits(self.at - begin + bytes, taken + 1, shipment)
                        || shipment.lines + taken == 0)
                {
                    self.take_line();
                    taken += 1;
                }
            }
            if taken > 0 {
                shipment.bytes.extend_from_slice(&self.bytes[begin..self.at]);
                shipment.lines += taken;
                shipment.parts.push(Part { tenant, time_ms, lines: taken });
            }
            if self.part.is_some() {
                return false;
            }
        }
        true
    }

    /// Returns the part of the next line, if there is one.
    fn part(&mut self) -> Option<&StoredPart> {
        while self.part.as_ref().is_none_or(|part| part.lines == 0) {
            self.part = Some(self.parts.next()?);
        }
        self.part.as_ref()
    }

    /// Returns the length of the next line of the part that was begun.
    fn line_bytes(&self) -> Option<usize> {
        self.part.as_ref().filter(|part| part.lines > 0)?;
        let rest = &self.bytes[self.at..];
        Some(memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1))
    }

    fn take_line(&mut self) -> Option<()> {
        self.part()?;
        let bytes = self.line_bytes()?;
        let part = self.part.as_mut()?;
        part.lines -= 1;
        part.bytes = part.bytes.saturating_sub(bytes as u64);
        if part.lines == 0 {
            self.part = None;
        }
        self.at += bytes;
        self.line += 1;
        Some(())
    }
}

fn tenant_of(part: &StoredPart) -> Option<Arc<str>> {
    part.origin.as_ref().and_then(|origin| origin.tenant.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::segment::format::record::Origin;

    fn piece(first_line: u64, parts: &[&[usize]]) -> (Piece, Vec<Vec<u8>>) {
        let mut lines = Vec::new();
        let parts = parts.iter().enumerate().map(|(number, lens)| {
            let own = lens.iter().map(|len| vec![b'a' + number as u8; *len]);
            lines.extend(own);
            let tenant = Some(Arc::from(format!("tenant {number}")));
            StoredPart {
                origin: Some(Origin { peer: None, tenant }),
                lines: lens.len() as u64,
                bytes: lens.iter().map(|len| *len as u64 + 1).sum(),
                time_ms: number as u64,
            }
        });
        let parts: Vec<StoredPart> = parts.collect();
        let bytes = lines.iter().flat_map(|line| line.iter().copied().chain([b'\n'])).collect();
        (Piece { first_line, parts, bytes }, lines)
    }

    /// Cuts a batch and checks that the shipments are the batch, in their order, and within the limits.
    fn check(parts: &[&[usize]], from: u64) -> Vec<Shipment> {
        let (piece, lines) = piece(100, parts);
        let mut rest = Rest::new(piece, from);
        let mut shipments = Vec::new();
        loop {
            let mut shipment = Shipment::default();
            let is_done = rest.fill(&mut shipment);
            if shipment.lines > 0 {
                shipments.push(shipment);
            }
            if is_done {
                break;
            }
        }
        let mut next = from;
        let mut found = Vec::new();
        for shipment in &shipments {
            assert_eq!(shipment.first_line, next);
            next = shipment.line_end();
            assert!(shipment.lines <= LINES_MAX, "{}", shipment.lines);
            assert!(shipment.bytes.len() <= BYTES_MAX || shipment.lines == 1);
            for (part, line) in shipment.each() {
                let letter = line.first().map_or(part.time_ms, |byte| u64::from(byte - b'a'));
                assert_eq!(part.time_ms, letter);
                assert_eq!(part.tenant, Some(Arc::from(format!("tenant {letter}"))));
                found.push(line.to_vec());
            }
        }
        assert!(found == lines[(from - 100) as usize..], "{} of {}", found.len(), lines.len());
        shipments
    }

    #[test]
    fn shipments_are_the_batch_and_within_limits() {
        let count = |parts: &[&[usize]], from| check(parts, from).len();
        assert_eq!(count(&[&[3, 4], &[5]], 100), 1);
        assert_eq!(count(&[&[3, 4], &[5]], 102), 1);
        assert_eq!(count(&[&[3, 4], &[5]], 103), 0);
        assert_eq!(count(&[&[BYTES_MAX / 2; 5], &[1, 0, 1]], 100), 5);
        assert_eq!(count(&[&[1], &[2 * BYTES_MAX, 3 * BYTES_MAX], &[1]], 100), 4);
        assert_eq!(count(&[&[0; 10_000], &[1; 10_000]], 100), 5);
        assert_eq!(count(&[&[0; 10_000], &[1; 10_000]], 5000), 4);
        for from in 100..=106 {
            check(&[&[3, BYTES_MAX], &[5, BYTES_MAX - 4, 2, 2]], from);
        }
    }

    #[test]
    fn small_batches_share_a_shipment() {
        let mut shipment = Shipment::default();
        for first in [100, 102, 104] {
            assert!(Rest::new(piece(first, &[&[3, 4]]).0, first).fill(&mut shipment));
        }
        assert_eq!((shipment.first_line, shipment.lines, shipment.bytes.len()), (100, 6, 27));
    }
}
