//! What is at the destination already: kept, asked about, moved away, removed or written over.

use std::io::{self, BufRead, Write};

use ringwise::StandardStream;
use rustix::{
    fs::{Access, AtFlags, FileType, Stat, accessat},
    io::Errno,
};

use super::{
    same_file::Sameness,
    state::{Copier, Existed, Visit, Visited},
};
use crate::{
    command::options::{Backup, Dereference, Existing, Making, Update},
    names::place::{Identity, Place, kind, split},
};

impl Copier {
    /// Looks at the destination. `Err`: there is nothing to be done, or it must not be done.
    pub(super) fn look_at_target(
        &mut self,
        visit: &Visit<'_>,
        source: &Stat,
    ) -> Result<Existed, Visited> {
        let by_link = self.sees_target_link(source);
        let mut target = match visit.target.stat(!by_link) {
            Ok(target) => target,
            Err(Errno::NOENT) => return Ok(Existed::none()),
            Err(Errno::LOOP) if self.options.remove_after_failure => {
                match visit.target.stat(false) {
                    Ok(target) => target,
                    Err(_) => return Ok(Existed::none()),
                }
            }
            Err(errno) => {
                return Err(self.fail("cannot stat %s", &[&visit.target.path], Some(errno)));
            }
        };
        if self.flight.has_bundles() || self.flight.is_busy(Identity::of(&target), true) {
            self.settle();
            target = visit.target.stat(!by_link).unwrap_or(target);
        }
        let sameness = self.sameness(visit, source, &target);
        if sameness == Sameness::Refused {
            let names = [&visit.source.path[..], &visit.target.path];
            return Err(self.fail("%s and %s are the same file", &names, None));
        }
        self.may_replace(visit, source, &target)?;
        if sameness == Sameness::NothingToDo {
            return Err(Visited::Done);
        }
        self.fits(visit, source, &target)?;
        self.clear_way(visit, source, target)
    }

    /// Only content is written through a link; anything else replaces the link, or is refused.
    fn sees_target_link(&self, source: &Stat) -> bool {
        let options = &self.options;
        let as_regular = match kind(source) {
            FileType::RegularFile => true,
            FileType::Directory | FileType::Symlink => false,
            _ => options.special_as_regular,
        };
        !as_regular
            || options.making != Making::Copy
            || options.backup != Backup::None
            || options.remove_before
    }

    /// `--update`, `--no-clobber` and `--interactive`.
    fn may_replace(
        &mut self,
        visit: &Visit<'_>,
        source: &Stat,
        target: &Stat,
    ) -> Result<(), Visited> {
        if is_directory(source) {
            return Ok(());
        }
        if self.options.update == Update::Older && !is_older(target, source) {
            return Err(self.link_up_to_date(visit, source));
        }
        let existing = self.options.existing;
        match existing {
            Existing::Overwrite => Ok(()),
            Existing::Keep => Err(Visited::Done),
            Existing::Refuse => Err(self.fail("not replacing %s", &[&visit.target.path], None)),
            Existing::Ask if self.ask(&visit.target, target) => Ok(()),
            Existing::Ask => Err(Visited::Done),
        }
    }

    /// A copy that is new enough is still the one that other names of its source are linked to,
    /// with GNU cp even where links are not preserved.
    fn link_up_to_date(&mut self, visit: &Visit<'_>, source: &Stat) -> Visited {
        // Of one name each, only several operands or links lead to a file twice.
        let may_return = source.st_nlink > 1
            || self.named.is_some()
            || self.options.dereference == Dereference::Always;
        if !may_return {
            return Visited::Done;
        }
        let identity = Identity::of(source);
        match self.copied.get(&identity).cloned() {
            None => self.remember(identity, &visit.target),
            Some(earlier) => {
                if !self.link_to_copy(&earlier, &visit.target) {
                    return Visited::Failed;
                }
            }
        }
        Visited::Done
    }

    fn ask(&mut self, place: &Place, stat: &Stat) -> bool {
        // What was said before comes before the question.
        self.settle();
        self.report.flush();
        let name = self.report.locale.shell(&place.path);
        let mode = stat.st_mode & 0o7777;
        let permissions = permissions(stat.st_mode);
        let writable = kind(stat) == FileType::Symlink
            || self.caller.is_root
            || accessat(place.directory(), place.name(), Access::WRITE_OK, AtFlags::EACCESS)
                .is_ok();
        let (verb, detail) = if writable {
            ("overwrite", String::new())
        } else if self.options.remove_before || self.options.remove_after_failure {
            ("replace", format!(", overriding mode {mode:04o} ({permissions})"))
        } else {
            ("unwritable", format!(" (mode {mode:04o}, {permissions}); try anyway"))
        };
        let text = [b"cp: ", verb.as_bytes(), b" ", &name[..], detail.as_bytes(), b"? "].concat();
        // Nobody is left to be asked where nobody reads.
        let _ = io::stderr().lock().write_all(&text);
        let mut answer = Vec::new();
        match io::stdin().lock().read_until(b'\n', &mut answer) {
            _ if ringwise::was_closed_at_start(StandardStream::Input) => {
                self.report.input_failed(Some(Errno::BADF));
            }
            Ok(_) => {}
            Err(_) => self.report.input_failed(None),
        }
        matches!(answer.first(), Some(b'y' | b'Y'))
    }

    /// Directories replace only directories, and nothing replaces what this run just made.
    fn fits(&mut self, visit: &Visit<'_>, source: &Stat, target: &Stat) -> Result<(), Visited> {
        let names = [&visit.target.path[..], &visit.source.path];
        match (is_directory(source), is_directory(target)) {
            (true, false) => {
                let template = "cannot overwrite non-directory %s with directory %s";
                Err(self.fail(template, &names, None))
            }
            (false, true) => {
                let template = "cannot overwrite directory %s with non-directory";
                Err(self.fail(template, &names[..1], None))
            }
            (false, false) if self.options.backup != Backup::Numbered => {
                let identity = Identity::of(target);
                let made = (self.named.as_ref())
                    .is_some_and(|named| named.copies.have_exactly(identity, &visit.target));
                if made {
                    let template = "will not overwrite just-created %s with %s";
                    return Err(self.fail(template, &names, None));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Moves away or removes what cannot be written over.
    fn clear_way(
        &mut self,
        visit: &Visit<'_>,
        source: &Stat,
        target: Stat,
    ) -> Result<Existed, Visited> {
        let place = &visit.target;
        if is_directory(&target) {
            return Ok(Existed { stat: Some(target), ..Existed::none() });
        }
        if self.options.backup != Backup::None && !is_dot(place.name()) {
            if self.backup_would_hit_source(visit, source) {
                let names = [&place.path[..], &visit.source.path];
                let template = "backing up %s might destroy source;  %s not copied";
                return Err(self.fail(template, &names, None));
            }
            return match self.back_up(place) {
                Ok(backup) => Ok(Existed { backup: Some(backup), ..Existed::none() }),
                Err(Errno::NOENT) => Ok(Existed::none()),
                Err(errno) => Err(self.fail("cannot backup %s", &[&place.path], Some(errno))),
            };
        }
        let options = &self.options;
        let is_in_way = options.data
            && ((options.preserve.links && target.st_nlink > 1 && !options.resume)
                || (options.never_follows(visit.is_named)
                    && kind(source) != FileType::RegularFile));
        if !options.remove_before && !is_in_way {
            return Ok(Existed { stat: Some(target), ..Existed::none() });
        }
        let is_replaced = self.replaces_at_once(source);
        match if is_replaced { Ok(()) } else { place.unlink() } {
            Ok(()) => {
                if self.options.verbose {
                    self.report.out("removed %s", &[&place.path]);
                }
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(self.fail("cannot remove %s", &[&place.path], Some(errno))),
        }
        Ok(Existed { is_replaced, ..Existed::none() })
    }
}

fn is_older(target: &Stat, source: &Stat) -> bool {
    let time = |stat: &Stat| (stat.st_mtime, stat.st_mtime_nsec);
    time(target) < time(source)
}

fn is_directory(stat: &Stat) -> bool {
    kind(stat) == FileType::Directory
}

/// Whether a name is one of the two that each directory has.
fn is_dot(name: &[u8]) -> bool {
    let (_, last) = split(name);
    last == b"." || last == b".."
}

/// Permissions as ls(1) shows them.
fn permissions(mode: u32) -> String {
    let mut text = String::new();
    for (shift, special, letters) in [(6, 0o4000, b"sS"), (3, 0o2000, b"sS"), (0, 0o1000, b"tT")] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, executable) => letters[usize::from(!executable)].into(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::permissions;

    #[test]
    fn permissions_are_shown_as_ls_does() {
        assert_eq!(permissions(0o754), "rwxr-xr--");
        assert_eq!(permissions(0o7000), "--S--S--T");
        assert_eq!(permissions(0o7777), "rwsrwsrwt");
    }
}
