//! The walk through a directory tree.
//!
//! It keeps the directories from the root to where it is, with the lowest of them open. Those
//! further up are closed when there are too many, and opened again from below by `..`, compared
//! with what they were: so a tree may be deeper than there are descriptors, and than PATH_MAX. A
//! directory gets its attributes when all in it is made; content in flight does not change them.

use rustix::fs::{OFlags, Stat};

use super::{Copier, Root, Visit, Visited, held::Held};
use crate::{
    attributes::{Copied, Finish, Of},
    listing::Listing,
    place::{Identity, Place},
};

/// A directory to go into.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(super) source: Place,
    pub(super) target: Place,
    pub(super) stat: Stat,
    /// What the target was, where it was there before.
    pub(super) existed: Option<Stat>,
    pub(super) follow: bool,
    pub(super) omitted: u32,
    pub(super) restore: Option<u32>,
    /// It is on another file system than those above: made, and left empty.
    pub(super) is_skipped: bool,
    pub(super) root_made: bool,
}

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
    ok: bool,
}

/// A directory on the way down.
#[derive(Debug)]
struct Frame {
    source: Held,
    target: Held,
    source_len: usize,
    target_len: usize,
    listing: Listing,
    stat: Stat,
    existed: Option<Stat>,
    omitted: u32,
    restore: Option<u32>,
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
            ok: true,
        }
    }

    /// Copies all of it. False: something failed.
    pub(super) fn walk(mut self, copier: &mut Copier) -> bool {
        if let Some(first) = self.first.take() {
            self.enter(copier, first);
        }
        while let Some(frame) = self.frames.last_mut() {
            match frame.listing.take() {
                Some(name) => self.step(copier, &name),
                None => self.leave(copier),
            }
        }
        self.ok
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
            above: &|identity| frames.iter().any(|frame| Identity::of(&frame.stat) == identity),
            root: &self.root,
        };
        match copier.visit(visit, &mut self.root_made) {
            Visited::Done => {}
            Visited::Failed => self.ok = false,
            Visited::IntoItself => {
                self.ok = false;
                self.frames.iter_mut().for_each(|frame| frame.listing.abandon());
            }
            Visited::Enter(entered) => self.enter(copier, *entered),
        }
    }

    fn enter(&mut self, copier: &mut Copier, entered: Entered) {
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
        });
        while self.frames.len() - self.open_from > copier.descriptors.directories {
            let frame = &mut self.frames[self.open_from];
            frame.source.close();
            frame.target.close();
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

    /// All in it is made: its attributes, and back to the directory above.
    fn leave(&mut self, copier: &mut Copier) {
        let Some(frame) = self.frames.pop() else { return };
        copier.name_all();
        if !self.finish(copier, &frame) {
            self.ok = false;
        }
        let depth = self.frames.len();
        let Some(above) = self.frames.last_mut() else { return };
        self.source_path.truncate(above.source_len);
        self.target_path.truncate(above.target_len);
        if depth > self.open_from || depth == 1 {
            return;
        }
        self.open_from = depth - 1;
        let reopened = above
            .source
            .reopen(&frame.source, &self.source_path)
            .map_err(|errno| (&self.source_path, errno))
            .and_then(|()| {
                let again = above.target.reopen(&frame.target, &self.target_path);
                again.map_err(|errno| (&self.target_path, errno))
            });
        if let Err((path, errno)) = reopened {
            copier.error("cannot access %s", &[path], Some(errno));
            above.listing.abandon();
            self.ok = false;
        }
    }

    fn finish(&self, copier: &mut Copier, frame: &Frame) -> bool {
        let Some(copy) = frame.target.attributes() else { return false };
        let by_path;
        let source = match frame.source.attributes() {
            Some(source) => Of::File(source),
            None => {
                by_path = Place::typed(self.source_path.clone()).reached();
                Of::Named(&by_path)
            }
        };
        let finish = Finish {
            options: &copier.options,
            caller: copier.caller,
            locale: copier.report.locale,
            source,
            source_path: &self.source_path,
            source_stat: &frame.stat,
            copy,
            copy_path: &self.target_path,
            copy_stat: frame.existed.as_ref(),
            what: Copied::Directory,
            otherwise: copier.otherwise(
                frame.existed.is_none().then_some(0o777),
                frame.omitted,
                frame.restore,
            ),
        };
        let mut lines = Vec::new();
        let ok = finish.run(&mut lines);
        lines.into_iter().for_each(|line| copier.report.say(line));
        ok
    }
}
