//! Names of backups, and files that become backups.

use rustix::{
    fs::{AtFlags, OFlags, Stat, fstatvfs, statat},
    io::Errno,
};

use super::state::{Copier, Existed, Visit};
use crate::{
    command::options::Backup,
    names::{
        listing::Listing,
        place::{Identity, Place, open_to_go_through, split},
    },
};

/// A name of this length fits into any file system (POSIX, _POSIX_NAME_MAX).
const ALWAYS_FITS_BYTES: usize = 14;

impl Copier {
    /// Moves what is at the target to a backup's name.
    pub(super) fn back_up(&self, target: &Place) -> Result<Place, Errno> {
        let backup = self.backup_place(target)?;
        let (parent, last) = split(target.name());
        let (_, name) = split(backup.name());
        if self.options.backup != Backup::Simple && name.len() > ALWAYS_FITS_BYTES {
            let directory = open_to_go_through(target.directory(), parent)?;
            let most = usize::try_from(fstatvfs(directory)?.f_namemax).unwrap_or(usize::MAX);
            if name.len() >= most {
                return self.back_up_shortened(target, &backup, (last, most));
            }
        }
        target.rename(&backup).map(|()| backup)
    }

    /// As GNU cp shortens a name: `~` behind as much of it as fits, but for one byte.
    fn back_up_shortened(
        &self,
        target: &Place,
        backup: &Place,
        (last, most): (&[u8], usize),
    ) -> Result<Place, Errno> {
        let kept = last.len().min(most.saturating_sub(2));
        let shortened = target.sibling(&[&last[..kept], b"~"].concat());
        let simple = [last, &self.options.suffix].concat();
        if self.options.backup == Backup::Existing && backup.path.ends_with(&simple) {
            target.rename(&shortened)?;
        } else {
            // Without its number it could be the name of another backup.
            target.rename_to_free(&shortened)?;
        }
        Ok(shortened)
    }

    /// Where a backup of the target goes.
    pub(super) fn backup_place(&self, target: &Place) -> Result<Place, Errno> {
        let (_, last) = split(target.name());
        let highest = match self.options.backup {
            Backup::Existing | Backup::Numbered => highest_number(target, last)?,
            Backup::Simple | Backup::None => 0,
        };
        let name = match (self.options.backup, highest) {
            (Backup::Numbered, _) | (Backup::Existing, 1..) => {
                [last, format!(".~{}~", highest + 1).as_bytes()].concat()
            }
            _ => [last, &self.options.suffix].concat(),
        };
        Ok(target.sibling(&name))
    }

    /// Whether the backup that is to be made would replace the source itself.
    pub(super) fn backup_would_hit_source(&self, visit: &Visit<'_>, source: &Stat) -> bool {
        if self.options.backup == Backup::Numbered {
            return false;
        }
        let (_, source_name) = split(visit.source.name());
        let (_, target_name) = split(visit.target.name());
        if source_name != [target_name, &self.options.suffix].concat() {
            return false;
        }
        let simple = visit.target.sibling(source_name);
        let stat = statat(simple.directory(), simple.name(), AtFlags::empty());
        stat.is_ok_and(|stat| Identity::of(&stat) == Identity::of(source))
    }

    /// Gives the target back what was moved away, since nothing took its place.
    pub(super) fn undo_backup(
        &mut self,
        visit: &Visit<'_>,
        existed: &Existed,
        source: Option<Identity>,
    ) {
        if let Some(source) = source {
            self.copied.remove(&source);
        }
        let Some(backup) = &existed.backup else { return };
        match backup.rename(&visit.target) {
            Err(errno) => {
                self.error("cannot un-backup %s", &[&visit.target.path], Some(errno));
            }
            Ok(()) if self.options.verbose => {
                let names = [&backup.path[..], &visit.target.path];
                self.report.out("%s -> %s (unbackup)", &names);
            }
            Ok(()) => {}
        }
    }
}

/// The highest number of a backup of `name`; 0 where there is none.
fn highest_number(target: &Place, name: &[u8]) -> Result<u64, Errno> {
    // A directory that cannot be listed shows none, to GNU cp too.
    let Ok(directory) = target.sibling(b".").open(OFlags::RDONLY | OFlags::DIRECTORY, 0) else {
        return Ok(0);
    };
    let mut listing = Listing::read(directory)?;
    let mut highest = 0;
    while let Some(other) = listing.take() {
        let middle = other.strip_prefix(name).and_then(|rest| rest.strip_prefix(b".~"));
        let digits = middle.and_then(|rest| rest.strip_suffix(b"~")).unwrap_or_default();
        let is_number = digits.first().is_some_and(|first| (b'1'..=b'9').contains(first))
            && digits.iter().all(u8::is_ascii_digit);
        if let (true, Ok(text)) = (is_number, str::from_utf8(digits)) {
            highest = highest.max(text.parse().unwrap_or(0));
        }
    }
    Ok(highest)
}
