//! The walk through a directory tree.
//!
//! It keeps the directories from the root to where it is, with the lowest of them open. Those
//! further up are closed when there are too many, and opened again from below by `..`, compared
//! with what they were: so a tree may be deeper than there are descriptors, and than PATH_MAX. A
//! directory gets its attributes when all in it is made; content in flight does not change them.

use rustix::{fs::OFlags, io::Errno};

use super::{
    apart::{self, Apart},
    held::Held,
    state::{Copier, Entered, Frame, Root, Visit, Visited},
};
use crate::{
    attributes::{Copied, Finish, Of},
    messages::report::Report,
    names::{
        listing::Listing,
        place::{Identity, Place},
    },
};

/// The walk.
#[derive(Debug)]
pub(crate) struct Tree {
    first: Option<Entered>,
    root: Root,
    frames: Vec<Frame>,
    /// Paths of the lowest directory; those of the others are beginnings of them.
    source_path: Vec<u8>,
    target_path: Vec<u8>,
    /// Frames from here on are open. The root's always is.
    open_from: usize,
    root_made: bool,
    /// Whether directories may be taken in another order; not asked yet.
    may_take_apart: Option<bool>,
    ok: bool,
}

impl Tree {
    pub(super) fn new(first: Entered, root: Root) -> Tree {
        Tree {
            source_path: first.source.path.clone(),
            target_path: first.target.path.clone(),
            root_made: first.root_made,
            first: Some(first),
            root,
            frames: Vec::new(),
            open_from: 1,
            may_take_apart: None,
            ok: true,
        }
    }

    /// Copies all of it. False: something failed.
    pub(super) fn walk(mut self, copier: &mut Copier) -> bool {
        if let Some(first) = self.first.take() {
            self.enter(copier, first);
        }
        while let Some(frame) = self.frames.last_mut() {
            copier.take_landed();
            if copier.give_away(frame, (&self.source_path, &self.target_path)) {
                continue;
            }
            if frame.apart.is_empty() && copier.may_take_apart(frame) {
                self.take_apart(copier);
            }
            let Some(frame) = self.frames.last_mut() else { continue };
            if let Some((number, index)) = frame.apart.take(&copier.report) {
                let name = frame.listing.name_at(index);
                self.step_at(copier, number, &name);
                continue;
            }
            match frame.listing.take() {
                Some(name) => self.step(copier, &name),
                None => self.leave(copier),
            }
        }
        self.ok
    }

    /// Takes the directories that come next in an order that goes through all of the disk.
    fn take_apart(&mut self, copier: &mut Copier) {
        let is_safe = *self.may_take_apart.get_or_insert_with(|| {
            let (source, target) = (&self.frames[0].source, &self.frames[0].target);
            !apart::lies_within(target, source)
        });
        let Some(frame) = self.frames.last_mut().filter(|_| is_safe) else { return };
        let indexes = frame.listing.take_directories(apart::LEAST, apart::MOST);
        let first = copier.flight.numbers(indexes.len());
        (first..).zip(indexes.clone()).for_each(|(number, _)| copier.report.wait_for(number));
        frame.apart = Apart::new(first, indexes);
    }

    /// Takes a name whose place was left free.
    fn step_at(&mut self, copier: &mut Copier, number: u64, name: &[u8]) {
        let depth = self.frames.len();
        let before = copier.report.speak_at(Some(number));
        self.step(copier, name);
        match self.frames.get_mut(depth) {
            Some(entered) => entered.place = Some((number, before)),
            None => copier.report.leave(number, before),
        }
    }

    fn step(&mut self, copier: &mut Copier, name: &[u8]) {
        let Some(frame) = self.frames.last() else { return };
        let (Some(source), Some(target)) = (frame.source.file(), frame.target.file()) else {
            return;
        };
        let frames = &self.frames;
        let visit = Visit {
            source: Place::within(source, &self.source_path, name),
            target: Place::within(target, &self.target_path, name),
            is_named: false,
            is_new: frame.existed.is_none(),
            device: Some(frame.stat.st_dev),
            into: frame.target.identity(),
            above: &|identity| frames.iter().any(|frame| Identity::of(&frame.stat) == identity),
            made: &|identity| {
                frames.iter().any(|frame| frame.existed.is_none() && frame.target.is(identity))
            },
            root: &self.root,
        };
        match copier.visit(visit, &mut self.root_made) {
            Visited::Done => {}
            Visited::Failed => self.ok = false,
            Visited::IntoItself => {
                self.ok = false;
                self.frames.iter_mut().for_each(|frame| frame.abandon(&mut copier.report));
            }
            Visited::Enter(entered) => self.enter(copier, *entered),
        }
    }

    fn enter(&mut self, copier: &mut Copier, entered: Entered) {
        let was_there = entered.existed.is_some() && copier.flight.has_bundles();
        if was_there || copier.flight.fills(Identity::of(&entered.stat)) {
            // What is on its way into it is to be there before it is looked at.
            copier.settle();
        }
        let target = match Held::open(&entered.target, OFlags::NOFOLLOW) {
            Ok(target) => target,
            Err(errno) => {
                copier.error("cannot access %s", &[&entered.target.path], Some(errno));
                self.ok = false;
                return;
            }
        };
        copier.note_directory(&target, &entered.target.path);
        let (source, listing) = self.open_source(copier, &entered);
        self.source_path.clone_from(&entered.source.path);
        self.target_path.clone_from(&entered.target.path);
        self.frames.push(Frame {
            source,
            target,
            source_len: self.source_path.len(),
            target_len: self.target_path.len(),
            listing,
            stat: entered.stat,
            existed: entered.existed,
            omitted: entered.omitted,
            restore: entered.restore,
            pair: None,
            apart: Apart::default(),
            place: None,
        });
        while self.frames.len() - self.open_from > copier.descriptors.directories {
            let frame = &mut self.frames[self.open_from];
            frame.source.close();
            frame.target.close();
            // What is still with a thread keeps them open, and not for long.
            frame.pair.take_if(|pair| pair.is_done());
            self.open_from += 1;
        }
    }

    /// Opens and lists the source. What cannot be listed is copied without what is in it.
    fn open_source(&mut self, copier: &mut Copier, entered: &Entered) -> (Held, Listing) {
        let path = &entered.source.path;
        let flags = if entered.follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let held = match Held::open(&entered.source, flags) {
            Ok(held) => held,
            Err(errno) => {
                copier.error("cannot access %s", &[path], Some(errno));
                self.ok = false;
                return (Held::none(), Listing::default());
            }
        };
        if !held.is(Identity::of(&entered.stat)) {
            let template = "skipping file %s, as it was replaced while being copied";
            copier.error(template, &[path], None);
            self.ok = false;
            return (held, Listing::default());
        }
        if entered.is_skipped {
            return (held, Listing::default());
        }
        match held.list() {
            Ok(listing) => (held, listing),
            Err(errno) => {
                copier.error("cannot access %s", &[path], Some(errno));
                self.ok = false;
                (held, Listing::default())
            }
        }
    }

    /// All in it is made, or on its way: its attributes, and back to the directory above.
    fn leave(&mut self, copier: &mut Copier) {
        let Some(frame) = self.frames.pop() else { return };
        copier.name_all();
        let reopened = self.reopen_above(&frame);
        let place = frame.place;
        copier.leave(frame, (&self.source_path, &self.target_path));
        if let Some((number, before)) = place {
            copier.report.leave(number, before);
        }
        let Some(above) = self.frames.last_mut() else { return };
        self.source_path.truncate(above.source_len);
        self.target_path.truncate(above.target_len);
        if let Err((is_source, errno)) = reopened {
            let path = if is_source { &self.source_path } else { &self.target_path };
            copier.error("cannot access %s", &[path], Some(errno));
            above.abandon(&mut copier.report);
            self.ok = false;
        }
    }

    /// Opens the directory above again, where it was closed. An error says whether it is the
    /// source's.
    fn reopen_above(&mut self, frame: &Frame) -> Result<(), (bool, Errno)> {
        let depth = self.frames.len();
        let Some(above) = self.frames.last_mut() else { return Ok(()) };
        if depth > self.open_from || depth == 1 {
            return Ok(());
        }
        self.open_from = depth - 1;
        let source_path = &self.source_path[..above.source_len];
        let target_path = &self.target_path[..above.target_len];
        let reopened = above.source.reopen(&frame.source, source_path);
        reopened.map_err(|errno| (true, errno))?;
        let reopened = above.target.reopen(&frame.target, target_path);
        reopened.map_err(|errno| (false, errno))
    }
}

impl Frame {
    /// Leaves the rest of it.
    fn abandon(&mut self, report: &mut Report) {
        self.listing.abandon();
        self.apart.abandon(report);
    }

    /// Gives the directory its attributes. False: some that have to be could not be given.
    pub(super) fn finish(&self, copier: &mut Copier, paths: (&[u8], &[u8])) -> bool {
        let Some(copy) = self.target.attributes() else { return false };
        let by_path;
        let source = match self.source.attributes() {
            Some(source) => Of::File(source),
            None => {
                by_path = Place::typed(paths.0.to_vec()).reached();
                Of::Named(&by_path)
            }
        };
        let finish = Finish {
            options: &copier.options,
            caller: copier.caller,
            locale: copier.report.locale,
            source,
            source_path: paths.0,
            source_stat: &self.stat,
            copy,
            copy_path: paths.1,
            copy_stat: self.existed.as_ref(),
            what: Copied::Directory,
            otherwise: copier.otherwise(
                self.existed.is_none().then_some(0o777),
                self.omitted,
                self.restore,
            ),
        };
        let mut lines = Vec::new();
        let ok = finish.run(&mut lines);
        lines.into_iter().for_each(|line| copier.report.say(line));
        ok
    }
}
