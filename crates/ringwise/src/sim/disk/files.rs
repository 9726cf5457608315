//! Operations on one file: its bytes, its length, its metadata.
//!
//! The caller has checked that the descriptor allows the operation; see `OpenFile`.

use crate::{
    sim::{
        disk::{
            Disk, EPOCH_S, Inode, Node,
            content::{Content, SECTOR},
        },
        random::Random,
    },
    sys::statx::RawStatx,
};

/// The largest file, in bytes: ext4's with blocks of 4096 bytes.
pub(crate) const FILE_BYTES_MAX: u64 = (1 << 44) - 4096;

impl Disk {
    fn content(&mut self, inode: Inode, otherwise: i32) -> Result<&mut Content, i32> {
        match &mut self.file_mut(inode).node {
            Node::File(content) => Ok(content),
            Node::Directory(_) | Node::Link(_) => Err(otherwise),
        }
    }

    pub(crate) fn len(&mut self, inode: Inode) -> Result<u64, i32> {
        self.content(inode, libc::EISDIR).map(|content| content.len())
    }

    pub(crate) fn read(&mut self, inode: Inode, offset: u64, len: u64) -> Result<Vec<u8>, i32> {
        // Reading no bytes succeeds, even from a directory.
        if len == 0 {
            return Ok(Vec::new());
        }
        Ok(self.content(inode, libc::EISDIR)?.read(offset, len))
    }

    /// Writes as much as fits into the largest file. Returns the number of bytes written.
    pub(crate) fn write(&mut self, inode: Inode, offset: u64, bytes: &[u8]) -> Result<usize, i32> {
        let content = self.content(inode, libc::EISDIR)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let room = FILE_BYTES_MAX.saturating_sub(offset);
        if room == 0 {
            return Err(libc::EFBIG);
        }
        let count = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        content.write(offset, &bytes[..count]);
        self.touch(inode);
        Ok(count)
    }

    pub(crate) fn set_len(&mut self, inode: Inode, len: u64) -> Result<(), i32> {
        let content = self.content(inode, libc::EINVAL)?;
        if len > i64::MAX as u64 {
            return Err(libc::EINVAL);
        }
        if len > FILE_BYTES_MAX {
            return Err(libc::EFBIG);
        }
        content.set_len(len);
        self.touch(inode);
        Ok(())
    }

    /// fallocate(2). Space is never short, so reserving it does nothing.
    pub(crate) fn allocate(
        &mut self,
        inode: Inode,
        mode: i32,
        offset: u64,
        len: u64,
    ) -> Result<(), i32> {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let content = self.content(inode, libc::EISDIR)?;
        let end = offset.saturating_add(len);
        if end > FILE_BYTES_MAX {
            return Err(libc::EFBIG);
        }
        match mode {
            libc::FALLOC_FL_KEEP_SIZE => {}
            PUNCH | ZERO_KEEP => content.punch(offset..end),
            libc::FALLOC_FL_ZERO_RANGE => {
                content.punch(offset..end);
                content.set_len(end.max(content.len()));
            }
            0 => content.set_len(end.max(content.len())),
            _ => return Err(libc::EOPNOTSUPP),
        }
        self.touch(inode);
        Ok(())
    }

    /// Makes the changes of a file's bytes, or of a directory's names, durable.
    pub(crate) fn sync(&mut self, inode: Inode) {
        match &mut self.file_mut(inode).node {
            Node::File(content) => content.sync(),
            Node::Directory(_) => {
                let changes = self.journal.take_directory(inode);
                self.apply(&changes);
            }
            Node::Link(_) => {}
        }
    }

    /// Fails a sync. The disk keeps what it happened to write before, and no later sync writes the
    /// rest.
    pub(crate) fn lose(&mut self, inode: Inode, random: &mut Random) {
        match &mut self.file_mut(inode).node {
            Node::File(content) => {
                content.lose(random);
            }
            Node::Directory(_) => {
                let likely = super::survival(random);
                let kept = self.journal.take_some(|change| {
                    change.entries.iter().any(|entry| entry.directory == inode)
                        && random.chance(likely)
                });
                self.apply(&kept);
                self.journal.forget_directory(inode);
            }
            Node::Link(_) => {}
        }
    }

    pub(crate) fn statx(&self, inode: Inode) -> Box<libc::statx> {
        let file = self.file(inode);
        let mut told = RawStatx::zeroed().0;
        let (kind, len, sectors) = match &file.node {
            Node::File(content) => (libc::S_IFREG, content.len(), content.sectors()),
            Node::Directory(_) => (libc::S_IFDIR, 4096, 8),
            Node::Link(target) => (libc::S_IFLNK, target.len() as u64, 0),
        };
        told.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
        if kind == libc::S_IFREG {
            told.stx_mask |= libc::STATX_DIOALIGN;
            told.stx_dio_mem_align = SECTOR as u32;
            told.stx_dio_offset_align = SECTOR as u32;
        }
        told.stx_blksize = 4096;
        told.stx_nlink = file.links;
        told.stx_mode = (kind | file.permissions) as u16;
        told.stx_ino = inode;
        told.stx_size = len;
        told.stx_blocks = sectors;
        told.stx_btime = timestamp(file.created_ns);
        told.stx_mtime = timestamp(file.modified_ns);
        told.stx_atime = told.stx_mtime;
        told.stx_ctime = timestamp(file.changed_ns);
        Box::new(told)
    }

    /// Sets the times of a file whose content changed.
    pub(super) fn touch(&mut self, inode: Inode) {
        let now = self.now_ns;
        let file = self.file_mut(inode);
        (file.modified_ns, file.changed_ns) = (now, now);
    }
}

fn timestamp(ns: u64) -> libc::statx_timestamp {
    const NS_OF_SECOND: u64 = 1_000_000_000;
    let mut time = RawStatx::zeroed().0.stx_mtime;
    time.tv_sec = (EPOCH_S + ns / NS_OF_SECOND) as i64;
    time.tv_nsec = (ns % NS_OF_SECOND) as u32;
    time
}
