//! The names in a directory, read at once and in a stable order.
//!
//! In the order of inodes, as GNU cp takes them: on disk that is the order in which most file
//! systems keep them, and it is what makes `--verbose` comparable. Names lie in one piece of
//! memory, so that a million of them cost their bytes and sixteen more each.

use std::{mem::MaybeUninit, os::fd::AsFd};

use rustix::{fs::RawDir, io::Errno};

/// Enough that a million names take a few hundred calls.
const BUFFER_BYTES: usize = 128 << 10;

/// The names in a directory that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    bytes: Vec<u8>,
    /// Inode, start and length of each name.
    names: Vec<(u64, u32, u16)>,
    next: usize,
}

impl Listing {
    /// Reads all names but `.` and `..`.
    pub(crate) fn read(directory: impl AsFd) -> Result<Listing, Errno> {
        let mut listing = Listing::default();
        let mut buffer: Vec<MaybeUninit<u8>> = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut entries = RawDir::new(directory, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Err(Errno::INTR) => continue,
                entry => entry?,
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            // 4 GiB of names are more than any directory's.
            let start = u32::try_from(listing.bytes.len()).map_err(|_| Errno::OVERFLOW)?;
            let len = u16::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
            listing.bytes.extend_from_slice(name);
            listing.names.push((entry.ino(), start, len));
        }
        listing.bytes.shrink_to_fit();
        listing.names.sort_by_key(|(inode, ..)| *inode);
        Ok(listing)
    }

    /// Takes the next name.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let &(_, start, len) = self.names.get(self.next)?;
        self.next += 1;
        Some(self.bytes[start as usize..start as usize + usize::from(len)].to_vec())
    }

    /// Leaves the rest.
    pub(crate) fn abandon(&mut self) {
        self.next = self.names.len();
    }
}
