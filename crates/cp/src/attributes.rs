//! Owners, times, extended attributes, ACLs and permissions, from a source to its copy.
//!
//! The order is the one that never leaves a copy open to more people than its source: times first
//! (nothing after them changes them), then the owner, then attributes (a capability does not
//! survive a change of owner), permissions last.
//!
//! Attributes are set through a descriptor and never by a name: whoever may write to the directory
//! could make the name lead to another's file, and have that given to him.

pub(crate) mod extended;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::{
    fs::{self, AtFlags, CWD, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid},
    io::Errno,
    process,
};

use crate::{
    command::options::Options,
    messages::{
        quoting::Locale,
        report::{Line, compose, errno_text},
    },
    names::place::{Place, kind},
};

/// Bits that chmod(2) sets.
pub(crate) const MODE_BITS: u32 = 0o7777;

const COPYING: &str = "preserving permissions for ";
const SETTING: &str = "setting permissions for ";
const GRANTING: &str = "preserving permissions for %s";

/// A file whose attributes are read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Of<'a> {
    File(To<'a>),
    /// By its name: what cannot be opened, a link itself included.
    Named(&'a Place),
}

/// A file whose attributes are set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    Open(BorrowedFd<'a>),
    /// Open without access to it (`O_PATH`): a link, a device, a directory that may not be read.
    Through(BorrowedFd<'a>),
}

/// Who runs this, as far as it decides what is an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) is_root: bool,
    pub(crate) umask: u32,
}

impl Caller {
    pub(crate) fn current() -> Caller {
        // There is no call that only reads it. Nothing else runs yet.
        let umask = process::umask(Mode::empty());
        process::umask(umask);
        Caller { is_root: process::geteuid().is_root(), umask: umask.as_raw_mode() }
    }
}

/// A copy whose content is there.
#[derive(Debug)]
pub(crate) struct Finish<'a> {
    pub(crate) options: &'a Options,
    pub(crate) caller: Caller,
    pub(crate) locale: Locale,
    pub(crate) source: Of<'a>,
    pub(crate) source_path: &'a [u8],
    /// What the source was when it was found.
    pub(crate) source_stat: &'a Stat,
    pub(crate) copy: To<'a>,
    pub(crate) copy_path: &'a [u8],
    /// What the copy was, where it was there before.
    pub(crate) copy_stat: Option<&'a Stat>,
    pub(crate) what: Copied,
    /// What to do where permissions are not preserved.
    pub(crate) otherwise: Otherwise,
}

/// What a copy is, as far as it decides what becomes of its attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    File,
    /// What has no content: a fifo, a socket, a device.
    Special,
    Link,
    Directory,
    /// A directory on the way to what is copied, made for `--parents`.
    Parent,
}

/// Permissions of a copy that does not get its source's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Otherwise {
    Leave,
    /// As a new file's.
    Fresh(u32),
    /// Set these.
    Exactly(u32),
    /// Add those of these that are not there, when all else is set.
    Grant(u32),
}

impl Finish<'_> {
    /// Sets what is to be preserved. False: something could not be that has to be. What is to be
    /// said about it goes into `lines`.
    pub(crate) fn run(&self, lines: &mut Vec<Line>) -> bool {
        let preserve = &self.options.preserve;
        let mut mode = self.source_stat.st_mode & MODE_BITS;
        if preserve.timestamps
            && let Err(errno) = self.set_times()
        {
            self.complain("preserving times for %s", errno, lines);
            if preserve.required {
                return false;
            }
        }
        if preserve.ownership && !self.has_owner_already() {
            match self.set_owner(lines) {
                Owned::Yes => {}
                // GNU cp leaves a directory on the way its bits, which run nothing.
                Owned::No if self.what == Copied::Parent => {}
                // Another's program must not run as us.
                Owned::No => mode &= !0o7000,
                Owned::Failed => return false,
            }
        }
        let lacks = preserve.xattr && !self.copy_extended(lines) && preserve.xattr_required;
        // GNU cp sets a file's permissions all the same, and no others.
        if lacks && self.what != Copied::File {
            return false;
        }
        if self.what == Copied::Link {
            return true;
        }
        let (template, set) = match (preserve.mode, self.otherwise) {
            (true, _) => (COPYING, self.copy_permissions(mode)),
            (false, Otherwise::Leave) => return !lacks,
            (false, Otherwise::Fresh(mode)) => {
                (SETTING, self.set_permissions(mode & !self.caller.umask, None))
            }
            (false, Otherwise::Exactly(mode)) => (GRANTING, self.set_mode(mode)),
            (false, Otherwise::Grant(wanted)) => (GRANTING, self.grant(wanted)),
        };
        let Err(errno) = set else { return !lacks };
        if template == GRANTING {
            self.complain(template, errno, lines);
        } else {
            // GNU cp quotes the name as a word here, and for a shell elsewhere.
            let name = self.locale.words(self.copy_path);
            let text = [template.as_bytes(), &name, b": ", errno_text(errno).as_bytes()].concat();
            lines.push(Line::Error(text));
        }
        !preserve.required && !lacks
    }

    fn grant(&self, wanted: u32) -> Result<(), Errno> {
        let now = self.mode_now()?;
        if wanted & !now == 0 { Ok(()) } else { self.set_mode(now | wanted) }
    }

    fn complain(&self, template: &str, errno: Errno, lines: &mut Vec<Line>) {
        lines.push(Line::Error(compose(self.locale, template, &[self.copy_path], Some(errno))));
    }

    fn set_times(&self) -> Result<(), Errno> {
        let times = times_of(self.source_stat);
        match self.copy {
            To::Open(file) => fs::futimens(file, &times),
            To::Through(file) => match fs::utimensat(file, "", &times, AtFlags::EMPTY_PATH) {
                // Before Linux 5.8 (do_utimes in fs/utimes.c).
                Err(Errno::INVAL) => fs::utimensat(CWD, through(file), &times, AtFlags::empty()),
                set => set,
            },
        }
    }

    fn has_owner_already(&self) -> bool {
        self.copy_stat.is_some_and(|copy| {
            copy.st_uid == self.source_stat.st_uid && copy.st_gid == self.source_stat.st_gid
        })
    }

    fn set_owner(&self, lines: &mut Vec<Line>) -> Owned {
        let preserve = &self.options.preserve;
        if let (true, Some(old)) = (preserve.mode && self.what != Copied::Link, self.copy_stat) {
            // A new owner must not get what the old permissions gave another.
            let both = old.st_mode & self.source_stat.st_mode & 0o700;
            if let Err(errno) = self.set_permissions(both, None) {
                if !self.is_allowed_to_fail(errno) {
                    self.complain("clearing permissions for %s", errno, lines);
                }
                return if preserve.required { Owned::Failed } else { Owned::No };
            }
        }
        let (uid, gid) = (self.source_stat.st_uid, self.source_stat.st_gid);
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let Err(errno) = self.chown(Some(uid), Some(gid)) else { return Owned::Yes };
        if self.is_allowed_to_fail(errno) {
            // The group alone is often ours to give.
            let _ = self.chown(None, Some(gid));
            return Owned::No;
        }
        self.complain("failed to preserve ownership for %s", errno, lines);
        if preserve.required { Owned::Failed } else { Owned::No }
    }

    /// Only root may give files away; for others it is no failure that they cannot.
    fn is_allowed_to_fail(&self, errno: Errno) -> bool {
        matches!(errno, Errno::PERM | Errno::INVAL) && !self.caller.is_root
    }

    fn chown(&self, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno> {
        match self.copy {
            To::Open(file) => fs::fchown(file, uid, gid),
            To::Through(file) => fs::chownat(file, "", uid, gid, AtFlags::EMPTY_PATH),
        }
    }

    fn mode_now(&self) -> Result<u32, Errno> {
        let (To::Open(file) | To::Through(file)) = self.copy;
        fs::fstat(file).map(|stat| stat.st_mode)
    }

    fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        set_mode(self.copy, mode)
    }
}

enum Owned {
    Yes,
    No,
    Failed,
}

/// Sets permission bits.
pub(crate) fn set_mode(of: To<'_>, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode & MODE_BITS);
    match of {
        To::Open(file) => fs::fchmod(file, mode),
        To::Through(file) => fs::chmodat(CWD, through(file), mode, AtFlags::empty()),
    }
}

/// Permissions that a new file is first made without: those that its owner is to grant only when
/// it is who it should be.
pub(crate) fn omitted_at_first(options: &Options, stat: &Stat) -> u32 {
    let mode = stat.st_mode & MODE_BITS;
    if options.preserve.ownership {
        mode & 0o077
    } else if kind(stat) == FileType::Directory {
        mode & 0o022
    } else {
        0
    }
}

/// A path to what is open, for calls that do not take its descriptor.
fn through(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// When the file was read and written last, to the nanosecond.
pub(crate) fn times_of(stat: &Stat) -> Timestamps {
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as i64),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as i64),
    }
}

impl<'a, F: AsFd> From<&'a F> for To<'a> {
    fn from(file: &'a F) -> To<'a> {
        To::Open(file.as_fd())
    }
}

impl<'a, F: AsFd> From<&'a F> for Of<'a> {
    fn from(file: &'a F) -> Of<'a> {
        Of::File(To::from(file))
    }
}
