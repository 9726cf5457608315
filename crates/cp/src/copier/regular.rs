//! Opens both sides of a regular file and hands it over to be copied.
//!
//! A new name is made with `O_EXCL`, so that nothing that appeared meanwhile is written through;
//! the source is compared with what was looked at, so that what was put in its place is not read.

use std::{
    ffi::OsString,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
};

use ringwise::Descriptor;
use rustix::{
    fs::{Access, AtFlags, FileType, Gid, OFlags, Stat, Uid, accessat, fchown, fstat},
    io::Errno,
};

use super::state::{Copier, Existed, Visit, Visited};
use crate::{
    attributes::{MODE_BITS, Of, To, extended, set_mode},
    data::verify,
    job::{Job, Permissions},
    names::{
        place::{Identity, Place, kind, stat_of_copy},
        temporary::{Existing, Temporary},
    },
};

/// The destination, open.
struct Opened {
    file: OwnedFd,
    is_new: bool,
    temporary: Option<Temporary>,
    /// Its content is the source's already.
    is_whole: bool,
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
        let (permissions, target) = (Permissions::of_new(&self.options, stat), &visit.target);
        let mode = permissions.at_first();
        let resumed = existed.stat.filter(|_| self.options.resume);
        let whole = resumed
            .map_or(Ok(None), |there| self.open_whole(target, (&source, &source_stat), &there));
        let opened = match (whole, existed.stat) {
            (Err(visited), _) => return visited,
            (Ok(Some(whole)), _) => Ok(whole),
            _ if self.replaces_at_once(stat) => self.open_beside(target, existed, mode),
            (_, Some(_)) => self.open_existing(target, mode),
            (_, None) => self.open_new(target, mode),
        };
        let Opened { file, is_new, temporary, is_whole } = match opened {
            Ok(opened) => opened,
            Err(visited) => return visited,
        };
        let copy_stat = match stat_of_copy(&file, &source_stat) {
            Ok(stat) => stat,
            Err(errno) => return self.fail("cannot fstat %s", &[&target.path], Some(errno)),
        };
        self.note_written(copy_stat.st_dev, &file, &target.path);
        let shares = self.flight.pair_shares(source_stat.st_dev, copy_stat.st_dev) == Some(true);
        self.bundles.saw(&source_stat, shares);
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
            into: visit.into.filter(|_| is_new),
            mode: permissions.mode,
            omitted: if is_new { permissions.omitted } else { 0 },
            extra: if is_new { permissions.extra } else { 0 },
            cloned: is_whole,
            absent_pages: 0,
            way: if is_whole { "whole" } else { "" },
            meter: self.meter.clone(),
            temporary,
        };
        if existed.backup.is_some() || (self.options.atomic && self.named.is_some()) {
            return self.copy_at_once(job);
        }
        match self.flight.submit(job, &mut self.report) {
            true => Visited::Done,
            false => Visited::Failed,
        }
    }

    /// Where a failure has to be undone, or the next source may have the same name, nothing else
    /// goes on meanwhile.
    fn copy_at_once(&mut self, job: Job) -> Visited {
        self.settle();
        let failed_before = std::mem::replace(&mut self.flight.failed, false);
        self.flight.submit(job, &mut self.report);
        self.settle();
        let failed = self.flight.failed;
        self.flight.failed |= failed_before;
        if failed { Visited::Failed } else { Visited::Done }
    }

    fn open_source(&mut self, visit: &Visit<'_>, stat: &Stat) -> Result<(OwnedFd, Stat), Visited> {
        let path = &visit.source.path;
        let mut flags = OFlags::RDONLY;
        if self.options.never_follows(visit.is_named) {
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

    /// `--resume`: opens a copy that is there and whole. None: it is to be copied.
    fn open_whole(
        &mut self,
        target: &Place,
        (source, source_stat): (&OwnedFd, &Stat),
        there: &Stat,
    ) -> Result<Option<Opened>, Visited> {
        let both_regular = [source_stat, there].iter().all(|stat| kind(stat).is_file());
        if both_regular
            && source_stat.st_size == there.st_size
            && let Ok(file) = target.open(OFlags::RDONLY | OFlags::NONBLOCK, 0)
            && verify::is_same(source, &file)
        {
            return Ok(Some(Opened { file, is_new: false, temporary: None, is_whole: true }));
        }
        if self.options.preserve.links && there.st_nlink > 1 {
            // As without --resume: what other names lead to is not written over.
            match target.unlink() {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => {
                    return Err(self.fail("cannot remove %s", &[&target.path], Some(errno)));
                }
            }
        }
        Ok(None)
    }

    fn open_existing(&mut self, target: &Place, mode: u32) -> Result<Opened, Visited> {
        let truncate = if self.options.data { OFlags::TRUNC } else { OFlags::empty() };
        match target.open(self.write_flags() | truncate, 0) {
            Ok(file) => Ok(Opened { file, is_new: false, temporary: None, is_whole: false }),
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
            Ok(file) => Ok(Opened { file, is_new: true, temporary: None, is_whole: false }),
            Err(Errno::ISDIR) if target.path.ends_with(b"/") => {
                Err(self.cannot_create(target, Errno::NOTDIR))
            }
            Err(errno) => Err(self.cannot_create(target, errno)),
        }
    }

    /// `--atomic`: opens what is to get the target's name.
    fn open_beside(
        &mut self,
        target: &Place,
        existed: &Existed,
        mode: u32,
    ) -> Result<Opened, Visited> {
        let Some(old) = &existed.stat else {
            return self.open_for_name(target, existed.is_replaced, mode);
        };
        if kind(old) != FileType::RegularFile {
            // What is written to a device or a pipe has no name of its own.
            return self.open_existing(target, mode);
        }
        let place = match behind_links(target) {
            Ok(place) => place,
            Err(errno) => return Err(self.cannot_create(target, errno)),
        };
        // Who may not write to the file may not replace it either.
        let may = accessat(place.directory(), place.name(), Access::WRITE_OK, AtFlags::EACCESS);
        match may {
            Err(_) if self.options.remove_after_failure => {
                if self.options.verbose {
                    self.report.out("removed %s", &[&target.path]);
                }
                return self.open_for_name(target, true, mode);
            }
            Err(errno) => return Err(self.cannot_create(target, errno)),
            Ok(()) => {}
        }
        let made = Temporary::make(place.clone(), Existing::Replaced, self.write_flags(), 0o600);
        match made {
            Ok((file, temporary)) => {
                dress(&file, &place, old);
                Ok(Opened { file, is_new: false, temporary: Some(temporary), is_whole: false })
            }
            Err(errno) => Err(self.cannot_create(target, errno)),
        }
    }

    fn open_for_name(
        &mut self,
        target: &Place,
        is_replaced: bool,
        mode: u32,
    ) -> Result<Opened, Visited> {
        if target.path.ends_with(b"/") {
            return Err(self.cannot_create(target, Errno::NOTDIR));
        }
        let existing = if is_replaced { Existing::Replaced } else { Existing::Nothing };
        if existing == Existing::Nothing
            && target.stat(false).is_ok_and(|stat| kind(&stat) == FileType::Symlink)
        {
            let template = "not writing through dangling symlink %s";
            return Err(self.fail(template, &[&target.path], None));
        }
        match Temporary::make(target.clone(), existing, self.write_flags(), mode) {
            Ok((file, temporary)) => {
                Ok(Opened { file, is_new: true, temporary: Some(temporary), is_whole: false })
            }
            Err(errno) => Err(self.cannot_create(target, errno)),
        }
    }

    fn cannot_create(&mut self, target: &Place, errno: Errno) -> Visited {
        self.fail("cannot create regular file %s", &[&target.path], Some(errno))
    }
}

/// The file itself where the target is a link to it: the link stays.
pub(super) fn behind_links(target: &Place) -> Result<Place, Errno> {
    if kind(&target.stat(false)?) != FileType::Symlink {
        return Ok(target.clone());
    }
    let path = OsString::from_vec(target.reachable());
    let real = std::fs::canonicalize(path)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(Place::typed(real.into_os_string().into_vec()))
}

/// Gives what is to replace a file that one's owner, attributes and permissions, as if that had
/// been written to. Who may not give it away keeps it, and then it runs as nobody else.
fn dress(file: &OwnedFd, old: &Place, stat: &Stat) {
    let own = fstat(file);
    let is_owned = own.is_ok_and(|own| (own.st_uid, own.st_gid) == (stat.st_uid, stat.st_gid))
        || fchown(file, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid))).is_ok();
    extended::take_over(Of::Named(old), To::from(file));
    let kept = if is_owned { MODE_BITS } else { 0o777 };
    // Its permissions stay those that it was made with where they cannot be set.
    let _ = set_mode(To::from(file), stat.st_mode & kept);
}
