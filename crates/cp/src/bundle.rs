//! Names of a directory that this run made, with small files behind them: a thread opens, makes,
//! copies and closes all of them.
//!
//! Both directories are held open, and each name is made with `O_EXCL`, as the walk makes it. A
//! bundle does only what is sure to be simple: a regular file of few bytes (or of any, where blocks
//! are shared), with no other name that a link would have to be made for. Whatever it is not, and
//! whatever fails before there is a copy, goes back to the walk untouched, which does it over and
//! finds the words for what is wrong.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use ringwise::Descriptor;
use rustix::fs::{OFlags, Stat, fstat};

use crate::{
    attributes::Caller,
    command::options::Options,
    data::{self, ahead},
    job::{Job, Outcome, Permissions, plan_text},
    memory::Memory,
    messages::{
        progress::Meter,
        quoting::Locale,
        report::{Item, Line, compose},
    },
    names::{
        listing::Run,
        pair::{Landed, Pair, Spent},
        place::{Place, kind, stat_of_copy},
    },
    way::{self, SMALL_BYTES},
};

/// Files that are open before the first of them is copied, where they are read ahead.
const AHEAD_FILES_MAX: usize = 24;

/// So many names in a row that go back, and the rest goes with them: it is no directory for this.
const RETURNED_IN_ROW_MAX: usize = 2;

/// Names for a thread.
#[derive(Debug)]
pub(crate) struct Bundle {
    pub(crate) number: u64,
    pub(crate) pair: Arc<Pair>,
    pub(crate) names: Run,
    pub(crate) options: Arc<Options>,
    pub(crate) caller: Caller,
    pub(crate) locale: Locale,
    pub(crate) meter: Arc<Meter>,
    /// Whether the file systems are known to share blocks.
    pub(crate) shares: bool,
    /// Files that may be open before the first of them is copied.
    pub(crate) ahead_files: usize,
}

/// A source that is open.
struct Opened {
    index: usize,
    source: Place,
    file: Descriptor,
    stat: Stat,
    absent_pages: u64,
}

/// The work on a bundle.
struct Work<'a> {
    bundle: &'a Bundle,
    said: Vec<Item>,
    returned: Vec<(u64, Vec<u8>)>,
    in_row: usize,
    ok: bool,
    memory: Memory,
    spent: Spent,
}

impl Bundle {
    /// Copies what is simple.
    pub(crate) fn run(self) -> Outcome {
        let mut work = Work {
            bundle: &self,
            said: Vec::new(),
            returned: Vec::new(),
            in_row: 0,
            ok: true,
            memory: Memory::default(),
            spent: Spent::default(),
        };
        let began = Instant::now();
        work.run();
        let Work { said, returned, ok, mut spent, .. } = work;
        spent.whole = began.elapsed();
        let landed = Some(Landed { pair: self.pair.clone(), returned, spent });
        Outcome { number: self.number, said, ok, source: None, landed }
    }
}

impl Work<'_> {
    fn run(&mut self) {
        let mut names = self.bundle.names.iter().enumerate();
        let mut opened: VecDeque<Opened> = VecDeque::new();
        loop {
            // As long as sources are in memory each is copied at once.
            let is_cold = opened.front().is_some_and(|first| first.absent_pages > 0);
            let wanted = if is_cold { AHEAD_FILES_MAX.min(self.bundle.ahead_files) } else { 1 };
            while opened.len() < wanted
                && let Some((index, name)) = names.next()
            {
                let next =
                    if self.in_row < RETURNED_IN_ROW_MAX { self.open(index, name) } else { None };
                match next {
                    Some(next) => opened.push_back(next),
                    None => {
                        // In the order of names, those before it first.
                        while let Some(before) = opened.pop_front() {
                            self.copy(before);
                        }
                        self.give_back(index, name);
                    }
                }
            }
            let Some(next) = opened.pop_front() else { return };
            self.copy(next);
        }
    }

    fn give_back(&mut self, index: usize, name: &[u8]) {
        self.in_row += 1;
        let number = self.bundle.number + 1 + index as u64;
        self.said.push(Item::Waiting(number));
        self.returned.push((number, name.to_vec()));
    }

    /// Opens a source that is a simple one. What it is, is what was opened.
    fn open(&mut self, index: usize, name: &[u8]) -> Option<Opened> {
        let source = self.bundle.pair.source_of(name);
        // A fifo in its place must not make the thread wait, nor a link lead it elsewhere.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = source.open(flags, 0).ok()?;
        let stat = fstat(&file).ok()?;
        let has_links = stat.st_nlink > 1 && self.bundle.options.preserve.links;
        let size = u64::try_from(stat.st_size).ok()?;
        // Blocks are shared at once, however many.
        let bytes_max = if self.bundle.shares { u64::MAX } else { SMALL_BYTES };
        if !kind(&stat).is_file() || has_links || size > bytes_max {
            return None;
        }
        let file = Descriptor::from(file);
        let absent_pages = match self.bundle.shares {
            true => 0,
            false => self.memory.absent_pages(&file, size),
        };
        if absent_pages > 0 {
            ahead::begin(&file, size);
        }
        Some(Opened { index, source, file, stat, absent_pages })
    }

    fn copy(&mut self, opened: Opened) {
        let bundle = self.bundle;
        let (options, index) = (&bundle.options, opened.index);
        let Opened { source, file, stat, absent_pages, .. } = opened;
        let target = bundle.pair.target_of(source.name());
        let permissions = Permissions::of_new(options, &stat);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let began = Instant::now();
        let made = target.open(flags, permissions.at_first());
        self.spent.making += began.elapsed();
        let Ok(copy) = made else {
            return self.give_back(index, source.name());
        };
        self.in_row = 0;
        if options.verbose {
            let names = [&source.path[..], &target.path];
            self.say(Line::Out(compose(bundle.locale, "%s -> %s", &names, None)));
        }
        let copy_stat = match stat_of_copy(&copy, &stat) {
            Ok(stat) => stat,
            // It is made: the walk would only find that somebody did.
            Err(errno) => {
                let text = compose(bundle.locale, "cannot fstat %s", &[&target.path], Some(errno));
                self.ok = false;
                return self.say(Line::Error(text));
            }
        };
        let mut job = Job {
            number: 0,
            options: options.clone(),
            caller: bundle.caller,
            locale: bundle.locale,
            source: file,
            source_path: source.path,
            found: stat,
            source_stat: stat,
            copy: Descriptor::from(copy),
            copy_path: target.path,
            copy_stat,
            is_new: true,
            into: None,
            mode: permissions.mode,
            omitted: permissions.omitted,
            extra: permissions.extra,
            cloned: false,
            absent_pages,
            way: "",
            meter: bundle.meter.clone(),
            temporary: None,
        };
        let (way, reason) = match bundle.shares {
            true => way::share(&mut job),
            false => way::choose_in_memory(&job),
        };
        job.way = way.name();
        if options.debug {
            self.say(Line::Out(plan_text(&job, reason)));
        }
        let moved = data::copy(&job, way);
        let outcome = job.end(moved);
        self.ok &= outcome.ok;
        self.said.extend(outcome.said);
    }

    fn say(&mut self, line: Line) {
        self.said.push(Item::Said(line));
    }
}
