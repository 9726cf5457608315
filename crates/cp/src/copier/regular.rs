//! Opens both sides of a regular file and hands it over to be copied.
//!
//! A new name is made with `O_EXCL`, so that nothing that appeared meanwhile is written through;
//! the source is compared with what was looked at, so that what was put in its place is not read.

use std::os::fd::OwnedFd;

use ringwise::Descriptor;
use rustix::{
    fs::{FileType, OFlags, Stat, fstat},
    io::Errno,
};

use super::{Copier, Existed, Visit, Visited, omitted_at_first};
use crate::{
    job::Job,
    place::{Identity, Place, kind},
};

/// The destination, open.
struct Opened {
    file: OwnedFd,
    is_new: bool,
}

impl Copier {
    pub(super) fn make_regular(
        &mut self,
        visit: &Visit<'_>,
        stat: &Stat,
        existed: &Existed,
    ) -> Visited {
        let (source, source_stat) = match self.open_source(visit, stat) {
            Ok(opened) => opened,
            Err(visited) => return visited,
        };
        let mode = stat.st_mode & 0o777;
        let omitted = omitted_at_first(&self.options, stat);
        // Attributes of the user's want permission to write (xattr(7)).
        let extra = if self.options.preserve.xattr { 0o200 & !mode } else { 0 };
        let target = &visit.target;
        let opened = match existed.stat {
            Some(_) => self.open_existing(target, (mode & !omitted) | extra),
            None => self.open_new(target, (mode & !omitted) | extra),
        };
        let Opened { file, is_new } = match opened {
            Ok(opened) => opened,
            Err(visited) => return visited,
        };
        let copy_stat = match fstat(&file) {
            Ok(stat) => stat,
            Err(errno) => return self.fail("cannot fstat %s", &[&target.path], Some(errno)),
        };
        self.note_written(copy_stat.st_dev, &file, &target.path);
        let job = Job {
            number: self.flight.number(),
            options: self.options.clone(),
            caller: self.caller,
            locale: self.report.locale,
            source: Descriptor::from(source),
            source_path: visit.source.path.clone(),
            found: *stat,
            source_stat,
            copy: Descriptor::from(file),
            copy_path: target.path.clone(),
            copy_stat,
            is_new,
            mode,
            omitted: if is_new { omitted } else { 0 },
            extra: if is_new { extra } else { 0 },
            cloned: false,
        };
        if existed.backup.is_some() {
            return self.copy_at_once(job);
        }
        match self.flight.submit(job, &mut self.report) {
            true => Visited::Done,
            false => Visited::Failed,
        }
    }

    /// Where a failure has to be undone, nothing else goes on meanwhile.
    fn copy_at_once(&mut self, job: Job) -> Visited {
        self.flight.drain(&mut self.report);
        let failed_before = std::mem::replace(&mut self.flight.failed, false);
        self.flight.submit(job, &mut self.report);
        self.flight.drain(&mut self.report);
        let failed = self.flight.failed;
        self.flight.failed |= failed_before;
        if failed { Visited::Failed } else { Visited::Done }
    }

    fn open_source(&mut self, visit: &Visit<'_>, stat: &Stat) -> Result<(OwnedFd, Stat), Visited> {
        let path = &visit.source.path;
        let mut flags = OFlags::RDONLY;
        if self.never_follows() {
            flags |= OFlags::NOFOLLOW;
        }
        if kind(stat) == FileType::RegularFile {
            // A fifo put in its place must not make the run wait for a writer.
            flags |= OFlags::NONBLOCK;
        }
        let source = match visit.source.open(flags, 0) {
            Ok(source) => source,
            Err(errno) => {
                return Err(self.fail("cannot open %s for reading", &[path], Some(errno)));
            }
        };
        match fstat(&source) {
            Ok(opened) if Identity::of(&opened) == Identity::of(stat) => Ok((source, opened)),
            Ok(_) => {
                let template = "skipping file %s, as it was replaced while being copied";
                Err(self.fail(template, &[path], None))
            }
            Err(errno) => Err(self.fail("cannot fstat %s", &[path], Some(errno))),
        }
    }

    fn write_flags(&self) -> OFlags {
        // What is to be verified is read back through the same descriptor.
        if self.options.verify { OFlags::RDWR } else { OFlags::WRONLY }
    }

    fn open_existing(&mut self, target: &Place, mode: u32) -> Result<Opened, Visited> {
        let truncate = if self.options.data { OFlags::TRUNC } else { OFlags::empty() };
        match target.open(self.write_flags() | truncate, 0) {
            Ok(file) => Ok(Opened { file, is_new: false }),
            Err(Errno::NOENT) => self.open_new(target, mode),
            Err(_) if self.options.remove_after_failure => {
                match target.unlink() {
                    Ok(()) => {
                        if self.options.verbose {
                            self.report.out("removed %s", &[&target.path]);
                        }
                    }
                    Err(Errno::NOENT) => {}
                    Err(errno) => {
                        return Err(self.fail("cannot remove %s", &[&target.path], Some(errno)));
                    }
                }
                self.open_new(target, mode)
            }
            Err(errno) => Err(self.cannot_create(target, errno)),
        }
    }

    fn open_new(&mut self, target: &Place, mode: u32) -> Result<Opened, Visited> {
        let flags = self.write_flags() | OFlags::CREATE;
        let mut opened = target.open(flags | OFlags::EXCL, mode);
        if opened.as_ref().err() == Some(&Errno::EXIST)
            && target.stat(false).is_ok_and(|stat| kind(&stat) == FileType::Symlink)
        {
            if std::env::var_os("POSIXLY_CORRECT").is_none() {
                let template = "not writing through dangling symlink %s";
                return Err(self.fail(template, &[&target.path], None));
            }
            opened = target.open(flags, mode);
        }
        match opened {
            Ok(file) => Ok(Opened { file, is_new: true }),
            Err(Errno::ISDIR) if target.path.ends_with(b"/") => {
                Err(self.cannot_create(target, Errno::NOTDIR))
            }
            Err(errno) => Err(self.cannot_create(target, errno)),
        }
    }

    fn cannot_create(&mut self, target: &Place, errno: Errno) -> Visited {
        self.fail("cannot create regular file %s", &[&target.path], Some(errno))
    }
}
