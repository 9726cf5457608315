//! `--parents`: the directories of a source's path, made below the target first.

use rustix::{
    fs::{FileType, Mode, Stat, mkdirat},
    io::Errno,
};

use super::Copier;
use crate::{
    attributes::{Finish, MODE_BITS, Of, Otherwise, set_mode},
    place::{Place, join, kind, split},
};

/// A directory on the way, and what it is to become in the end.
struct Parent {
    source: Place,
    target: Place,
    stat: Stat,
    restore: bool,
}

/// Copies `source` below `directory` by its full path.
pub(super) fn copy(copier: &mut Copier, source: &[u8], directory: &[u8]) {
    let mut name = source;
    while name.len() > 1 && name.ends_with(b"/") {
        name = &name[..name.len() - 1];
    }
    let target = join(directory, name);
    let name_at = target.len() - trimmed(name).len();
    let mut parents = Vec::new();
    let mut is_new = false;
    let (above, _) = split(&target);
    let is_there = Place::typed(above.to_vec())
        .stat(true)
        .is_ok_and(|stat| kind(&stat) == FileType::Directory);
    if is_there {
        // All of them are: they stay as they are.
        copier.copy(Place::typed(source.to_vec()), Place::typed(target), is_new);
        return;
    }
    let lead = name.len() - trimmed(name).len();
    for (at, _) in target.iter().enumerate().skip(name_at).filter(|(_, byte)| **byte == b'/') {
        if target[at - 1] == b'/' {
            continue;
        }
        let from = Place::typed(name[..lead + at - name_at].to_vec());
        let to = Place::typed(target[..at].to_vec());
        match make(copier, from, to, &mut is_new) {
            Some(parent) => parents.push(parent),
            None => return,
        }
    }
    copier.copy(Place::typed(source.to_vec()), Place::typed(target), is_new);
    for parent in parents {
        protect(copier, &parent);
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
            return Some(Parent { source, target, stat, restore: false });
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
        copier.report.say(crate::report::Line::Out(line));
    }
    let made = match target.stat(false) {
        Ok(made) => made,
        Err(errno) => {
            copier.error("failed to get attributes of %s", &[&target.path], Some(errno));
            return None;
        }
    };
    copier.note_written(made.st_dev, rustix::fs::CWD, &target.path);
    let mut parent = Parent { source, target, stat, restore: false };
    if !preserve.mode {
        let wanted = mode & omitted & !copier.caller.umask;
        parent.restore = wanted & !made.st_mode != 0 || made.st_mode & 0o700 != 0o700;
        parent.stat.st_mode = made.st_mode | wanted;
    }
    if made.st_mode & 0o700 != 0o700
        && let Err(errno) = set_mode(Of::Named(&parent.target), made.st_mode | 0o700)
    {
        copier.error("setting permissions for %s", &[&parent.target.path], Some(errno));
        return None;
    }
    Some(parent)
}

/// Gives a directory on the way its attributes, when what goes into it is there.
fn protect(copier: &mut Copier, parent: &Parent) {
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
        copy: Of::Named(&parent.target),
        copy_path: &parent.target.path,
        copy_stat: None,
        is_link: false,
        is_directory: true,
        otherwise: if parent.restore { Otherwise::Exactly(mode) } else { Otherwise::Leave },
    };
    let mut lines = Vec::new();
    if !finish.run(&mut lines) {
        copier.failed = true;
    }
    lines.into_iter().for_each(|line| copier.report.say(line));
}
