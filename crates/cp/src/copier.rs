//! One run: what it knows, and what becomes of one name.
//!
//! `copier/tree.rs` walks, `copier/existing.rs` decides about a destination that is there,
//! `copier/make.rs` makes what is no regular file, `copier/regular.rs` opens what is,
//! `copier/durable.rs` knows what is to be synced. The order of
//! decisions and what is said is GNU cp's, so that scripts see no difference; where content goes
//! is another's business (`flight.rs`).

mod apart;
mod backup;
mod bundles;
mod durable;
mod existing;
mod held;
mod make;
pub(crate) mod operands;
mod parents;
mod regular;
mod same_file;
mod state;
mod tree;

use std::{collections::HashMap, sync::Arc};

use rustix::{
    fs::{FileType, Stat},
    io::Errno,
};

use crate::{
    attributes::Caller,
    command::options::{Backup, Dereference, Making, Options},
    flight::{Descriptors, Flight},
    messages::{events, progress::Meter, report::Report},
    names::place::{Identity, Place, kind},
};
pub(crate) use state::Copier;
use state::{Bundles, Existed, Root, Visit, Visited};
use tree::Tree;

/// Whether a source was copied before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    First,
    /// Yes, and it is to be copied again.
    Again,
    /// Yes, and nothing is left to do: it was linked to its copy, or is there.
    Settled,
}

impl Copier {
    pub(crate) fn new(
        options: Arc<Options>,
        report: Report,
        meter: Arc<Meter>,
    ) -> Result<Copier, Box<(Report, String)>> {
        let descriptors = Descriptors::by_limit();
        let flight = match Flight::new(&options, descriptors) {
            Ok(flight) => flight,
            Err(reason) => return Err(Box::new((report, reason))),
        };
        Ok(Copier {
            caller: Caller::current(),
            meter,
            descriptors,
            copied: HashMap::new(),
            named: None,
            bundles: Bundles::new(&options),
            written: HashMap::new(),
            failed: false,
            options,
            report,
            flight,
        })
    }

    pub(crate) fn error(&mut self, template: &str, names: &[&[u8]], errno: Option<Errno>) {
        self.failed = true;
        self.report.error(template, names, errno);
    }

    fn fail(&mut self, template: &str, names: &[&[u8]], errno: Option<Errno>) -> Visited {
        self.error(template, names, errno);
        Visited::Failed
    }

    /// Copies a tree, or a file.
    pub(crate) fn copy(&mut self, source: Place, target: Place, is_new: bool) -> bool {
        let root = Root { source: source.path.clone(), target: target.path.clone() };
        let visit = Visit {
            source,
            target,
            is_named: true,
            is_new,
            device: None,
            into: None,
            above: &|_| false,
            made: &|_| false,
            root: &root,
        };
        let ok = match self.visit(visit, &mut false) {
            Visited::Done => true,
            Visited::Failed | Visited::IntoItself => {
                self.failed = true;
                false
            }
            Visited::Enter(entered) => {
                let ok = Tree::new(*entered, root.clone()).walk(self);
                self.failed |= !ok;
                ok
            }
        };
        self.name_all();
        ok
    }

    /// Waits until what is in flight has its names, where it gets them at its end: directories
    /// above get their attributes after that, and what comes next may ask for the names.
    pub(crate) fn name_all(&mut self) {
        if self.options.atomic {
            self.settle();
        }
    }

    /// Whether a copy of this source is made beside what it replaces.
    pub(crate) fn replaces_at_once(&self, source: &Stat) -> bool {
        let options = &self.options;
        let is_regular = kind(source) == FileType::RegularFile;
        options.atomic && options.data && options.making == Making::Copy && is_regular
    }

    /// What becomes of one name. `root_made`: whether the tree's first directory was made.
    pub(crate) fn visit(&mut self, visit: Visit<'_>, root_made: &mut bool) -> Visited {
        // Names that fail are said too, and no file is handed in that would see to it.
        self.flight.bound(&mut self.report);
        let follow = self.options.follows(visit.is_named);
        let stat = match self.stat_source(&visit, follow) {
            Ok(stat) => stat,
            Err(errno) => {
                return self.fail("cannot stat %s", &[&visit.source.path], Some(errno));
            }
        };
        if kind(&stat) == FileType::Directory && !self.options.recursive {
            let template = "-r not specified; omitting directory %s";
            return self.fail(template, &[&visit.source.path], None);
        }
        if visit.is_named && self.was_named(&visit.source, &stat) {
            return Visited::Done;
        }
        let existed = if visit.is_new {
            Existed::none()
        } else {
            match self.look_at_target(&visit, &stat) {
                Ok(existed) => existed,
                Err(visited) => {
                    if matches!(visited, Visited::Done) {
                        self.note_kept(&visit.target);
                    }
                    return visited;
                }
            }
        };
        if self.would_go_through_own_link(&visit) {
            return Visited::Failed;
        }
        let backup = existed.backup.as_ref().map(|backup| backup.path.clone());
        if self.options.verbose && kind(&stat) != FileType::Directory {
            self.say_verbose(&visit, backup.as_deref());
        }
        let met = match self.meet_again(&visit, &stat) {
            Ok(Met::Settled) => return Visited::Done,
            Ok(met) => met,
            Err(visited) => {
                self.undo_backup(&visit, &existed, None);
                return visited;
            }
        };
        let visited = self.make(&visit, &stat, &existed, root_made);
        if matches!(visited, Visited::Failed) {
            // What an earlier name of it left is still there.
            let forgotten = (met == Met::First).then_some(Identity::of(&stat));
            self.undo_backup(&visit, &existed, forgotten);
        } else if visit.is_named
            && let Some(named) = &mut self.named
            && let Ok(made) = visit.target.stat(false)
        {
            // By its path, as `remember` does.
            named.copies.add(Identity::of(&made), &Place::typed(visit.target.path.clone()));
        }
        visited
    }

    /// The source's metadata, after what is being written into it was written.
    fn stat_source(&mut self, visit: &Visit<'_>, follow: bool) -> Result<Stat, Errno> {
        let stat = visit.source.stat(follow)?;
        // What is found in a directory was seen to when that was entered.
        let may_be_a_copy =
            visit.is_named && kind(&stat) != FileType::Directory && self.flight.has_bundles();
        if may_be_a_copy || self.flight.is_busy(Identity::of(&stat), false) {
            self.settle();
            return visit.source.stat(follow);
        }
        Ok(stat)
    }

    fn was_named(&mut self, source: &Place, stat: &Stat) -> bool {
        if kind(stat) == FileType::Directory || self.options.backup != Backup::None {
            return false;
        }
        let Some(named) = &mut self.named else { return false };
        if named.sources.add(Identity::of(stat), source) {
            return false;
        }
        let template = "warning: source file %s specified more than once";
        self.report.error(template, &[&source.path], None);
        true
    }

    fn would_go_through_own_link(&mut self, visit: &Visit<'_>) -> bool {
        if !visit.is_named || self.options.backup != Backup::None {
            return false;
        }
        let Some(named) = &self.named else { return false };
        let Ok(target) = visit.target.stat(false) else { return false };
        let is_ours = named.copies.have(Identity::of(&target), &visit.target);
        if kind(&target) != FileType::Symlink || !is_ours {
            return false;
        }
        let names = [&visit.source.path[..], &visit.target.path];
        self.error("will not copy %s through just-created symlink %s", &names, None);
        true
    }

    pub(crate) fn say_verbose(&mut self, visit: &Visit<'_>, backup: Option<&[u8]>) {
        let names = [&visit.source.path[..], &visit.target.path];
        match backup {
            None => self.report.out("%s -> %s", &names),
            Some(backup) => {
                self.report.out("%s -> %s (backup: %s)", &[names[0], names[1], backup]);
            }
        }
    }

    /// A source that was copied before, by another name.
    fn meet_again(&mut self, visit: &Visit<'_>, stat: &Stat) -> Result<Met, Visited> {
        let identity = Identity::of(stat);
        let is_directory = kind(stat) == FileType::Directory;
        if !is_directory {
            let options = &self.options;
            let may_return = stat.st_nlink > 1
                || options.dereference == Dereference::Always
                || (visit.is_named && options.dereference == Dereference::CommandLine);
            if !(options.preserve.links && options.making != Making::HardLink && may_return) {
                return Ok(Met::First);
            }
        }
        if is_directory && (visit.made)(identity) {
            // A link leads to it, and what it has grows with its copy. GNU cp ends at PATH_MAX.
            return Err(self.fail_into_itself(visit));
        }
        self.forget_failed();
        let Some(earlier) = self.copied.get(&identity).cloned() else {
            // Of directories only those that were named: a tree has no second name for another.
            if !is_directory || visit.is_named {
                self.remember(identity, &visit.target);
            }
            return Ok(Met::First);
        };
        if is_directory {
            return self.meet_directory_again(visit, &earlier);
        }
        if self.flight.is_busy(identity, true) {
            // Its copy may yet fail; then this is no link to it, but another try.
            self.settle();
            self.forget_failed();
            if !self.copied.contains_key(&identity) {
                self.remember(identity, &visit.target);
                return Ok(Met::First);
            }
        }
        match self.link_to_copy(&earlier, &visit.target) {
            true => Ok(Met::Settled),
            false => Err(Visited::Failed),
        }
    }

    fn fail_into_itself(&mut self, visit: &Visit<'_>) -> Visited {
        let names = [&visit.root.source[..], &visit.root.target];
        self.error("cannot copy a directory, %s, into itself, %s", &names, None);
        Visited::IntoItself
    }

    fn meet_directory_again(&mut self, visit: &Visit<'_>, earlier: &Place) -> Result<Met, Visited> {
        if visit.source.is_same_name(earlier) {
            return Err(self.fail_into_itself(visit));
        }
        if visit.target.is_same_name(earlier) {
            let template = "warning: source directory %s specified more than once";
            self.report.error(template, &[&visit.root.source], None);
            return Ok(Met::Settled);
        }
        // Through links a directory may well be met twice.
        let by_link = self.options.dereference == Dereference::Always
            || (visit.is_named && self.options.dereference == Dereference::CommandLine);
        if by_link {
            return Ok(Met::Again);
        }
        let names = [&visit.target.path[..], &earlier.path];
        Err(self.fail("will not create hard link %s to directory %s", &names, None))
    }

    /// Where a source went. By its path: to hold its directory open for each would be too many.
    pub(crate) fn remember(&mut self, source: Identity, target: &Place) {
        self.copied.insert(source, Place::typed(target.path.clone()));
    }

    fn forget_failed(&mut self) {
        for source in self.flight.failed_sources.drain(..) {
            self.copied.remove(&source);
        }
    }

    /// Waits for all files, and for stable storage where that was asked for. True: all is done.
    pub(crate) fn finish(mut self) -> bool {
        self.settle();
        self.sync_written();
        let ok = !self.failed && !self.flight.failed;
        if self.options.json {
            self.report.say(events::end(&self.meter, ok));
        }
        self.report.finish() && ok
    }
}
