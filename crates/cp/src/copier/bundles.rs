//! Names that the walk gives to threads, and what it does when they come back.
//!
//! A run of names of regular files, in a directory that this run made, goes to a thread as a whole
//! (`bundle.rs`). Nobody knows then which files are on their way, so directories are watched instead:
//! names are given away only while all that is written beside them are new files elsewhere; the
//! walk waits for them before it lists a directory that they go into, goes into one that was there
//! before, writes over anything, or copies a file that was named. A directory gets its attributes when
//! all in it is made, which may be long after the walk has left it.
//!
//! Not given away: files behind links (`-L`), and what `--atomic`, `--verify` and a ring that was
//! asked for do otherwise.

use std::{collections::VecDeque, sync::Arc};

use rustix::fs::Stat;

use super::{
    state::{Bundles, Copier, Frame, Left, Root, Visit, Visited},
    tree::Tree,
};
use crate::{
    bundle::Bundle,
    command::options::{Dereference, EngineChoice, Making, Options, Reflink},
    names::pair::{Landed, Pair, Spent},
    way::SMALL_BYTES,
};

/// Fewer names in a row are not worth a thread's waking.
const NAMES_MIN: usize = 8;

/// The first names that go to a thread, of files that may turn out to be long.
const NAMES_AT_FIRST: usize = 16;

/// Names at a time, when all were of small files.
const NAMES_MAX: usize = 128;

/// Names at a time of a directory that one thread copies.
const NAMES_ALONE_MAX: usize = 4096;

/// The names of a longer directory go to all threads at a time; of others each has one.
const NAMES_SHARED_FROM: usize = 256;

/// So many small files in a row are a sign of more.
const SMALL_IN_ROW: usize = 4;

impl Bundles {
    pub(super) fn new(options: &Options) -> Bundles {
        let is_plain = options.data && options.making == Making::Copy && options.recursive;
        let is_other = options.atomic
            || options.verify
            || options.reflink == Reflink::Always
            || options.engine == EngineChoice::Uring
            || options.dereference == Dereference::Always
            // New names may then be made elsewhere.
            || std::env::var_os("POSIXLY_CORRECT").is_some();
        Bundles {
            are_wanted: is_plain && !is_other,
            small_in_row: 0,
            names: NAMES_AT_FIRST,
            is_crowded: None,
            left: VecDeque::new(),
            is_settling: false,
        }
    }

    /// The walk opened a file itself. What shares its blocks is as little work as a small one.
    pub(super) fn saw(&mut self, source: &Stat, shares: bool) {
        let is_small = u64::try_from(source.st_size).is_ok_and(|size| size <= SMALL_BYTES);
        self.small_in_row = if is_small || shares { self.small_in_row + 1 } else { 0 };
    }

    /// Learns from a bundle that came back. One directory's names are made one after the other, under its
    /// lock. If that takes most of the time, a second thread in the directory waits for the first, and
    /// spins meanwhile.
    fn learn(&mut self, spent: Spent) {
        if !spent.making.is_zero() {
            self.is_crowded = Some(5 * spent.making > 4 * spent.whole);
        }
    }

    fn are_likely(&self) -> bool {
        self.are_wanted && self.small_in_row >= SMALL_IN_ROW && !self.is_settling
    }
}

impl Copier {
    /// Gives the next names of a directory away, where they are such. False: the walk is to take
    /// the next.
    pub(super) fn give_away(&mut self, frame: &mut Frame, paths: (&[u8], &[u8])) -> bool {
        if !self.bundles.are_likely() || frame.existed.is_some() || !self.flight.takes_bundles() {
            return false;
        }
        let (Some(source), Some(target)) = (frame.source.identity(), frame.target.identity())
        else {
            return false;
        };
        let Some(shares) = self.flight.pair_shares(source.device, target.device) else {
            return false;
        };
        let is_long = frame.listing.len() > NAMES_SHARED_FROM;
        // Who waits for the device saves CPU time: threads that share blocks wait for each other, and
        // in one directory for its lock.
        if self.options.durable && (shares || is_long) {
            return false;
        }
        let (Some(from), Some(to)) = (frame.source.file(), frame.target.file()) else {
            return false;
        };
        if let Some(pair) = &frame.pair {
            self.wait_for_turn(pair);
        }
        let is_crowded = self.bundles.is_crowded;
        let most = match is_crowded {
            None => NAMES_AT_FIRST,
            Some(true) => NAMES_ALONE_MAX,
            // Less and less, so that all are done at the same time.
            Some(false) if is_long => {
                let each = frame.listing.left() / (2 * self.flight.copying_threads());
                self.bundles.names.min(each.max(NAMES_AT_FIRST))
            }
            Some(false) => self.bundles.names,
        };
        let Some(names) = frame.listing.take_run(NAMES_MIN, most) else {
            return false;
        };
        if !self.flight.leaves_alone(source) {
            self.settle();
        }
        self.bundles.names = (2 * self.bundles.names).min(NAMES_MAX);
        let make = || Arc::new(Pair::new((from, to), paths, (source, target)));
        let pair = frame.pair.get_or_insert_with(make).clone();
        pair.begin();
        let bundle = Bundle {
            number: self.flight.numbers(1 + names.len),
            pair,
            names,
            options: self.options.clone(),
            caller: self.caller,
            locale: self.report.locale,
            meter: self.meter.clone(),
            shares,
            ahead_files: self.flight.ahead_files(),
        };
        match is_crowded {
            None => self.flight.run_bundle(bundle, &mut self.report),
            Some(_) => self.flight.submit_bundle(bundle, &mut self.report),
        }
        true
    }

    /// Waits until more names of a directory may be given away: all are done before where one thread
    /// copies them, else each thread has some. So what the first bundles teach comes in time.
    fn wait_for_turn(&mut self, pair: &Pair) {
        loop {
            self.take_landed();
            let most = match self.bundles.is_crowded {
                Some(true) => 0,
                _ => self.flight.copying_threads(),
            };
            if pair.pending() <= most {
                return;
            }
            self.flight.wait(&mut self.report);
        }
    }

    /// Whether a directory's directories may be taken in another order than that of their names,
    /// and that is of use: nothing is there that could be asked about, nothing but errors is said,
    /// and files share blocks.
    pub(super) fn may_take_apart(&self, frame: &Frame) -> bool {
        let options = &self.options;
        let is_silent = !options.verbose && !options.debug && !options.json;
        let may = self.bundles.are_likely() && is_silent && frame.existed.is_none();
        may && self.flight.takes_bundles()
            && (frame.source.identity().zip(frame.target.identity())).is_some_and(
                |(source, target)| {
                    self.flight.pair_shares(source.device, target.device) == Some(true)
                },
            )
    }

    /// The walk is done with a directory; some of its names may still be with the threads.
    pub(super) fn leave(&mut self, frame: Frame, paths: (&[u8], &[u8])) {
        match &frame.pair {
            Some(pair) if !pair.is_done() => {
                let (pair, number) = (pair.clone(), self.flight.number());
                self.report.wait_for(number);
                self.bundles.left.push_back(Left { frame, pair, number });
            }
            _ => self.failed |= !frame.finish(self, paths),
        }
    }

    /// Waits for all that is in flight, and sees to what came back.
    pub(super) fn settle(&mut self) {
        self.flight.drain(&mut self.report);
        while self.take_landed() {
            self.flight.drain(&mut self.report);
        }
    }

    /// Sees to what came back. False: nothing did, or it is being seen to.
    pub(super) fn take_landed(&mut self) -> bool {
        if self.flight.landed.is_empty() || self.bundles.is_settling {
            return false;
        }
        self.bundles.is_settling = true;
        while let Some(Landed { pair, returned, spent }) = self.flight.landed.pop_front() {
            self.bundles.learn(spent);
            if !returned.is_empty() {
                self.bundles.small_in_row = 0;
                self.bundles.names = NAMES_AT_FIRST;
            }
            for (number, name) in returned {
                let before = self.report.speak_at(Some(number));
                self.take_back(&pair, &name);
                self.report.leave(number, before);
            }
            pair.end();
            self.finish_left();
        }
        self.bundles.is_settling = false;
        true
    }

    /// Copies a name that a thread left, as if the walk had come to it just now.
    fn take_back(&mut self, pair: &Pair, name: &[u8]) {
        let (source, target) = (pair.source_of(name), pair.target_of(name));
        let root = Root { source: source.path.clone(), target: target.path.clone() };
        let visit = Visit {
            source,
            target,
            is_named: false,
            is_new: true,
            device: Some(pair.source_identity.device),
            into: Some(pair.target_identity),
            above: &|_| false,
            made: &|_| false,
            root: &root,
        };
        match self.visit(visit, &mut true) {
            Visited::Done => {}
            Visited::Failed | Visited::IntoItself => self.failed = true,
            // The directory called it a file. There are file systems that do.
            Visited::Enter(entered) => self.failed |= !Tree::new(*entered, root.clone()).walk(self),
        }
    }

    /// Gives directories their attributes that have waited for nothing else.
    fn finish_left(&mut self) {
        for _ in 0..self.bundles.left.len() {
            let Some(left) = self.bundles.left.pop_front() else { return };
            if !left.pair.is_done() {
                self.bundles.left.push_back(left);
                continue;
            }
            let before = self.report.speak_at(Some(left.number));
            let paths = (&left.pair.source_path[..], &left.pair.target_path[..]);
            self.failed |= !left.frame.finish(self, paths);
            self.report.leave(left.number, before);
        }
    }
}
