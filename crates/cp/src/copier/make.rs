//! Makes what the destination is to be: a directory, a link, a special file, or a job for a
//! regular file.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{self, AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{
    held::Held,
    state::{Copier, Entered, Existed, Visit, Visited},
};
use crate::{
    attributes::{Copied, Finish, MODE_BITS, Of, Otherwise, To, omitted_at_first, set_mode},
    command::options::{Making, Options},
    names::{
        place::{Identity, Place, kind},
        temporary,
    },
};

impl Copier {
    pub(super) fn make(
        &mut self,
        visit: &Visit<'_>,
        stat: &Stat,
        existed: &Existed,
        root_made: &mut bool,
    ) -> Visited {
        let what = kind(stat);
        if what == FileType::Directory {
            return self.make_directory(visit, stat, existed, root_made);
        }
        match self.options.making {
            Making::SymbolicLink => return self.make_symbolic(visit, stat, existed),
            Making::HardLink => {
                let replace = self.options.remove_after_failure
                    || self.options.existing == crate::command::options::Existing::Ask;
                let follow = self.options.follows(visit.is_named);
                let linking = Linking { replace, follow, says_removed: false };
                let linked = self.link(&visit.source, &visit.target, linking);
                return if linked { Visited::Done } else { Visited::Failed };
            }
            Making::Copy => {}
        }
        let as_regular = self.options.special_as_regular && what != FileType::Symlink;
        match what {
            FileType::RegularFile => self.make_regular(visit, stat, existed),
            _ if as_regular => self.make_regular(visit, stat, existed),
            FileType::Symlink => self.make_link_copy(visit, stat, existed),
            FileType::Fifo
            | FileType::Socket
            | FileType::BlockDevice
            | FileType::CharacterDevice => self.make_special(visit, stat, existed),
            _ => self.fail("%s has unknown file type", &[&visit.source.path], None),
        }
    }

    fn make_directory(
        &mut self,
        visit: &Visit<'_>,
        stat: &Stat,
        existed: &Existed,
        root_made: &mut bool,
    ) -> Visited {
        if (visit.above)(Identity::of(stat)) {
            let template = "cannot copy cyclic symbolic link %s";
            return self.fail(template, &[&visit.source.path], None);
        }
        let mut omitted = 0;
        let mut restore = None;
        if existed.stat.is_none() {
            omitted = omitted_at_first(&self.options, stat);
            match self.make_new_directory(visit, stat.st_mode & MODE_BITS & !omitted, root_made) {
                Ok(to_restore) => restore = to_restore,
                Err(visited) => return visited,
            }
            if self.options.verbose {
                self.say_verbose(visit, None);
            }
        }
        let elsewhere = self.options.one_file_system
            && visit.device.is_some_and(|device| device != stat.st_dev);
        Visited::Enter(Box::new(Entered {
            source: visit.source.clone(),
            target: visit.target.clone(),
            stat: *stat,
            existed: existed.stat,
            follow: self.options.follows(visit.is_named),
            omitted,
            restore,
            is_skipped: elsewhere,
            root_made: *root_made,
        }))
    }

    /// Makes a directory that its owner can fill; gives the mode to restore where that was
    /// changed for it.
    fn make_new_directory(
        &mut self,
        visit: &Visit<'_>,
        mode: u32,
        root_made: &mut bool,
    ) -> Result<Option<u32>, Visited> {
        let target = &visit.target;
        let made = fs::mkdirat(target.directory(), target.name(), Mode::from_raw_mode(mode));
        if let Err(errno) = made {
            return Err(self.fail("cannot create directory %s", &[&target.path], Some(errno)));
        }
        let needs_stat = !*root_made || mode & 0o700 != 0o700 || self.caller.umask & 0o700 != 0;
        if !needs_stat {
            return Ok(None);
        }
        let (held, made) = match Held::open_with_stat(target, OFlags::NOFOLLOW) {
            Ok(opened) => opened,
            Err(errno) => {
                return Err(self.fail("cannot stat %s", &[&target.path], Some(errno)));
            }
        };
        if !std::mem::replace(root_made, true) {
            self.remember(Identity::of(&made), target);
        }
        if made.st_mode & 0o700 == 0o700 {
            return Ok(None);
        }
        match held.attributes().map_or(Ok(()), |to| set_mode(to, made.st_mode | 0o700)) {
            Ok(()) => Ok(Some(made.st_mode & MODE_BITS)),
            Err(errno) => {
                Err(self.fail("setting permissions for %s", &[&target.path], Some(errno)))
            }
        }
    }

    /// `--symbolic-link`.
    fn make_symbolic(&mut self, visit: &Visit<'_>, stat: &Stat, existed: &Existed) -> Visited {
        let target = &visit.target;
        if !visit.source.path.starts_with(b"/") && !is_in_current_directory(target) {
            let mut text = self.report.locale.bare(&target.path);
            text.extend_from_slice(b": can make relative symbolic links only in current directory");
            self.report.say(crate::messages::report::Line::Error(text));
            self.failed = true;
            return Visited::Failed;
        }
        let content = visit.source.path.clone();
        if let Err(errno) = symlink(&content, target, self.options.remove_after_failure) {
            let names = [&target.path[..], &visit.source.path];
            let template = "cannot create symbolic link %s to %s";
            return self.fail(template, &names, Some(errno));
        }
        // A link to the source and no copy of it: its owner is who made it.
        let mut options = (*self.options).clone();
        options.preserve.ownership = false;
        self.finish_name(&options, visit, (stat, existed), Copied::Link)
    }

    /// A symbolic link like the source.
    fn make_link_copy(&mut self, visit: &Visit<'_>, stat: &Stat, existed: &Existed) -> Visited {
        let content = match visit.source.read_link() {
            Ok(content) => content,
            Err(errno) => {
                let template = "cannot read symbolic link %s";
                return self.fail(template, &[&visit.source.path], Some(errno));
            }
        };
        let target = &visit.target;
        if let Err(errno) = symlink(&content, target, self.options.remove_after_failure) {
            let may_be_there = self.options.resume
                || self.options.update == crate::command::options::Update::Older;
            let is_there = may_be_there
                && existed.stat.is_some()
                && target.read_link().is_ok_and(|there| there == content);
            if !is_there {
                let template = "cannot create symbolic link %s";
                return self.fail(template, &[&target.path], Some(errno));
            }
        }
        self.finish_name(&self.options.clone(), visit, (stat, existed), Copied::Link)
    }

    fn make_special(&mut self, visit: &Visit<'_>, stat: &Stat, existed: &Existed) -> Visited {
        let omitted = omitted_at_first(&self.options, stat);
        let target = &visit.target;
        let (what, device) = (kind(stat), stat.st_rdev);
        let mode = Mode::from_raw_mode(stat.st_mode & MODE_BITS & !omitted);
        let made = fs::mknodat(target.directory(), target.name(), what, mode, device);
        if let Err(errno) = made {
            let template = match what {
                FileType::Fifo => "cannot create fifo %s",
                _ => "cannot create special file %s",
            };
            return self.fail(template, &[&target.path], Some(errno));
        }
        self.finish_name(&self.options.clone(), visit, (stat, existed), Copied::Special)
    }

    /// Attributes of what has no content.
    fn finish_name(
        &mut self,
        options: &Options,
        visit: &Visit<'_>,
        (stat, existed): (&Stat, &Existed),
        what: Copied,
    ) -> Visited {
        let made_as = if what == Copied::Link { FileType::Symlink } else { kind(stat) };
        let made = match self.open_made(&visit.target, made_as, stat.st_rdev) {
            Ok(made) => made,
            Err(visited) => return visited,
        };
        let omitted = if what == Copied::Link { 0 } else { omitted_at_first(options, stat) };
        let fresh = if kind(stat) == FileType::Socket { 0o777 } else { 0o666 };
        let otherwise = self.otherwise(existed.stat.is_none().then_some(fresh), omitted, None);
        let finish = Finish {
            options,
            caller: self.caller,
            locale: self.report.locale,
            source: Of::Named(&visit.source),
            source_path: &visit.source.path,
            source_stat: stat,
            copy: To::Through(made.as_fd()),
            copy_path: &visit.target.path,
            copy_stat: existed.stat.as_ref(),
            what,
            otherwise,
        };
        let mut lines = Vec::new();
        let ok = finish.run(&mut lines);
        lines.into_iter().for_each(|line| self.report.say(line));
        if ok { Visited::Done } else { Visited::Failed }
    }

    /// Opens what was just made, to set its attributes: by its name another's file could be met
    /// by now.
    fn open_made(&mut self, target: &Place, what: FileType, node: u64) -> Result<OwnedFd, Visited> {
        let opened = target.open(OFlags::PATH | OFlags::NOFOLLOW, 0);
        let opened = opened.and_then(|made| fs::fstat(&made).map(|stat| (made, stat)));
        let (made, stat) = match opened {
            Ok(opened) => opened,
            Err(errno) => {
                return Err(self.fail("cannot stat %s", &[&target.path], Some(errno)));
            }
        };
        // What has a second name was somebody's before: a link may stay that was there.
        let is_ours = match what {
            FileType::Symlink => kind(&stat) == what,
            _ => kind(&stat) == what && stat.st_nlink <= 1 && stat.st_rdev == node,
        };
        if !is_ours {
            let template = "skipping file %s, as it was replaced while being copied";
            return Err(self.fail(template, &[&target.path], None));
        }
        self.note_made(stat.st_dev, target);
        Ok(made)
    }

    /// Permissions of what was made, where they are not preserved. `fresh`: those of a new file,
    /// where it is one.
    pub(super) fn otherwise(
        &self,
        fresh: Option<u32>,
        omitted: u32,
        restore: Option<u32>,
    ) -> Otherwise {
        let omitted = omitted & !self.caller.umask;
        match (fresh.filter(|_| self.options.preserve.fresh_mode), restore, omitted) {
            (Some(fresh), ..) => Otherwise::Fresh(fresh),
            (_, Some(mode), _) => Otherwise::Exactly(mode | omitted),
            (_, None, 0) => Otherwise::Leave,
            (_, None, _) => Otherwise::Grant(omitted),
        }
    }

    /// Makes another name for a copy that was made before.
    pub(super) fn link_to_copy(&mut self, copy: &Place, new: &Place) -> bool {
        let says_removed = self.options.verbose;
        self.link(copy, new, Linking { replace: true, follow: false, says_removed })
    }

    /// Makes a hard link.
    fn link(&mut self, existing: &Place, new: &Place, linking: Linking) -> bool {
        let existing = existing.reached();
        let flags = if linking.follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
        let call = |to: &Place| {
            let (from, to) = ((existing.directory(), existing.name()), (to.directory(), to.name()));
            fs::linkat(from.0, from.1, to.0, to.1, flags)
        };
        let made = match call(new) {
            Err(Errno::EXIST) if linking.replace => replace_with(new, call).map(|()| true),
            made => made.map(|()| false),
        };
        match made {
            Ok(replaced) => {
                if self.options.durable
                    && let Ok(stat) = new.stat(false)
                {
                    self.note_made(stat.st_dev, new);
                }
                if replaced && linking.says_removed {
                    self.report.out("removed %s", &[&new.path]);
                }
                true
            }
            Err(errno) => {
                let names = [&new.path[..], &existing.path];
                self.error("cannot create hard link %s to %s", &names, Some(errno));
                false
            }
        }
    }
}

/// How a hard link is made.
struct Linking {
    /// In place of what is there.
    replace: bool,
    /// To what a symbolic link leads to.
    follow: bool,
    says_removed: bool,
}

/// Makes a symbolic link, in place of what is there where that may be replaced.
fn symlink(content: &[u8], target: &Place, replace: bool) -> Result<(), Errno> {
    let call = |place: &Place| fs::symlinkat(content, place.directory(), place.name());
    match call(target) {
        Err(Errno::EXIST) if replace => replace_with(target, call),
        made => made,
    }
}

/// Makes something under a temporary name and moves it over what is there: the name always leads
/// to one or the other.
fn replace_with(target: &Place, make: impl Fn(&Place) -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        let name = temporary::name(temporary::number());
        let temporary = target.sibling(name.as_bytes());
        match make(&temporary) {
            Err(Errno::EXIST) => continue,
            made => made?,
        }
        let moved = temporary.rename(target);
        // Two names of one file are not moved over each other (rename(2)): then it is still here.
        let _ = temporary.unlink();
        return moved;
    }
}

fn is_in_current_directory(target: &Place) -> bool {
    let identity = |place: &Place| place.stat(true).map(|stat| Identity::of(&stat)).ok();
    // Where there is no such directory, making the link tells that.
    let above = identity(&target.sibling(b"."));
    above.is_none() || above == identity(&Place::typed(b".".to_vec()))
}
