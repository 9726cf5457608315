//! The names in a directory, read at once and in a stable order.
//!
//! In the order of inodes, as GNU cp takes them: on disk that is the order in which most file
//! systems keep them, and it is what makes `--verbose` comparable. Names lie in one piece of
//! memory, so that a million of them cost their bytes and sixteen more each.

use std::{mem::MaybeUninit, ops::Range, os::fd::AsFd};

use rustix::{
    fs::{FileType, RawDir},
    io::Errno,
};

/// Enough that a million names take a few hundred calls.
const BUFFER_BYTES: usize = 128 << 10;

/// The names in a directory that were not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    bytes: Vec<u8>,
    names: Vec<Entry>,
    next: usize,
}

/// A name, and what the directory said of it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    inode: u64,
    start: u32,
    len: u16,
    /// Where nobody tells, it is anything.
    kind: FileType,
}

/// Names that follow each other.
#[derive(Debug)]
pub(crate) struct Run {
    /// Each with a zero behind it.
    bytes: Vec<u8>,
    pub(crate) len: usize,
}

impl Run {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split(|byte| *byte == 0).take(self.len)
    }
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
            let (inode, kind) = (entry.ino(), entry.file_type());
            listing.names.push(Entry { inode, start, len, kind });
        }
        listing.bytes.shrink_to_fit();
        listing.names.sort_by_key(|entry| entry.inode);
        Ok(listing)
    }

    /// How many there were.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// How many were not taken yet.
    pub(crate) fn left(&self) -> usize {
        self.names.len() - self.next
    }

    /// Takes the next name.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let entry = *self.names.get(self.next)?;
        self.next += 1;
        Some(self.name(entry).to_vec())
    }

    /// Takes as many names of regular files as come next, where they are enough and no more than
    /// `most`.
    pub(crate) fn take_run(&mut self, least: usize, most: usize) -> Option<Run> {
        let indexes = self.take_row(FileType::RegularFile, least, most);
        let len = indexes.len();
        if indexes.is_empty() {
            return None;
        }
        let mut bytes = Vec::new();
        for entry in &self.names[indexes] {
            bytes.extend_from_slice(self.name(*entry));
            bytes.push(0);
        }
        Some(Run { bytes, len })
    }

    /// Takes as many names of directories as come next, where they are enough and no more than
    /// `most`. What is given is for [`Listing::name_at`].
    pub(crate) fn take_directories(&mut self, least: usize, most: usize) -> Range<usize> {
        self.take_row(FileType::Directory, least, most)
    }

    fn take_row(&mut self, kind: FileType, least: usize, most: usize) -> Range<usize> {
        let next = self.names[self.next..].iter().take(most);
        let len = next.take_while(|entry| entry.kind == kind).count();
        if len < least {
            return self.next..self.next;
        }
        self.next += len;
        self.next - len..self.next
    }

    pub(crate) fn name_at(&self, index: usize) -> Vec<u8> {
        self.name(self.names[index]).to_vec()
    }

    fn name(&self, entry: Entry) -> &[u8] {
        &self.bytes[entry.start as usize..entry.start as usize + usize::from(entry.len)]
    }

    /// Leaves the rest.
    pub(crate) fn abandon(&mut self) {
        self.next = self.names.len();
    }
}
