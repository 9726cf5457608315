//! Performs the simulation's operations: checks the descriptor, applies faults, and uses the disk.
//!
//! This is the counterpart of `sys/perform.rs`. It makes the kernel's checks, in the kernel's order
//! where the order is visible.

use crate::{
    buf::MOVED_BYTES_MAX,
    op::Opcode,
    sim::{
        action::{Base, Deed, FileId, Outcome, Payload, Place},
        disk::{Ending, Inode, content::SECTOR},
        fault::Fault,
        files::OpenFile,
        world::World,
    },
};

impl World {
    /// Performs an operation, unless a fault prevents it.
    pub(super) fn perform(&mut self, owner: u32, opcode: Opcode, deed: Deed) -> Outcome {
        let own = matches!(deed, Deed::Nop | Deed::Timeout { .. } | Deed::Refused(_));
        if !self.powered && !own {
            return Outcome::of(Err(libc::EIO));
        }
        if let Some(errno) = self.fault_of(owner, opcode, &deed) {
            if let (libc::EIO, Deed::Sync { file }) = (errno, &deed)
                && let Ok(inode) = self.files.get(*file).map(|file| file.inode)
            {
                self.disk.lose(inode, &mut self.chance);
            }
            return Outcome::of(Err(errno));
        }
        match deed {
            Deed::Read { file, offset, len, aligned } => {
                self.read(opcode, (file, offset, len, aligned))
            }
            Deed::Write { file, offset, bytes, aligned } => {
                Outcome::of(self.write(Some(opcode), (file, offset, aligned), &bytes))
            }
            Deed::Open { place, flags, mode } => self.open(&place, flags, mode),
            Deed::Statx { place, flags } => self.statx(&place, flags),
            Deed::ReadLink { place, len } => {
                let target = self.start_of(&place).and_then(|start| {
                    self.disk
                        .read_link(start, &place.path)
                        .map(|target| target[..target.len().min(len)].to_vec())
                });
                outcome_of_bytes(target)
            }
            Deed::ReadDirectory { file, len } => outcome_of_bytes(self.read_directory(file, len)),
            deed => Outcome::of(self.perform_plain(&deed).map(|()| 0)),
        }
    }

    /// Performs the operations that return nothing but success or failure.
    fn perform_plain(&mut self, deed: &Deed) -> Result<(), i32> {
        match deed {
            Deed::Sync { file } => {
                let file = self.files.get(*file)?;
                if file.has(libc::O_PATH) {
                    return Err(libc::EBADF);
                }
                self.disk.sync(file.inode);
                Ok(())
            }
            Deed::Allocate { file, mode, offset, len } => {
                self.allocate(*file, *mode, *offset, *len)
            }
            Deed::SetLen { file, len } => {
                let file = self.files.get(*file)?;
                if file.has(libc::O_PATH) {
                    return Err(libc::EBADF);
                }
                if !file.writes() || *len > i64::MAX as u64 {
                    return Err(libc::EINVAL);
                }
                self.disk.set_len(file.inode, *len)
            }
            Deed::Unlink { place, flags } => {
                let start = self.start_of(place)?;
                self.disk.unlink(start, &place.path, *flags)
            }
            Deed::CreateDirectory { place, mode } => {
                let start = self.start_of(place)?;
                self.disk.create_directory(start, &place.path, *mode).map(drop)
            }
            Deed::Rename { from, to, flags } => {
                let starts = (self.start_of(from)?, self.start_of(to)?);
                self.disk.rename((starts.0, &from.path), (starts.1, &to.path), *flags)
            }
            Deed::Link { from, to, flags } => {
                let starts = (self.start_of(from)?, self.start_of(to)?);
                self.disk.link((starts.0, &from.path), (starts.1, &to.path), *flags)
            }
            Deed::Symlink { target, place } => {
                let start = self.start_of(place)?;
                self.disk.symlink(start, &place.path, target).map(drop)
            }
            Deed::SetMode { place, mode } => {
                let inode = self.statx_inode(place, libc::AT_EMPTY_PATH)?;
                self.disk.set_permissions(inode, *mode);
                Ok(())
            }
            Deed::Timeout { .. } => Err(libc::ETIME),
            Deed::Refused(errno) => Err(*errno),
            // A close drops its placeholder together with the deed.
            _ => Ok(()),
        }
    }

    /// Makes the changes to the disk of an operation that a power loss interrupts. Nobody gets its
    /// result.
    pub(super) fn take_effect(&mut self, deed: &Deed) {
        // The answer is lost with the power.
        let _ = match deed {
            Deed::Write { file, offset, bytes, aligned } => {
                self.write(None, (*file, *offset, *aligned), bytes).map(drop)
            }
            Deed::Open { place, flags, mode } => self
                .start_of(place)
                .and_then(|start| self.disk.open(start, &place.path, *flags, *mode))
                .map(drop),
            Deed::Read { .. }
            | Deed::Statx { .. }
            | Deed::ReadLink { .. }
            | Deed::ReadDirectory { .. } => Ok(()),
            deed => self.perform_plain(deed),
        };
    }

    /// Returns the error of a fault that strikes the operation, if any. Every fault counts the
    /// operation.
    fn fault_of(&mut self, owner: u32, opcode: Opcode, deed: &Deed) -> Option<i32> {
        let needs_no_space = self.opens_existing(deed);
        let needs_no_thread = self.is_by_threads(owner, opcode);
        let faults = [
            (Fault::Interrupted, libc::EINTR),
            (Fault::Again, libc::EAGAIN),
            (Fault::NoThread, libc::ECANCELED),
            (Fault::Io, libc::EIO),
            (Fault::NoSpace, libc::ENOSPC),
        ];
        let mut errno = None;
        for (fault, number) in faults {
            let is_spared = match fault {
                Fault::NoSpace => needs_no_space,
                Fault::NoThread => needs_no_thread,
                _ => false,
            };
            if is_spared {
                continue;
            }
            if self.faults.strike(fault, opcode) {
                errno = errno.or(Some(number));
            }
        }
        errno
    }

    /// Returns whether the operation opens a file without creating it, which takes no space.
    fn opens_existing(&self, deed: &Deed) -> bool {
        let Deed::Open { place, flags, .. } = deed else { return false };
        let found = self
            .start_of(place)
            .and_then(|start| self.disk.find(start, &place.path, Ending::Followed));
        flags & libc::O_CREAT == 0 || found.is_ok_and(|found| found.inode.is_some())
    }

    fn read(&mut self, opcode: Opcode, range: (FileId, u64, u64, bool)) -> Outcome {
        outcome_of_bytes(self.read_bytes(opcode, range))
    }

    fn read_bytes(
        &mut self,
        opcode: Opcode,
        (id, offset, len, aligned): (FileId, u64, u64, bool),
    ) -> Result<Vec<u8>, i32> {
        let file = self.files.get(id)?;
        if !file.reads() {
            return Err(libc::EBADF);
        }
        check_range(offset, len)?;
        check_direct(file, offset, len, aligned)?;
        let (inode, direct) = (file.inode, file.has(libc::O_DIRECT));
        let mut bytes = self.disk.read(inode, offset, len.min(MOVED_BYTES_MAX as u64))?;
        if bytes.len() > 1 && self.faults.strike(Fault::ShortRead, opcode) {
            bytes.truncate(self.shorten(bytes.len(), direct));
        }
        Ok(bytes)
    }

    /// Writes. Without an opcode no fault can strike.
    fn write(
        &mut self,
        opcode: Option<Opcode>,
        (id, offset, aligned): (FileId, u64, bool),
        bytes: &[u8],
    ) -> Result<usize, i32> {
        let file = self.files.get(id)?;
        if !file.writes() {
            return Err(libc::EBADF);
        }
        check_range(offset, bytes.len() as u64)?;
        check_direct(file, offset, bytes.len() as u64, aligned)?;
        let (inode, direct) = (file.inode, file.has(libc::O_DIRECT));
        let (append, durable) = (file.has(libc::O_APPEND), file.has(libc::O_DSYNC));
        let offset = if append { self.disk.len(inode)? } else { offset };
        let mut len = bytes.len();
        if len > 1 && opcode.is_some_and(|opcode| self.faults.strike(Fault::ShortWrite, opcode)) {
            len = self.shorten(len, direct);
        }
        let count = self.disk.write(inode, offset, &bytes[..len])?;
        if durable {
            self.disk.sync(inode);
        }
        Ok(count)
    }

    /// Returns fewer bytes than `len` and at least one; for direct I/O, whole sectors. Returns
    /// `len` if there is nothing between.
    fn shorten(&mut self, len: usize, direct: bool) -> usize {
        let unit = if direct { SECTOR as usize } else { 1 };
        let units = len / unit;
        if units < 2 { len } else { unit * (1 + self.shortness.below(units as u64 - 1) as usize) }
    }

    fn allocate(&mut self, id: FileId, mode: i32, offset: u64, len: u64) -> Result<(), i32> {
        let file = self.files.get(id)?;
        if len == 0 || len > i64::MAX as u64 || offset > i64::MAX as u64 {
            return Err(libc::EINVAL);
        }
        if !file.writes() {
            return Err(libc::EBADF);
        }
        self.disk.allocate(file.inode, mode, offset, len)
    }

    fn open(&mut self, place: &Place, flags: i32, mode: u32) -> Outcome {
        let opened = self
            .start_of(place)
            .and_then(|start| self.disk.open(start, &place.path, flags, mode))
            .and_then(|inode| self.files.open(inode, flags));
        match opened {
            Ok(placeholder) => {
                Outcome { payload: Payload::Opened(placeholder), ..Outcome::of(Ok(0)) }
            }
            Err(errno) => Outcome::of(Err(errno)),
        }
    }

    /// Reads the next names of an open directory, as many as fit.
    fn read_directory(&mut self, id: FileId, len: usize) -> Result<Vec<u8>, i32> {
        let file = self.files.get(id)?;
        if !file.reads() {
            return Err(libc::EBADF);
        }
        let entries = self.disk.entries_after(file.inode, file.last_name.as_deref())?;
        let is_end = entries.is_empty();
        let (mut bytes, mut last_name) = (Vec::new(), None);
        for (name, inode, kind) in entries {
            // `struct linux_dirent64`: the name ends in a NUL, and the record is padded.
            let record = (19 + name.len() + 1).next_multiple_of(8);
            if bytes.len() + record > len {
                break;
            }
            let end = bytes.len() + record;
            bytes.extend(inode.to_ne_bytes());
            bytes.extend(0_i64.to_ne_bytes());
            bytes.extend((record as u16).to_ne_bytes());
            bytes.push(kind);
            bytes.extend(&name);
            bytes.resize(end, 0);
            last_name = Some(name);
        }
        match last_name {
            Some(name) => self.files.set_last_name(id, name),
            None if is_end => {}
            None => return Err(libc::EINVAL),
        }
        Ok(bytes)
    }

    fn statx(&mut self, place: &Place, flags: i32) -> Outcome {
        match self.statx_inode(place, flags) {
            Ok(inode) => {
                let payload = Payload::Metadata(self.disk.statx(inode));
                Outcome { payload, ..Outcome::of(Ok(0)) }
            }
            Err(errno) => Outcome::of(Err(errno)),
        }
    }

    fn statx_inode(&self, place: &Place, flags: i32) -> Result<Inode, i32> {
        let by_descriptor = place.path.is_empty() && flags & libc::AT_EMPTY_PATH != 0;
        if by_descriptor && let Base::File(id) = place.base {
            return self.files.get(id).map(|file| file.inode);
        }
        let start = self.start_of(place)?;
        let keep = flags & libc::AT_SYMLINK_NOFOLLOW != 0;
        let ending = if keep { Ending::Kept } else { Ending::Followed };
        self.disk.find(start, &place.path, ending)?.existing()
    }

    /// Returns the directory that a path starts from.
    fn start_of(&self, place: &Place) -> Result<Inode, i32> {
        match place.base {
            Base::File(id) if !place.path.starts_with(b"/") => {
                let inode = self.files.get(id)?.inode;
                if self.disk.is_directory(inode) { Ok(inode) } else { Err(libc::ENOTDIR) }
            }
            _ => Ok(self.disk.root()),
        }
    }
}

fn outcome_of_bytes(bytes: Result<Vec<u8>, i32>) -> Outcome {
    match bytes {
        Ok(bytes) => {
            let outcome = Outcome::of(Ok(bytes.len()));
            Outcome { payload: Payload::Bytes(bytes), ..outcome }
        }
        Err(errno) => Outcome::of(Err(errno)),
    }
}

/// The kernel's `rw_verify_area` (fs/read_write.c).
fn check_range(offset: u64, len: u64) -> Result<(), i32> {
    let end = offset.checked_add(len).filter(|end| *end <= i64::MAX as u64);
    end.map(drop).ok_or(libc::EINVAL)
}

fn check_direct(file: &OpenFile, offset: u64, len: u64, aligned: bool) -> Result<(), i32> {
    let fits = aligned && offset.is_multiple_of(SECTOR) && len.is_multiple_of(SECTOR);
    if file.has(libc::O_DIRECT) && !fits { Err(libc::EINVAL) } else { Ok(()) }
}
