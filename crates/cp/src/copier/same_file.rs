//! Whether source and destination are one file, and whether that matters.
//!
//! The rules are those that GNU cp shows: a file is never emptied by copying it onto itself, but
//! what replaces a name (a backup, a removal, a link) may be made of the file that bears it.

use rustix::fs::{FileType, Stat};

use super::state::{Copier, Visit};
use crate::{
    command::options::{Backup, Making},
    names::place::{Identity, Place, kind},
};

/// What follows from source and destination being one file, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sameness {
    /// They are not, or it does no harm.
    Harmless,
    Refused,
    /// The destination is already what it is to be.
    NothingToDo,
}

use Sameness::{Harmless, NothingToDo, Refused};

impl Copier {
    pub(super) fn sameness(&self, visit: &Visit<'_>, source: &Stat, target: &Stat) -> Sameness {
        let options = &self.options;
        let same = is_same(source, target);
        if same && options.making == Making::HardLink {
            return NothingToDo;
        }
        if options.never_follows(visit.is_named) {
            if is_link(source) && is_link(target) {
                return match (visit.source.is_same_name(&visit.target), options.backup, same) {
                    (true, ..) => Refused,
                    (false, Backup::None, true) => NothingToDo,
                    _ => Harmless,
                };
            }
            return self.sameness_of_names(visit, (source, target), (source, target));
        }
        if !same {
            return Harmless;
        }
        let (Ok(one), Ok(other)) = (visit.source.stat(false), visit.target.stat(false)) else {
            return Harmless;
        };
        if is_link(&one) && is_link(&other) && options.remove_before {
            return Harmless;
        }
        self.sameness_of_names(visit, (source, target), (&one, &other))
    }

    /// As files they are one, or it is not known; what of their names?
    fn sameness_of_names(
        &self,
        visit: &Visit<'_>,
        (source, target): (&Stat, &Stat),
        (source_link, target_link): (&Stat, &Stat),
    ) -> Sameness {
        let options = &self.options;
        let hard = options.making == Making::HardLink;
        let never = options.never_follows(visit.is_named);
        let same_link = is_same(source_link, target_link);
        let is_other_name = || !visit.source.is_same_name(&visit.target);
        let judge = |harmless| if harmless { Harmless } else { Refused };
        if options.backup != Backup::None {
            if same_link {
                return judge(is_other_name());
            }
            // The file that the link leads to would become the backup, and the link lead nowhere.
            return judge(never || !is_link(source_link) || is_link(target_link));
        }
        if options.remove_before {
            let is_one_of_many = same_link && target_link.st_nlink > 1 && is_other_name();
            if is_link(target_link) || is_one_of_many {
                return Harmless;
            }
        }
        if !is_link(source_link) && !is_link(target_link) {
            if !same_link {
                return Harmless;
            }
            if hard {
                return NothingToDo;
            }
        }
        if options.making == Making::SymbolicLink && is_link(target_link) {
            return Harmless;
        }
        if never {
            let ends = (followed(&visit.source, source), followed(&visit.target, target));
            let (Some(one), Some(other)) = ends else { return Harmless };
            if !is_same(&one, &other) {
                return Harmless;
            }
            if hard {
                return if is_link(target_link) { Harmless } else { NothingToDo };
            }
        }
        Refused
    }
}

fn followed(place: &Place, stat: &Stat) -> Option<Stat> {
    if is_link(stat) { place.stat(true).ok() } else { Some(*stat) }
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    Identity::of(one) == Identity::of(other)
}

fn is_link(stat: &Stat) -> bool {
    kind(stat) == FileType::Symlink
}
