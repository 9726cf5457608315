//! A copy before it has its name: `--atomic`.
//!
//! Where nothing is to be replaced the file has no name at all (`O_TMPFILE`, open(2)) and is linked
//! when it is whole, so that even SIGKILL leaves nothing behind. Where something is, or the file
//! system has no such files, it has a temporary name beside its target and is renamed. Temporary
//! names are removed on failure and on SIGINT, SIGTERM and SIGHUP; after SIGKILL or a loss of power
//! one may be left: `.cp-PID-NUMBER`.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use indicatif::ProgressBar;
use rustix::{
    fs::{self, AtFlags, CWD, OFlags},
    io::Errno,
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};

use crate::names::place::Place;

/// Temporary names that are there. Whoever holds it keeps any from being made or renamed.
static NAMES: Mutex<BTreeMap<u64, Place>> = Mutex::new(BTreeMap::new());

/// A copy that is to get its name when it is whole. Dropped before, it goes away.
#[derive(Debug)]
pub(crate) struct Temporary {
    target: Place,
    existing: Existing,
    /// None: it has no name.
    number: Option<u64>,
}

/// What may be at the target when the copy gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// Nothing: what appeared meanwhile is kept.
    Nothing,
    Replaced,
}

impl Temporary {
    /// Makes a file for `target`, to be written.
    pub(crate) fn make(
        target: Place,
        existing: Existing,
        flags: OFlags,
        mode: u32,
    ) -> Result<(OwnedFd, Temporary), Errno> {
        if existing == Existing::Nothing
            && fs::statat(CWD, "/proc/self/fd", AtFlags::empty()).is_ok()
        {
            match target.sibling(b".").open(flags | OFlags::TMPFILE, mode) {
                Ok(file) => return Ok((file, Temporary { target, existing, number: None })),
                // This file system or kernel has none (open(2)).
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
                Err(errno) => return Err(errno),
            }
        }
        loop {
            let number = number();
            let place = target.sibling(name(number).as_bytes());
            let mut names = names();
            match place.open(flags | OFlags::CREATE | OFlags::EXCL, mode) {
                Ok(file) => {
                    names.insert(number, place);
                    return Ok((file, Temporary { target, existing, number: Some(number) }));
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Gives the whole file its name.
    pub(crate) fn commit(mut self, file: impl AsFd) -> Result<(), Errno> {
        let Some(number) = self.number else {
            let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
            let (directory, name) = (self.target.directory(), self.target.name());
            return fs::linkat(CWD, path, directory, name, AtFlags::SYMLINK_FOLLOW);
        };
        let mut names = names();
        let Some(place) = names.get(&number) else { return Err(Errno::NOENT) };
        match self.existing {
            Existing::Replaced => place.rename(&self.target)?,
            Existing::Nothing => place.rename_to_free(&self.target)?,
        }
        names.remove(&number);
        self.number = None;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        if let Some(place) = names().remove(&number) {
            // It failed already, and that is said.
            let _ = place.unlink();
        }
    }
}

/// A number that this process did not use yet in a temporary name.
pub(crate) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A temporary name.
pub(crate) fn name(number: u64) -> String {
    format!(".cp-{}-{number}", std::process::id())
}

fn names() -> MutexGuard<'static, BTreeMap<u64, Place>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on a signal that ends the process removes temporary names first, and a bar.
pub(crate) fn remove_on_signals(bar: Option<ProgressBar>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("signals cannot be caught: {error}");
    let ignored = ignored_signals();
    let is_heard = |signal: &i32| ignored >> (signal - 1) & 1 == 0;
    let heard = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(is_heard);
    let mut signals = Signals::new(heard).map_err(failed)?;
    let body = move || {
        for signal in signals.forever() {
            if let Some(bar) = &bar {
                bar.finish_and_clear();
            }
            // Held to the end: nothing is made or renamed any more.
            let names = names();
            for place in names.values() {
                let _ = place.unlink();
            }
            let _ = emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("signals".into()).spawn(body).map_err(failed)?;
    Ok(())
}

/// A bit for each signal that is ignored, as by nohup(1), and is to stay so (proc_pid_status(5)).
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
