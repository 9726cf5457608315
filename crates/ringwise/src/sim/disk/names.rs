//! Opening, making, removing, renaming and linking: the changes of names, with the kernel's errors.

use crate::sim::disk::{
    Directory, Disk, Inode, Node, UMASK,
    content::Content,
    journal::{Change, Entry},
    path::{Ending, Found, Last},
};

impl Disk {
    /// Opens a path, and creates the file first if the flags say so (open(2)).
    pub(crate) fn open(
        &mut self,
        start: Inode,
        path: &[u8],
        flags: i32,
        mode: u32,
    ) -> Result<Inode, i32> {
        if flags & libc::O_TMPFILE == libc::O_TMPFILE {
            return Err(libc::EOPNOTSUPP);
        }
        let has = |bits: i32| flags & bits == bits;
        let creates = has(libc::O_CREAT) && !has(libc::O_PATH);
        let keep = has(libc::O_NOFOLLOW) || creates && has(libc::O_EXCL);
        let ending = match keep {
            _ if creates && path.ends_with(b"/") => Ending::Name,
            true => Ending::Kept,
            false => Ending::Followed,
        };
        let found = self.find(start, path, ending)?;
        if ending == Ending::Name && matches!(found.last, Last::Name(_)) {
            return Err(libc::EISDIR);
        }
        let Some(inode) = found.inode else {
            return if creates { self.create(&found, mode) } else { Err(libc::ENOENT) };
        };
        if creates && has(libc::O_EXCL) {
            return Err(libc::EEXIST);
        }
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY || has(libc::O_TRUNC);
        match &self.file(inode).node {
            Node::Directory(_) if creates || (writes && !has(libc::O_PATH)) => Err(libc::EISDIR),
            Node::Directory(_) => Ok(inode),
            _ if has(libc::O_DIRECTORY) => Err(libc::ENOTDIR),
            Node::Link(_) if !has(libc::O_PATH) => Err(libc::ELOOP),
            Node::File(_) if has(libc::O_TRUNC) && !has(libc::O_PATH) => {
                self.set_len(inode, 0).map(|()| inode)
            }
            Node::File(_) | Node::Link(_) => Ok(inode),
        }
    }

    fn create(&mut self, found: &Found, mode: u32) -> Result<Inode, i32> {
        if found.slash {
            return Err(libc::EISDIR);
        }
        self.check_alive(found.directory)?;
        let inode = self.make(Node::File(Content::default()), mode & !UMASK & 0o7777);
        self.add(found, inode);
        Ok(inode)
    }

    /// symlink(2).
    pub(crate) fn symlink(
        &mut self,
        start: Inode,
        path: &[u8],
        target: &[u8],
    ) -> Result<Inode, i32> {
        if target.is_empty() {
            return Err(libc::ENOENT);
        }
        let found = self.find(start, path, Ending::Name)?;
        let _ = self.vacant(&found)?;
        if found.slash {
            return Err(libc::ENOENT);
        }
        let inode = self.make(Node::Link(target.into()), 0o777);
        self.add(&found, inode);
        Ok(inode)
    }

    /// readlink(2).
    pub(crate) fn read_link(&self, start: Inode, path: &[u8]) -> Result<&[u8], i32> {
        let inode = self.find(start, path, Ending::Kept)?.existing()?;
        match &self.file(inode).node {
            Node::Link(target) => Ok(target),
            Node::File(_) | Node::Directory(_) => Err(libc::EINVAL),
        }
    }

    /// chmod(2). The bits survive a loss of power.
    pub(crate) fn set_permissions(&mut self, inode: Inode, mode: u32) {
        let now = self.now_ns;
        let file = self.file_mut(inode);
        (file.permissions, file.changed_ns) = (mode & 0o7777, now);
    }

    /// Returns the names in a directory after `last`, with the inode and the kind (`DT_*`) of each.
    pub(crate) fn entries_after(
        &self,
        inode: Inode,
        last: Option<&[u8]>,
    ) -> Result<Vec<(Vec<u8>, Inode, u8)>, i32> {
        let kind = |inode: Inode| match &self.file(inode).node {
            Node::File(_) => libc::DT_REG,
            Node::Directory(_) => libc::DT_DIR,
            Node::Link(_) => libc::DT_LNK,
        };
        let names = self.directory(inode)?.now.iter();
        let names = names.filter(|(name, _)| last.is_none_or(|last| name.as_slice() > last));
        Ok(names.map(|(name, inode)| (name.clone(), *inode, kind(*inode))).collect())
    }

    /// mkdir(2).
    pub(crate) fn create_directory(
        &mut self,
        start: Inode,
        path: &[u8],
        mode: u32,
    ) -> Result<Inode, i32> {
        let found = self.find(start, path, Ending::Name)?;
        let _ = self.vacant(&found)?;
        let node = Directory { parent: found.directory, ..Directory::default() };
        let inode = self.make(Node::Directory(node), mode & !UMASK & 0o1777);
        self.add(&found, inode);
        Ok(inode)
    }

    /// link(2). By default it does not follow a link in the last part of the old name.
    pub(crate) fn link(
        &mut self,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        flags: i32,
    ) -> Result<(), i32> {
        if flags & !(libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) != 0 {
            return Err(libc::EINVAL);
        }
        let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
        let ending = if follow { Ending::Followed } else { Ending::Kept };
        let existing = self.find(from.0, from.1, ending)?;
        let inode = existing.existing()?;
        let found = self.find(to.0, to.1, Ending::Name)?;
        let _ = self.vacant(&found)?;
        if found.slash {
            return Err(libc::ENOENT);
        }
        if self.is_directory(inode) {
            return Err(libc::EPERM);
        }
        self.add(&found, inode);
        Ok(())
    }

    /// unlink(2), and rmdir(2) with `AT_REMOVEDIR`.
    pub(crate) fn unlink(&mut self, start: Inode, path: &[u8], flags: i32) -> Result<(), i32> {
        if flags & !libc::AT_REMOVEDIR != 0 {
            return Err(libc::EINVAL);
        }
        let found = self.find(start, path, Ending::Name)?;
        let inode = found.existing()?;
        if flags == 0 {
            let name = found.name(libc::EISDIR)?.to_vec();
            if self.is_directory(inode) {
                return Err(libc::EISDIR);
            }
            if found.slash {
                return Err(libc::ENOTDIR);
            }
            self.record(vec![(found.directory, name, Some(inode), None)]);
            return Ok(());
        }
        let name = match &found.last {
            Last::Name(name) => name.clone(),
            Last::Here => return Err(libc::EINVAL),
            Last::Parent => return Err(libc::ENOTEMPTY),
            Last::Root => return Err(libc::EBUSY),
        };
        if !self.directory(inode)?.now.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.record(vec![(found.directory, name, Some(inode), None)]);
        Ok(())
    }

    /// renameat2(2).
    pub(crate) fn rename(
        &mut self,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        flags: u32,
    ) -> Result<(), i32> {
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let keep = flags & libc::RENAME_NOREPLACE != 0;
        if flags & !(libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE) != 0 || (exchange && keep) {
            return Err(libc::EINVAL);
        }
        let old = self.find(from.0, from.1, Ending::Name)?;
        let new = self.find(to.0, to.1, Ending::Name)?;
        let old_name = old.name(libc::EBUSY)?.to_vec();
        let new_name = new.name(if keep { libc::EEXIST } else { libc::EBUSY })?.to_vec();
        let moved = old.existing()?;
        if keep && new.inode.is_some() {
            return Err(libc::EEXIST);
        }
        if exchange {
            let other = new.existing()?;
            self.check_not_inside(moved, new.directory, libc::EINVAL)?;
            self.check_not_inside(other, old.directory, libc::EINVAL)?;
            if moved != other {
                let first = (old.directory, old_name, Some(moved), Some(other));
                self.record(vec![first, (new.directory, new_name, Some(other), Some(moved))]);
            }
            return Ok(());
        }
        self.check_rename(moved, &old, &new)?;
        if new.inode == Some(moved) {
            return Ok(());
        }
        let gone = (old.directory, old_name, Some(moved), None);
        self.record(vec![gone, (new.directory, new_name, new.inode, Some(moved))]);
        Ok(())
    }

    fn check_rename(&self, moved: Inode, old: &Found, new: &Found) -> Result<(), i32> {
        self.check_alive(new.directory)?;
        if (old.slash || new.slash) && !self.is_directory(moved) {
            return Err(libc::ENOTDIR);
        }
        self.check_not_inside(moved, new.directory, libc::EINVAL)?;
        let Some(replaced) = new.inode else {
            return Ok(());
        };
        self.check_not_inside(replaced, old.directory, libc::ENOTEMPTY)?;
        match (self.is_directory(moved), self.is_directory(replaced)) {
            (true, false) => Err(libc::ENOTDIR),
            (false, true) => Err(libc::EISDIR),
            (true, true) if moved != replaced => match self.directory(replaced)?.now.is_empty() {
                true => Ok(()),
                false => Err(libc::ENOTEMPTY),
            },
            _ => Ok(()),
        }
    }

    /// Fails with `error` if `directory` is `above` or lies in it.
    fn check_not_inside(&self, above: Inode, directory: Inode, error: i32) -> Result<(), i32> {
        let mut at = directory;
        loop {
            if at == above {
                return Err(error);
            }
            let parent = self.directory(at)?.parent;
            if parent == at {
                return Ok(());
            }
            at = parent;
        }
    }

    /// Fails if the directory was removed: it takes no new names.
    fn check_alive(&self, directory: Inode) -> Result<(), i32> {
        if self.file(directory).links == 0 { Err(libc::ENOENT) } else { Ok(()) }
    }

    /// Returns the last name of a path, if it can be made.
    fn vacant<'a>(&self, found: &'a Found) -> Result<&'a [u8], i32> {
        if found.inode.is_some() {
            return Err(libc::EEXIST);
        }
        self.check_alive(found.directory)?;
        found.name(libc::EEXIST)
    }

    fn add(&mut self, found: &Found, inode: Inode) {
        let Last::Name(name) = &found.last else { unreachable!("seen to be a vacant name") };
        self.record(vec![(found.directory, name.clone(), None, Some(inode))]);
    }

    /// Changes names, all at once.
    fn record(&mut self, entries: Vec<Renamed>) {
        let mut inodes: Vec<Inode> = Vec::new();
        for (_, _, before, after) in &entries {
            inodes.extend(before.iter().chain(after));
        }
        inodes.sort_unstable();
        inodes.dedup();
        let of_directory = inodes.iter().any(|inode| self.is_directory(*inode));
        for entry in &entries {
            self.rename_one(entry);
        }
        let has_another =
            |(_, _, before, _): &Renamed| before.is_some_and(|inode| self.file(inode).links > 0);
        let moves = entries.iter().any(has_another);
        let is_gone = |inode: &&Inode| self.is_directory(**inode) && self.file(**inode).links == 0;
        let removed = inodes.iter().find(is_gone).copied();
        let entries = entries
            .into_iter()
            .map(|(directory, name, _, to)| Entry { directory, name, to })
            .collect();
        self.journal.note(Change { entries, inodes, moves, of_directory, removed });
    }

    fn rename_one(&mut self, (directory, name, before, after): &Renamed) {
        let now = self.now_ns;
        if let Some(inode) = before {
            self.unname(*inode, *directory);
        }
        if let Some(inode) = after {
            self.name(*inode, *directory);
        }
        self.touch(*directory);
        for inode in before.iter().chain(after) {
            self.file_mut(*inode).changed_ns = now;
        }
        let Node::Directory(entries) = &mut self.file_mut(*directory).node else {
            unreachable!("found as a directory");
        };
        match after {
            Some(inode) => entries.now.insert(name.clone(), *inode),
            None => entries.now.remove(name),
        };
    }

    /// Counts a new name. The first name of a directory counts twice, and any counts as a link of
    /// the directory that it is in.
    fn name(&mut self, inode: Inode, within: Inode) {
        let file = self.file_mut(inode);
        file.links += 1;
        if let Node::Directory(directory) = &mut file.node {
            directory.parent = within;
            // Its entry `.` is not counted again when the directory moves.
            file.links = file.links.max(2);
            self.file_mut(within).links += 1;
        }
    }

    fn unname(&mut self, inode: Inode, within: Inode) {
        let file = self.file_mut(inode);
        file.links -= 1;
        if let Node::Directory(directory) = &file.node {
            if directory.now.is_empty() && file.links == 1 {
                file.links = 0;
            }
            self.file_mut(within).links -= 1;
        }
    }
}

/// A directory, a name in it, and the name's inode before and after.
type Renamed = (Inode, Vec<u8>, Option<Inode>, Option<Inode>);
