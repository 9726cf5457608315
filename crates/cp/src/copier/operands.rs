//! Sources and the destination as they were named: which source goes to which path.

use std::{
    ffi::OsStr,
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Stat, statat},
    io::Errno,
};

use super::{
    parents,
    state::{Copier, Named},
};
use crate::{
    command::options::{Backup, Target},
    names::place::{Place, join, kind, open_to_go_through, split},
};

/// Why nothing is copied at all: a message, and whether to point to the help.
pub(crate) type Refusal = (Vec<u8>, bool);

impl Copier {
    /// Copies all that was named.
    pub(crate) fn copy_all(&mut self) -> Result<(), Refusal> {
        let target = match self.options.target.clone() {
            Target::Directory(directory) => {
                if let Err(errno) = directory_at(&directory) {
                    return Err(self.refused("target directory %s", &directory, errno));
                }
                Some(directory)
            }
            Target::Last(last) => match directory_at(&last) {
                Ok(()) => Some(last),
                Err(errno) if self.options.sources.len() > 1 => {
                    return Err(self.refused("target %s", &last, errno));
                }
                Err(_) => return self.copy_to(&last),
            },
            Target::Exactly(last) => return self.copy_to(&last),
        };
        if let Some(directory) = target {
            self.copy_into(&directory);
        }
        Ok(())
    }

    fn refused(&self, template: &str, name: &OsStr, errno: Errno) -> Refusal {
        let names = [name.as_bytes()];
        (crate::messages::report::compose(self.report.locale, template, &names, Some(errno)), false)
    }

    fn copy_into(&mut self, directory: &OsStr) {
        let sources = self.options.sources.clone();
        if sources.len() > 1 {
            self.named = Some(Named::default());
        }
        // Who may rename it must not lead the copy elsewhere half-way.
        let held = open_to_go_through(CWD, directory.as_bytes()).ok().map(Arc::new);
        for source in sources {
            let source = self.source_path(source.into_vec());
            if self.options.parents {
                parents::copy(self, &source, directory.as_bytes(), held.as_ref());
                continue;
            }
            let (_, last) = split(&source);
            // What is in the directory above goes into the target, not above it.
            let last = if last == b".." { b"." } else { last };
            let target = match &held {
                Some(held) if !last.is_empty() => {
                    Place::within(held.clone(), directory.as_bytes(), last)
                }
                _ => Place::typed(join(directory.as_bytes(), last)),
            };
            self.copy(Place::typed(source), target, false);
        }
    }

    fn copy_to(&mut self, target: &OsStr) -> Result<(), Refusal> {
        if self.options.parents {
            return Err((b"with --parents, the destination must be a directory".to_vec(), true));
        }
        // Slashes are stripped of what goes into a directory, as GNU cp does it.
        let source = self.options.sources[0].clone().into_vec();
        let mut target = Place::typed(target.as_bytes().to_vec()).pinned();
        let stat = target.stat(true);
        if self.options.remove_after_failure
            && self.options.backup != Backup::None
            && source == target.path
            && stat.is_ok_and(|stat: Stat| kind(&stat) == FileType::RegularFile)
            && let Ok(backup) = self.backup_place(&target)
        {
            // A backup of a file by copying it onto itself.
            target = backup;
            let mut options = (*self.options).clone();
            options.backup = Backup::None;
            self.options = Arc::new(options);
            self.copy(Place::typed(source), target, false);
            return Ok(());
        }
        self.copy(Place::typed(source), target, false);
        Ok(())
    }

    fn source_path(&self, mut path: Vec<u8>) -> Vec<u8> {
        while self.options.strip_trailing_slashes && path.len() > 1 && path.ends_with(b"/") {
            path.pop();
        }
        path
    }
}

fn directory_at(path: &OsStr) -> Result<(), Errno> {
    let stat = statat(CWD, path, AtFlags::empty())?;
    if kind(&stat) == FileType::Directory { Ok(()) } else { Err(Errno::NOTDIR) }
}
