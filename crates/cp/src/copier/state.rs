//! What one run knows, and the types that its steps hand to each other.
//!
//! The steps are methods of [`Copier`] in the files beside this one. Nothing here copies or decides
//! anything.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::OwnedFd,
    sync::Arc,
};

use rustix::{fs::Stat, io::Errno};

use super::{apart::Apart, held::Held};
use crate::{
    attributes::Caller,
    command::options::Options,
    flight::{Descriptors, Flight},
    messages::{progress::Meter, report::Report},
    names::{
        listing::Listing,
        pair::Pair,
        place::{Identity, Place},
    },
};

/// One run of `cp`.
#[derive(Debug)]
pub(crate) struct Copier {
    pub(crate) options: Arc<Options>,
    pub(crate) report: Report,
    pub(crate) flight: Flight,
    pub(crate) failed: bool,
    pub(super) caller: Caller,
    pub(super) meter: Arc<Meter>,
    pub(super) descriptors: Descriptors,
    /// Where sources went that may be met again: directories, and files with several names.
    pub(super) copied: HashMap<Identity, Place>,
    /// Sources that were named, and copies of them, where there is more than one.
    pub(super) named: Option<Named>,
    /// Names that are with the threads, and directories that wait for them.
    pub(super) bundles: Bundles,
    /// The file systems that are to be synced at the end, by their devices, for `--durable`.
    pub(super) written: HashMap<u64, Written>,
}

/// What was named on the command line.
#[derive(Debug, Default)]
pub(super) struct Named {
    pub(super) sources: Names,
    pub(super) copies: Names,
}

/// Files and the names that they were met by.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<Identity, Vec<Place>>);

impl Names {
    pub(super) fn have(&self, file: Identity, name: &Place) -> bool {
        self.0.get(&file).is_some_and(|names| names.iter().any(|known| known.is_same_name(name)))
    }

    /// By the very path: GNU cp does not see that `d/a` and `d/./a` are one.
    pub(super) fn have_exactly(&self, file: Identity, name: &Place) -> bool {
        self.0.get(&file).is_some_and(|names| names.iter().any(|known| known.path == name.path))
    }

    /// False: this name of this file was known.
    pub(super) fn add(&mut self, file: Identity, name: &Place) -> bool {
        let is_new = !self.have(file, name);
        if !self.have_exactly(file, name) {
            self.0.entry(file).or_default().push(name.clone());
        }
        is_new
    }
}

/// A source on its way to a name.
pub(crate) struct Visit<'a> {
    pub(crate) source: Place,
    pub(crate) target: Place,
    pub(crate) is_named: bool,
    /// Whether the directory that it goes into was made by this run, so that nothing is there.
    pub(crate) is_new: bool,
    /// The file system to stay on, where one is to be stayed on.
    pub(crate) device: Option<u64>,
    /// The directory that it goes into, where that is open.
    pub(crate) into: Option<Identity>,
    /// Directories above it in the source, for loops.
    pub(crate) above: &'a dyn Fn(Identity) -> bool,
    /// Directories above it in the destination that this run made.
    pub(crate) made: &'a dyn Fn(Identity) -> bool,
    /// The names that were given, for what is said about the tree as a whole.
    pub(crate) root: &'a Root,
}

/// The source and destination of the tree as they are called.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub(crate) source: Vec<u8>,
    pub(crate) target: Vec<u8>,
}

/// What became of a name.
#[derive(Debug)]
pub(crate) enum Visited {
    Done,
    Failed,
    /// The tree is being copied into itself: the rest of it is left.
    IntoItself,
    /// A directory to go into.
    Enter(Box<Entered>),
}

/// What was at the destination, and what of it is left.
#[derive(Debug)]
pub(crate) struct Existed {
    /// Its metadata, where it is still there.
    pub(crate) stat: Option<Stat>,
    pub(crate) backup: Option<Place>,
    /// It would have to be removed, and stays until the copy takes its place.
    pub(crate) is_replaced: bool,
}

impl Existed {
    pub(crate) fn none() -> Existed {
        Existed { stat: None, backup: None, is_replaced: false }
    }
}

/// A file system that has something to be synced.
#[derive(Debug)]
pub(super) struct Written {
    /// What it is synced by: one of its files or directories.
    pub(super) file: Result<OwnedFd, Errno>,
    /// What is on it, for messages.
    pub(super) path: Vec<u8>,
}

/// What the walk knows of names that are with the threads.
#[derive(Debug)]
pub(super) struct Bundles {
    pub(super) are_wanted: bool,
    pub(super) small_in_row: usize,
    pub(super) names: usize,
    /// Whether threads that make names in one directory would wait for each other. None: nobody knows.
    pub(super) is_crowded: Option<bool>,
    /// Directories whose names were all given away.
    pub(super) left: VecDeque<Left>,
    pub(super) is_settling: bool,
}

/// A directory that the walk has left, and the place of what is to be said of it.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) frame: Frame,
    pub(super) pair: Arc<Pair>,
    pub(super) number: u64,
}

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

/// A directory on the way down.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) source: Held,
    pub(super) target: Held,
    pub(super) source_len: usize,
    pub(super) target_len: usize,
    pub(super) listing: Listing,
    pub(super) stat: Stat,
    pub(super) existed: Option<Stat>,
    pub(super) omitted: u32,
    pub(super) restore: Option<u32>,
    /// Both directories, where names of them were given away.
    pub(super) pair: Option<Arc<Pair>>,
    /// Directories in it that are taken in another order.
    pub(super) apart: Apart,
    /// Where it was taken so: the place of what is said meanwhile, and of what is said then.
    pub(super) place: Option<(u64, Option<u64>)>,
}
