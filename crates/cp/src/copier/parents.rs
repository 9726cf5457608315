//! `--parents`: the directories of a source's path, made below the target first.
//!
//! Each is made in the one above it as it was opened, and gets its attributes through a descriptor
//! when all below it has its own: whose it is to become could put a link in its place from then on.

use std::{os::fd::OwnedFd, sync::Arc};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat, mkdirat},
    io::Errno,
};

use super::{held::Held, state::Copier};
use crate::{
    attributes::{Copied, Finish, MODE_BITS, Of, Otherwise, set_mode},
    names::place::{Place, join, kind, split},
};

/// A directory on the way, and what it is to become in the end.
struct Parent {
    source: Place,
    target: Held,
    path: Vec<u8>,
    stat: Stat,
    restore: bool,
}

/// Copies `source` below `directory` by its full path.
pub(super) fn copy(
    copier: &mut Copier,
    source: &[u8],
    directory: &[u8],
    held: Option<&Arc<OwnedFd>>,
) {
    let mut name = source;
    while name.len() > 1 && name.ends_with(b"/") {
        name = &name[..name.len() - 1];
    }
    let target = join(directory, name);
    let name_at = target.len() - trimmed(name).len();
    let (above, _) = split(&target);
    let is_there = Place::typed(above.to_vec())
        .stat(true)
        .is_ok_and(|stat| kind(&stat) == FileType::Directory);
    if is_there {
        // All of them are: they stay as they are.
        copier.copy(Place::typed(source.to_vec()), Place::typed(target).pinned(), false);
        return;
    }
    let mut is_new = false;
    let lead = name.len() - trimmed(name).len();
    let mut parents: Vec<Parent> = Vec::new();
    let mut start = name_at;
    for (at, _) in target.iter().enumerate().skip(name_at).filter(|(_, byte)| **byte == b'/') {
        if at > start {
            let from = Place::typed(name[..lead + at - name_at].to_vec());
            let to = within(parents.last(), held, &target[..at], start);
            match make(copier, from, to, &mut is_new) {
                Some(parent) => {
                    // Paths have more parts than there are descriptors.
                    parents.iter_mut().for_each(|above| above.target.close());
                    parents.push(parent);
                }
                None => return,
            }
        }
        start = at + 1;
    }
    let to = within(parents.last(), held, &target, start);
    copier.copy(Place::typed(source.to_vec()), to, is_new);
    while let Some(parent) = parents.pop() {
        if let Some(above) = parents.last_mut()
            && let Err(errno) = above.target.reopen(&parent.target, &above.path)
        {
            copier.error("cannot access %s", &[&above.path], Some(errno));
        }
        protect(copier, &parent);
    }
}

/// A path whose name starts at `start`, in the directory above it as it was opened.
fn within(
    above: Option<&Parent>,
    first: Option<&Arc<OwnedFd>>,
    path: &[u8],
    start: usize,
) -> Place {
    let directory = match above {
        Some(above) => above.target.file(),
        None => first.cloned(),
    };
    match directory {
        Some(directory) => Place::part(directory, path.to_vec(), start),
        None => Place::typed(path.to_vec()),
    }
}

fn trimmed(name: &[u8]) -> &[u8] {
    let start = name.iter().position(|byte| *byte != b'/').unwrap_or(name.len());
    &name[start..]
}

fn make(copier: &mut Copier, source: Place, target: Place, is_new: &mut bool) -> Option<Parent> {
    let stat = match source.stat(true) {
        Ok(stat) if kind(&stat) == FileType::Directory => stat,
        other => {
            let errno = other.err().unwrap_or(Errno::NOTDIR);
            copier.error("failed to get attributes of %s", &[&source.path], Some(errno));
            return None;
        }
    };
    match target.stat(true) {
        Ok(there) if kind(&there) == FileType::Directory => {
            // By `..` a path may lead out of what was just made.
            *is_new = false;
            let (held, _) = open(copier, &target, OFlags::empty())?;
            return Some(Parent { source, target: held, path: target.path, stat, restore: false });
        }
        Ok(_) => {
            copier.error("%s exists but is not a directory", &[&target.path], None);
            return None;
        }
        Err(_) => *is_new = true,
    }
    let preserve = copier.options.preserve;
    let omitted = match (preserve.ownership, preserve.mode) {
        (true, _) => 0o077,
        (false, true) => 0o022,
        (false, false) => 0,
    };
    let mode = if preserve.fresh_mode { 0o777 } else { stat.st_mode & MODE_BITS };
    let made = mkdirat(target.directory(), target.name(), Mode::from_raw_mode(mode & !omitted));
    if let Err(errno) = made {
        copier.error("cannot make directory %s", &[&target.path], Some(errno));
        return None;
    }
    if copier.options.verbose {
        let line = [&source.path[..], b" -> ", &target.path].concat();
        copier.report.say(crate::messages::report::Line::Out(line));
    }
    let (held, made) = open(copier, &target, OFlags::NOFOLLOW)?;
    copier.note_directory(&held, &target.path);
    let mut parent = Parent { source, target: held, path: target.path, stat, restore: false };
    if !preserve.mode {
        let wanted = mode & omitted & !copier.caller.umask;
        parent.restore = wanted & !made.st_mode != 0 || made.st_mode & 0o700 != 0o700;
        parent.stat.st_mode = made.st_mode | wanted;
    }
    if made.st_mode & 0o700 != 0o700
        && let Some(to) = parent.target.attributes()
        && let Err(errno) = set_mode(to, made.st_mode | 0o700)
    {
        copier.error("setting permissions for %s", &[&parent.path], Some(errno));
        return None;
    }
    Some(parent)
}

fn open(copier: &mut Copier, target: &Place, flags: OFlags) -> Option<(Held, Stat)> {
    let opened = Held::open_with_stat(target, flags);
    let failed = |errno| {
        copier.error("failed to get attributes of %s", &[&target.path], Some(errno));
    };
    opened.map_err(failed).ok()
}

/// Gives a directory on the way its attributes, when what goes into it is there.
fn protect(copier: &mut Copier, parent: &Parent) {
    let Some(copy) = parent.target.attributes() else { return };
    let mode = parent.stat.st_mode & MODE_BITS;
    let mut options = (*copier.options).clone();
    options.preserve.xattr = false;
    let finish = Finish {
        options: &options,
        caller: copier.caller,
        locale: copier.report.locale,
        source: Of::Named(&parent.source),
        source_path: &parent.source.path,
        source_stat: &parent.stat,
        copy,
        copy_path: &parent.path,
        copy_stat: None,
        what: Copied::Parent,
        otherwise: if parent.restore { Otherwise::Exactly(mode) } else { Otherwise::Leave },
    };
    let mut lines = Vec::new();
    if !finish.run(&mut lines) {
        copier.failed = true;
    }
    lines.into_iter().for_each(|line| copier.report.say(line));
}
