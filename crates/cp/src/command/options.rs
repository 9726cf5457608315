//! What one run of `cp` is to do, after the command line was read and checked.
//!
//! Plain data: `command_line` makes it, everything else reads it. Which flag means what is there.

use std::ffi::OsString;

use crate::messages::progress::When;

/// Everything that the flags decide.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) backup: Backup,
    pub(crate) suffix: Vec<u8>,
    pub(crate) making: Making,
    pub(crate) dereference: Dereference,
    pub(crate) existing: Existing,
    pub(crate) update: Update,
    pub(crate) preserve: Preserve,
    pub(crate) sparse: Sparse,
    pub(crate) reflink: Reflink,
    /// Copy the data, not only the attributes.
    pub(crate) data: bool,
    /// Copy what fifos and devices give instead of making one.
    pub(crate) special_as_regular: bool,
    pub(crate) recursive: bool,
    pub(crate) one_file_system: bool,
    pub(crate) parents: bool,
    pub(crate) verbose: bool,
    pub(crate) debug: bool,
    pub(crate) strip_trailing_slashes: bool,
    /// `--remove-destination`.
    pub(crate) remove_before: bool,
    /// `--force`: remove a destination that could not be opened.
    pub(crate) remove_after_failure: bool,
    pub(crate) target: Target,
    pub(crate) engine: EngineChoice,
    pub(crate) jobs: Option<usize>,
    pub(crate) depth: Option<usize>,
    pub(crate) block_bytes: Option<usize>,
    /// Regular files get their names when they are whole.
    pub(crate) atomic: bool,
    pub(crate) durable: bool,
    pub(crate) verify: bool,
    /// What is there and whole is not copied again.
    pub(crate) resume: bool,
    pub(crate) json: bool,
    pub(crate) progress: When,
    pub(crate) sources: Vec<OsString>,
}

impl Options {
    /// Whether nothing is copied beside the first source.
    pub(crate) fn is_one_file(&self) -> bool {
        !self.recursive && self.sources.len() == 1
    }

    /// Whether no link is followed: for what is found in a directory, `-H` means that too.
    pub(crate) fn never_follows(&self, on_command_line: bool) -> bool {
        !self.follows(on_command_line)
    }

    /// Whether a symbolic link is followed where it was found.
    pub(crate) fn follows(&self, on_command_line: bool) -> bool {
        match self.dereference {
            Dereference::Always => true,
            Dereference::CommandLine => on_command_line,
            Dereference::Never => false,
        }
    }
}

/// Where the copies go.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// The last operand: a directory to copy into if it is one.
    Last(OsString),
    /// The last operand, never to be copied into (`-T`).
    Exactly(OsString),
    /// `-t DIRECTORY`.
    Directory(OsString),
}

impl Default for Target {
    fn default() -> Target {
        Target::Last(OsString::new())
    }
}

/// `--backup`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Backup {
    #[default]
    None,
    Simple,
    /// Numbered where there are numbered ones, else simple.
    Existing,
    Numbered,
}

/// What is made of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Making {
    #[default]
    Copy,
    HardLink,
    SymbolicLink,
}

/// Which symbolic links are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dereference {
    Never,
    CommandLine,
    #[default]
    Always,
}

/// What becomes of a destination that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Existing {
    #[default]
    Overwrite,
    /// `-i`.
    Ask,
    /// `-n`: kept, and nothing is wrong.
    Keep,
    /// `--update=none-fail`: kept, and that is an error.
    Refuse,
}

/// `--update`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Update {
    #[default]
    All,
    /// Only where the source is newer.
    Older,
}

/// `--sparse`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sparse {
    Never,
    #[default]
    Auto,
    Always,
}

/// `--reflink`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reflink {
    #[default]
    Auto,
    Always,
    Never,
}

/// `--engine`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EngineChoice {
    #[default]
    Auto,
    Uring,
    Sync,
}

/// Which attributes the copy gets from its source.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Preserve {
    pub(crate) mode: bool,
    pub(crate) ownership: bool,
    pub(crate) timestamps: bool,
    pub(crate) links: bool,
    pub(crate) xattr: bool,
    /// `--no-preserve=mode`: permissions as of a new file.
    pub(crate) fresh_mode: bool,
    /// A failure to preserve is a failure.
    pub(crate) required: bool,
    /// The same, for extended attributes.
    pub(crate) xattr_required: bool,
    /// `-a`: attributes that the file system cannot have are no news.
    pub(crate) quiet: bool,
}
