//! What a file may contain: of each byte all values that are possible as long as writes are under way
//! that nobody waits for.

use std::ops::Range;

pub struct Content(Vec<Vec<u8>>);

impl Content {
    pub fn new(bytes: &[u8]) -> Content {
        Content(bytes.iter().map(|byte| vec![*byte]).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// A write of which it is known that it is done.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        for (cell, byte) in self.0[at..].iter_mut().zip(bytes) {
            *cell = vec![*byte];
        }
    }

    /// A write that is done, or under way, or never will be.
    pub fn may_write(&mut self, at: usize, bytes: &[u8]) {
        for (cell, byte) in self.0[at..].iter_mut().zip(bytes) {
            if !cell.contains(byte) {
                cell.push(*byte);
            }
        }
    }

    /// What was read is possible.
    pub fn check(&self, at: usize, bytes: &[u8], what: &str) {
        assert!(at + bytes.len() <= self.len(), "{what}: read past the end");
        for (offset, (cell, byte)) in self.0[at..].iter().zip(bytes).enumerate() {
            let place = at + offset;
            assert!(cell.contains(byte), "{what}: byte {place} is {byte}, not one of {cell:?}");
        }
    }

    /// Nothing is under way any more: this is what it is.
    pub fn settle(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len());
        self.check(0, bytes, "settled");
        *self = Content::new(bytes);
    }

    pub fn range(&self, random: &mut fastrand::Rng, most: usize) -> Range<usize> {
        let start = random.usize(..self.len());
        start..self.len().min(start + random.usize(..=most))
    }
}
