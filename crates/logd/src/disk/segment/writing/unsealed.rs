//! Seals a segment. This may happen long after its last batch, and on another thread.

use std::path::{Path, PathBuf};

use ringwise::{Descriptor, Local, Operation};

use crate::disk::segment::{
    call::{run, sync, write_all},
    format::entry::{Entry, Kind},
};

/// A segment that is no longer written.
#[derive(Debug)]
pub(crate) struct Unsealed {
    pub(crate) name: PathBuf,
    pub(crate) data: Descriptor,
    pub(crate) index: Descriptor,
    pub(crate) is_synced: bool,
    pub(crate) index_bytes: u64,
    /// Whether spaces follow the last line.
    pub(crate) is_filled: bool,
    /// Whether parts of a batch follow that was written to another segment instead.
    pub(crate) is_torn: bool,
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
    pub(crate) next_line: u64,
}

impl Unsealed {
    /// The name of the segment, for people.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Seals the segment durably. The thread waits for it.
    ///
    /// # Errors
    ///
    /// The error of a write or sync. A segment without a seal is still read up to its last whole batch.
    pub(crate) fn seal(&self, local: &mut Local) -> Result<(), ringwise::Error> {
        if self.is_filled || self.is_torn {
            run(local, || Operation::set_len(&self.data, self.bytes)).map(drop)?;
        }
        if self.is_filled || self.is_torn || !self.is_synced {
            sync(local, &self.data)?;
        }
        if self.is_torn {
            run(local, || Operation::set_len(&self.index, self.index_bytes)).map(drop)?;
        }
        if self.is_torn || !self.is_synced {
            sync(local, &self.index)?;
        }
        let seal = Entry {
            number: self.batches,
            offset: self.bytes,
            lines: self.lines,
            first_line: self.next_line,
            ..Entry::new(Kind::Seal)
        };
        write_all(local, &self.index, &seal.encode(), self.index_bytes)?;
        sync(local, &self.index)
    }
}

#[cfg(test)]
impl Unsealed {
    /// Makes one without lines, in new files.
    pub(crate) fn in_new_files(local: &mut Local) -> Unsealed {
        let options = ringwise::OpenOptions::new().write(true).create(true);
        let mut create =
            |path| crate::disk::segment::call::open(local, Path::new(path), options).unwrap();
        Unsealed {
            name: PathBuf::from("/data"),
            data: create("/data"),
            index: create("/index"),
            is_synced: true,
            index_bytes: 0,
            is_filled: false,
            is_torn: false,
            batches: 0,
            bytes: 0,
            lines: 0,
            next_line: 0,
        }
    }
}
