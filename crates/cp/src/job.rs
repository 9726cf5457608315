//! One regular file to copy: both sides are open, the content is to be moved, attributes follow.
//!
//! A job owns all it needs, so that it can run on any thread or in steps on a ring. It says what
//! went wrong in lines that its [`Outcome`] carries; it prints nothing.

use std::sync::Arc;

use ringwise::Descriptor;
use rustix::{
    fs::{Stat, fsync},
    io::Errno,
};

use crate::{
    attributes::{Caller, Copied, Finish, Of, Otherwise, To, omitted_at_first, set_mode},
    command::options::Options,
    messages::{
        events,
        progress::Meter,
        quoting::Locale,
        report::{Item, Line, compose},
    },
    names::{
        pair::Landed,
        place::{Identity, retry},
        temporary::Temporary,
    },
};

/// A regular file to copy.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) options: Arc<Options>,
    pub(crate) caller: Caller,
    pub(crate) locale: Locale,
    pub(crate) source: Descriptor,
    pub(crate) source_path: Vec<u8>,
    /// What the source was when it was found: its attributes are those.
    pub(crate) found: Stat,
    /// What it was when it was opened.
    pub(crate) source_stat: Stat,
    pub(crate) copy: Descriptor,
    pub(crate) copy_path: Vec<u8>,
    pub(crate) copy_stat: Stat,
    pub(crate) is_new: bool,
    /// The directory that it was made in, where it is new and that is known.
    pub(crate) into: Option<Identity>,
    /// Permissions that the copy is to have in the end, without those that need `--preserve`.
    pub(crate) mode: u32,
    /// Permissions that it was made without.
    pub(crate) omitted: u32,
    /// Permissions that it was made with beside them.
    pub(crate) extra: u32,
    /// Whether the copy has all it needs of the content.
    pub(crate) cloned: bool,
    /// Pages of the source that are not in memory, as far as that was asked.
    pub(crate) absent_pages: u64,
    /// Which way its content went, for `--json`.
    pub(crate) way: &'static str,
    pub(crate) meter: Arc<Meter>,
    /// The name that the copy is to get, where it has none yet.
    pub(crate) temporary: Option<Temporary>,
}

/// What became of a job, or of a bundle.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) number: u64,
    pub(crate) said: Vec<Item>,
    pub(crate) ok: bool,
    /// The source, where later links to it must not be made to this copy.
    pub(crate) source: Option<Identity>,
    pub(crate) landed: Option<Landed>,
}

/// The permissions of a copy's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permissions {
    /// In the end.
    pub(crate) mode: u32,
    /// Of these, which a new one is made without.
    pub(crate) omitted: u32,
    /// Which it is made with beside them.
    pub(crate) extra: u32,
}

impl Permissions {
    pub(crate) fn of_new(options: &Options, source: &Stat) -> Permissions {
        let mode = source.st_mode & 0o777;
        // Attributes of the user's want permission to write (xattr(7)).
        let extra = if options.preserve.xattr { 0o200 & !mode } else { 0 };
        Permissions { mode, omitted: omitted_at_first(options, source), extra }
    }

    pub(crate) fn at_first(self) -> u32 {
        (self.mode & !self.omitted) | self.extra
    }
}

impl Job {
    /// The source's size as it was when it was opened.
    pub(crate) fn size(&self) -> u64 {
        u64::try_from(self.source_stat.st_size).unwrap_or(0)
    }

    /// Whether the device has to be waited for: most of the source is not in memory.
    pub(crate) fn is_cold(&self) -> bool {
        let pages = self.size().div_ceil(rustix::param::page_size() as u64);
        2 * self.absent_pages > pages
    }

    pub(crate) fn text(&self, template: &str, names: &[&[u8]], errno: Errno) -> Line {
        Line::Error(compose(self.locale, template, names, Some(errno)))
    }

    pub(crate) fn read_error(&self, errno: Errno) -> Line {
        self.text("error reading %s", &[&self.source_path], errno)
    }

    pub(crate) fn write_error(&self, errno: Errno) -> Line {
        self.text("error writing %s", &[&self.copy_path], errno)
    }

    /// Sets attributes, gives the copy its name and closes, when the content is there, or only
    /// closes.
    pub(crate) fn end(self, moved: Result<(), Line>) -> Outcome {
        let (number, from) = (self.number, Identity::of(&self.source_stat));
        let mut lines = Vec::new();
        let mut ok = match moved {
            Ok(()) => self.finish(&mut lines),
            Err(line) => {
                lines.push(line);
                false
            }
        };
        let Job { copy, source: opened, source_path, source_stat, copy_path, .. } = self;
        let Job { locale, temporary, options, way, meter, .. } = self;
        drop(opened);
        let temporary = temporary.filter(|_| ok);
        if let Some(temporary) = temporary {
            let synced = if options.durable { retry(|| fsync(&copy)) } else { Ok(()) };
            let (template, named) = match synced {
                Ok(()) => ("cannot create regular file %s", temporary.commit(&copy)),
                Err(errno) => ("syncing %s", Err(errno)),
            };
            if let Err(errno) = named {
                lines.push(Line::Error(compose(locale, template, &[&copy_path], Some(errno))));
                ok = false;
            }
        }
        // Still shared only where a ring failed with operations in flight.
        let closed = match copy.into_owned() {
            Ok(copy) => nix::unistd::close(copy).map_err(|e| Errno::from_raw_os_error(e as i32)),
            Err(_shared) => Err(Errno::BUSY),
        };
        if let Err(errno) = closed {
            let text = compose(locale, "failed to close %s", &[&copy_path], Some(errno));
            lines.push(Line::Error(text));
            ok = false;
        }
        if ok {
            meter.add_file();
        }
        if options.json {
            let bytes = u64::try_from(source_stat.st_size).unwrap_or(0);
            lines.push(events::file((&source_path, &copy_path), bytes, way, ok));
        }
        let said = lines.into_iter().map(Item::Said).collect();
        Outcome { number, said, ok, source: Some(from), landed: None }
    }

    fn finish(&self, lines: &mut Vec<Line>) -> bool {
        let preserve = &self.options.preserve;
        let lacks_write = preserve.xattr && self.copy_stat.st_mode & 0o200 == 0;
        if lacks_write && !self.caller.is_root {
            // user.* attributes want permission to write (xattr(7)); the mode is set below.
            let _ = set_mode(To::from(&self.copy), 0o600);
        }
        let omitted = self.omitted & !self.caller.umask;
        let otherwise = if preserve.fresh_mode && self.is_new {
            Otherwise::Fresh(0o666)
        } else if omitted | self.extra != 0 {
            Otherwise::Exactly(self.mode & !self.caller.umask)
        } else if lacks_write {
            Otherwise::Exactly(self.copy_stat.st_mode)
        } else {
            Otherwise::Leave
        };
        let finish = Finish {
            options: &self.options,
            caller: self.caller,
            locale: self.locale,
            source: Of::from(&self.source),
            source_path: &self.source_path,
            source_stat: &self.found,
            copy: To::from(&self.copy),
            copy_path: &self.copy_path,
            copy_stat: (!self.is_new || self.has_owner()).then_some(&self.copy_stat),
            what: Copied::File,
            otherwise,
        };
        finish.run(lines)
    }

    fn has_owner(&self) -> bool {
        self.copy_stat.st_uid == self.found.st_uid && self.copy_stat.st_gid == self.found.st_gid
    }
}

/// What `--debug` says of a file.
pub(crate) fn plan_text(job: &Job, reason: &str) -> Vec<u8> {
    let reason = match (job.way, job.options.data, job.cloned) {
        ("whole", ..) => "it is there with the same content",
        (_, false, _) => "--attributes-only",
        (_, _, true) => "the file system can",
        _ => reason,
    };
    let mut text = job.locale.shell(&job.copy_path);
    text.extend_from_slice(format!(": {} ({reason})", job.way).as_bytes());
    text
}
