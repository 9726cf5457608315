//! The lines that are not acknowledged: in memory, or in a spool on disk.
//!
//! Lines have numbers of the client's own here, from 1. Three places move forward: the last line that was taken,
//! the last one that was given out to be sent, and the last one that is acknowledged, which is removed. A new
//! connection sets the second back to the third. What the daemon's numbers mean is kept here too, for later programs.

use std::io;

mod memory;
mod numbering;
mod places;
#[cfg(feature = "spool")]
pub(crate) mod spool;

pub(crate) use memory::Memory;
pub(crate) use numbering::Numbering;
pub(crate) use places::{Places, PushError};

/// Where they are kept.
#[derive(Debug)]
pub(crate) enum Backlog {
    Memory(Memory),
    #[cfg(feature = "spool")]
    Spool(Box<spool::Files>),
}

impl Backlog {
    /// Takes a line, which has the next number.
    pub(crate) fn push(&mut self, line: &[u8]) -> Result<(), PushError> {
        match self {
            Backlog::Memory(memory) => memory.push(line),
            #[cfg(feature = "spool")]
            Backlog::Spool(files) => files.push(line),
        }
    }

    pub(crate) fn places(&self) -> Places {
        match self {
            Backlog::Memory(memory) => memory.places(),
            #[cfg(feature = "spool")]
            Backlog::Spool(files) => files.places(),
        }
    }

    /// What counts against the limit.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Backlog::Memory(memory) => memory.bytes(),
            #[cfg(feature = "spool")]
            Backlog::Spool(files) => files.bytes(),
        }
    }

    /// Appends the next lines to be sent, each with a line feed: about `bytes_max`, and at least one.
    ///
    /// # Errors
    ///
    /// A spool that cannot be read.
    pub(crate) fn read(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> io::Result<()> {
        match self {
            Backlog::Memory(memory) => {
                memory.read(out, bytes_max);
                Ok(())
            }
            #[cfg(feature = "spool")]
            Backlog::Spool(files) => files.read(out, bytes_max),
        }
    }

    /// Sends from the first line on that is not acknowledged.
    pub(crate) fn rewind(&mut self) {
        match self {
            Backlog::Memory(memory) => memory.rewind(),
            #[cfg(feature = "spool")]
            Backlog::Spool(files) => files.rewind(),
        }
    }

    /// Removes the lines up to this one.
    ///
    /// # Errors
    ///
    /// Files of a spool that cannot be removed.
    pub(crate) fn acknowledge(&mut self, line: u64) -> io::Result<()> {
        match self {
            Backlog::Memory(memory) => {
                memory.acknowledge(line);
                Ok(())
            }
            #[cfg(feature = "spool")]
            Backlog::Spool(files) => files.acknowledge(line),
        }
    }

    /// What the daemon's numbers meant at the last connection of an earlier program.
    pub(crate) fn numbering(&self) -> Option<Numbering> {
        match self {
            Backlog::Memory(_) => None,
            #[cfg(feature = "spool")]
            Backlog::Spool(files) => files.numbering(),
        }
    }

    /// Keeps that for a later program.
    ///
    /// # Errors
    ///
    /// A spool that cannot be written.
    pub(crate) fn keep_numbering(&mut self, numbering: &Numbering) -> io::Result<()> {
        match self {
            Backlog::Memory(_) => {
                let _ = numbering;
                Ok(())
            }
            #[cfg(feature = "spool")]
            Backlog::Spool(files) => files.keep_numbering(numbering),
        }
    }

    /// Bytes that were cut when it was opened.
    pub(crate) fn cut_bytes(&self) -> u64 {
        match self {
            Backlog::Memory(_) => 0,
            #[cfg(feature = "spool")]
            Backlog::Spool(files) => files.cut_bytes(),
        }
    }
}
